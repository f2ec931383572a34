"""Statistics of the features of many pictures or sounds, gathered chunk by chunk so that a killed run goes on where it was.

A chunk is a pure function of its number, and the statistics are sums in the order of the chunks: resumed or not, on one
machine they are the same numbers.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from anytime.core import storage
from anytime.core.errors import UserError
from anytime.core.pause import NEVER, Pause, Paused
from anytime.core.progress import Reporter, SilentReporter
from anytime.core.random import derive, permutation
from anytime.data.dataset import Examples
from anytime.data.loader import to_float, to_stored
from anytime.metrics.features import FeatureNetwork
from anytime.metrics.fid import Moments
from anytime.model import AnytimeModel

STATISTICS_KIND = "features 1"
CHUNK = 1000  # pictures: seconds of Inception on a GPU, minutes on a CPU
MAX_KEPT = 10_000  # features kept whole, for what moments cannot tell: 82 MB of Inception's; sixteen times as many of a network
SIZE = 2048  # with a sixteenth of its features
SAVE_SECONDS = 60.0  # between two saves: one of five lengths writes 577 MB, which took 5 s


@dataclass(frozen=True, slots=True)
class FeatureStatistics:
    """All that is kept of a set of pictures."""

    moments: Moments
    kept: Tensor  # [up to KEPT of Inception's size, features], float32, of the first pictures

    @staticmethod
    def empty(network: FeatureNetwork) -> FeatureStatistics:
        return FeatureStatistics(Moments.empty(network.size, network.device), torch.empty(0, network.size))

    def plus(self, features: Float[Tensor, "n features"]) -> FeatureStatistics:
        fresh = features[: max_kept(features.shape[1]) - len(self.kept)].float().cpu()
        return FeatureStatistics(
            self.moments + Moments.of(features), torch.cat([self.kept, fresh]) if len(fresh) else self.kept
        )


def max_kept(size: int) -> int:
    """How many vectors of that size are kept.

    >>> max_kept(2048), max_kept(128)
    (10000, 160000)
    """
    return MAX_KEPT * max(1, SIZE // size)


@dataclass(frozen=True, slots=True)
class FeatureSource:
    """Pictures or sounds to be compared: one or more series of `count`, made a chunk at a time."""

    label: str
    facts: Mapping[str, Any]  # JSON that names the pictures: what was gathered of others is not gone on with
    count: int  # pictures in each series
    series: int
    chunk: Callable[[int, int], Iterable[Tensor]]  # first and last picture -> every series', as the data are stored


def images(label: str, x: Examples) -> FeatureSource:
    """A data set as it is, in an order of its own: the features kept must not be those of the first class or folder."""
    shuffled = permutation(len(x), 0)
    return FeatureSource(label, {"data": storage.digest({"x": x})}, len(x), 1, lambda first, last: [x[shuffled[first:last]]])


def reconstructions(label: str, model: AnytimeModel, x: Examples, counts: Sequence[int]) -> FeatureSource:
    """The same pictures from the first `count` of their codes, for each count."""
    shuffled = permutation(len(x), 0)

    def chunk(first: int, last: int) -> Iterable[Tensor]:
        codes = model.encode(to_float(x[shuffled[first:last]]))
        return (to_stored(model.decode(codes[:, :count])) for count in counts)

    facts = {"data": storage.digest({"x": x}), "model": model.hash, "codes": list(counts)}
    return FeatureSource(label, facts, len(x), len(counts), chunk)


def samples(
    label: str, model: AnytimeModel, count: int, counts: Sequence[int], seed: int, temperature: float = 1.0
) -> FeatureSource:
    """Samples drawn once at full length and decoded from every prefix asked for: by law 2 these are the shorter samples.

    Chunk i is `model.sample(1000, seed=derive(seed, "evaluation", i))`, so that no more than a chunk is ever in memory.
    """

    def chunk(first: int, last: int) -> Iterable[Tensor]:
        sample = model.sample(last - first, seed=derive(seed, "evaluation", first // CHUNK), temperature=temperature)
        return (to_stored(model.decode(sample.codes[:, :count])) for count in counts)

    facts: dict[str, Any] = {"model": model.hash, "codes": list(counts), "count": count, "seed": seed, "chunk": CHUNK}
    if temperature != 1:
        facts["temperature"] = temperature
    return FeatureSource(label, facts, count, len(counts), chunk)


def compute_statistics(
    source: FeatureSource,
    network: FeatureNetwork,
    folder: Path | None = None,
    reporter: Reporter | None = None,
    pause: Pause = NEVER,
) -> list[FeatureStatistics]:
    """The statistics of every series; kept in `folder`, whole or in part, for the next call with the same source.

    With a folder, `Paused` comes behind a chunk that was kept.
    """
    reporter = reporter or SilentReporter()
    facts = {"kind": STATISTICS_KIND, "network": network.digest, "series": source.series, **source.facts}
    path = None if folder is None else folder / f"{source.label}-{_name(facts)}.safetensors"
    done, found = _resumed(path, facts, network, source.series)
    if done < source.count:
        reporter.stage(source.label, done * source.series, source.count * source.series)
    saved = time.monotonic()
    for first in range(done, source.count, CHUNK):
        last = min(first + CHUNK, source.count)
        processed = first * source.series
        for index, part in zip(range(source.series), source.chunk(first, last), strict=True):
            for piece in part.split(network.batch):
                found[index] = found[index].plus(network(piece))
                processed += len(piece)
                reporter.progress(processed, {})
        pausing = pause.due and last < source.count
        if path is not None and (last == source.count or pausing or time.monotonic() - saved >= SAVE_SECONDS):
            try:
                _save(path, found, {**facts, "done": last})
            except UserError as error:  # costs time at the next start, nothing else
                reporter.say(f"going on without keeping what was gathered: {error}")
                path = None
            saved = time.monotonic()
        if pausing and path is not None:
            raise Paused(f"{source.label}, {last:,} of {source.count:,}")
    return found


def _name(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _save(path: Path, found: list[FeatureStatistics], facts: Mapping[str, Any]) -> None:
    tensors: dict[str, Tensor] = {}
    for index, known in enumerate(found):
        tensors |= {f"{index}/total": known.moments.total, f"{index}/outer": known.moments.outer, f"{index}/kept": known.kept}
    storage.write_tensors(path, tensors, facts)


def _resumed(
    path: Path | None, facts: Mapping[str, Any], network: FeatureNetwork, series: int
) -> tuple[int, list[FeatureStatistics]]:
    """How many pictures of each series are behind us, and their statistics."""
    fresh_start = 0, [FeatureStatistics.empty(network)] * series
    if path is None or not path.is_file():
        return fresh_start
    try:
        tensors, there, _ = storage.read_tensors(path)
    except storage.DamagedFileError:  # it can be made again
        return fresh_start
    done = int(there.pop("done"))
    if there != facts:
        return fresh_start
    return done, [
        FeatureStatistics(
            Moments(done, tensors[f"{index}/total"].to(network.device), tensors[f"{index}/outer"].to(network.device)),
            tensors[f"{index}/kept"],
        )
        for index in range(series)
    ]
