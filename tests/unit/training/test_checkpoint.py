from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from anytime.training.checkpoint import Checkpoint, Position, optimizer_tensors, read_latest, restore_optimizer, write


def checkpoint(total: int, **tensors: torch.Tensor) -> Checkpoint:
    position = Position("ordered", total - 10, total, 0.1 + 0.2)
    best = {"w": torch.full((2,), -float(total))}
    return Checkpoint(
        position, {"w": torch.full((2,), float(total))} | tensors, best, {"0/step": torch.tensor(3.0)}, torch.ones(3).double()
    )


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def latest(directory: Path) -> tuple[Checkpoint | None, list[str]]:
    messages: list[str] = []
    return read_latest(directory, messages.append), messages


def test_there_and_back(tmp_path: Path) -> None:
    written = checkpoint(30, **{"a/b.c": torch.arange(4)})
    assert write(tmp_path, written).name == "step-000000030.safetensors"
    found, messages = latest(tmp_path)
    assert found is not None and messages == []
    assert found.position == written.position
    for part in ("model", "best", "optimizer"):
        ours, theirs = getattr(written, part), getattr(found, part)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(theirs[name], tensor) and theirs[name].dtype == tensor.dtype for name, tensor in ours.items())
    assert torch.equal(found.running_losses, written.running_losses) and found.running_losses.dtype == torch.float64


def test_the_beginning_of_a_stage_has_no_best_and_no_optimizer(tmp_path: Path) -> None:
    write(tmp_path, Checkpoint(Position("prior", 0, 5, None), {"w": torch.ones(1)}, {}, {}, torch.zeros(0)))
    found, _ = latest(tmp_path)
    assert found is not None
    assert (found.best, found.optimizer, found.position.best_loss, len(found.running_losses)) == ({}, {}, None, 0)


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    for total in (20, 30, 100, 1_000_000):
        write(tmp_path, checkpoint(total))
    assert names(tmp_path) == ["step-000000100.safetensors", "step-001000000.safetensors"]
    found, _ = latest(tmp_path)
    assert found is not None and found.position.total_steps == 1_000_000


def test_nothing_to_read(tmp_path: Path) -> None:
    assert latest(tmp_path) == (None, [])
    assert latest(tmp_path / "absent") == (None, [])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def altered(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content.replace(b"ordered", b"orderly"))


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("spoil", [cut, altered, empty])
def test_a_damaged_one_is_set_aside_and_the_one_before_it_taken(tmp_path: Path, spoil: Any) -> None:
    write(tmp_path, checkpoint(20))
    spoil(write(tmp_path, checkpoint(30)))
    found, messages = latest(tmp_path)
    assert found is not None and found.position.total_steps == 20
    assert torch.equal(found.model["w"], torch.full((2,), 20.0))
    assert len(messages) == 1
    assert "step-000000030.safetensors is damaged" in messages[0]
    assert "step-000000030.damaged" in messages[0] and "going back to the one before it" in messages[0]
    assert names(tmp_path) == ["step-000000020.safetensors", "step-000000030.damaged"]
    assert latest(tmp_path)[1] == [], "said once"


def test_when_all_are_damaged_the_run_begins_anew(tmp_path: Path) -> None:
    for total in (20, 30):
        cut(write(tmp_path, checkpoint(total)))
    found, messages = latest(tmp_path)
    assert found is None
    assert len(messages) == 2


def test_a_damaged_one_does_not_count_among_the_two(tmp_path: Path) -> None:
    write(tmp_path, checkpoint(20))
    cut(write(tmp_path, checkpoint(30)))
    latest(tmp_path)
    write(tmp_path, checkpoint(30))
    assert names(tmp_path) == ["step-000000020.safetensors", "step-000000030.damaged", "step-000000030.safetensors"]


def optimized(model: nn.Module, kind: str) -> torch.optim.Optimizer:
    if kind == "adam":
        return torch.optim.Adam(model.parameters(), lr=1e-2)
    return torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1)


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int, first: int = 0) -> None:
    for step in range(first, first + count):
        x = torch.randn(8, 5, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_an_optimizer_restored_from_a_file_goes_on_bit_for_bit(tmp_path: Path, kind: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 2))
    optimizer = optimized(model, kind)
    steps(model, optimizer, 4)
    state = optimizer_tensors(optimizer)
    assert {name.split("/")[1] for name in state} == {"step", "exp_avg", "exp_avg_sq"}
    write(tmp_path, Checkpoint(Position("prior", 4, 4, None), model.state_dict(), {}, state, torch.zeros(0)))

    found, _ = latest(tmp_path)
    assert found is not None
    other = copy.deepcopy(model)
    other.load_state_dict(found.model)
    resumed, fresh = optimized(other, kind), copy.deepcopy(model)
    restore_optimizer(resumed, found.optimizer)
    steps(model, optimizer, 3, first=4)
    steps(other, resumed, 3, first=4)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)

    steps(fresh, optimized(fresh, kind), 3, first=4)
    assert not torch.equal(next(fresh.parameters()), next(model.parameters())), "without its state it would go elsewhere"


def test_what_is_restored_lies_in_memory_as_the_weights_do() -> None:
    """Fused steps on a GPU, where convolutions are channels-last, refuse moments of other strides."""
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer, resumed = (torch.optim.Adam(layer.parameters()) for _ in range(2))
    layer(torch.rand(2, 3, 5, 5)).sum().backward()
    optimizer.step()
    restore_optimizer(resumed, {name: tensor.contiguous() for name, tensor in optimizer_tensors(optimizer).items()})
    for parameter in layer.parameters():
        for key in ("exp_avg", "exp_avg_sq"):
            assert resumed.state[parameter][key].stride() == parameter.stride()
            assert torch.equal(resumed.state[parameter][key], optimizer.state[parameter][key])
