from __future__ import annotations

import pytest
import torch

from anytime.baselines import density
from anytime.baselines.continuous_transformer import ContinuousConfig
from anytime.baselines.density import DensityConfig, DensityModel, held_out_bits_per_dim


@pytest.mark.parametrize("space", ["pixels", "pca"])
def test_bits_per_dim_use_noise_per_image(space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever batches, whoever comes before; another seed dequantises otherwise."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        prior = ContinuousConfig(length=16, layers=1, width=8, hidden=16, heads=2, mixtures=2)
        model = DensityModel(DensityConfig(name="tiny", shape=(1, 4, 4), space=space, prior=prior)).eval()  # type: ignore[arg-type]
    x = torch.randint(256, (10, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    model.fit_space(x)
    whole = held_out_bits_per_dim(model, x, seed=3)
    monkeypatch.setattr(density, "SEQUENCES", 3)
    assert held_out_bits_per_dim(model, x, seed=3) == pytest.approx(whole, abs=1e-5)
    assert held_out_bits_per_dim(model, x, seed=4) != whole
    assert held_out_bits_per_dim(model, x[:5], seed=3) != pytest.approx(whole, abs=1e-5)
