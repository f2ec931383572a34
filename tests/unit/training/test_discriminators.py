"""Discriminators: their logits, what they learn, and the augmentation of their inputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from anytime.data.synthetic import synthetic_images
from anytime.training.discriminators import ImageDiscriminator, augment_for_discriminator
from anytime.training.tasks.finetune import BETAS, hinge


@pytest.mark.parametrize(("size", "side"), [(16, 8), (28, 7), (32, 8), (64, 8)])
def test_the_discriminator_returns_a_logit_map(size: int, side: int) -> None:
    output = ImageDiscriminator(2, 3, size)(torch.rand(5, 3, size, size))
    assert [logit.shape for logit in output.logits] == [(5, 1, side, side)]
    assert output.features[-1].shape[-2:] == (side, side)
    assert [feature.shape[1] for feature in output.features] == [2 << level for level in range(len(output.features))]


@pytest.mark.parametrize(("size", "side"), [(16, 8), (28, 7), (32, 8), (64, 8)])
def test_the_global_head_adds_one_logit(size: int, side: int) -> None:
    discriminator, x = ImageDiscriminator(2, 3, size, global_head=True), torch.rand(5, 3, size, size, requires_grad=True)
    output = discriminator(x)
    assert [logit.shape for logit in output.logits] == [(5, 1, side, side), (5, 1, 1, 1)]
    assert len(output.features) == len(ImageDiscriminator(2, 3, size)(x).features) + 2
    (gradient,) = torch.autograd.grad(output.logits[1][0].sum(), x)
    corners = gradient[0, :, [1, 1, -2, -2], [1, -2, 1, -2]]
    assert corners.abs().sum(0).gt(0).all(), "it depends on all four corners"


def test_the_discriminator_learns_to_tell_blurred_from_sharp_images() -> None:
    torch.manual_seed(0)
    discriminator, x = ImageDiscriminator(8, 1, 28), synthetic_images("strokes", (1, 28, 28), count=64).images / 255.0
    blurred = nn.functional.avg_pool2d(x, 7, 1, 3)
    optimizer, losses = torch.optim.Adam(discriminator.parameters(), 2e-3, BETAS), []
    for _ in range(150):
        uniforms = torch.rand(len(x), 8)
        loss = hinge(*(discriminator(augment_for_discriminator(part, uniforms)) for part in (x, blurred)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 1.9, "at first it cannot"
    assert sum(losses[-10:]) / 10 < 1.6


def test_augmentation_is_deterministic_and_differentiable() -> None:
    x = torch.rand(64, 3, 32, 32, requires_grad=True)
    unchanged = augment_for_discriminator(x, torch.full((64, 8), 0.5))
    assert torch.equal(unchanged, x)
    uniforms = torch.rand(64, 8, generator=torch.Generator().manual_seed(0))
    augmented = augment_for_discriminator(x, uniforms)
    assert augmented.shape == x.shape
    assert torch.equal(augmented, augment_for_discriminator(x, uniforms))
    assert not torch.equal(augmented, x)
    assert (augmented == 0).all(1).flatten(1).any(1).float().mean() > 0.9, "most images are shifted or have a square cut out"
    shifted, brighter = uniforms.clone(), uniforms.clone()
    shifted[:, 3:5] = torch.tensor([0.5, 0.25])  # neither brighter nor cut
    brighter[:, 3:5] = torch.tensor([0.6, 0.25])
    base = augment_for_discriminator(x, shifted)
    assert not (base[:, :, 8:24, 8:24] == 0).any(), "the middle is in every image"
    assert (augment_for_discriminator(x, brighter) - base).abs().max().item() == pytest.approx(0.1, abs=1e-6)
    augmented.sum().backward()
    assert x.grad is not None and (x.grad >= 0).all() and (x.grad > 0).float().mean() > 0.5
