"""Rows of exported models against the eager engine in fp32: at least 99.9 % are equal, and every difference is a tie."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from rows import check_codes, compare_codes  # type: ignore[import-not-found]

from anytime.export.aoti import export_aoti
from anytime.export.onnx import export_onnx
from anytime.export.runner import Runner
from anytime.export.sample import CheckedRunner, load_sample
from anytime.model import AnytimeModel, _tiny, load

EXPORTERS = {"onnx": export_onnx, "aoti": export_aoti}
BATCH, SEED = 250, 1


@torch.no_grad()
def compare(model: AnytimeModel, runner: Runner, rows: int) -> dict[str, float]:
    """Return how many rows are equal, the largest gap of noised logits at a first difference, and the error of the data."""
    expected = model.sample(rows, seed=SEED)
    parts = [runner.sample(min(BATCH, rows - first), seed=SEED, first=first) for first in range(0, rows, BATCH)]
    codes, data = np.concatenate([part.codes for part in parts]), np.concatenate([part.data for part in parts])
    found = compare_codes(model, torch.from_numpy(codes), expected.codes, SEED)
    equal = (codes == expected.codes.numpy()).all(1)
    error = float(np.abs(data - expected.data.numpy())[equal].max())
    logits_error = float(np.abs(runner.logits(codes[:BATCH]) - model.prior(torch.from_numpy(codes[:BATCH])).numpy()).max())
    return {**found, "data_error": error, "logits_error": logits_error}


def check(found: dict[str, float]) -> None:
    check_codes(found)
    assert found["data_error"] < 1e-3


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_some_rows_of_onnx_files(name: str, tmp_path: Path) -> None:
    model = load(name, "cpu", "eager")
    check(compare(model, Runner(export_onnx(name, tmp_path / name).folder, threads=1), 60))


def test_rows_of_a_tiny_compiled_model(tmp_path: Path) -> None:
    """In processes of their own: compiled code and its compiler stay apart from the tests."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AnytimeModel(_tiny()).eval()
    model.save(tmp_path / "tiny")
    export = [sys.executable, "-m", "anytime", "export", "tiny", "--to", "aoti", "--out", "out"]
    sample = [sys.executable, "out/sample.py", "-n", "20", "--seed", "1", "--prefix", "3,1", "--out", "samples.npz"]
    for command in (export, sample):
        done = subprocess.run(command, capture_output=True, text=True, timeout=250, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    found, expected = load_sample(tmp_path / "samples.npz"), model.sample(20, seed=1, prefix=torch.tensor([[3, 1]]))
    assert np.array_equal(found.codes, expected.codes.numpy())
    assert np.abs(found.data - expected.data.numpy()).max() < 1e-5


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("runtime", EXPORTERS)
@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_a_thousand_rows(name: str, runtime: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    model = load(name, "cpu", "eager")
    found = compare(model, CheckedRunner(EXPORTERS[runtime](name, tmp_path / name).folder, threads=1), 1000)
    for key, value in found.items():
        record_property(key, value)
    check(found)
