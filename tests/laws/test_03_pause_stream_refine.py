"""Law 3, continued. Pausing, streaming, refining and one run give the same codes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from anytime.core.errors import UserError
from anytime.model import AnytimeModel

SETTINGS = [{}, {"temperature": 0.8, "top_k": 9, "top_p": 0.95}]
NAMES = ["plain", "filtered"]


@pytest.mark.parametrize("settings", SETTINGS, ids=NAMES)
@pytest.mark.parametrize("every", [1, 3, 8, 20])
def test_a_stream_yields_prefixes_of_one_run(model: AnytimeModel, every: int, settings: dict[str, Any]) -> None:
    full = model.sample(3, seed=5, **settings)
    seen = list(model.stream(3, seed=5, every=every, **settings))
    assert [sample.codes.shape[1] for sample in seen] == [*range(every, model.length, every), model.length]
    for sample in seen:
        count = sample.codes.shape[1]
        assert torch.equal(sample.codes, full.codes[:, :count])
        assert torch.equal(sample.data, model.decode(full.codes[:, :count]))


def test_a_stream_computes_nothing_until_asked(model: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    step = model.prior.step
    monkeypatch.setattr(model.prior, "step", lambda codes, state: (steps.append(1), step(codes, state))[1])
    for sample in model.stream(3, every=2):
        assert len(steps) == sample.codes.shape[1] == 2
        break
    assert len(steps) == 2


def test_a_stream_respects_budgets(model: AnytimeModel) -> None:
    assert [s.codes.shape[1] for s in model.stream(2, every=2, codes=5)] == [2, 4, 5]
    stop = threading.Event()
    counts = []
    for sample in model.stream(2, every=2, stop=stop):
        counts.append(sample.codes.shape[1])
        stop.set()
    assert counts[0] == 2
    assert counts[-1] == 2, "nothing is sampled after the stop"
    assert len(counts) <= 2


@pytest.mark.parametrize("settings", SETTINGS, ids=NAMES)
@pytest.mark.parametrize("kept", [True, False], ids=["state-kept", "recomputed"])
@pytest.mark.parametrize("k", range(1, 8))
def test_refining_equals_one_run(model: AnytimeModel, k: int, kept: bool, settings: dict[str, Any]) -> None:
    from dataclasses import replace

    full, coarse = model.sample(4, seed=6, **settings), model.sample(4, seed=6, codes=k, **settings)
    assert coarse.session is not None
    coarse = coarse if kept else replace(coarse, session=None)
    finer = model.refine(coarse)
    assert torch.equal(finer.codes, full.codes)
    assert torch.equal(finer.data, full.data)
    assert finer.settings == full.settings


def test_a_sample_without_a_deadline_can_be_refined_with_one(model: AnytimeModel) -> None:
    """The latency of a step is not known before the first one."""
    full, coarse = model.sample(13, seed=6), model.sample(13, seed=6, codes=2)
    assert torch.equal(model.refine(coarse, within=60.0).codes, full.codes)
    assert torch.equal(model.sample(13, seed=6, prefix=full.codes[:, :3], within=60.0).codes, full.codes)


def test_a_sample_can_be_refined_twice(model: AnytimeModel) -> None:
    """The first refinement uses the state; the second one recomputes it."""
    full, coarse = model.sample(4, seed=6), model.sample(4, seed=6, codes=2)
    once, again = model.refine(coarse, codes=6), model.refine(coarse, codes=5)
    assert torch.equal(once.codes, full.codes[:, :6])
    assert torch.equal(again.codes, full.codes[:, :5])
    assert torch.equal(model.refine(once).codes, full.codes)


def test_a_session_with_more_codes_returns_no_more_than_requested(model: AnytimeModel) -> None:
    from anytime.sampling.budget import Budget

    session, full = model.session(4, seed=6), model.sample(4, seed=6)
    session.run(Budget(codes=7))
    early = session.run(Budget(codes=3))
    assert torch.equal(early.codes, full.codes[:, :3])
    assert torch.equal(early.data, model.decode(full.codes[:, :3]))
    assert early.session is None
    assert torch.equal(model.refine(early).codes, full.codes)


def test_picked_rows_are_refined_by_their_own_numbers(model: AnytimeModel) -> None:
    full, coarse = model.sample(20, seed=6), model.sample(20, seed=6, codes=3)
    finer = model.refine(coarse.pick([17, 3, 8]))
    assert finer.rows.tolist() == [17, 3, 8]
    assert torch.equal(finer.codes, full.codes[[17, 3, 8]])


def test_a_session_continues_in_another_process(model: AnytimeModel, tmp_path: Path) -> None:
    """The other process has only the model's files and the session's file."""
    import subprocess
    import sys

    from anytime.sampling.budget import Budget

    folder = model.save(tmp_path / "model")
    session = model.session(5, seed=9, temperature=1.2)
    session.run(Budget(codes=3))
    session.save(tmp_path / "s.safetensors")
    program = (
        "import anytime, sys, torch; from anytime.sampling.budget import Budget\n"
        f"m = anytime.load({str(folder)!r}); s = m.load_session({str(tmp_path / 's.safetensors')!r})\n"
        "print(s.run(Budget(codes=m.length)).codes.tolist())"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.strip() == str(model.sample(5, seed=9, temperature=1.2).codes.tolist())


def test_another_models_sample_is_refused(model: AnytimeModel, tmp_path: Path) -> None:
    from dataclasses import replace

    coarse = replace(model.sample(2, codes=2), model="0" * 64)
    with pytest.raises(UserError, match="another model"):
        model.refine(coarse)
    with pytest.raises(UserError, match="already has 2 codes"):
        model.refine(model.sample(2, codes=2), codes=1)


def test_microbatches_match_one_run(model: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Microbatches give the same codes; on a stop, the finished rows are returned."""
    monkeypatch.setattr("anytime.sampling.engines.eager.EagerEngine.microbatch", 512)
    whole = model.sample(1100, seed=2, codes=2)
    assert torch.equal(whole.rows, torch.arange(1100))
    monkeypatch.setattr("anytime.sampling.engines.eager.EagerEngine.microbatch", 2048)
    assert torch.equal(model.sample(1100, seed=2, codes=2).codes, whole.codes)
    monkeypatch.setattr("anytime.sampling.engines.eager.EagerEngine.microbatch", 512)
    stop = threading.Event()
    part = model.sample(1100, seed=2, codes=2, stop=stop, progress=lambda codes, seconds: stop.set())
    assert torch.equal(part.rows, torch.arange(512))
    assert torch.equal(part.codes, whole.codes[:512, :1])
    assert whole.session is None
    refined = model.refine(whole, codes=3)
    monkeypatch.setattr("anytime.sampling.engines.eager.EagerEngine.microbatch", 2048)
    assert torch.equal(refined.codes, model.sample(1100, seed=2, codes=3).codes)
