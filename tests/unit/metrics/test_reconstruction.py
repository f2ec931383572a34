from __future__ import annotations

import pytest
import torch

from anytime.baselines import pca
from anytime.baselines.vae import VAE
from anytime.data.loader import to_float
from anytime.metrics import reconstruction
from anytime.metrics.reconstruction import error_by_codes, error_by_row, mean_errors
from anytime.model import AnytimeModel
from anytime.recipes.baselines import vae


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.randint(256, (11, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_errors_of_principal_components(x: torch.Tensor) -> None:
    fitted = pca.fit(x, 10)
    found = mean_errors(x, range(11), fitted.encode, fitted.decode, torch.device("cpu"))
    assert found == sorted(found, reverse=True)
    assert found[10] == pytest.approx(0, abs=1e-12), "ten directions span eleven images about their mean"
    pixels = to_float(x).flatten(1).double()
    assert found[0] == pytest.approx(float((pixels - pixels.mean(0)).square().mean()), rel=1e-5)


def test_row_errors_sum_to_the_image_error(tiny: AnytimeModel, x: torch.Tensor) -> None:
    by_row, (whole,) = error_by_row(tiny, x, 3), error_by_codes(tiny, x, [3])
    assert len(by_row) == 28
    assert sum(by_row) / 28 == pytest.approx(whole)


@torch.no_grad()
def test_errors_of_a_vae_are_those_of_its_mean_code(x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, pixels = VAE(vae("digits", (1, 28, 28), "smoke").model).eval(), to_float(x)
    monkeypatch.setattr(reconstruction, "BATCH", 4)
    latents = model.posterior(pixels).mean
    expected = []
    for count in (0, 3, 16):
        cut = latents.clone()
        cut[:, count:] = 0
        expected.append(float((model.decode_latents(cut) - pixels).double().square().mean()))
    assert mean_errors(x, [0, 3, 16], model.latents, model.decode, model.device) == pytest.approx(expected, rel=1e-5)
    assert len(set(expected)) == 3
