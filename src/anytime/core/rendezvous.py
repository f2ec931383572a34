"""Joining the other ranks within a stated time, and the errors of ranks that cannot be reached."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist

from anytime.core.errors import UserError, reason
from anytime.core.ranks import Ranks, join_seconds

COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""Longest wait inside a collective operation: rank 0 may write files meanwhile. A rank that ended is noticed sooner."""
NOTICE_SECONDS = 10
"""Say that the other ranks are awaited if joining them takes longer."""
PORT_KEY = "anytime/port"
"""Where rank 0 names the port of its store in the store of torchrun's agent."""
LOST_WORDS = {
    "Connection closed by peer": "its connection closed",
    "Connection reset by peer": "its connection was reset",
    "Broken pipe": "its connection closed",
    "Timed out": "it does not answer",
    "gloo": "gloo failed",
    "NCCL": "NCCL failed",
}
"""Words in the errors of a collective operation whose peer is gone, and what messages say."""


def join(backend: str, ranks: Ranks) -> dist.Store:
    """Join the process group that the environment names; return the store that its ranks share."""
    host, port, seconds = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), join_seconds()
    try:
        with _notice(f"waiting up to {seconds} s for all {ranks.world_size} ranks at {host}:{port}"):
            store = _shared_store(host, port, ranks, time.monotonic() + seconds)
            size = ranks.world_size
            dist.init_process_group(backend, timeout=COLLECTIVE_TIMEOUT, store=store, rank=ranks.rank, world_size=size)
            return store
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"rank {ranks.rank} of {ranks.world_size} cannot reach the other ranks at {host}:{port} within {seconds} s "
            f"({reason(error)}); check MASTER_ADDR and MASTER_PORT, and start all ranks"
        ) from None


def _shared_store(host: str, port: int, ranks: Ranks, deadline: float) -> dist.Store:
    """Return a store that lives as long as rank 0.

    The store of torchrun's agent outlives restarted ranks, and would give them the addresses of those before.
    """
    has_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if ranks.rank == 0 and not has_agent:
        return dist.TCPStore(host, port, ranks.world_size, is_master=True, timeout=_left(deadline))
    if not has_agent:
        return _connect(host, lambda: port, deadline)
    agent = _connect(host, lambda: port, deadline)
    if ranks.rank > 0:
        return _connect(host, lambda: int(agent.get(PORT_KEY)), deadline)
    store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=_left(deadline))
    agent.set(PORT_KEY, str(store.port))
    return store


def _connect(host: str, port: Callable[[], int], deadline: float) -> dist.TCPStore:
    """Connect to a store when it listens: torch's own attempts exceed their time limit and fill the screen."""
    while True:
        try:
            number = port()
            socket.create_connection((host, number), timeout=min(10.0, _left(deadline).total_seconds())).close()
            return dist.TCPStore(host, number, is_master=False, timeout=_left(deadline))
        except OSError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.2)


def _left(deadline: float) -> timedelta:
    return timedelta(seconds=max(1.0, deadline - time.monotonic()))


@contextmanager
def _notice(text: str) -> Iterator[None]:
    """Print a line if the work takes long."""
    timer = threading.Timer(NOTICE_SECONDS, lambda: print(text, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def lost_ranks() -> Iterator[None]:
    """Turn the error of a collective operation whose peer is gone into a sentence."""
    try:
        yield
    except RuntimeError as error:
        found = next((detail for words, detail in LOST_WORDS.items() if words in str(error)), "")
        if not found and not isinstance(error, dist.DistError):
            raise
        raise lost_rank(found or reason(error)) from None


def lost_rank(detail: str) -> UserError:
    """Return the error of the ranks that are left when another one is gone."""
    advice = "the same command on every machine resumes from the last checkpoint"
    return UserError(f"another rank ended or cannot be reached ({detail}); {advice}")
