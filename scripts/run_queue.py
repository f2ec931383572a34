"""The GPU work that the reproduction still needs, in pieces of less than nine minutes.

python scripts/run_queue.py --list
python scripts/run_queue.py PIECE [PIECE ...] --data FOLDER --inception FILE [--runs-dir runs] [--measured OUT]
                            [--jobs 2] [--minutes 8.5]
python scripts/run_queue.py all --scale smoke

FOLDER holds one folder for each dataset, such as FOLDER/cifar10. Each piece is a call of `anytime reproduce`. Together they
stop at a safe point after 8.5 minutes. Given again with the same `--runs-dir`, they resume; a measured piece costs seconds.
After every piece the measurements are copied to OUT, so that a lost machine loses at most the pieces in work. Keep them with
the results by `python scripts/merge_measurements.py OUT`. Then `python scripts/run_queue.py decide --data FOLDER` decides
without a GPU; it trains and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from anytime.core.environment import environment
from anytime.core.errors import UserError
from anytime.core.results import MEASURED
from anytime.data.download import cache_dir
from anytime.experiments.registry import find

MINUTES = 8.5
"""A call starts no further piece after this time, and all pieces stop at the next safe point."""
MIN_MINUTES = 1.0
"""A piece is not started with less time: it would hardly get past its preparations."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One call of `anytime reproduce`."""

    name: str
    experiment: str
    dataset: str
    only: str  # runs; empty for the whole experiment
    minutes: int  # estimated, on an H200 with nothing else on it
    seeds: str = "0"
    options: tuple[str, ...] = ()
    after: str = ""  # a piece whose runs it needs: the same machine and `--runs-dir`
    alone: bool = False  # measures times, so that nothing else may run

    @property
    def calls(self) -> int:
        """Return how many calls of MINUTES it probably takes."""
        return math.ceil(self.minutes / MINUTES)

    def command(self, data: str, inception: str, scale: str | None = None, minutes: float = MINUTES) -> list[str]:
        """Return the words after `anytime`, without the place of the runs."""
        smoke = scale == "smoke"
        words = ["reproduce", self.experiment, "--dataset", self.dataset]
        words += ["--seeds" if "," in self.seeds else "--seed", self.seeds]
        words += ["--scale", scale] if scale else []
        words += ["--only", self.only] if self.only else []
        words += [] if smoke else [*self.options, "--data", f"{data}/{self.dataset}", "--minutes", f"{minutes:.3g}"]
        return words + (["--inception", inception] if find(self.experiment).inception and not smoke else [])


def _both_seeds(
    name: str,
    experiment: str,
    only: str,
    minutes: int,
    dataset: str = "cifar10",
    options: tuple[str, ...] = (),
    after: str = "",
    alone: bool = False,
) -> list[Piece]:
    return [
        Piece(f"{name}-{seed}", experiment, dataset, only, minutes, seed, options, after and f"{after}-{seed}", alone)
        for seed in ("0", "1")
    ]


CELEBA = ("--scale", "short", "--samples", "17000")
PIECES = (
    Piece("speed-cifar10", "speed", "cifar10", "", 4, alone=True),
    Piece("speed-celeba", "speed", "celeba", "", 6, alone=True),
    *(Piece(f"{space}-{seed}", "pca-prior", "mnist", space, 9, seed) for seed in "01" for space in ("pixels", "pca")),
    *_both_seeds("means", "objective", "ordered", 8),
    *_both_seeds("unordered", "fid", "unordered", 7, after="means"),
    *_both_seeds("sums", "objective", "sums", 8),
    *_both_seeds("means-by-reconstruction", "objective", "means-by-reconstruction", 8),
    *_both_seeds("sums-by-reconstruction", "objective", "sums-by-reconstruction", 8),
    *_both_seeds("original", "fid", "original", 19),
    *_both_seeds("regularization-all", "regularization", "ordered,unordered", 6),
    *_both_seeds("priors", "priors", "ordered,lstm,pixelcnn", 8, after="regularization-all"),
    *_both_seeds("tailored-long", "tailored", "tailored-0.6,tailored-0.8", 5),
    *_both_seeds("tailored-short", "tailored", "tailored-0.2,tailored-0.4", 5),
    *_both_seeds("regularization-5k", "regularization", "ordered-5k,unordered-5k", 7),
    *_both_seeds("regularization-10k", "regularization", "ordered-10k,unordered-10k", 6),
    *_both_seeds("regularization-25k", "regularization", "ordered-25k,unordered-25k", 6),
    *_both_seeds("vae", "vae", "ordered-vae,standard-vae", 5),
    *_both_seeds("vae-0.002", "vae", "ordered-vae-0.002,standard-vae-0.002", 5),
    *_both_seeds("celeba", "fid", "ordered,unordered", 8, "celeba", CELEBA),
    *_both_seeds("celeba-original", "fid", "original", 7, "celeba", CELEBA),
    *_both_seeds("audio-best", "audio", "best,best-unordered", 15, "audiomnist", alone=True),
    *_both_seeds("audio-paper", "audio", "ordered,unordered", 14, "audiomnist", alone=True),
    Piece("audio-decide", "audio", "audiomnist", "", 1, "0,1", alone=True),
)
"""By value: first what decides an untested or confounded claim soonest."""
DECIDE = ("pca-prior", "objective", "fid", "priors", "tailored", "regularization", "vae")
"""Experiments that a CPU decides once their pieces are measured; `fid` on CelebA too. Times are decided on the GPU."""


def decide_commands(data: str, inception: str) -> list[list[str]]:
    """Return the commands that write results from kept measurements."""
    places = [(name, find(name).datasets[0]) for name in DECIDE] + [("fid", "celeba")]
    commands = []
    for name, dataset in places:
        words = ["reproduce", name, "--dataset", dataset, "--seeds", "0,1", "--cached", "--data", f"{data}/{dataset}"]
        words += CELEBA if dataset == "celeba" else []
        commands.append(words + (["--inception", inception] if find(name).inception else []))
    return commands


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended."""

    status: int
    finished: bool  # measured, or the whole experiment decided; otherwise it resumes


def run(words: Sequence[str], runs_dir: Path, name: str) -> Outcome:
    """Call `anytime` in a process of its own; print its lines with the name before them."""
    words = [*words, "--runs-dir", str(runs_dir), "--json"]
    print(f"{name} $ {shlex.join(['anytime', *words])}", flush=True)
    finished = False
    with subprocess.Popen(
        [sys.executable, "-m", "anytime", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            finished = finished or is_finished(line)
            print(f"{name}: {line.rstrip()}", flush=True)
    return Outcome(process.returncode, process.returncode == 0 and finished)


def is_finished(line: str) -> bool:
    """Return whether a line is the JSON document of `reproduce`, and says so.

    >>> is_finished('{"finished": false, "measured": true}'), is_finished('{"finished": false}'), is_finished("stopped")
    (True, False, False)
    """
    try:
        document = json.loads(line)
    except ValueError:
        return False
    return isinstance(document, dict) and bool(document.get("finished") or document.get("measured"))


def copy_measurements(piece: Piece, runs_dir: Path, target: Path) -> None:
    """Copy the caches of measurements, the classifiers, and results that were decided, all small; the runs stay."""
    target.mkdir(parents=True, exist_ok=True)
    for path in (runs_dir / MEASURED).glob("*.json"):
        shutil.copy(path, target)
    for path in (cache_dir() / "classifiers").glob("*.safetensors"):
        (target / "classifiers").mkdir(exist_ok=True)
        shutil.copy(path, target / "classifiers")
    if not piece.only and (found := Path("results", piece.experiment)).is_dir():
        shutil.copytree(found, target / "results" / piece.experiment, dirs_exist_ok=True)


def chosen(names: Sequence[str]) -> list[Piece]:
    """Return the pieces of these names."""
    by_name = {piece.name: piece for piece in PIECES}
    for name in names:
        if name not in by_name and name != "all":
            raise UserError(f"there is no piece {name!r}; --list names them")
    return list(PIECES) if "all" in names else [by_name[name] for name in names]


def check_together(pieces: Sequence[Piece], jobs: int) -> None:
    """Refuse to measure times beside other pieces."""
    alone = [piece.name for piece in pieces if piece.alone]
    if jobs > 1 and len(pieces) > 1 and alone:
        raise UserError(f"{', '.join(alone)} measures times and needs the machine for itself; give it alone, or --jobs 1")


def check_commit() -> None:
    """Refuse numbers that nobody could repeat."""
    commit = environment(torch.device("cpu"))["commit"]
    if commit is None:
        raise UserError("the commit of this copy is unknown; name it in ANYTIME_COMMIT")
    if str(commit).endswith("-dirty"):
        raise UserError("the code has uncommitted changes, so nobody can repeat its numbers; commit them first")


class Queue:
    """Runs pieces, `jobs` at a time, until the time is over."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.deadline = options, time.monotonic() + 60 * options.minutes
        self.copying = threading.Lock()
        self.futures: dict[str, Future[Outcome | None]] = {}

    def run(self, pieces: Sequence[Piece]) -> int:
        """Run the pieces in order; return the largest exit status."""
        with ThreadPoolExecutor(self.options.jobs) as pool:
            for piece in pieces:
                self.futures[piece.name] = pool.submit(self._piece, piece)
        found = {name: future.result() for name, future in self.futures.items()}
        for name, outcome in found.items():
            state = "not started" if outcome is None else "done" if outcome.finished else "not finished"
            failed = f" (exit status {outcome.status})" if outcome is not None and outcome.status else ""
            print(f"{name}: {state}{failed}")
        return max((outcome.status for outcome in found.values() if outcome is not None), default=0)

    def _piece(self, piece: Piece) -> Outcome | None:
        """Run one piece after the piece whose runs it needs; None without that, or without time."""
        options, before = self.options, self.futures.get(piece.after)
        if before is not None and ((outcome := before.result()) is None or not outcome.finished):  # it has a thread already
            return None
        left = (self.deadline - time.monotonic()) / 60
        if options.scale is None and left < MIN_MINUTES:
            return None
        outcome = run(piece.command(options.data, options.inception, options.scale, left), options.runs_dir, piece.name)
        if options.measured is not None:
            with self.copying:
                copy_measurements(piece, options.runs_dir, options.measured)
        return outcome


def list_pieces(data: str, inception: str) -> None:
    """Print every piece with its minutes and its command."""
    for piece in PIECES:
        command = shlex.join(["anytime", *piece.command(data, inception)])
        print(f"{piece.name:<26} {piece.minutes:>3} min  {command}" + (f"  # after {piece.after}" if piece.after else ""))
    print(f"{sum(piece.minutes for piece in PIECES)} minutes in all")


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pieces", nargs="*", metavar="PIECE", help="names of pieces, all, or decide")
    parser.add_argument("--list", action="store_true", help="print the pieces with their estimated minutes and commands")
    parser.add_argument("--data", default="FOLDER", metavar="FOLDER", help="a folder for each dataset")
    parser.add_argument("--inception", default="FILE", metavar="FILE", help="the FID network")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), metavar="DIR")
    parser.add_argument("--measured", type=Path, default=None, metavar="OUT", help="where measurements are copied to")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="pieces at a time")
    parser.add_argument("--minutes", type=float, default=MINUTES, metavar="M", help="of the whole call; 8.5 by default")
    parser.add_argument("--scale", choices=("smoke",), default=None, help="try the pieces in seconds each, on a CPU")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """List, run or decide; return the exit status."""
    options = parse(argv)
    if options.list or not options.pieces:
        list_pieces(options.data, options.inception)
        return 0
    if options.pieces == ["decide"]:
        commands = decide_commands(options.data, options.inception)
        return max(run(words, options.runs_dir, words[1]).status for words in commands)
    try:
        pieces = chosen(options.pieces)
        check_together(pieces, options.jobs)
        if options.scale is None:
            check_commit()
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return Queue(options).run(pieces)


if __name__ == "__main__":
    sys.exit(main())
