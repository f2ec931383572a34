"""The engine's messages, read and sent without waiting."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from anytime.server.channel import Channel
from anytime.server.messages import Answer, Cancel, Expired


def test_large_messages_do_not_wait_for_the_reader_and_arrive_whole() -> None:
    ours, theirs = multiprocessing.Pipe()
    channel, data = Channel(theirs), np.arange(1 << 20).astype(np.uint8)
    for number in range(4):  # far more than the connection holds: `Connection.send` would wait for ever
        channel.send(Answer(number, np.zeros((1, 1), np.int32), data, True, 0.0))
    channel.send(Expired(4))
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: [ours.recv() for _ in range(5)])
        while not reading.done():
            channel.flush()
            channel.wait(0.001)
    received: list[Any] = reading.result()
    assert [reply.number for reply in received] == [0, 1, 2, 3, 4]
    assert all((reply.data == data).all() for reply in received[:4])
    for end in (channel, ours, theirs):
        end.close()


def test_waiting_ends_when_a_message_arrives() -> None:
    ours, theirs = multiprocessing.Pipe()
    channel = Channel(theirs)
    ours.send(Cancel(1))
    began = time.monotonic()
    channel.wait(30.0)
    assert time.monotonic() - began < 5.0 and channel.receive() == [Cancel(1)]
    for end in (channel, ours, theirs):
        end.close()


def test_all_messages_that_have_arrived_are_read_at_once_and_the_rest_of_one_later() -> None:
    ours, theirs = multiprocessing.Pipe()
    channel, content = Channel(theirs), pickle.dumps(Cancel(3))
    assert channel.receive() == []
    for number in range(100):
        ours.send(Cancel(number))
    frame = len(content).to_bytes(4, "big") + content
    os.write(ours.fileno(), frame[:3])
    assert channel.receive() == [Cancel(number) for number in range(100)]
    os.write(ours.fileno(), frame[3:20])
    assert channel.receive() == []
    os.write(ours.fileno(), frame[20:] + frame)
    assert channel.receive() == [Cancel(3)] * 2
    ours.close()
    with pytest.raises(EOFError):
        channel.receive()
    for end in (channel, theirs):
        end.close()


def test_a_closed_connection_is_an_error() -> None:
    ours, theirs = multiprocessing.Pipe()
    channel = Channel(theirs)
    ours.close()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        channel.send(Expired(1))
    for end in (channel, theirs):
        end.close()
