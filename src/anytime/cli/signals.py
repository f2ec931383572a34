"""Signals that end a command: Ctrl-C, SIGTERM from a scheduler, SIGHUP from a terminal that closes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
"""The signals and what messages call them."""


class Stop(threading.Event):
    """An event that the first signal sets."""

    signal_name = ""


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Yield an event that the first signal sets; a second signal acts as it did before and aborts the command."""
    stop, restore, terminals = Stop(), list[Callable[[], None]](), _terminals()

    def handle(number: int, _: object) -> None:
        stop.signal_name = SIGNALS[signal.Signals(number)]
        stop.set()
        _discard(terminals - _terminals())
        for undo in restore:
            undo()

    with _handled(tuple(SIGNALS), handle) as undo_all:
        restore.append(undo_all)
        yield stop


def _terminals() -> set[int]:
    """Return which of stdout and stderr are terminals; one that hung up no longer is."""
    return {number for number in (1, 2) if os.isatty(number)}


def _discard(outputs: set[int]) -> None:
    """Send what is written to these file descriptors to the null device: a terminal that hung up would raise an error."""
    null = os.open(os.devnull, os.O_WRONLY)
    for number in outputs:
        os.dup2(null, number)
    os.close(null)


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise `KeyboardInterrupt` as Ctrl-C does, so that no temporary file is left."""
    with _handled((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler):
        yield


@contextmanager
def _handled(numbers: Sequence[signal.Signals], handler: Any) -> Iterator[Callable[[], None]]:
    """Handle signals; yield a function that restores what handled them before, which happens at the end anyway.

    Only the main thread may handle signals. One that is ignored stays ignored, as `nohup` asks for, except Ctrl-C, which a
    shell ignores for its background jobs.
    """
    before: dict[signal.Signals, Any] = {}

    def restore() -> None:
        for number, previous in before.items():
            signal.signal(number, previous)

    if threading.current_thread() is threading.main_thread():
        found = {number: signal.getsignal(number) for number in numbers}
        before |= {n: now for n, now in found.items() if n == signal.SIGINT or now is not signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, handler)
        yield restore
    finally:
        restore()
