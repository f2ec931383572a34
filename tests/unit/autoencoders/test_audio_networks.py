"""The audio networks: the paper's geometry, and a loss that ignores padding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from anytime.autoencoders.losses import vq_losses
from anytime.autoencoders.networks.residual_audio import AudioResidualBlock
from anytime.autoencoders.quantizer import QuantizerConfig
from anytime.autoencoders.truncation import Full
from anytime.autoencoders.vqvae import VQVAE, AutoencoderConfig
from anytime.core.errors import UserError
from anytime.recipes.modify import with_truncation
from anytime.recipes.presets import preset
from anytime.training.config import Recipe

SMALL = AutoencoderConfig(
    network="audio",
    shape=(1, 1024),
    length=16,
    dim=1,
    quantizer=QuantizerConfig(codebook_size=8),
    widths=(3, 4, 5, 6),
    kernels=(25,) * 5,
    strides=(4,) * 5,
)


def test_the_papers_geometry() -> None:
    """5 convolutions of width 25 and stride 4 with LeakyReLU 0.2; a dense layer to 60 positions, four ×4 layers, Tanh."""
    config = preset("vctk", "paper", (1, 15_360)).model.autoencoder
    assert (config.dim, config.spatial_shape, config.decoded_size) == (15, (15,), (15_360,))
    assert config.length % 16 == 0
    with torch.device("meta"):
        network = VQVAE(config)
    convolutions = [layer for layer in network.encoder if isinstance(layer, nn.Conv1d)]
    assert [(c.kernel_size, c.stride) for c in convolutions] == [((25,), (4,))] * 5
    assert [layer.negative_slope for layer in network.encoder if isinstance(layer, nn.LeakyReLU)] == [0.2] * 4
    upsample_conv = [layer for layer in network.decoder if isinstance(layer, nn.ConvTranspose1d)]
    assert [(c.kernel_size, c.stride) for c in upsample_conv] == [((25,), (4,))] * 4
    [dense] = [layer for layer in network.decoder if isinstance(layer, nn.Linear)]
    assert dense.out_features == 60 * 512
    assert isinstance(network.decoder[-1], nn.Tanh)


def test_shapes_of_encoder_and_decoder() -> None:
    torch.manual_seed(0)
    network = VQVAE(SMALL)
    x = torch.rand(2, 1, 1024) * 2 - 1
    assert network.latents(x).shape == (2, 16, 1)
    out = network(x, torch.tensor([3, 16]))
    assert out.x.shape == x.shape
    assert out.x.abs().max() <= 1


def test_every_code_reaches_every_sample() -> None:
    """The dense layer lets one code carry the global shape."""
    torch.manual_seed(0)
    network = VQVAE(SMALL)
    latents = torch.randn(1, 16, 1, requires_grad=True)
    x = network.decode_latents(latents)
    for place in (0, 512, 1023):
        [gradient] = torch.autograd.grad(x[0, 0, place], latents, retain_graph=True)
        assert (gradient != 0).all()


@pytest.mark.parametrize(
    "change", [{"shape": (1, 1000)}, {"shape": (1, 32, 32)}, {"blocks": 1}, {"kernels": (3,) * 5}, {"network": "image"}]
)
def test_impossible_shapes_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(UserError, match="autoencoder"):
        replace(SMALL, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_padding_changes_no_term_of_the_loss_and_gets_no_gradient(reduction: str) -> None:
    torch.manual_seed(0)
    network, keep = VQVAE(SMALL), torch.tensor([5, 9])
    x = torch.rand(2, 1, 1024) - 0.5
    mask = torch.ones_like(x)
    mask[0, :, 600:] = 0
    with torch.no_grad():
        quantized = network(x, keep).quantized
    x_hat = torch.rand(2, 1, 1024, requires_grad=True)
    other = torch.where(mask.bool(), x_hat, torch.rand(2, 1, 1024))
    first, second = (vq_losses(x, y, quantized, keep, reduction, mask) for y in (x_hat, other))  # type: ignore[arg-type]
    assert torch.equal(first.total, second.total)
    assert float(first.reconstruction[0].detach()) == pytest.approx(
        float((x - x_hat.detach())[0, :, :600].square().mean()), rel=1e-5
    )
    [gradient] = torch.autograd.grad(first.total.sum(), x_hat)
    assert (gradient[0, 0, 600:] == 0).all()
    assert (gradient[1] != 0).any()
    whole = vq_losses(x, x_hat, quantized, keep, reduction)  # type: ignore[arg-type]
    assert torch.equal(whole.total[1], vq_losses(x, x_hat, quantized, keep, reduction, mask).total[1])  # type: ignore[arg-type]


RESIDUAL = replace(
    SMALL, network="residual-audio", widths=(3, 4, 5, 6, 7), kernels=(25, 8, 8, 8, 8, 3), strides=(4,) * 5 + (1,), blocks=2
)


def test_shapes_of_the_residual_networks() -> None:
    torch.manual_seed(0)
    network = VQVAE(RESIDUAL)
    x = torch.rand(2, 1, 1024) * 2 - 1
    assert network.latents(x).shape == (2, 16, 1)
    assert network(x, torch.tensor([3, 16])).x.shape == x.shape
    assert not any(isinstance(layer, nn.Linear) for layer in network.modules())
    latents = torch.randn(1, 16, 1, requires_grad=True)
    for place in (0, 512, 1023):
        [gradient] = torch.autograd.grad(network.decode_latents(latents)[0, 0, place], latents)
        assert (gradient != 0).all()


def test_residual_blocks_start_as_the_identity_and_learn() -> None:
    torch.manual_seed(0)
    network, plain = VQVAE(RESIDUAL), VQVAE(replace(RESIDUAL, blocks=0))
    layers = [layer for layer in network.decoder if not isinstance(layer, AudioResidualBlock)]
    x = torch.rand(2, 1, 1024)
    plain.load_state_dict(
        {
            **{f"decoder.{i}.{name}": value for i, layer in enumerate(layers) for name, value in layer.state_dict().items()},
            **{name: value for name, value in plain.state_dict().items() if not name.startswith("decoder")},
        }
    )
    latents = torch.randn(2, 16, 1)
    assert torch.equal(network.decode_latents(latents), plain.decode_latents(latents))
    (network.decode_latents(latents) - x).square().mean().backward()
    block = next(layer for layer in network.decoder if isinstance(layer, AudioResidualBlock))
    assert block.block[-1].weight.grad.abs().sum() > 0


def test_our_recipe_has_the_papers_code_budget() -> None:
    ours, papers = (preset("audiomnist", which, (1, 15_360)) for which in ("best", "paper"))  # type: ignore[arg-type]
    for name in ("length", "dim", "shape", "layout"):
        assert getattr(ours.model.autoencoder, name) == getattr(papers.model.autoencoder, name)
    assert ours.model.autoencoder.quantizer.codebook_size == papers.model.autoencoder.quantizer.codebook_size
    assert (papers.finetune, papers.prior.augmentations, papers.ordered.spectral_weight) == (None, 1, 0)
    assert ours.finetune is not None and ours.ordered.spectral_weight > 0
    unordered = with_truncation(ours, Full())
    assert unordered.finetune is not None
    assert unordered.ordered.truncation == unordered.finetune.truncation == Full()
    assert unordered.pretrain == ours.pretrain, "which they share"


@pytest.mark.parametrize("which", ["paper", "best"])
def test_activations_keep_their_scale_in_a_new_network(which: Recipe) -> None:
    torch.manual_seed(0)
    network = VQVAE(preset("audiomnist", which, (1, 15_360)).model.autoencoder).eval()

    def size(x: torch.Tensor) -> float:
        return float(x.square().mean().sqrt())

    with torch.no_grad():
        x = 0.1 * torch.randn(4, 1, 15_360)
        latents = network.latents(x)
        assert 0.2 < size(latents) / size(x) < 5
        assert 0.02 < size(network.decode_latents(latents)) / size(latents) < 0.5, "the initial output is quiet"
