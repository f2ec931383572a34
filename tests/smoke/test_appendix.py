"""The appendix's models go through the same loop and the same commands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anytime.core.errors import UserError
from anytime.export.bundle import bundle

RunCLI = Callable[..., Any]


def losses(run: Path, stage: str) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["train"]["loss"] for line in lines if line["stage"] == stage]


@pytest.mark.parametrize(
    ("name", "kind", "length", "summary"),
    [("mnist", "lstm", 16, "LSTM: 2 layers"), ("cifar10", "pixelcnn", 70, "PixelCNN on 9 × 9: 3 layers")],
)
def test_other_priors(name: str, kind: str, length: int, summary: str, run_cli: RunCLI, tmp_path: Path) -> None:
    """70 codes on 9 × 9 leave eleven positions empty; the loss is on the 70."""
    run = tmp_path / "run"
    words = ("train", name, "--scale", "smoke", "--set", "prior.lr=0.01", "--out", run)
    assert run_cli(*words, "--prior", kind).status == 0
    first, second = losses(run, "prior")
    assert second < first, "the prior learns"
    facts = json.loads(run_cli("info", run, "--check", "--json").out.splitlines()[-1])
    assert facts["length"] == length
    assert facts["prior"].startswith(summary)
    assert all(facts["check"].values())
    assert "model.prior." in run_cli(*words).sentence, "another prior is another run"


def test_priors_on_the_same_codes(run_cli: RunCLI, tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    words = ("train", "mnist", "--scale", "smoke")
    assert run_cli(*words, "--out", run).status == 0
    assert run_cli(*words, "--prior", "lstm", "--reuse", run, "--out", other).status == 0
    assert losses(other, "ordered") == losses(run, "ordered")
    assert losses(other, "prior") != losses(run, "prior")


def test_geometric_truncation(run_cli: RunCLI, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert run_cli("train", "mnist", "--scale", "smoke", "--truncation", "geometric:0.03", "--out", run).status == 0
    assert json.loads((run / "config.json").read_text())["ordered"]["truncation"] == {"kind": "geometric", "p": 0.03}
    assert len(losses(run, "ordered")) == 2


def test_a_tailored_model(run_cli: RunCLI, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("train", "cifar10", "--scale", "smoke", "--truncation", "full", "--out", run)
    assert run_cli(*words, "--length", 14).status == 0
    facts = json.loads(run_cli("info", run, "--check", "--json").out.splitlines()[-1])
    assert facts["length"] == 14
    assert all(facts["check"].values())
    sentence = run_cli(*words[:-1], tmp_path / "other", "--reuse", run).sentence
    assert "model.autoencoder.length = 14, not 70" in sentence


def test_a_subset_of_the_data(run_cli: RunCLI, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert run_cli("train", "mnist", "--scale", "smoke", "--set", "examples=100", "--out", run).status == 0
    assert json.loads((run / "environment.json").read_text())["starts"][-1]["examples"] == 100


def test_a_vae_through_the_same_loop(run_cli: RunCLI, tmp_path: Path) -> None:
    """Ordered and standard share their first stage; a run that lost its last checkpoint ends with the same bytes."""
    run, other = tmp_path / "run", tmp_path / "other"
    words = ("train", "cifar10", "--recipe", "vae", "--scale", "smoke")
    done = run_cli(*words, "--out", run, "--json")
    assert done.status == 0
    assert len(json.loads(done.out.splitlines()[-1])["error_by_codes"]) == 71
    for stage in ("pretrain", "ordered"):
        first, second = losses(run, stage)
        assert second < first, "the VAE learns"
    assert not losses(run, "prior")

    weights = (run / "model" / "model.safetensors").read_bytes()
    shutil.rmtree(run / "model")
    max((run / "checkpoints").glob("step-*.safetensors")).unlink()
    assert "resuming the ordered stage at step 15 of 16" in run_cli(*words, "--out", run).err
    assert (run / "model" / "model.safetensors").read_bytes() == weights
    assert "finished already" in run_cli(*words, "--out", run).err

    assert run_cli(*words, "--truncation", "full", "--reuse", run, "--out", other).status == 0
    assert losses(other, "pretrain") == losses(run, "pretrain")
    assert losses(other, "ordered") != losses(run, "ordered")
    assert "pretrain.epochs = 2, not 3" in run_cli(*words, "--set", "pretrain.epochs=3", "--out", run).sentence
    assert "recipe = vae" in run_cli("train", "cifar10", "--scale", "smoke", "--out", run).sentence

    for verb in (("sample", run, "--out", tmp_path / "x.png"), ("info", run), ("evaluate", run, "--scale", "smoke")):
        assert "is a VAE and has no codes" in run_cli(*verb).sentence
    with pytest.raises(UserError, match="is a VAE and has no codes"):
        bundle(run, "little", out=tmp_path / "bundles")
    assert not list(tmp_path.rglob("code_stats.json")), "a VAE has no codes"
