"""The number of CPU threads of a request with a deadline: chosen by measurement, and again when the load changes.

A small step is many small products, which one thread computes as fast as several. And several threads wait for each other:
if another program takes one of their cores, all of them are late. Requests without a deadline keep torch's own number, so
that their results never depend on the load.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from statistics import median

import torch

from anytime.core.priority import raised_priority

MIN_GAIN = 0.8
"""Several threads are used if their step takes at most this share of one thread's."""
SLOW, QUIET = 2.0, 1.5
"""Times the measured step: several threads this slow are disturbed; one thread faster than this is not."""
TRIALS, SLOW_STEPS, QUIET_STEPS = 3, 4, 32
"""Trials of each number; steps in a row that show a disturbance, and its end."""

IMPORTING_PROCESS = os.getpid()
"""The process that imported this module; any other one that uses it is a fork."""


def adapt_to_process() -> int:
    """Compute with one thread from now on if this process is a fork; return its id.

    A fork has none of its parent's threads, but OpenMP still waits for them: the first parallel loop would never end. This is
    done once in each process, so that the program may set another number afterwards.
    """
    process = os.getpid()
    _adapt(process)
    return process


@cache
def _adapt(process: int) -> None:
    if process != IMPORTING_PROCESS:
        torch.set_num_threads(1)


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Compute with that number of threads; None changes nothing."""
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class ThreadChoice:
    """One thread or all of them, for one batch size."""

    def __init__(self, available: int | None = None) -> None:
        self.available = available or torch.get_num_threads()
        self.count = 1
        self.seconds: dict[int, float] = {}  # of a step, by number of threads
        self._recent: deque[float] = deque(maxlen=QUIET_STEPS)

    @property
    def is_measured(self) -> bool:
        """Whether there is nothing left to choose."""
        return self.available == 1 or bool(self.seconds)

    def measure(self, trial: Callable[[], float]) -> None:
        """Choose by the fastest of a few steps with each number of threads; a trial returns the seconds of one."""
        for count in (1, self.available):
            with use_threads(count):
                self.seconds[count] = min(trial() for _ in range(TRIALS))
        self.count = self._preferred

    @property
    def _preferred(self) -> int:
        one, several = self.seconds.get(1, 0.0), self.seconds.get(self.available, 0.0)
        return self.available if 0 < several <= MIN_GAIN * one else 1

    def add_step(self, seconds: float) -> bool:
        """Leave several threads when they are disturbed, and return to them when one is not; return whether it changed."""
        if self._preferred == 1:
            return False
        self._recent.append(seconds / self.seconds[self.count])
        last = list(self._recent)[-SLOW_STEPS:]
        if self.count > 1:
            changes = len(last) == SLOW_STEPS and median(last) > SLOW
        else:
            changes = len(self._recent) == QUIET_STEPS and max(self._recent) < SLOW and median(self._recent) < QUIET
        if changes:
            self.count = 1 if self.count > 1 else self.available
            self._recent.clear()
        return changes

    def __str__(self) -> str:
        """The choice in a few words.

        >>> str(ThreadChoice(4))
        '1 of 4 threads'
        """
        return f"{self.count} of {self.available} threads"


@contextmanager
def hurrying(threads: ThreadChoice | None) -> Iterator[None]:
    """Compute with the threads and the priority of a request with a deadline."""
    with raised_priority(), use_threads(None if threads is None else threads.count):
        yield
