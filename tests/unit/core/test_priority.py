from __future__ import annotations

import os
import sys
import threading

import pytest

from anytime.core.priority import NICENESS, raised_priority


@pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads are Linux's")
def test_the_priority_is_raised_while_it_lasts_and_of_this_thread_alone() -> None:
    def niceness(thread: int) -> int:
        return os.getpriority(os.PRIO_PROCESS, thread)

    before, other, done = niceness(0), list[int](), threading.Event()
    thread = threading.Thread(target=lambda: (other.append(threading.get_native_id()), done.wait()))
    thread.start()
    with raised_priority() as allowed:
        assert niceness(threading.get_native_id()) == (NICENESS if allowed else before)
        assert niceness(other[0]) == before
    assert niceness(threading.get_native_id()) == before
    done.set()
    thread.join()


def test_a_system_that_forbids_it_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError("not permitted")

    monkeypatch.setattr(os, "setpriority", forbidden)
    with raised_priority() as allowed:
        assert not allowed
