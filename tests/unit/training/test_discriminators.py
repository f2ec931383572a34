"""Judges by themselves: what they score, what they learn, and how pictures are changed for them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from anytime.data.dataset import synthetic
from anytime.training.discriminators import PictureJudge, moved_pictures
from anytime.training.tasks.finetune import BETAS, hinge


@pytest.mark.parametrize(("size", "side"), [(16, 8), (28, 7), (32, 8), (64, 8)])
def test_a_judge_gives_every_place_a_score(size: int, side: int) -> None:
    verdict = PictureJudge(2, 3, size)(torch.rand(5, 3, size, size))
    assert [score.shape for score in verdict.scores] == [(5, 1, side, side)]
    assert verdict.features[-1].shape[-2:] == (side, side)
    assert [feature.shape[1] for feature in verdict.features] == [2 << level for level in range(len(verdict.features))]


@pytest.mark.parametrize(("size", "side"), [(16, 8), (28, 7), (32, 8), (64, 8)])
def test_a_judge_of_the_whole_says_one_thing_more(size: int, side: int) -> None:
    judge, x = PictureJudge(2, 3, size, whole=True), torch.rand(5, 3, size, size, requires_grad=True)
    verdict = judge(x)
    assert [score.shape for score in verdict.scores] == [(5, 1, side, side), (5, 1, 1, 1)]
    assert len(verdict.features) == len(PictureJudge(2, 3, size)(x).features) + 2
    (slope,) = torch.autograd.grad(verdict.scores[1][0].sum(), x)
    corners = slope[0, :, [1, 1, -2, -2], [1, -2, 1, -2]]
    assert corners.abs().sum(0).gt(0).all(), "it depends on all four corners"


def test_a_judge_soon_tells_blurred_pictures_from_sharp_ones() -> None:
    torch.manual_seed(0)
    judge, x = PictureJudge(8, 1, 28), synthetic("strokes", (1, 28, 28), count=64).pictures / 255.0
    blurred = nn.functional.avg_pool2d(x, 7, 1, 3)
    optimizer, losses = torch.optim.Adam(judge.parameters(), 2e-3, BETAS), []
    for _ in range(150):
        numbers = torch.rand(len(x), 8)
        loss = hinge(*(judge(moved_pictures(part, numbers)) for part in (x, blurred)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 1.9, "at first it cannot"
    assert sum(losses[-10:]) / 10 < 1.6


def test_pictures_are_moved_alike_and_gradients_pass() -> None:
    x = torch.rand(64, 3, 32, 32, requires_grad=True)
    unchanged = moved_pictures(x, torch.full((64, 8), 0.5))
    assert torch.equal(unchanged, x)
    numbers = torch.rand(64, 8, generator=torch.Generator().manual_seed(0))
    moved = moved_pictures(x, numbers)
    assert moved.shape == x.shape
    assert torch.equal(moved, moved_pictures(x, numbers))
    assert not torch.equal(moved, x)
    assert (moved == 0).all(1).flatten(1).any(1).float().mean() > 0.9, "moved or cut, something is missing from most"
    lit = moved_pictures(x, numbers, lighter=0.0, cut_out=0.0)
    assert not (lit[:, :, 8:24, 8:24] == 0).any(), "the middle is in every picture"
    assert (moved_pictures(x, numbers, lighter=0.1, cut_out=0.0) - lit).abs().max().item() == pytest.approx(0.1, abs=0.01)
    moved.sum().backward()
    assert x.grad is not None and (x.grad >= 0).all() and (x.grad > 0).float().mean() > 0.5
