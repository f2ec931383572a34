"""The engine's end of its connection to the web process. It reads and sends without waiting, so that sampling never waits."""

from __future__ import annotations

import os
import pickle
import select
import socket
from collections import deque
from multiprocessing.connection import Connection

from anytime.server.messages import HEADER_BYTES, Incoming, Outgoing

READ_BYTES = 1 << 18
"""Read at once."""


class Channel:
    """Reads whole messages, many at a time, and keeps those that the other end does not take yet."""

    def __init__(self, connection: Connection) -> None:
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._pending: deque[memoryview] = deque()
        self._unread = bytearray()

    def receive(self) -> list[Incoming]:
        """Return all messages that have arrived; raise `EOFError` when the other end is closed."""
        while (part := self._read()) is not None:
            if not part:
                raise EOFError
            self._unread += part
        messages, begin = list[Incoming](), 0
        while (first := begin + HEADER_BYTES) <= len(self._unread):
            end = first + int.from_bytes(self._unread[begin:first], "big")
            if end > len(self._unread):
                break
            messages.append(pickle.loads(self._unread[first:end]))
            begin = end
        del self._unread[:begin]
        return messages

    def _read(self) -> bytes | None:
        """Return some bytes; none if the other end is closed, None if there is nothing to read now."""
        try:
            return self._socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None

    def send(self, message: Outgoing) -> None:
        """Send as much of a message as the other end takes now; keep the rest."""
        content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self._pending.append(memoryview(len(content).to_bytes(HEADER_BYTES, "big") + content))
        self.flush()

    def flush(self) -> None:
        """Send what is kept, as far as the other end takes it now."""
        while self._pending:
            try:
                sent = self._socket.send(self._pending[0], socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            rest = self._pending.popleft()[sent:]
            if rest:
                self._pending.appendleft(rest)

    def wait(self, seconds: float) -> None:
        """Wait until a message arrives or the rest of one can be sent."""
        writable = [self._socket] if self._pending else []
        select.select([self._socket], writable, [], seconds)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
