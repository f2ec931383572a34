from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
import torch

from anytime.core import distributed
from anytime.core.ranks import Ranks, read_ranks, several_ranks

WHOLE = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set these variables of torchrun and no others."""

    def use(values: dict[str, str]) -> None:
        for name in WHOLE:
            monkeypatch.delenv(name, raising=False)
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return use


def test_one_process_and_several(variables: Callable[..., None]) -> None:
    variables({})
    assert (read_ranks(), several_ranks()) == (Ranks(), False)
    variables({"WORLD_SIZE": "1", "RANK": "0"})
    assert (read_ranks(), several_ranks()) == (Ranks(), False)
    variables(WHOLE)
    assert (read_ranks(), several_ranks()) == (Ranks(1, 2, 1), True)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"RANK": "1"}, "RANK=1 is set without WORLD_SIZE"),
        ({"RANK": "0"}, "RANK=0 is set without WORLD_SIZE"),
        *(({"WORLD_SIZE": text}, f"WORLD_SIZE={text} must be a whole number") for text in ("two", "0", "-1", "", "2.5", "1e3")),
        ({"WORLD_SIZE": "3"}, "WORLD_SIZE=3 is set without RANK"),
        (WHOLE | {"RANK": "2"}, "RANK=2 must be a whole number between 0 and 1"),
        (WHOLE | {"RANK": "first"}, "RANK=first"),
        (WHOLE | {"LOCAL_RANK": "-1"}, "LOCAL_RANK=-1"),
        (WHOLE | {"MASTER_ADDR": ""}, "without MASTER_ADDR"),
        (WHOLE | {"MASTER_PORT": "0"}, "MASTER_PORT=0"),
        ({"WORLD_SIZE": "1", "RANK": "1"}, "RANK=1"),
    ],
)
def test_wrong_variables(
    values: dict[str, str], named: str, variables: Callable[..., None], refused: Callable[..., str]
) -> None:
    variables(values)
    sentence = refused(read_ranks)
    assert named in sentence
    assert "torchrun" in sentence
    assert not several_ranks()


def test_ranks_that_cannot_be_reached(variables: Callable[..., None], refused: Callable[..., str]) -> None:
    with socket.socket() as bound:  # nobody listens on its port
        bound.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(bound.getsockname()[1]), "ANYTIME_JOIN_SECONDS": "1"}
        variables(WHOLE | address)
        sentence = refused(distributed.process_group(torch.device("cpu")).__enter__)
    assert f"cannot reach the other ranks at 127.0.0.1:{address['MASTER_PORT']} within 1 s" in sentence
    assert "check MASTER_ADDR" in sentence
