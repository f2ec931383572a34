"""Two processes on a CPU: equal weights on both ranks, equal to one process at the same global batch, and resuming.

torch's gloo may abort at the interpreter's exit, after the work is done: what counts is the file each rank leaves before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rank
import torch
from torch import Tensor, nn

from anytime.core.storage import read_tensors

CLOSE = 1e-4
SETTINGS = {
    # Dropout masks differ by rank. The decay makes entries die within a few steps, so that they are revived too.
    # Several epochs, so that a busy machine has time to kill the run inside them.
    "paper": ["model.prior.dropout=0", "ordered.epochs=5"],
    "best": ["model.prior.dropout=0", "ordered.epochs=5", "model.autoencoder.quantizer.ema_decay=0.6"],
}


def on_two_ranks(launcher: Any, states: Path, what: str, *words: object) -> list[dict[str, Tensor]]:
    """Return the tensors of rank 0 and rank 1 at the end."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, rank.__file__, what, str(states), *map(str, words)]
    done = subprocess.run(command, env=launcher.environment, capture_output=True, text=True, timeout=120)
    paths = [states / f"rank-{number}.safetensors" for number in (0, 1)]
    assert all(path.is_file() for path in paths), done.stderr[-4000:]
    return [read_tensors(path)[0] for path in paths]


def furthest(a: dict[str, Tensor], b: dict[str, Tensor]) -> tuple[float, str]:
    """Return the largest difference of two sets of tensors and its name."""
    assert a.keys() == b.keys()
    return max((float((a[name].detach().double() - b[name].detach().double()).abs().max()), name) for name in a)


@pytest.mark.parametrize("recipe", ["paper", "best"])
def test_two_ranks_killed_and_resumed_match_one_process(recipe: str, launcher: Any, tmp_path: Path) -> None:
    """Run the command under torchrun, kill it in the ordered stage, and resume in the same directory."""
    run = tmp_path / "two"
    assignments = [word for setting in SETTINGS[recipe] for word in ("--set", setting)]
    words = ("train", "digits", "--scale", "smoke", "--recipe", recipe, "--out", run, *assignments)
    at = launcher.kill_inside("ordered", run, *words, stderr_path=tmp_path / "said.txt", after=3, ranks=2)
    assert at["stage"] == "ordered"
    assert 0 < at["step"] < 40
    first, second = on_two_ranks(launcher, tmp_path / "states", "train", run, recipe, *SETTINGS[recipe])
    assert furthest(first, second) == (0, max(first))
    assert furthest(first, read_tensors(run / "model" / "model.safetensors")[0])[0] == 0
    starts = json.loads((run / "environment.json").read_text())["starts"]
    assert [start["ranks"] for start in starts] == [2, 2]
    epochs = [(line["stage"], line["epoch"]) for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())]
    assert epochs == [(s, e + 1) for s, n in (("pretrain", 2), ("ordered", 5), ("prior", 2)) for e in range(n)]

    alone = rank.trained(tmp_path / "one", recipe, SETTINGS[recipe])  # type: ignore[arg-type]
    difference, name = furthest(first, alone)
    assert difference < CLOSE, name


@pytest.mark.slow
def test_resuming_two_ranks_changes_nothing(launcher: Any, tmp_path: Path) -> None:
    """With dropout: each rank's masks are functions of the step."""
    words = ("train", "digits", "--scale", "smoke", "--recipe", "best")
    launcher.kill_inside(
        "prior", tmp_path / "killed", *words, "--out", tmp_path / "killed", stderr_path=tmp_path / "said", ranks=2
    )
    resumed, _ = on_two_ranks(launcher, tmp_path / "resumed", "train", tmp_path / "killed", "best")
    undisturbed, _ = on_two_ranks(launcher, tmp_path / "undisturbed", "train", tmp_path / "whole", "best")
    assert furthest(resumed, undisturbed)[0] == 0


def test_a_mistake_ends_all_ranks(launcher: Any, tmp_path: Path) -> None:
    """No rank waits for one that has stopped."""
    words = ("train", "digits", "--scale", "smoke", "--set", "pretrain.lr=1e30", "--out", tmp_path / "run")
    process = launcher.start(*words, stderr_path=tmp_path / "said.txt", ranks=2)
    assert process.wait(timeout=60) != 0
    stderr_path = (tmp_path / "said.txt").read_text()
    # Both ranks see it; the launcher may end the second before it has spoken.
    assert stderr_path.count("anytime: the loss became NaN or infinite at step 1 of the pretrain stage") in (1, 2)


def test_batch_norm_over_two_ranks_is_batch_norm_over_the_whole_batch(launcher: Any, tmp_path: Path) -> None:
    """Outputs, gradients of input and weights, and running statistics are those of torch's own layer in one process."""
    ranks = on_two_ranks(launcher, tmp_path, "norm")
    alone = rank.normalised()
    rows = {"out", "input gradient"}
    for number, held in enumerate(ranks):
        for name, value in alone.items():
            expected = value[4 * number : 4 * number + 4] if name in rows else value
            torch.testing.assert_close(held[name], expected, atol=1e-5, rtol=1e-5, msg=lambda text, at=name: f"{at}: {text}")
    for name in alone.keys() - rows:
        assert torch.equal(ranks[0][name], ranks[1][name])


def test_batch_norm_alone_is_that_of_torch() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 3, 5, 4)
    ours, theirs = rank.BatchNorm2d(3), nn.BatchNorm2d(3)
    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours.running_var, theirs.running_var)
