"""The choice of engine, and the compiled engine against the eager one. The cuda engine's tests are in test_cuda.py."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anytime.core.errors import UserError
from anytime.model import AnytimeModel, _tiny, load
from anytime.sampling.budget import MemoryWarning
from anytime.sampling.engines.eager import EagerEngine


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    return AnytimeModel(_tiny()).save(tmp_path / "model")


def test_a_cpu_gets_the_eager_engine_by_default(folder: Path) -> None:
    assert load(folder, "cpu").engine.name == "eager"
    assert AnytimeModel(_tiny()).engine.name == "eager"


@pytest.mark.parametrize(
    ("engine", "precision", "said"),
    [
        ("egaer", None, "did you mean 'eager'"),
        ("cuda", None, "`engine` cuda needs an NVIDIA GPU"),
        ("eager", "bf16", "computes in fp32"),
        ("compiled", "fp16", "use fp32 or bf16"),
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


PROGRAM = """
import sys, torch, anytime
torch.set_num_threads(2)
model, compiled = anytime.load(sys.argv[1], "cpu"), anytime.load(sys.argv[1], "cpu", "compiled", sys.argv[2])
assert compiled.engine.name == "compiled" and compiled.engine.precision == sys.argv[2]
for n, settings in ((3, {}), (3, {"temperature": 0.7}), (20, {"temperature": 0.8, "top_k": 9, "top_p": 0.95})):
    full = model.sample(n, seed=5, **settings).codes
    codes = compiled.sample(n, seed=5, **settings).codes
    same = (full == codes).all(1).float().mean()
    if sys.argv[2] == "fp32":
        assert torch.equal(codes, full), (n, same)
        assert torch.equal(compiled.refine(compiled.sample(n, seed=5, codes=3, **settings)).codes, full)
        assert torch.equal(compiled.sample(n, seed=5, prefix=full[:, :2], **settings).codes, full)
        assert [s.codes.shape[1] for s in compiled.stream(n, seed=5, every=4)] == [4, 8]
    else:
        assert same > 0.3 and torch.equal(codes, compiled.sample(n, seed=5, **settings).codes)
    assert torch.equal(compiled.sample(n, seed=5, codes=4, **settings).codes, codes[:, :4])
print("all equal")
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling takes a C++ compiler")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_compiled_engine_samples_the_eager_codes(folder: Path, precision: str) -> None:
    """In its own process: compiled code has crashed before."""
    said = subprocess.run([sys.executable, "-c", PROGRAM, str(folder), precision], capture_output=True, text=True, timeout=280)
    assert said.stdout.strip() == "all equal", said.stderr[-2000:]
