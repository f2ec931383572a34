"""A load generator: sends requests at given times, whatever the server does with them, from a process of its own."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anytime.server.run import new_event_loop

START = "from anytime.server.load import main; main()"
GIVE_UP_SECONDS = 10.0
"""After its deadline, a request is waited for this long."""
REUSE_SECONDS = 5.0
"""Idle connections are used again for this long; the server closes them after a longer time."""
BURST_SECONDS, BURST_SHARE = 0.5, 0.25
"""A bursty load sends everything in a quarter of the time, half a second at a time."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """Requests to send: at given times, or one after the other by a number of clients."""

    host: str
    port: int
    body: dict[str, Any]
    """Of every request; its seed is the number of the request."""
    arrivals: tuple[float, ...] = ()
    """Seconds from the start, for an open loop."""
    clients: int = 0
    """Clients of a closed loop, each of which sends its next request when it has its answer."""
    seconds: float = 0.0
    """Duration of a closed loop."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One request and its answer."""

    at: float  # when it was due, seconds from the start
    seconds: float  # from then until the whole answer had arrived
    status: int  # 0 if there was none
    codes: int


def poisson(rate: float, seconds: float, seed: int) -> tuple[float, ...]:
    """Return the arrival times of a Poisson process."""
    return tuple(_poisson(rate, seconds, random.Random(seed)))


def _poisson(rate: float, seconds: float, rng: random.Random) -> Iterator[float]:
    at = rng.expovariate(rate)
    while at < seconds:
        yield at
        at += rng.expovariate(rate)


def bursty(rate: float, seconds: float, seed: int) -> tuple[float, ...]:
    """Return arrival times of the same mean rate that come in bursts, with nothing between them."""
    busy = _poisson(rate / BURST_SHARE, seconds * BURST_SHARE, random.Random(seed))
    return tuple(at // BURST_SECONDS * BURST_SECONDS / BURST_SHARE + at % BURST_SECONDS for at in busy)


def run(load: Load) -> list[Sent]:
    """Send the requests from another process; return what became of them."""
    done = subprocess.run(
        [sys.executable, "-c", START], input=json.dumps(asdict(load)).encode(), stdout=subprocess.PIPE, check=True
    )
    return [Sent(*row) for row in json.loads(done.stdout)]


def main() -> None:
    """Read a load from stdin, carry it out, and write what was sent to stdout."""
    load = Load(**json.load(sys.stdin))
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        sent = runner.run(_closed(load) if load.clients else _open(load))
    json.dump([[each.at, each.seconds, each.status, each.codes] for each in sent], sys.stdout)


class Connections:
    """Open connections to the server, used again."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self._idle: list[tuple[float, asyncio.StreamReader, asyncio.StreamWriter]] = []  # since when, the longest first
        deadline = load.body.get("deadline_ms") or 30_000
        self._patience = deadline / 1000 + GIVE_UP_SECONDS

    async def send(self, number: int) -> tuple[int, int]:
        """Send one request; return the status and the number of codes of its answer, 0 if there is none."""
        try:
            return await asyncio.wait_for(self._send(number), self._patience)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return 0, 0

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle and time.monotonic() - self._idle[0][0] > REUSE_SECONDS:
            self._idle.pop(0)[2].close()
        if self._idle:
            return self._idle.pop()[1:]
        return await asyncio.open_connection(self.load.host, self.load.port)

    async def _send(self, number: int) -> tuple[int, int]:
        reader, writer = await self._connect()
        body = json.dumps({**self.load.body, "seed": number}).encode()
        head = (
            f"POST /v1/samples HTTP/1.1\r\nHost: {self.load.host}\r\nContent-Type: application/json\r\n"
            f"Accept: application/x-npz;dtype=uint8\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        await reader.readexactly(int(headers.get("content-length", "0")))
        self._idle.append((time.monotonic(), reader, writer))
        return int(lines[0].split()[1]), int(headers.get("anytime-codes", "0"))


async def _open(load: Load) -> list[Sent]:
    connections, started, sent = Connections(load), time.monotonic(), list[Sent]()

    async def one(number: int, at: float) -> None:
        status, codes = await connections.send(number)
        sent.append(Sent(at, time.monotonic() - started - at, status, codes))

    tasks = []
    for number, at in enumerate(load.arrivals):
        await asyncio.sleep(max(0.0, started + at - time.monotonic()))
        tasks.append(asyncio.ensure_future(one(number, at)))
    await asyncio.gather(*tasks)
    return sorted(sent, key=lambda each: each.at)


async def _closed(load: Load) -> list[Sent]:
    connections, started, sent, numbers = Connections(load), time.monotonic(), list[Sent](), iter(range(1 << 60))

    async def client() -> None:
        while (at := time.monotonic() - started) < load.seconds:
            status, codes = await connections.send(next(numbers))
            sent.append(Sent(at, time.monotonic() - started - at, status, codes))

    await asyncio.gather(*(client() for _ in range(load.clients)))
    return sent


def quantile(values: Sequence[float], q: float) -> float:
    """Return a quantile of some values.

    >>> quantile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
