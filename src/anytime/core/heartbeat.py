"""Heartbeats: every rank learns within half a minute that another one is gone, also one whose connections never close."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from datetime import timedelta
from typing import NoReturn

import torch.distributed as dist

from anytime.core.errors import reason
from anytime.core.rendezvous import lost_rank

BEAT_SECONDS = 2.0
"""Time between two heartbeats of a rank."""
LOST_SECONDS = 30.0
"""A rank without a heartbeat for this long is lost."""
WATCH_SECONDS = 0.25
"""Time between two looks at whether torchrun still runs: a command that resumes finds the run directory free."""


class Heartbeat:
    """Threads that count up a number in the shared store, and end this process when another rank's number stands still.

    Rank 0 watches all ranks and names a lost one to the others, which watch rank 0: the store's load grows with the number
    of ranks, not with its square.
    """

    def __init__(self, store: dist.Store, rank: int, world_size: int) -> None:
        self._store = dist.PrefixStore("heartbeat", _own_connection(store))
        self._store.set_timeout(timedelta(seconds=LOST_SECONDS))
        self._rank, self._parent = rank, os.getppid()
        self._watched = range(1, world_size) if rank == 0 else range(1)
        self._seen: dict[int, tuple[bytes, float]] = {}
        self._stop = threading.Event()
        self._answered = time.monotonic()  # when the store last did; a call waits for ever if its machine is gone
        self._threads = [threading.Thread(target=run, name="heartbeat", daemon=True) for run in (self._beat, self._watch)]

    def __enter__(self) -> Heartbeat:
        self._store.set(str(self._rank), "0")
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(BEAT_SECONDS)

    def _watch(self) -> None:
        while not self._stop.wait(WATCH_SECONDS):
            if os.getppid() != self._parent:  # killed torchrun cannot end its ranks: each has a session of its own
                _end("torchrun on this machine has ended")
            if time.monotonic() - self._answered > LOST_SECONDS:
                _end(f"rank 0 has not answered for {LOST_SECONDS:.0f} s")

    def _beat(self) -> None:
        for count in itertools.count(1):
            if self._stop.wait(BEAT_SECONDS):
                return
            try:
                self._store.set(str(self._rank), str(count))
                lost, self._answered = self._lost(), time.monotonic()
            except (dist.DistError, RuntimeError) as error:  # the process that holds the store is gone
                lost = reason(error)
            if lost and not self._stop.wait(BEAT_SECONDS):  # the others may be at their end, and so may we
                _end(lost)

    def _lost(self) -> str:
        """Return which rank is lost; empty if none is."""
        if self._rank and self._store.check(["lost"]):
            return self._store.get("lost").decode()
        now = time.monotonic()
        for rank in self._watched:
            beat = self._store.get(str(rank))
            if rank not in self._seen or self._seen[rank][0] != beat:
                self._seen[rank] = beat, now
            elif now - self._seen[rank][1] > LOST_SECONDS:
                found = f"rank {rank} has been silent for {LOST_SECONDS:.0f} s"
                self._store.set("lost", found)
                return found
        return ""


def _own_connection(store: dist.Store) -> dist.Store:
    """Return another connection to a store: the main thread may wait in the first."""
    clone: dist.Store = store.clone()  # type: ignore[attr-defined]
    return clone


def _end(detail: str) -> NoReturn:
    """End this process with a sentence: its main thread may wait in a collective operation that never returns."""
    print(f"anytime: {lost_rank(detail)}", file=sys.stderr, flush=True)
    os._exit(2)
