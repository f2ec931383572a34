"""The choice of engine. The packed engine's tests are in test_packed.py, the cuda engine's in test_cuda.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anytime.core.errors import UserError
from anytime.model import AnytimeModel, _tiny, load
from anytime.priors import LSTMConfig, PixelCNNConfig, build
from anytime.sampling.budget import MemoryWarning
from anytime.sampling.engines.eager import EagerEngine
from anytime.sampling.engines.registry import choose_engine


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    return AnytimeModel(_tiny()).save(tmp_path / "model")


def test_a_cpu_gets_the_packed_engine_in_fp32_by_default(folder: Path) -> None:
    assert (load(folder, "cpu").engine.name, load(folder, "cpu").engine.precision) == ("packed", "fp32")
    assert AnytimeModel(_tiny()).engine.name == "eager"


@pytest.mark.parametrize(
    "config", [LSTMConfig(length=8, codebook_size=16, width=8), PixelCNNConfig(length=9, codebook_size=16, side=3)]
)
def test_other_priors_get_the_eager_engine(config: LSTMConfig | PixelCNNConfig) -> None:
    prior = build(config)
    assert choose_engine(None, None, prior, torch.device("cpu")) == ("eager", "fp32")
    with pytest.raises(UserError, match="packed needs a Transformer prior"):
        choose_engine("packed", None, prior, torch.device("cpu"))


def test_what_the_packed_engine_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    prior = build(_tiny().prior)
    with pytest.raises(UserError, match="packed is for CPUs"):
        choose_engine("packed", None, prior, torch.device("cuda"))
    monkeypatch.setattr("anytime.sampling.engines.registry.has_bf16", lambda: False)
    assert choose_engine("packed", "fp32", prior, torch.device("cpu")) == ("packed", "fp32")
    with pytest.raises(UserError, match="`precision` bf16 needs a processor"):
        choose_engine(None, "bf16", prior, torch.device("cpu"))


def test_the_megakernel_is_asked_for_by_name_and_is_never_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    prior, gpu = build(_tiny().prior), torch.device("cuda")
    monkeypatch.setattr("anytime.sampling.engines.registry._has_triton", lambda: True)
    assert choose_engine(None, None, prior, gpu) == ("cuda", "bf16")
    assert choose_engine("megakernel", None, prior, gpu) == ("megakernel", "bf16")
    assert choose_engine("megakernel", "fp32", prior, gpu) == ("megakernel", "fp32")


@pytest.mark.parametrize(
    ("engine", "precision", "said"),
    [
        ("egaer", None, "did you mean 'eager'"),
        ("cuda", None, "`engine` cuda needs an NVIDIA GPU"),
        ("megakernel", None, "`engine` megakernel needs an NVIDIA GPU"),
        ("eager", "bf16", "computes in fp32"),
        ("packed", "fp16", "use fp32 or bf16"),
    ],
)
def test_an_impossible_engine_is_refused(folder: Path, engine: str, precision: str | None, said: str) -> None:
    with pytest.raises(UserError, match=said):
        _ = load(folder, "cpu", engine, precision).engine  # type: ignore[arg-type]


def test_training_forgets_the_engine_and_its_copies_of_the_weights(folder: Path) -> None:
    model = load(folder, "cpu")
    before, engine = model.sample(4).codes, model.engine
    with torch.no_grad():
        for parameter in model.train().prior.parameters():
            parameter += torch.randn_like(parameter)
    assert model.engine is not engine
    assert not torch.equal(model.sample(4).codes, before)
    assert model.hash != load(folder, "cpu").hash


def test_a_microbatch_that_does_not_fit_is_halved_with_a_warning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, start = load(folder, "cpu"), EagerEngine.start
    whole = model.sample(300, seed=1)

    def small(engine: EagerEngine, request: object) -> object:
        if len(request.rows) > 100:  # type: ignore[attr-defined]
            raise torch.OutOfMemoryError("CUDA out of memory")
        return start(engine, request)  # type: ignore[arg-type]

    monkeypatch.setattr(EagerEngine, "start", small)
    with pytest.warns(MemoryWarning, match="rows do not fit into memory; continuing with") as said:
        sample = model.sample(300, seed=1)
    assert [str(w.message)[:9] for w in said] == ["300 rows ", "150 rows "]
    assert torch.equal(sample.codes, whole.codes)
    assert torch.equal(sample.rows, whole.rows)
    request = replace(whole, codes=whole.codes[:, :2], session=None)
    with pytest.warns(MemoryWarning, match="rows do not fit into memory"):
        assert torch.equal(model.refine(request).codes, whole.codes)
    monkeypatch.setattr(EagerEngine, "start", lambda *_: (_ for _ in ()).throw(RuntimeError("another error")))
    with pytest.raises(RuntimeError, match="another error"):
        model.sample(2)
