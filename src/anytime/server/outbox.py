"""Messages of the engine process that wait until the web process reads them, so that sampling never does."""

from __future__ import annotations

import os
import pickle
import select
import socket
from collections import deque
from multiprocessing.connection import Connection

from anytime.server.messages import HEADER_BYTES, Outgoing


class Outbox:
    """Sends messages over a connection without waiting for the other end."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._pending: deque[memoryview] = deque()

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
        select.select([self.connection], writable, [], seconds)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
