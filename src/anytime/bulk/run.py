"""Bulk sampling by one process or by several ranks: shard i belongs to rank i modulo their number.

No rank talks to another. What they share is the directory, so a rank that dies loses only the shard it was making.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from anytime.bulk.request import BulkRequest, bulk_request
from anytime.bulk.shard_folder import MANIFEST, ShardFolder
from anytime.bulk.shards import Stopped, make_shard
from anytime.core.progress import Reporter, SilentReporter, track
from anytime.core.ranks import Ranks, read_ranks
from anytime.model import AnytimeModel

POLL_SECONDS = 0.1
"""Time between two looks at the directory while other ranks finish."""


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What a directory of shards holds after a run."""

    request: BulkRequest
    rows: int
    """Samples in finished shards."""
    made: int
    """Samples that this run added, by all ranks."""
    seconds: float
    complete: bool
    """Whether all shards are there and checked."""


class BulkProgress:
    """Reports how many samples are done, and how many this run makes a second."""

    def __init__(self, folder: ShardFolder, reporter: Reporter) -> None:
        self.folder, self.reporter, self._started = folder, reporter, time.perf_counter()
        self._before = set(folder.done | folder.present)
        reporter.stage("sampling", folder.request.rows_of(self._before), folder.request.n)

    @property
    def made(self) -> int:
        """Samples finished since the start."""
        return self.folder.request.rows_of(self.folder.done - self._before)

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.perf_counter() - self._started

    @property
    def rows(self) -> int:
        """Samples in finished shards."""
        return self.folder.request.rows_of(self.folder.done | self._before)

    def show(self) -> None:
        """Report the samples done so far."""
        self.reporter.progress(self.rows, {"samples/s": self.made / max(self.seconds, 1e-9)})


def sample_to_shards(
    model: AnytimeModel,
    n: int,
    out: str | Path,
    *,
    reporter: Reporter | None = None,
    stop: threading.Event | None = None,
    **options: Any,
) -> BulkResult:
    """Write `n` samples as shards with a manifest into the directory `out`; the same call resumes where it stopped.

    Options are `seed`, `codes`, `fraction`, `quality`, `temperature`, `top_k` and `top_p` of `AnytimeModel.sample`, `prefix`
    (a tuple of codes), `shards` ("npz" or "tar") and `rows_per_shard`. Under torchrun the ranks share the work; the bytes are
    the same for any number of them. If `stop` is set, the result is not complete.
    """
    request = bulk_request(model, n, **options)
    return run_rank(model, request, Path(out), read_ranks(), reporter or SilentReporter(), stop)


def run_rank(
    model: AnytimeModel, request: BulkRequest, out: Path, ranks: Ranks, reporter: Reporter, stop: threading.Event | None = None
) -> BulkResult:
    """Make the shards of this rank; the main rank also keeps the manifest and waits for the others."""
    folder = ShardFolder(out, request, is_main=ranks.rank == 0)
    missing = open_folder(folder, range(ranks.rank, request.count, ranks.world_size), reporter, stop)

    def make(progress: BulkProgress) -> None:
        for index in missing:
            folder.write(index, make_shard(model, request, index, stop))
            show(folder, progress)
        if folder.is_main:
            wait_for_others(folder, progress, stop)

    return keep_manifest(folder, reporter, make)


def open_folder(folder: ShardFolder, mine: range, reporter: Reporter, stop: threading.Event | None) -> list[int]:
    """Open the directory and check the shards in it; return those of `mine` that must be made."""
    folder.open()
    shown = track(mine, len(mine), "checking finished shards")
    for index in folder.check(takewhile(lambda _: stop is None or not stop.is_set(), shown)):
        wrong = "is damaged" if index in folder.records else f"has no SHA-256 in {MANIFEST}"
        reporter.say(f"{folder.request.name(index)} {wrong}; it is made again")
    missing = [index for index in mine if index not in folder.done]
    if stop is None or not stop.is_set():  # otherwise not all of them were checked
        folder.present.difference_update(missing)
    return missing


def keep_manifest(folder: ShardFolder, reporter: Reporter, work: Callable[[BulkProgress], None]) -> BulkResult:
    """Do the work; leave a manifest of everything finished even if the work is stopped."""
    flush(folder)
    progress = BulkProgress(folder, reporter)
    try:
        work(progress)
    except Stopped:
        pass
    except KeyboardInterrupt:
        flush(folder)
        raise
    flush(folder)
    complete = len(folder.done) == folder.request.count
    return BulkResult(folder.request, progress.rows, progress.made, progress.seconds, complete)


def flush(folder: ShardFolder) -> None:
    """Write the manifest now, if this is the process that keeps it."""
    if folder.is_main:
        folder.collect(now=True)


def show(folder: ShardFolder, progress: BulkProgress) -> None:
    """Keep the manifest up to date and report, in the main process."""
    if folder.is_main:
        folder.collect()
        progress.show()


def wait_for_others(folder: ShardFolder, progress: BulkProgress, stop: threading.Event | None) -> None:
    """Return when all ranks have finished; torchrun ends this process if one of them fails."""
    while len(folder.done) < folder.request.count:
        if stop is not None and stop.is_set():
            raise Stopped
        time.sleep(POLL_SECONDS)
        show(folder, progress)
