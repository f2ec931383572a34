"""The load generator, in this process, with a server that answers at once."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from anytime.server.load import Load, Sent, _open, _start


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            writer.write(b"HTTP/1.1 200 OK\r\nAnytime-Codes: 3\r\nContent-Length: 0\r\n\r\n")
    writer.close()


def test_what_the_generator_sends_late_is_not_a_slow_server() -> None:
    async def send() -> list[Sent]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            load = Load(host="127.0.0.1", port=server.sockets[0].getsockname()[1], body={}, arrivals=(0.0, 0.3, 0.4))
            asyncio.get_running_loop().call_later(0.2, time.sleep, 0.6)  # the generator is held up
            sent = await _open(load)
            await asyncio.sleep(0.1)  # the connections close
        return sorted(sent, key=lambda each: each.at)

    prompt, *held_up = asyncio.run(send())
    assert (prompt.status, prompt.codes) == (200, 3) and prompt.late < 0.3
    assert all(0.3 < each.late <= each.seconds for each in held_up)


def test_a_process_that_starts_late_sends_everything_later() -> None:
    now = time.monotonic()
    late, early = (Load(host="127.0.0.1", port=1, body={}, start_at=now + seconds) for seconds in (-5.0, 5.0))
    assert now <= _start(late) < now + 1.0 and _start(early) == now + 5.0
