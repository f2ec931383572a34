"""Connections of clients: when each request arrived, and an end to those whose head is too long or too slow."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import time
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
"""Longest time until the head of a request is complete: its first line and its headers."""
MAX_HEAD = 64 * 1024
"""Bytes of a head, and of what may precede or follow a body besides it."""
TCP_INFO_BYTES, LAST_DATA_RECEIVED = 56, 52
"""Of Linux' `struct tcp_info`: the size that is read, and where the milliseconds since the last data lie."""
COARSE_SECONDS = 0.02
"""The system counts in ticks of up to 10 ms, too coarse for a shorter wait."""


def waited_in_socket(connection: Any) -> float | None:
    """Return the seconds since the last data of a connection arrived, read or not; None if unknown or too short to tell."""
    if sys.platform != "linux":
        return None
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    except (OSError, AttributeError):
        return None
    if len(info) != TCP_INFO_BYTES:
        return None
    waited: float = struct.unpack_from("I", info, LAST_DATA_RECEIVED)[0] / 1000
    return waited if waited >= COARSE_SECONDS else None


def arrival(scope: Scope) -> float | None:
    """Return when the head of a request arrived at this machine, by the monotonic clock; None if unknown."""
    found: float | None = scope.get("state", {}).get("arrived")
    return found


class GuardedConnection(HttpToolsProtocol):
    """A connection that notes when a request arrived, which may be long before it is read."""

    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: Any) -> None:
        """Expect a first request soon."""
        super().connection_made(transport)
        self._expect_head()

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer, self._head_bytes = self.loop.call_later(HEAD_SECONDS, self.transport.close), 0

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        self._read_at = time.monotonic()
        super().data_received(data)
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD and not self.transport.is_closing():
                self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        """Expect the rest of a head."""
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        """Start a request, and note when it arrived."""
        self._end_head()
        waited = waited_in_socket(self.transport.get_extra_info("socket"))
        if waited is not None:
            self.scope["state"]["arrived"] = self._read_at - waited
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._end_head()
        super().connection_lost(exc)
