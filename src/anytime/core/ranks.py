"""The ranks of a run as torchrun names them in environment variables. Without torch, so that mistakes are refused at once."""

from __future__ import annotations

import os
from dataclasses import dataclass

from anytime.core.errors import UserError

ADVICE = "start all processes with torchrun, or unset it for one process"
MAX_PORT = 65535
JOIN_SECONDS = 300
"""How long a rank waits for the others to start: they may read their data at different speeds."""
MAX_JOIN_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among the processes of a run."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0  # among the processes of this machine


def read_ranks() -> Ranks:
    """Return the ranks of this run; refuse variables that are incomplete or contradict each other."""
    size = _number("WORLD_SIZE", 1, None)
    if size is None:
        if "RANK" in os.environ:
            raise UserError(f"RANK={os.environ['RANK']} is set without WORLD_SIZE; {ADVICE}")
        return Ranks()
    rank = _number("RANK", 0, size - 1)
    local = _number("LOCAL_RANK", 0, size - 1)
    if size > 1:
        _number("MASTER_PORT", 1, MAX_PORT)
        for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
            if not os.environ.get(name):
                raise UserError(f"WORLD_SIZE={size} is set without {name}; {ADVICE}")
    return Ranks(rank or 0, size, local or 0)


def join_seconds() -> int:
    """Return how many seconds a rank waits for the others to start; ANYTIME_JOIN_SECONDS sets it."""
    name = "ANYTIME_JOIN_SECONDS"
    return _number(name, 1, MAX_JOIN_SECONDS, f"unset it for {JOIN_SECONDS}") or JOIN_SECONDS


def several_ranks() -> bool:
    """Return whether this process is one of several; False if the variables are wrong."""
    try:
        return read_ranks().world_size > 1
    except UserError:
        return False


def _number(name: str, least: int, most: int | None, advice: str = ADVICE) -> int | None:
    """Return the whole number in an environment variable; None if it is not set."""
    text = os.environ.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < least or (most is not None and int(text) > most):
        limits = f"of at least {least}" if most is None else f"between {least} and {most}"
        raise UserError(f"{name}={text} must be a whole number {limits}; {advice}")
    return int(text)
