"""Reusing finished stages of another run with the same settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from anytime import data
from anytime.core.progress import SilentReporter
from anytime.recipes.modify import with_scale
from anytime.recipes.presets import preset
from anytime.training.log import read
from anytime.training.run import train
from anytime.training.run_dir import RunPaths, reusable_stages

CPU = torch.device("cpu")


def test_runs_with_another_finetune_stage_reuse_the_prior(tmp_path: Path) -> None:
    dataset = data.synthetic_images("mnist", (1, 28, 28), count=64)
    config = replace(with_scale(preset("mnist", "best", (1, 28, 28)), "smoke"), examples=64)
    assert config.finetune is not None
    one, other = tmp_path / "one", tmp_path / "other"
    first = train(config, dataset, one, CPU, SilentReporter(), "")
    changed = replace(config, finetune=replace(config.finetune, code_corruption=0.0))
    assert reusable_stages(one, changed) == 3
    second = train(changed, dataset, other, CPU, SilentReporter(), "", reuse=one)
    lines = [[line for line in read(RunPaths(run).metrics) if line["stage"] != "finetune"] for run in (one, other)]
    assert lines[0] == lines[1], "the seconds too: it was not computed again"
    same = {name: torch.equal(tensor, second.state_dict()[name]) for name, tensor in first.state_dict().items()}
    assert all(equal for name, equal in same.items() if not name.startswith("autoencoder.decoder"))
    assert not all(same.values())


def test_another_prior_reuses_the_autoencoder(tmp_path: Path) -> None:
    dataset = data.synthetic_images("mnist", (1, 28, 28), count=64)
    config = replace(with_scale(preset("mnist", "best", (1, 28, 28)), "smoke"), examples=64)
    train(config, dataset, tmp_path, CPU, SilentReporter(), "")
    longer = replace(config, prior=replace(config.prior, epochs=3))
    wider = replace(config, model=replace(config.model, prior=replace(config.model.prior, layers=1)))
    assert reusable_stages(tmp_path, longer) == reusable_stages(tmp_path, wider) == 2
    without_finetune = replace(config, finetune=None)
    train(without_finetune, dataset, tmp_path / "untuned", CPU, SilentReporter(), "", reuse=tmp_path)
    lines = [read(RunPaths(run).metrics) for run in (tmp_path, tmp_path / "untuned")]
    first, second = ([line for line in each if line["stage"] in ("pretrain", "ordered")] for each in lines)
    assert first == second, "the seconds too: it was not computed again"
    assert [line["stage"] for line in lines[1]][len(second) :] == ["prior", "prior"], "its last stage is its own"
