"""Results do not depend on the caller's inference mode, autocast or gradients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch

from anytime.model import AnytimeModel, load
from anytime.sampling.budget import Budget

Mode = Callable[[], AbstractContextManager[object]]
MODES: dict[str, Mode] = {
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    return MODES[request.param]


def test_sampling_in_a_mode(tiny: AnytimeModel, mode: Mode) -> None:
    full = tiny.sample(4, seed=2)
    with mode():
        inside, coarse = tiny.sample(4, seed=2), tiny.sample(4, seed=2, codes=3)
        streamed = list(tiny.stream(4, seed=2, every=3))[-1]
        session = tiny.session(4, seed=2, prefix=full.codes[:, :1].clone())
    for sample in (inside, streamed, tiny.refine(coarse), session.run(Budget(codes=8))):
        assert torch.equal(sample.codes, full.codes)
        assert torch.equal(sample.data, full.data)
        assert not sample.data.is_inference()
    with mode():
        assert torch.equal(tiny.refine(tiny.sample(4, seed=2, codes=3)).codes, full.codes)


@pytest.mark.filterwarnings("ignore::anytime.DeadlineWarning")
def test_a_deadline_in_a_mode(tiny: AnytimeModel, mode: Mode) -> None:
    full = tiny.sample(600, seed=2)
    with mode():
        assert torch.equal(tiny.sample(600, seed=2, within=600.0).codes, full.codes)


def test_a_mode_that_begins_between_two_steps(tiny: AnytimeModel, mode: Mode) -> None:
    full, coarse = tiny.sample(4, seed=2), tiny.sample(4, seed=2, codes=3)
    with mode():
        assert torch.equal(tiny.refine(coarse).codes, full.codes)


def test_encoding_and_decoding_in_a_mode(tiny: AnytimeModel, mode: Mode) -> None:
    x = torch.rand(64, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    codes = tiny.encode(x)
    x_hat = tiny.decode(codes)
    with mode():
        assert torch.equal(tiny.encode(x), codes)
        assert torch.equal(tiny.decode(codes), x_hat)


def test_the_nearest_entry_is_found_in_float32(tiny: AnytimeModel) -> None:
    latents = torch.randn(256, 8, 49, generator=torch.Generator().manual_seed(0))
    nearest = tiny.autoencoder.quantizer.nearest(latents)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(tiny.autoencoder.quantizer.nearest(latents), nearest)


def test_a_model_that_is_loaded_in_a_mode(saved: Path, tiny: AnytimeModel, mode: Mode) -> None:
    with mode():
        model = load(saved)
    assert not any(parameter.is_inference() for parameter in model.parameters())
    assert torch.equal(model.refine(model.sample(3, codes=2)).codes, tiny.sample(3).codes)


def test_another_default_type(saved: Path, tiny: AnytimeModel) -> None:
    full = tiny.sample(4, top_k=9, top_p=0.9)
    torch.set_default_dtype(torch.float64)
    try:
        for model in (tiny, load(saved)):
            sample = model.sample(4, top_k=9, top_p=0.9)
            assert torch.equal(sample.codes, full.codes)
            torch.testing.assert_close(sample.data, full.data, atol=1e-5, rtol=0.0)  # the dtype is compared too
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("engine", ["eager", "packed", "onnx"])
@pytest.mark.parametrize("n", [1, 4])
def test_another_default_device(saved: Path, n: int, engine: str) -> None:
    """A single row takes several codes a pass, whose mask must be on the CPU too."""
    model = load(saved, "cpu", engine)
    full = model.sample(n)
    with torch.device("meta"):
        sample = model.refine(model.sample(n, codes=3))
    assert torch.equal(sample.codes, full.codes)
    assert sample.rows.tolist() == list(range(n))


def test_a_part_in_training_mode(tiny: AnytimeModel) -> None:
    """Dropout would change the codes."""
    full = tiny.sample(4)
    tiny.prior.train()
    assert torch.equal(tiny.sample(4).codes, full.codes)
    assert not tiny.prior.training
