"""The server's socket."""

from __future__ import annotations

import socket
import time

import pytest

from anytime.server import run


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux cuts such clients off")
def test_a_client_that_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "UNREAD_SECONDS", 1)
    with run.bind("127.0.0.1", 0) as bound, socket.socket() as client:
        bound.listen()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(bound.getsockname())
        connection, _ = bound.accept()
        with connection:
            connection.settimeout(20.0)
            began = time.monotonic()
            with pytest.raises(TimeoutError, match="Connection timed out"):  # the connection's end, not that of our patience
                while True:
                    connection.send(b"x" * 65536)
            assert time.monotonic() - began < 15.0
