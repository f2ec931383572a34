"""`anytime bench serving`: deadlines kept, codes and latency by load, with adaptation and without."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from statistics import mean
from typing import Any
from urllib.parse import urlsplit

from anytime.core.results import Row, Verdict, select
from anytime.server.load import Load, Sent, bursty, poisson, quantile, run

LOADS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
DEADLINES = (0.1, 0.25, 0.5, 1.0, 2.0)
SLO_LOADS, SLO_SCALES = (0.5, 1.0), (1.0, 1.1, 1.2, 1.5, 3.0)
BURSTY_LOADS, BURSTY_DEADLINES = (0.5, 1.0, 2.0), (0.5,)
CLOSED_CLIENTS, CLOSED_SECONDS = 16, 3.0
MAX_CEILING = 0.8
"""Share of the one-code ceiling above which the load of four times capacity is not raised."""
REFUSED = (429, 503)
MIN_REQUESTS = 1500
"""Requests of a measurement that decides a share of 1 %: SLO attainment at full load."""
LONG_ENOUGH = 5
"""Times its deadline that a measurement lasts at least: a queue that grows must have the time to become late."""


@dataclass(frozen=True, kw_only=True)
class ServingSettings:
    """What to serve and how long to measure."""

    model: str
    n: int
    """Samples of each request."""
    seconds: float
    """Of each measurement, at least."""
    options: tuple[str, ...] = ()
    """More options of `anytime serve`."""
    deadlines: tuple[float, ...] = DEADLINES
    """Seconds."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the server does at most, measured by clients that send the next request when they have an answer."""

    alone: float  # median seconds of a request with all codes and no other beside it
    full: float  # requests per second with all codes
    one_code: float  # requests per second with one code


@contextmanager
def running_server(settings: ServingSettings, *more: str) -> Iterator[tuple[str, int]]:
    """Start a server and yield its address."""
    options = ["--port", "0", "--no-spare", *settings.options, *more]
    command = [sys.executable, "-m", "anytime", "serve", settings.model, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = next((line for line in process.stdout if line.startswith("http")), None)
        if address is None:
            raise RuntimeError(f"the server did not start: {' '.join(command)}")
        parts = urlsplit(address.strip())
        yield str(parts.hostname), int(parts.port or 0)
    finally:
        process.terminate()
        process.wait(30)


def measure(settings: ServingSettings, length: int, quality: Sequence[float | None], say: Callable[[Row], None]) -> list[Row]:
    """Measure the capacity, then every load and deadline, first with adaptation and then without."""
    rows, capacity = list[Row](), None
    for series, options in (("adaptive", ()), ("fixed", ("--fixed",))):
        with running_server(settings, *options) as (host, port):
            base = partial(Load, host=host, port=port)
            if capacity is None:
                capacity = measure_capacity(base, settings, length)
                rows.append({"series": "capacity", **asdict(capacity), "n": settings.n, "length": length})
                say(rows[0])
            else:
                run(base(body={"n": settings.n}, clients=1, seconds=1.0))  # warms up
            for cell in cells(capacity, settings.deadlines):
                rate = cell["load"] * capacity.full
                is_decisive = "slo_scale" in cell and cell["load"] == 1.0
                seconds = max(settings.seconds, LONG_ENOUGH * cell["deadline"], MIN_REQUESTS / rate if is_decisive else 0.0)
                arrivals = cell["arrival"](rate, seconds, settings.seed)
                sent = run(base(body={"n": settings.n, "deadline_ms": 1000 * cell["deadline"]}, arrivals=arrivals))
                facts = {name: value for name, value in cell.items() if name != "arrival"}
                rows.append({"series": series, **facts, **summarise(sent, cell["deadline"], seconds, quality)})
                say(rows[-1])
    return rows


def measure_capacity(base: Callable[..., Load], settings: ServingSettings, length: int) -> Capacity:
    """Measure one client alone, then many with all codes and with one."""

    def closed(clients: int, codes: int, seconds: float = CLOSED_SECONDS) -> list[Sent]:
        return run(base(body={"n": settings.n, "codes": codes}, clients=clients, seconds=seconds))

    closed(1, length, 1.0)  # warms up
    alone = quantile([sent.seconds for sent in closed(1, length)], 0.5)
    full, one = (len(closed(CLOSED_CLIENTS, codes)) / CLOSED_SECONDS for codes in (length, 1))
    return Capacity(alone, full, one)


def cells(capacity: Capacity, deadlines: Sequence[float] = DEADLINES) -> Iterator[dict[str, Any]]:
    """Yield what to measure: arrivals, load relative to the capacity with all codes, and the deadline."""
    highest = min(4.0, MAX_CEILING * capacity.one_code / capacity.full)
    for deadline in deadlines:
        for load in LOADS:
            at = highest if load == 4.0 else load
            yield {"arrivals": "poisson", "arrival": poisson, "nominal": load, "load": at, "deadline": deadline}
    for scale in SLO_SCALES:
        for load in SLO_LOADS:
            deadline = scale * capacity.alone
            yield {"arrivals": "poisson", "arrival": poisson, "slo_scale": scale, "load": load, "deadline": deadline}
    for deadline in BURSTY_DEADLINES:
        for load in BURSTY_LOADS:
            yield {"arrivals": "bursty", "arrival": bursty, "nominal": load, "load": load, "deadline": deadline}


def summarise(sent: Sequence[Sent], deadline: float, seconds: float, quality: Sequence[float | None]) -> Row:
    """Return the figures of one load: attainment over all requests, and what the answers are like."""
    answers = [each for each in sent if each.status == 200]
    in_time = [each for each in answers if each.seconds <= deadline]
    known = [value for each in answers if quality and (value := quality[each.codes - 1]) is not None]
    times = [each.seconds for each in answers]
    return {
        "seconds": seconds,
        "requests": len(sent),
        "attainment": len(in_time) / len(sent),
        "answers": len(answers),
        "answers_in_time": len(in_time) / len(answers) if answers else None,
        "refused": sum(each.status in REFUSED for each in sent) / len(sent),
        "expired": sum(each.status == 504 for each in sent) / len(sent),
        "errors": sum(each.status not in (200, 504, *REFUSED) for each in sent) / len(sent),
        "codes": mean(each.codes for each in answers) if answers else None,
        "quality": mean(known) if known else None,
        "seconds_p50": quantile(times, 0.5) if times else None,
        "seconds_p99": quantile(times, 0.99) if times else None,
        "goodput": len(in_time) / seconds,
        "generator_late_p99": quantile([each.late for each in sent], 0.99),  # its own share of the latencies
    }


def decide(rows: Sequence[Row]) -> list[Verdict]:
    """Decide what a user relies on."""
    poisson_rows = select(rows, arrivals="poisson")
    adaptive, fixed = (select(poisson_rows, series=series) for series in ("adaptive", "fixed"))
    over, over_fixed = (select(own, nominal=4.0) for own in (adaptive, fixed))
    half, eight = (select(adaptive, nominal=load) for load in (0.5, 8.0))
    slo = {row["slo_scale"]: row for row in adaptive if row.get("slo_scale") and row["load"] == 1.0}
    length = next(row["length"] for row in rows if row["series"] == "capacity")
    level = over[0]["load"]

    def worst(own: Sequence[Row], key: str, *, most: bool = False) -> float:
        return float((max if most else min)(row[key] for row in own))

    def text(own: Sequence[Row], key: str, style: str = ".1%") -> str:
        return ", ".join(f"{row['deadline']:g} s: {row[key]:{style}}" for row in own)

    return [
        Verdict(
            f"at {level:.2f} times the capacity, at least 99 % of accepted answers by their deadline, at most 1 % refused",
            worst(over, "answers_in_time") >= 0.99 and worst(over, "refused", most=True) <= 0.01,
            f"in time {text(over, 'answers_in_time')}; refused {text(over, 'refused')}; codes {text(over, 'codes', '.1f')}",
        ),
        Verdict(
            "without adaptation, the same load loses most of its deadlines",
            worst(over_fixed, "attainment", most=True) < 0.5,
            text(over_fixed, "attainment"),
        ),
        Verdict(
            "at half of the capacity, all codes and every deadline",
            worst(half, "attainment") == 1 and worst(half, "codes") == length,
            f"in time {text(half, 'attainment', '.2%')}; codes {text(half, 'codes', '.2f')} of {length}",
        ),
        Verdict(
            "at eight times the capacity, at least 99 % of accepted answers by their deadline",
            worst(eight, "answers_in_time") >= 0.99,
            f"in time {text(eight, 'answers_in_time')}; refused {text(eight, 'refused')}",
        ),
        Verdict(
            "SLO attainment at full load at least 95 % at scale 1.0 and 99 % at 1.5",
            slo[1.0]["attainment"] >= 0.95 and slo[1.5]["attainment"] >= 0.99,
            ", ".join(f"{scale:g}: {row['attainment']:.1%}" for scale, row in slo.items()),
        ),
    ]


def draw(rows: Sequence[Row], title: str) -> Any:
    """Draw attainment, codes and latency by load, with adaptation and without."""
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(12.0, 3.6), layout="constrained")
    panels = (("attainment", "answered by the deadline"), ("codes", "codes per answer"), ("seconds_p99", "p99 latency, s"))
    for axes, (key, label) in zip(figure.subplots(1, 3), panels, strict=True):
        for number, deadline in enumerate(sorted({row["deadline"] for row in rows if "nominal" in row})):
            for series, style in (("adaptive", "o-"), ("fixed", "x:")):
                own = [
                    row for row in select(rows, series=series, deadline=deadline, arrivals="poisson") if row[key] is not None
                ]
                name = f"{1000 * deadline:.0f} ms" if series == "adaptive" else None
                own = [row for row in own if "nominal" in row]
                axes.plot([row["load"] for row in own], [row[key] for row in own], style, color=f"C{number}", label=name)
        axes.set(xlabel="load / capacity with all codes", ylabel=label, xscale="log", xticks=LOADS)
        axes.set_xticklabels([f"{load:g}" for load in LOADS])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
    figure.axes[0].legend(title="deadline", fontsize="small")
    figure.suptitle(f"{title}; dotted: without adaptation")
    return figure
