"""The server over a long time, under load and with its engine killed. What is measured is recorded with the outcome."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean

import pytest
from serving import Server, serving
from test_server import fuzz, refusal_times, wait_for

from anytime.server.load import Load, Sent, poisson, quantile, run

pytestmark = pytest.mark.slow

N = 8
DEADLINE_MS = 1000
Property = Callable[[str, object], None]


def load(server: Server, **options: object) -> Load:
    body = {"n": N, "deadline_ms": DEADLINE_MS} if "arrivals" in options else {"n": N}
    return Load(host="127.0.0.1", port=server.port, body=body, **options)  # type: ignore[arg-type]


def capacity(server: Server) -> float:
    """Requests per second with all codes."""
    run(load(server, clients=1, seconds=1.0))  # warms up
    return len(run(load(server, clients=16, seconds=5.0))) / 5.0


def memory(server: Server) -> int:
    """Bytes of the server and its engines that are in memory."""
    folders = [Path(f"/proc/{number}/statm") for number in (server.process.pid, *server.engines())]
    return sum(int(path.read_text().split()[1]) for path in folders) * os.sysconf("SC_PAGE_SIZE")


def statuses(sent: list[Sent]) -> dict[str, int]:
    found = sorted({each.status for each in sent})
    return {str(status): sum(each.status == status for each in sent) for status in found}


@pytest.mark.timeout(2400)
def test_half_an_hour_at_80_percent_load_leaves_memory_and_answers_as_they_were(record_property: Property) -> None:
    with serving() as server:
        rate, sizes, sent = 0.8 * capacity(server), list[int](), list[Sent]()
        for minute in range(30):
            sent += run(load(server, arrivals=poisson(rate, 60.0, minute)))
            sizes.append(memory(server))
        drift = mean(sizes[-3:]) / mean(sizes[2:5]) - 1
        answered = [each for each in sent if each.status == 200]
        in_time = sum(each.seconds <= DEADLINE_MS / 1000 for each in answered) / len(answered)
        record_property("rate", rate)
        record_property("statuses", statuses(sent))
        record_property("in_time", in_time)
        record_property("seconds_p99", quantile([each.seconds for each in answered], 0.99))
        record_property("codes", mean(each.codes for each in answered))
        record_property("megabytes_by_minute", [round(size / 1e6, 1) for size in sizes])
        record_property("drift", drift)
        assert statuses(sent).keys() <= {"200", "429"}
        assert drift < 0.02
        assert in_time >= 0.99


@contextmanager
def under_load(server: Server, rate: float) -> Iterator[None]:
    """Send requests all the time, ten seconds at a time, from a process of its own."""
    done = threading.Event()

    def send() -> None:
        while not done.is_set():
            run(load(server, arrivals=poisson(rate, 10.0, 0)))

    thread = threading.Thread(target=send)
    thread.start()
    yield
    done.set()
    thread.join()


@pytest.mark.timeout(900)
def test_the_engine_killed_ten_times_under_load_answers_again_within_five_seconds(record_property: Property) -> None:
    with serving(spare=True) as server:
        rate, times = 0.5 * capacity(server), list[float]()
        with under_load(server, rate):
            for restarts in range(10):
                # The older engine works, the younger one is its spare; a kill may come before the spare is ready.
                os.kill(min(server.engines()), signal.SIGKILL)
                began = time.monotonic()
                wait_for(lambda: server.post("/v1/samples", {"n": N}).status == 200)
                times.append(time.monotonic() - began)
                wait_for(lambda restarts=restarts: f"restarts {restarts + 1}.0" in server.get("/metrics").content.decode())
                time.sleep(2.0)
        record_property("recovery_seconds", times)
        assert max(times) < 5.0


def test_refusals_take_less_than_ten_milliseconds_under_load(record_property: Property) -> None:
    with serving() as server, under_load(server, 0.8 * capacity(server)):
        times = refusal_times(server, 500)
        record_property("refusal_ms", {q: round(1000 * quantile(times, q), 2) for q in (0.5, 0.95, 0.99)})
        assert quantile(times, 0.95) < 0.010


def test_every_route_survives_long_fuzzing(record_property: Property) -> None:
    with serving() as server:
        record_property("schemathesis", fuzz(server, 500).splitlines()[-8:])
        assert server.get("/livez").status == 200
        server.wait_idle()
