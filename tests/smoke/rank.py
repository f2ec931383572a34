"""What one rank of a two-process test does; started by torchrun, or called directly for the one process they must match.

    torchrun --nproc-per-node 2 rank.py norm STATES
    torchrun --nproc-per-node 2 rank.py train STATES RUN RECIPE KEY=VALUE...

Each rank leaves what it holds in STATES/rank-N.safetensors before anything is torn down.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from anytime import data
from anytime.autoencoders.networks.conv_image import BatchNorm2d
from anytime.core import distributed
from anytime.core.config import override
from anytime.core.progress import Reporter
from anytime.core.storage import write_tensors
from anytime.recipes.modify import with_scale
from anytime.recipes.presets import preset
from anytime.training.config import Recipe
from anytime.training.run import train


def trained(run: Path, which: Recipe, settings: list[str], reporter: Reporter | None = None) -> dict[str, Tensor]:
    """The weights that this process holds at the end of a smoke run on the digits."""
    dataset = data.load("digits")
    config = override(with_scale(preset("digits", which, dataset.shape), "smoke"), settings)
    return dict(train(config, dataset, run, reporter=reporter).state_dict())


def normalised() -> dict[str, Tensor]:
    """Output, gradients and running statistics of a small network with batch norm, after two steps on this rank's rows."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(2, 3, 3), BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 2, 3), BatchNorm2d(2))
    model = distributed.wrap_ddp(layers)
    x, target = 5 + 3 * torch.randn(2, 8, 2, 9, 7), torch.randn(2, 8, 2, 5, 3)
    rows = slice(distributed.rank() * 8 // distributed.world_size(), (distributed.rank() + 1) * 8 // distributed.world_size())
    for step in range(2):
        part = x[step, rows].clone().requires_grad_()
        out = model(part)
        (out - target[step, rows]).square().mean().backward()
    gradients = {f"gradient/{name}": weight.grad for name, weight in layers.named_parameters() if weight.grad is not None}
    assert part.grad is not None
    # The mean loss of a rank's rows weighs each of them `ranks` times as much as the mean over all rows does.
    return {**layers.state_dict(), **gradients, "out": out.detach(), "input gradient": part.grad / distributed.world_size()}


def main(what: str, states: str, *rest: str) -> None:
    rank = os.environ["RANK"]
    if what == "norm":
        with distributed.process_group(torch.device("cpu")):
            held = normalised()
    else:
        run, which, *settings = rest
        assert which in ("paper", "best")
        held = trained(Path(run), which, settings)  # type: ignore[arg-type]
    write_tensors(Path(states) / f"rank-{rank}.safetensors", held)


if __name__ == "__main__":
    main(*sys.argv[1:])
