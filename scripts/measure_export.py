"""Measure exported models beside the library on a CPU: size, start-up and milliseconds of a step and a decode.

python scripts/measure_export.py mnist [--rounds 15] [--threads 1,2] [--batches 1,8,100]

Every runtime is a process of its own. They take turns, one request each, so that a machine that slows down for a while slows
down all of them. Writes benchmarks/results/export/NAME.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import torch

from anytime.core.environment import environment
from anytime.core.errors import UserError
from anytime.core.progress import track
from anytime.core.results import Results, Row, Verdict, select
from anytime.evaluation.model_card import redact_paths
from anytime.export.aoti import export_aoti
from anytime.export.exported import COMMAND
from anytime.export.onnx import export_onnx
from anytime.export.sample import CheckedRunner
from anytime.model import load
from anytime.models.registry import WEIGHTS, locate

LIBRARY, EXPORTS = ("eager", "packed"), {"onnx": export_onnx, "aoti": export_aoti}
REFERENCE = "eager"
STARTS = 5
PAUSE = 0.05  # seconds between two turns: threads that wait for work spin for a while

Sampler = Callable[[int, int], float]
"""Samples n rows of a number of codes and returns the seconds; 0 codes: decodes n rows of all codes."""


def library_sampler(name: str, engine: str, threads: int) -> Sampler:
    """Return a function that samples with an engine in fp32 and returns the seconds."""
    torch.set_num_threads(threads)
    model = load(name, "cpu", engine, "fp32")
    codes = model.sample(1, seed=0).codes

    def sample(n: int, count: int) -> float:
        began = time.perf_counter()
        model.sample(n, seed=1, codes=count) if count else model.engine.decode(codes.expand(n, -1))
        return time.perf_counter() - began

    return sample


def export_sampler(folder: Path, threads: int) -> Sampler:
    """Return a function that samples with an exported model and returns the seconds."""
    runner = CheckedRunner(folder, threads)
    codes = runner.sample(1, seed=0).codes

    def sample(n: int, count: int) -> float:
        began = time.perf_counter()
        runner.sample(n, seed=1, codes=count) if count else runner.decode(codes.repeat(n, 0))
        return time.perf_counter() - began

    return sample


def serve(connection: Connection, build: Callable[..., Sampler], *arguments: Any) -> None:
    """Answer requests in a process of its own."""
    sampler = build(*arguments)
    while (request := connection.recv()) is not None:
        connection.send(sampler(*request))


class Contender:
    """A runtime with a number of threads, in its own process."""

    def __init__(self, runtime: str, threads: int, build: Callable[..., Sampler], *arguments: Any) -> None:
        self.runtime, self.threads = runtime, threads
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, build, *arguments, threads), daemon=True)
        self.process.start()

    def seconds(self, *request: int) -> float:
        """Return the seconds of a request."""
        self.connection.send(request)
        taken: float = self.connection.recv()
        return taken

    def stop(self) -> None:
        """End the process."""
        self.connection.send(None)
        self.process.join()


def measure(contenders: Sequence[Contender], batches: Sequence[int], length: int, rounds: int) -> list[Row]:
    """Return the time of a request, of a decode and of a step for every runtime and batch size.

    They are the fastest of all rounds: other programs on the machine only make a request slower. The median is there too.
    """
    requests = [(batch, count) for batch in batches for count in (length, 0)]
    taken: dict[tuple[Contender, tuple[int, int]], list[float]] = {(c, r): [] for c in contenders for r in requests}
    for warm in track(range(-1, rounds), rounds + 1, "measuring"):
        for request in requests:
            for contender in contenders:
                seconds = contender.seconds(*request)
                time.sleep(PAUSE)
                if warm >= 0:
                    taken[contender, request].append(seconds)
    rows: list[Row] = []
    for contender in contenders:
        for batch in batches:
            whole, decode = (1e3 * min(taken[contender, (batch, count)]) for count in (length, 0))
            times = {"request_ms": whole, "decode_ms": decode, "step_ms": (whole - decode) / length}
            times["request_p50_ms"] = 1e3 * median(taken[contender, (batch, length)])
            rows.append({"series": contender.runtime, "threads": contender.threads, "batch": batch, "rounds": rounds, **times})
    return with_ratios(rows)


def with_ratios(rows: list[Row]) -> list[Row]:
    """Add how many times as fast as the eager engine with as many threads each row is."""
    for row in rows:
        (reference,) = select(rows, series=REFERENCE, threads=row["threads"], batch=row["batch"])
        row |= {f"{part}_speedup": reference[f"{part}_ms"] / row[f"{part}_ms"] for part in ("request", "decode", "step")}
    return rows


def measure_starts(name: str, folders: dict[str, Path]) -> list[Row]:
    """Return the seconds from the start of a Python process to its first sample of one row, the fastest of a few."""
    code = f"import anytime; anytime.load({name!r}, 'cpu').sample(1)"
    commands = {REFERENCE: [sys.executable, "-c", code]}
    for runtime, folder in folders.items():
        commands[runtime] = [sys.executable, str(folder / COMMAND), "--out", str(folder.parent / "sample.npz")]
    taken: dict[str, list[float]] = {runtime: [] for runtime in commands}
    for _ in range(STARTS):
        for runtime, command in commands.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            taken[runtime].append(time.perf_counter() - began)
    reference = min(taken[REFERENCE])
    return [
        {"series": runtime, "start_seconds": min(times), "start_speedup": reference / min(times), "starts": STARTS}
        for runtime, times in taken.items()
    ]


def sizes(name: str, folders: dict[str, Path]) -> list[Row]:
    """Return the bytes of the weights: of the model's file, with the encoder, and of the exported networks, without it."""
    rows: list[Row] = [{"series": REFERENCE, "bytes": (locate(name) / WEIGHTS).stat().st_size}]
    for runtime, folder in folders.items():
        files = (path for path in folder.iterdir() if path.suffix in (".onnx", ".pt2"))
        rows.append({"series": runtime, "bytes": sum(path.stat().st_size for path in files)})
    return rows


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Return whether each export is faster than the eager engine, at every batch size and number of threads."""
    found = []
    for runtime in EXPORTS:
        ratios = [row["step_speedup"] for row in select(rows, series=runtime) if "step_speedup" in row]
        evidence = f"the eager engine's step takes {min(ratios):.2f} to {max(ratios):.2f} times as long"
        found.append(Verdict(f"{runtime}: a step is faster than the eager engine's", min(ratios) > 1, evidence))
    return found


def measure_model(arguments: argparse.Namespace, command: str) -> Results:
    """Export a model and measure it beside the library."""
    threads, batches = ([int(n) for n in text.split(",")] for text in (arguments.threads, arguments.batches))
    model, load_before = load(arguments.model, "cpu"), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        folders = {runtime: export(arguments.model, Path(place) / runtime).folder for runtime, export in EXPORTS.items()}
        rows = sizes(arguments.model, folders) + measure_starts(arguments.model, folders)
        for count in threads:
            contenders = [Contender(engine, count, library_sampler, arguments.model, engine) for engine in LIBRARY]
            contenders += [Contender(runtime, count, export_sampler, folder) for runtime, folder in folders.items()]
            rows += measure(contenders, batches, model.length, arguments.rounds)
            for contender in contenders:
                contender.stop()
    loads = f"load average {load_before:.1f} before and {os.getloadavg()[0]:.1f} after, this measurement included"
    facts = {**environment(model.device), "cores": os.cpu_count(), "onnxruntime": version("onnxruntime"), "model": model.hash}
    schedule = f"the fastest of {arguments.rounds} rounds, all runtimes in turn, fp32; {loads}"
    return Results("export", model.config.name, command, facts, schedule, rows, verdicts(rows))


def main(argv: Sequence[str] | None = None) -> int:
    """Write the results; status 2 for a mistake."""
    parser = argparse.ArgumentParser(description="size, start-up and speed of exported models")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batches", default="1,8,100")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = sys.argv[1:] if argv is None else argv
    command = redact_paths(shlex.join(["python", "scripts/measure_export.py", *given]))
    arguments = parser.parse_args(given)
    try:
        results = measure_model(arguments, command)
    except UserError as error:
        print(f"measure_export: {error}", file=sys.stderr)
        return 2
    for row in results.rows:
        print("  ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()))
    print(results.write(arguments.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
