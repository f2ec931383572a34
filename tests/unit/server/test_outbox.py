"""The engine's messages, sent without waiting."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from anytime.server.messages import Answer, Expired
from anytime.server.outbox import Outbox


def test_large_messages_do_not_wait_for_the_reader_and_arrive_whole() -> None:
    ours, theirs = multiprocessing.Pipe()
    outbox, data = Outbox(theirs), np.arange(1 << 20).astype(np.uint8)
    for number in range(4):  # far more than the connection holds: `Connection.send` would wait for ever
        outbox.send(Answer(number, np.zeros((1, 1), np.int32), data, True, 0.0))
    outbox.send(Expired(4))
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: [ours.recv() for _ in range(5)])
        while not reading.done():
            outbox.flush()
            outbox.wait(0.001)
    received: list[Any] = reading.result()
    assert [reply.number for reply in received] == [0, 1, 2, 3, 4]
    assert all((reply.data == data).all() for reply in received[:4])
    for end in (outbox, ours, theirs):
        end.close()


def test_waiting_ends_when_a_message_arrives() -> None:
    ours, theirs = multiprocessing.Pipe()
    outbox = Outbox(theirs)
    ours.send("anything")
    began = time.monotonic()
    outbox.wait(30.0)
    assert time.monotonic() - began < 5.0 and theirs.poll()
    for end in (outbox, ours, theirs):
        end.close()


def test_a_closed_connection_is_an_error() -> None:
    ours, theirs = multiprocessing.Pipe()
    outbox = Outbox(theirs)
    ours.close()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        outbox.send(Expired(1))
    for end in (outbox, theirs):
        end.close()
