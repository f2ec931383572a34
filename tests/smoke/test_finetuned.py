"""The best recipe for images through all four stages: code statistics after fine-tuning, and the model card."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anytime.cli.data import find_dataset
from anytime.evaluation import model_card
from anytime.export.bundle import bundle
from anytime.metrics.reconstruction import error_by_codes
from anytime.model import load
from anytime.training.run import training_subset
from anytime.training.run_dir import read_config

RunCLI = Callable[..., Any]


def test_a_finetuned_model(run_cli: RunCLI, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = run_cli("train", "mnist", "--recipe", "best", "--scale", "smoke", "--set", "finetune.epochs=3", "--out", run)
    assert outcome.status == 0, outcome.err
    code_stats = json.loads((run / "code_stats.json").read_text())
    assert list(code_stats) == ["format", "ordered", "prior", "finetune"]
    assert code_stats["finetune"]["entropy"] == code_stats["ordered"]["entropy"], "codes keep their meaning"
    assert code_stats["finetune"]["error"] != code_stats["ordered"]["error"]
    validation = training_subset(find_dataset("mnist", None, None, True), read_config(run)).validation
    assert code_stats["finetune"]["error"] == pytest.approx(error_by_codes(load(run, "cpu"), validation, range(17)), rel=1e-5)
    shown = json.loads(run_cli("info", run, "--json").out.splitlines()[-1])["code_stats"]
    assert shown == code_stats["ordered"] | code_stats["prior"] | code_stats["finetune"]
    made = bundle(run, "little", out=tmp_path / "models")
    page = (made.folder / model_card.FILE).read_text()
    assert "| epochs | 2 + 2 + 2 + 3 |" in page
    assert all(f"Codes: {text}." in page for text in code_stats["finetune"]["warnings"])
    outcome = run_cli("evaluate", run, "--scale", "smoke", "--samples", 40, "--fractions", "0.5,1")
    assert outcome.status == 0, outcome.err
    schedule = json.loads((run / "evaluation" / "evaluation.json").read_text())["schedule"]
    assert "2 + 2 + 2 + 3 epochs" in schedule
    assert load(run, "cpu").quality_table is None, "synthetic data write none"
