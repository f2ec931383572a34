from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import check_fid
from anytime import data
from anytime.metrics.features import RandomNetwork
from check_fid import held_out_row, main


class FakeInception(RandomNetwork):
    """A network that takes Inception's place and names, for want of the real one."""

    distance, suffix = "fid", ""

    def __init__(self, path: Path, device: torch.device, tf32: bool = True) -> None:
        super().__init__(device)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> data.Dataset:
    """Few digits whatever is asked for, and no network to be found."""
    dataset = data.load("digits").subset(200, 100)
    monkeypatch.setattr(check_fid.data, "load", lambda name, data: dataset)
    monkeypatch.setattr(check_fid, "find_inception", lambda given: given)
    monkeypatch.setattr(check_fid, "Inception", FakeInception)
    monkeypatch.setenv("ANYTIME_CACHE", str(tmp_path))
    return dataset


@pytest.mark.parametrize(("expected", "status", "holds"), [(None, 0, None), (0.0, 0, True), (9.0, 1, False)])
def test_the_number_is_held_against_the_published_one(
    few: data.Dataset,
    expected: float | None,
    status: int,
    holds: bool | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(check_fid, "PUBLISHED_FID", {} if expected is None else {"digits": (expected, 1.0)})
    assert main(["digits", "--inception", "x", "--device", "cpu"]) == status
    found = json.loads(capsys.readouterr().out)
    assert found["holds"] is holds
    assert found["expected"] == expected
    assert found["row"] == held_out_row(few, FakeInception(tmp_path, torch.device("cpu")), tmp_path / "other")
    assert (found["row"]["samples"], found["row"]["reference"]) == (100, 300)
    assert "hardware" in found["environment"]


def test_a_mistake_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cifra10"]) == 2
    assert "did you mean 'cifar10'?" in capsys.readouterr().err
