"""Connections of clients, with uvicorn's server and without an engine."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from anytime.server import connection
from anytime.server.connection import MAX_HEAD, GuardedConnection, arrival, waited_in_socket
from anytime.server.run import new_event_loop

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Seen:
    """An application that notes when its requests arrived."""

    def __init__(self) -> None:
        self.arrivals: list[float | None] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.arrivals.append(arrival(scope))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})


@asynccontextmanager
async def listening(app: Seen) -> AsyncIterator[int]:
    config = uvicorn.Config(app, http=GuardedConnection, log_level="critical", lifespan="off")
    server, bound = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
    server.capture_signals = asynccontextmanager  # type: ignore[method-assign, assignment]
    running = asyncio.ensure_future(server._serve([bound]))
    while not server.started:
        await asyncio.sleep(0.001)
    try:
        yield bound.getsockname()[1]
    finally:
        server.should_exit = True
        await running


def test_what_is_no_socket_has_no_time() -> None:
    assert waited_in_socket(None) is None
    one, other = socket.socketpair()
    assert waited_in_socket(one) is None, "not TCP"
    one.close()
    other.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when data arrived")
@pytest.mark.parametrize(("milliseconds", "waited"), [(0, None), (4, None), (10, None), (20, 0.02), (300, 0.3)])
def test_a_wait_of_a_tick_or_two_is_not_taken_for_a_wait(milliseconds: int, waited: float | None) -> None:
    class Socket:
        def getsockopt(self, *wanted: int) -> bytes:
            return bytes(52) + milliseconds.to_bytes(4, sys.byteorder)

    assert waited_in_socket(Socket()) == waited


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when data arrived")
def test_the_time_that_a_request_waits_unread_counts() -> None:
    async def measure() -> tuple[float, list[float | None]]:
        app = Seen()
        async with listening(app) as port:
            with socket.create_connection(("127.0.0.1", port)) as client:
                sent_at = time.monotonic()
                client.sendall(REQUEST)
                time.sleep(0.3)  # the event loop is held up: nobody reads, not even the connection is accepted
                await asyncio.sleep(0.2)
                client.sendall(REQUEST)
                await asyncio.sleep(0.2)
        return sent_at, app.arrivals

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        sent_at, (waited, prompt) = runner.run(measure())
    assert waited is not None and abs(waited - sent_at) < 0.1, "when it was sent, not when it was read"
    assert prompt is None or prompt > sent_at + 0.4


@pytest.mark.parametrize(
    "sent", [b"", b"POST /v1/samples HT", REQUEST[:-2] + b"X: ", REQUEST + b"POST"], ids=["none", "line", "headers", "second"]
)
def test_a_head_that_does_not_come_ends_the_connection(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)

    async def end() -> None:
        async with listening(Seen()) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            await asyncio.wait_for(reader.read(), 10.0)
            writer.close()

    asyncio.run(end())


def test_a_head_without_end_is_refused() -> None:
    async def answer() -> bytes:
        app = Seen()
        async with listening(app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(REQUEST[:-2] + b"X: ")
            try:
                for _ in range(MAX_HEAD // 1024 + 64):
                    writer.write(b"a" * 1024)
                    await writer.drain()
                    await asyncio.sleep(0)
                found = await asyncio.wait_for(reader.read(), 10.0)
            except ConnectionError:
                found = b"HTTP/1.1 400 "  # closed while we were writing
            writer.close()
            assert app.arrivals == []
            return found

    assert asyncio.run(answer()).startswith(b"HTTP/1.1 400 ")
