"""Is `within=` kept beside other programs, and how fast does `stop=` answer, by a real clock?

    python benchmarks/deadlines.py MODEL [--calls 500] [--interruptions 200] [--busy 0,1,2] [--out benchmarks/results]

Deadlines are uniform between 0.3 and 1.5 times the full time of a quiet machine. Busy processes compute beside them. Another
process sleeps and wakes up meanwhile, and measures how long the machine itself stalls: what a program cannot prevent.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import shlex
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.synchronize import Event as ProcessEvent
from pathlib import Path
from statistics import mean, median

import tyro

from anytime.core.environment import environment
from anytime.core.priority import raised_priority
from anytime.core.results import Results, Row, Verdict, select
from anytime.model import AnytimeModel, load
from anytime.sampling.budget import DeadlineWarning
from anytime.server.load import quantile

NO_LIMIT = 1e3  # seconds
SHORTEST, LONGEST = 0.3, 1.5  # deadlines, as fractions of the quiet full time
FULL_CALLS = 20
AFTER_CALLS, AFTER_SLACK = 5, 1.3
"""Requests after a load ends, and their deadline as a multiple of the quiet full time."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    model: tyro.conf.Positional[str]
    """A bundled name, a run directory or the directory of a saved model."""
    calls: int = 500
    """Deadlines for each number of busy processes."""
    interruptions: int = 200
    rows: int = 8
    busy: str = "0,1,2"
    """Numbers of busy processes."""
    device: str | None = None
    out: Path = Path("benchmarks/results")


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep that many cores busy."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure_stalls(done: ProcessEvent, longest: object) -> None:
    """Sleep for a millisecond at a time; note the longest delay of waking up."""
    while not done.is_set():
        began = time.perf_counter()
        time.sleep(0.001)
        longest.value = max(longest.value, time.perf_counter() - began - 0.001)  # type: ignore[attr-defined]


@contextmanager
def stalls(rows: list[Row], busy: int) -> Iterator[None]:
    """Measure the longest stall of the machine meanwhile and add it to the rows."""
    done, longest = multiprocessing.Event(), multiprocessing.Value("d", 0.0)
    meter = multiprocessing.Process(target=measure_stalls, args=(done, longest), daemon=True)
    meter.start()
    yield
    done.set()
    meter.join()
    rows.append({"series": "stall", "busy": busy, "seconds": longest.value})


def full_times(model: AnytimeModel, n: int, busy: int) -> list[Row]:
    """Measure all codes without a limit, after one call that warms up."""
    model.sample(n, within=NO_LIMIT)
    times = [model.sample(n, seed=seed, within=NO_LIMIT).seconds for seed in range(FULL_CALLS)]
    return [{"series": "full", "busy": busy, "seconds": seconds} for seconds in times]


def deadlines(model: AnytimeModel, n: int, full: float, calls: int, busy: int) -> list[Row]:
    """Sample with random deadlines."""
    rng, rows = random.Random(busy), list[Row]()
    for call in range(calls):
        within = full * rng.uniform(SHORTEST, LONGEST)
        sample = model.sample(n, seed=call, within=within)
        took = {"within": within, "seconds": sample.seconds, "codes": sample.codes.shape[1]}
        rows.append({"series": "within", "busy": busy, **took})
    return rows


def after_load(model: AnytimeModel, n: int, full: float, busy: int) -> list[Row]:
    """Sample a few times right after the busy processes have ended."""
    counts = [model.sample(n, seed=seed, within=AFTER_SLACK * full).codes.shape[1] for seed in range(AFTER_CALLS)]
    return [{"series": "after", "busy": busy, "request": number, "codes": codes} for number, codes in enumerate(counts, 1)]


def interruptions(model: AnytimeModel, n: int, full: float, calls: int) -> list[Row]:
    """Interrupt sampling at random times."""
    rng, rows = random.Random(1), list[Row]()
    for call in range(calls):
        stop, at = threading.Event(), rng.uniform(0, full)
        marks = [began := time.perf_counter()]
        threading.Timer(at, stop.set).start()
        sample = model.sample(
            n, seed=call, stop=stop, progress=lambda codes, used, marks=marks: marks.append(time.perf_counter())
        )
        ended = time.perf_counter()
        is_complete = sample.data.shape[0] == n and bool(sample.data.isfinite().all())
        answer = max(0.0, ended - began - at) if sample.codes.shape[1] < model.length else 0.0
        rows.append({"series": "stop", "at": at, "answer": answer, "codes": sample.codes.shape[1], "complete": is_complete})
        rows[-1] |= {"longest_step": max(b - a for a, b in pairwise(marks)), "decode": ended - marks[-1]}
        stop.wait()
    return rows


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide what a user relies on."""
    levels = [row["busy"] for row in select(rows, series="stall")]
    full = {busy: median(row["seconds"] for row in select(rows, series="full", busy=busy)) for busy in levels}
    verdicts = [verdict for busy in levels for verdict in _decide_deadlines(rows, busy)]
    if {0, 2} <= full.keys():
        ratio = full[2] / full[0]
        text = f"{1000 * full[2]:.1f} ms against {1000 * full[0]:.1f} ms: {ratio:.2f}"
        verdicts.append(Verdict("beside two busy processes all codes take at most 2.5 times as long", ratio <= 2.5, text))
    quiet = median(row["codes"] for row in rows if row["series"] == "within" and row["busy"] == 0 and _is_ample(row, full[0]))
    for busy in levels[1:]:
        counts = [row["codes"] for row in select(rows, series="after", busy=busy)]
        claim = f"when {busy} busy processes end, codes are back at the quiet level within {AFTER_CALLS} requests"
        verdicts.append(Verdict(claim, max(counts) >= quiet, f"codes {counts}, quiet {quiet:g}"))
    return verdicts + _decide_interruptions(select(rows, series="stop"))


def _is_ample(row: Row, full: float) -> bool:
    return bool(row["within"] >= 1.2 * full)


def _decide_deadlines(rows: list[Row], busy: int) -> list[Verdict]:
    own, (stall,) = select(rows, series="within", busy=busy), select(rows, series="stall", busy=busy)
    late = [row["seconds"] - row["within"] for row in own]
    kept, least = sum(value <= 0 for value in late) / len(late), 0.95 if busy else 0.99
    overrun, allowed = quantile(late, 0.99), 0.010 + stall["seconds"]
    by_time, third = sorted(own, key=lambda row: row["within"]), len(own) // 3
    few, many = (mean(row["codes"] for row in part) for part in (by_time[:third], by_time[-third:]))
    beside = f"beside {busy} busy processes" if busy else "on a quiet machine"
    return [
        Verdict(f"{beside} at least {least:.0%} of deadlines are kept", kept >= least, f"{kept:.1%} of {len(late)}"),
        Verdict(
            f"{beside} p99 is at most 10 ms late beyond the longest stall of the machine",
            overrun <= allowed,
            f"p99 {1000 * overrun:+.1f} ms, longest stall {1000 * stall['seconds']:.1f} ms",
        ),
        Verdict(
            f"{beside} the codes grow with the time given",
            many > few,
            f"{few:.1f} in the shortest third, {many:.1f} in the longest",
        ),
    ]


def _decide_interruptions(rows: list[Row]) -> list[Verdict]:
    if not rows:
        return []
    answer = quantile([row["answer"] for row in rows], 0.99)
    allowed = sum(quantile([row[name] for row in rows], 0.99) for name in ("longest_step", "decode"))
    complete = all(row["complete"] for row in rows)
    return [
        Verdict("an interruption always gives a complete sample", complete, f"{len(rows)} interruptions"),
        Verdict(
            "it answers within one step and one decode at p99",
            answer <= allowed,
            f"p99 {answer:.4f} s; a step and a decode {allowed:.4f} s at p99",
        ),
    ]


def main() -> None:
    """Measure and write the results."""
    warnings.simplefilter("ignore", DeadlineWarning)  # of engines that warm up, and of deadlines too short for one code
    arguments = tyro.cli(Arguments)
    model, n, rows = load(arguments.model, arguments.device), arguments.rows, list[Row]()
    full = median(row["seconds"] for row in full_times(model, n, 0))
    for busy in map(int, arguments.busy.split(",")):
        with stalls(rows, busy), busy_processes(busy):
            rows += full_times(model, n, busy) + deadlines(model, n, full, arguments.calls, busy)
        rows += after_load(model, n, full, busy)
    rows += interruptions(model, n, full, arguments.interruptions)
    with raised_priority() as is_raised:
        facts = {
            "rows": n,
            "full_seconds": full,
            "raised_priority": is_raised,
            "model": model.hash,
            "engine": model.engine.name,
        }
    name = "-".join([model.config.name, model.device.type, *([] if is_raised or model.device.type != "cpu" else ["ordinary"])])
    schedule = f"{arguments.calls} deadlines beside {arguments.busy} busy processes, {arguments.interruptions} interruptions"
    results = Results(
        "deadlines", name, shlex.join(["python", *sys.argv]), environment(model.device) | facts, schedule, rows, decide(rows)
    )
    path = results.write(arguments.out)
    for verdict in results.verdicts:
        print(f"{verdict.holds!s:<5} {verdict.claim}: {verdict.evidence}")
    print(json.dumps({"out": str(path), "rows": n, "full_seconds": full}))


if __name__ == "__main__":
    main()
