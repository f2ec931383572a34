"""Is `within=` kept, and how fast does `stop=` answer, by a real clock?

    python benchmarks/deadlines.py MODEL [--calls 500] [--interruptions 200] [--out benchmarks/results]

Draws deadlines uniformly between one step plus a decode and 1.2 times the full time, with as many rows as make the full run
take at least 300 ms. A second process measures how long this machine stalls meanwhile: what a program cannot prevent.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import shlex
import statistics
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.synchronize import Event as ProcessEvent
from pathlib import Path

import torch
import tyro

from anytime.core.environment import environment
from anytime.core.results import Results, Row, Verdict
from anytime.model import AnytimeModel, load
from anytime.sampling.budget import DeadlineWarning

FULL_SECONDS = 0.3


@dataclass(frozen=True, kw_only=True)
class Arguments:
    model: tyro.conf.Positional[str]
    """A run's folder or a saved model's."""
    calls: int = 500
    interruptions: int = 200
    threads: int = 1
    """For torch; one is left for the process that measures stalls."""
    rows: int = 16
    """To begin with; more are taken until the full run lasts long enough."""
    device: str | None = None
    out: Path = Path("benchmarks/results")


def stalls(done: ProcessEvent, longest: object) -> None:
    """Spin and note the longest gap between two looks at the clock."""
    last = time.perf_counter()
    while not done.is_set():
        now = time.perf_counter()
        longest.value = max(longest.value, now - last)  # type: ignore[attr-defined]
        last = now


def rows_for(model: AnytimeModel, n: int) -> tuple[int, float]:
    """How many rows make the full run last long enough, and how long it then takes."""
    while True:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeadlineWarning)  # a cold engine
            model.sample(n, within=1e3)
        seconds = statistics.median(model.sample(n, within=1e3).seconds for _ in range(3))
        if seconds >= FULL_SECONDS:
            return n, seconds
        n = max(n + 1, int(n * min(4.0, 1.1 * FULL_SECONDS / seconds)))


def deadlines(model: AnytimeModel, n: int, full: float, calls: int) -> list[Row]:
    rng = random.Random(0)
    estimate = model.sampler.latencies[n]
    # Medians: near this end half the deadlines are shorter than what the one forced step and the decode happen to take.
    shortest = statistics.median(estimate.steps) + statistics.median(estimate.decodes)
    rows = []
    for call in range(calls):
        within = rng.uniform(shortest, 1.2 * full)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeadlineWarning)
            sample = model.sample(n, seed=call, within=within)
        rows.append({"series": "within", "within": within, "seconds": sample.seconds, "codes": sample.codes.shape[1]})
    return rows


def interruptions(model: AnytimeModel, n: int, full: float, calls: int) -> list[Row]:
    rng = random.Random(1)
    rows = []
    for call in range(calls):
        stop, at = threading.Event(), rng.uniform(0, full)
        marks = [began := time.perf_counter()]
        threading.Timer(at, stop.set).start()
        sample = model.sample(
            n, seed=call, stop=stop, progress=lambda codes, used, marks=marks: marks.append(time.perf_counter())
        )
        ended = time.perf_counter()
        step, decode = max(b - a for a, b in pairwise(marks)), ended - marks[-1]
        complete_sample = sample.data.shape[0] == n and bool(sample.data.isfinite().all())
        answer = max(0.0, ended - began - at) if sample.codes.shape[1] < model.length else 0.0
        rows.append({"series": "stop", "at": at, "answer": answer, "codes": sample.codes.shape[1], "complete": complete_sample})
        rows[-1] |= {"longest_step": step, "decode": decode}
        stop.wait()
    return rows


def quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def decide(rows: list[Row], step: float, decode: float, stall: float) -> list[Verdict]:
    deadline_rows = [row for row in rows if row["series"] == "within"]
    late = [row["seconds"] - row["within"] for row in deadline_rows]
    in_time = sum(value <= 0 for value in late) / len(late)
    nearly_in_time = sum(value <= step + decode + stall for value in late) / len(late)
    by_time = sorted(deadline_rows, key=lambda row: row["within"])
    third = len(by_time) // 3
    few, many = (statistics.mean(row["codes"] for row in part) for part in (by_time[:third], by_time[-third:]))
    answers = [row["answer"] for row in rows if row["series"] == "stop"]
    complete = all(row["complete"] for row in rows if row["series"] == "stop")
    p99 = quantile(answers, 0.99)
    allowed = sum(quantile([row[name] for row in rows if row["series"] == "stop"], 0.99) for name in ("longest_step", "decode"))
    return [
        Verdict(
            "at least 99 % of deadlines are kept", in_time >= 0.99, f"{in_time:.2%} of {len(late)}, latest by {max(late):.4f} s"
        ),
        Verdict(
            "99.5 % within one step, one decode and the longest stall",
            nearly_in_time >= 0.995,
            f"{nearly_in_time:.2%}; stall {stall:.4f} s",
        ),
        Verdict(
            "the codes used grow with the time given", many > few, f"{few:.1f} in the shortest third, {many:.1f} in the longest"
        ),
        Verdict("an interruption always gives a complete sample", complete, f"{len(answers)} interruptions"),
        Verdict(
            "it answers within one step and one decode at p99",
            p99 <= allowed,
            f"p99 {p99:.4f} s; a step and a decode {allowed:.4f} s at p99",
        ),
    ]


def main() -> None:
    arguments = tyro.cli(Arguments)
    torch.set_num_threads(arguments.threads)
    model = load(arguments.model, arguments.device)
    n, full = rows_for(model, arguments.rows)
    done, longest = multiprocessing.Event(), multiprocessing.Value("d", 0.0)
    watcher = multiprocessing.Process(target=stalls, args=(done, longest), daemon=True)
    watcher.start()
    rows = deadlines(model, n, full, arguments.calls) + interruptions(model, n, full, arguments.interruptions)
    done.set()
    watcher.join()
    estimate = model.sampler.latencies[n]
    step, decode = max(estimate.steps), max(estimate.decodes)
    verdicts = decide(rows, step, decode, longest.value)
    facts = {
        **environment(model.device),
        "rows": n,
        "full_seconds": full,
        "step_p95": estimate.step,
        "decode_p95": estimate.decode,
    }
    facts |= {
        "step_longest": step,
        "decode_longest": decode,
        "stall_longest": longest.value,
        "model": model.hash,
        "engine": model.engine.name,
    }
    name = f"{model.config.name}-{model.device.type}"
    schedule = f"{arguments.calls} deadlines, {arguments.interruptions} interruptions, {arguments.threads} threads"
    path = Results("deadlines", name, shlex.join(["python", *sys.argv]), facts, schedule, rows, verdicts).write(arguments.out)
    for verdict in verdicts:
        print(f"{verdict.holds!s:<5} {verdict.claim}: {verdict.evidence}")
    print(json.dumps({"out": str(path), "rows": n, "full_seconds": full}))


if __name__ == "__main__":
    main()
