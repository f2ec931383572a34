"""A load generator: sends requests at given times, whatever the server does with them, from a process of its own."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from typing import Any

from anytime.server.run import new_event_loop

START = "from anytime.server.load import main; main()"
GIVE_UP_SECONDS = 10.0
"""After its deadline, a request is waited for this long."""
REUSE_SECONDS = 5.0
"""Idle connections are used again for this long; the server closes them after a longer time."""
MAX_RATE, CORES = 300.0, 2
"""Requests a second that one process sends, where there are this many cores for each process."""
START_SECONDS = 1.0
"""Time for the processes to start."""
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
    first: int = 0
    """Number of the first request; another process may send those between."""
    every: int = 1
    """Difference of the numbers of two requests."""
    start_at: float | None = None
    """When to start, by the monotonic clock; None for at once."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One request and its answer."""

    at: float  # when it was due, seconds from the start
    seconds: float  # from then until the whole answer had arrived
    status: int  # 0 if there was none
    codes: int
    late: float = 0.0  # seconds from when it was due until this generator began to send it


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
    """Send the requests from other processes, so that none of them is the bottleneck; return what became of them."""
    wanted = math.ceil(len(load.arrivals) / load.arrivals[-1] / MAX_RATE) if load.arrivals else load.clients
    count = max(1, min(wanted, (os.cpu_count() or 1) // CORES))
    shared = partial(replace, load, every=count, start_at=time.monotonic() + START_SECONDS)
    parts = [
        shared(arrivals=load.arrivals[index::count], clients=len(range(index, load.clients, count)), first=index)
        for index in range(count)
    ]
    with ThreadPoolExecutor(count) as pool:
        contents = list(pool.map(_run_process, parts))
    return sorted((Sent(*row) for content in contents for row in json.loads(content)), key=lambda sent: sent.at)


def _run_process(load: Load) -> bytes:
    """Run a load generator; return what it wrote."""
    given = json.dumps(asdict(load)).encode()
    return subprocess.run([sys.executable, "-c", START], input=given, stdout=subprocess.PIPE, check=True).stdout


def main() -> None:
    """Read a load from stdin, carry it out, and write what was sent to stdout."""
    load = Load(**json.load(sys.stdin))
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        sent = runner.run(_closed(load) if load.clients else _open(load))
    json.dump([list(astuple(each)) for each in sent], sys.stdout)


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

    def close(self) -> None:
        """Close the idle connections."""
        for _, _, writer in self._idle:
            writer.close()

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


def _start(load: Load) -> float:
    """Return when to start: at the time given, or now if this process took longer to start."""
    return max(load.start_at or 0.0, time.monotonic())


async def _open(load: Load) -> list[Sent]:
    started = _start(load)
    connections, sent = Connections(load), list[Sent]()

    async def one(number: int, at: float) -> None:
        late = time.monotonic() - started - at
        status, codes = await connections.send(number)
        sent.append(Sent(at, time.monotonic() - started - at, status, codes, late))

    tasks = []
    for index, at in enumerate(load.arrivals):
        await asyncio.sleep(max(0.0, started + at - time.monotonic()))
        tasks.append(asyncio.ensure_future(one(load.first + index * load.every, at)))
    await asyncio.gather(*tasks)
    connections.close()
    return sent


async def _closed(load: Load) -> list[Sent]:
    started, numbers = _start(load), itertools.count(load.first, load.every)
    connections, sent = Connections(load), list[Sent]()
    await asyncio.sleep(max(0.0, started - time.monotonic()))

    async def client() -> None:
        while (at := time.monotonic() - started) < load.seconds:
            status, codes = await connections.send(next(numbers))
            sent.append(Sent(at, time.monotonic() - started - at, status, codes))

    await asyncio.gather(*(client() for _ in range(load.clients)))
    connections.close()
    return sent


def quantile(values: Sequence[float], q: float) -> float:
    """Return a quantile of some values.

    >>> quantile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
