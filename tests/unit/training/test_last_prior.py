"""A run keeps the prior of its last epoch beside the model, whose prior has the smallest validation loss."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from anytime import data
from anytime.core.errors import UserError
from anytime.core.progress import SilentReporter
from anytime.experiments.runner import load_last_prior
from anytime.model import load
from anytime.recipes.build import build_config
from anytime.training import checkpoint
from anytime.training.run import train
from anytime.training.run_dir import RunPaths
from anytime.training.tasks.prior import PriorTask

CPU = torch.device("cpu")


def test_the_last_prior_is_kept_beside_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([1.0, 2.0])  # the first epoch is the best
    monkeypatch.setattr(PriorTask, "validate", lambda self: {"loss": next(losses)})
    dataset = data.synthetic_images("mnist", (1, 28, 28), count=64)
    train(build_config("mnist", "paper", (1, 28, 28), "smoke"), dataset, tmp_path, CPU, SilentReporter(), "")
    at_the_end = checkpoint.read_latest(RunPaths(tmp_path).checkpoints, print)
    assert at_the_end is not None and at_the_end.position.stage == "prior"
    model = load(tmp_path, CPU)
    best = {name: tensor.clone() for name, tensor in model.prior.state_dict().items()}
    digest = load_last_prior(model, tmp_path)
    assert len(digest) == 64
    for name, tensor in model.prior.state_dict().items():
        assert torch.equal(tensor, at_the_end.model[f"prior.{name}"])
    assert not all(torch.equal(tensor, best[name]) for name, tensor in model.prior.state_dict().items())
    RunPaths(tmp_path).last_prior.unlink()
    with pytest.raises(UserError, match=r"last-prior.safetensors is missing: .* remove that run to train it again"):
        load_last_prior(model, tmp_path)
