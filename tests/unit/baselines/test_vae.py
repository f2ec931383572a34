from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anytime import load
from anytime.baselines.vae import VAE, Posterior, VAEConfig, load_vae
from anytime.core.errors import UserError
from anytime.model import AnytimeModel
from anytime.recipes.presets import preset

SMALL = VAEConfig(
    name="tiny", shape=(1, 12, 12), length=5, widths=(4, 6), kernels=(4, 4, 3), strides=(2, 2, 1), variance=0.04
)  # fmt: skip


@pytest.fixture(scope="module")
def vae() -> VAE:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return VAE(SMALL).eval()


def test_the_divergence_is_the_gaussians() -> None:
    generator = torch.Generator().manual_seed(1)
    mean, log_variance = torch.randn(2, 3, 4, 5, generator=generator).unbind()
    ours = Posterior(mean, log_variance).kl()
    theirs = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean, torch.exp(0.5 * log_variance)), torch.distributions.Normal(0.0, 1.0)
    ).sum(-1)
    torch.testing.assert_close(ours, theirs)


def test_a_draw_has_the_posteriors_moments() -> None:
    posterior = Posterior(torch.full((1, 1, 1), 2.0), torch.full((1, 1, 1), math.log(9.0)))
    sampled = posterior.rsample(torch.randn(20_000, 1, 1, generator=torch.Generator().manual_seed(0)))
    assert float(sampled.mean()) == pytest.approx(2, abs=0.1)
    assert float(sampled.std()) == pytest.approx(3, abs=0.1)


@torch.no_grad()
def test_the_losses_are_the_bound_by_hand(vae: VAE) -> None:
    """−log p(x | z_{<=i}) + KL over the first i groups, by torch's own distributions."""
    generator = torch.Generator().manual_seed(2)
    x, noise = torch.rand(3, 1, 12, 12, generator=generator), torch.randn(3, 5, 9, generator=generator)
    keep = torch.tensor([1, 3, 5])
    losses, posterior = vae(x, keep, noise), vae.posterior(x)
    for row, k in enumerate(keep.tolist()):
        latents = posterior.rsample(noise)[row : row + 1, :k]
        normal = torch.distributions.Normal(vae.decode(latents), 0.2)
        reconstruction = -normal.log_prob(x[row : row + 1]).sum() / 144
        kl = posterior.kl()[row, :k].sum() / 144
        torch.testing.assert_close(losses.reconstruction[row], reconstruction, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(losses.kl[row], kl)
        torch.testing.assert_close(losses.total[row], reconstruction + kl, atol=1e-5, rtol=1e-5)


def test_the_mean_code_is_what_it_encodes_to(vae: VAE) -> None:
    x = torch.rand(2, 1, 12, 12, generator=torch.Generator().manual_seed(3))
    assert torch.equal(vae.latents(x), vae.posterior(x).mean)
    assert vae.latents(x).shape == (2, 5, 9)
    assert not hasattr(vae, "codes") and not hasattr(vae, "encode")


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64)])
def test_its_networks_are_the_vq_models(shape: tuple[int, int, int]) -> None:
    """But for the encoder's last layer, which has a mean and a variance to say."""
    like = preset("any", "paper", shape).model
    autoencoder = like.autoencoder
    config = VAEConfig(
        name="any", shape=shape, length=autoencoder.length, widths=autoencoder.widths,
        kernels=autoencoder.kernels, strides=autoencoder.strides,
    )  # fmt: skip
    with torch.device("meta"):
        ours, theirs = VAE(config), AnytimeModel(like).autoencoder
    assert config.dim == autoencoder.dim
    for name, tensor in theirs.decoder.state_dict().items():
        assert ours.decoder.state_dict()[name].shape == tensor.shape
    different = [
        name for name, tensor in theirs.encoder.state_dict().items() if ours.encoder.state_dict()[name].shape != tensor.shape
    ]
    assert [name.partition(".")[2] for name in different] == ["weight", "bias"]


def test_saved_and_loaded_is_the_same(vae: VAE, tmp_path: Path) -> None:
    directory = vae.save(tmp_path / "a")
    again = load_vae(directory)
    assert again.config == vae.config
    assert (again.save(tmp_path / "b") / "model.safetensors").read_bytes() == (directory / "model.safetensors").read_bytes()
    assert sorted(path.name for path in directory.iterdir()) == ["config.json", "model.safetensors"]
    assert json.loads((directory / "config.json").read_text())["format"] == 1


def test_it_has_no_codes_to_sample(vae: VAE, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is a VAE and has no codes to sample"):
        load(vae.save(tmp_path))


def test_a_directory_without_a_vae_is_refused(tiny: AnytimeModel, vae: VAE, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"another kind of model than vae"):
        load_vae(copy.deepcopy(tiny).save(tmp_path / "codes"))
    with pytest.raises(UserError, match=r"is not a saved model: it holds no model\.safetensors"):
        load_vae(tmp_path)
    directory = vae.save(tmp_path / "vae")
    VAE(replace(SMALL, length=4)).save(tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").replace(directory / "model.safetensors")
    with pytest.raises(UserError, match=r"does not fit its config\.json"):
        load_vae(directory)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"variance": 0.0}, "variance"),
        ({"variance": math.nan}, "variance"),
        ({"length": 0}, "length"),
        ({"widths": (4,)}, "kernels"),
        ({"shape": (1, 13, 13)}, "multiple"),
    ],
)
def test_shapes_that_cannot_be(change: dict[str, float], named: str) -> None:
    with pytest.raises(UserError, match=named):
        replace(SMALL, **change)
