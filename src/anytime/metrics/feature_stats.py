"""Feature statistics of many images or clips, computed chunk by chunk so that a killed run resumes.

A chunk is a pure function of its number, and the statistics are sums in the order of the chunks. Resumed or not, they are the
same numbers on one machine.
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

FORMAT = "features 1"
CHUNK = 1000  # examples: seconds of Inception on a GPU, minutes on a CPU
SAVE_SECONDS = 60.0  # between two saves: statistics of five code counts are 577 MB, which take 5 s to write


@dataclass(frozen=True, slots=True)
class FeatureStatistics:
    """Moments of a set's features, and its first feature vectors."""

    moments: Moments
    kept: Tensor  # [at most network.max_kept, features], float32

    @staticmethod
    def empty(network: FeatureNetwork) -> FeatureStatistics:
        """Return the statistics of an empty set."""
        return FeatureStatistics(Moments.empty(network.size, network.device), torch.empty(0, network.size))

    def plus(self, features: Float[Tensor, "n features"], max_kept: int) -> FeatureStatistics:
        """Add a batch of features."""
        fresh = features[: max_kept - len(self.kept)].float().cpu()
        kept = torch.cat([self.kept, fresh]) if len(fresh) else self.kept
        return FeatureStatistics(self.moments + Moments.of(features), kept)


@dataclass(frozen=True, slots=True)
class FeatureSource:
    """Images or clips to be compared: one or more series of `count` examples, made a chunk at a time."""

    label: str
    facts: Mapping[str, Any]  # JSON that identifies the examples: partial statistics of others are not resumed
    count: int  # examples in each series
    series: int
    chunk: Callable[[int, int], Iterable[Tensor]]  # first and last example -> those of every series, in the stored format


def examples(label: str, x: Examples) -> FeatureSource:
    """A dataset, shuffled: the kept features must not all come from the first class or folder."""
    shuffled = permutation(len(x), 0)
    return FeatureSource(label, {"data": storage.digest({"x": x})}, len(x), 1, lambda first, last: [x[shuffled[first:last]]])


def reconstructions(label: str, model: AnytimeModel, x: Examples, counts: Sequence[int]) -> FeatureSource:
    """The same examples reconstructed from their first `count` codes, a series for each count."""
    shuffled = permutation(len(x), 0)

    def chunk(first: int, last: int) -> Iterable[Tensor]:
        codes = model.encode(to_float(x[shuffled[first:last]]))
        return (to_stored(model.decode(codes[:, :count])) for count in counts)

    facts = {"data": storage.digest({"x": x}), "model": model.hash, "codes": list(counts)}
    return FeatureSource(label, facts, len(x), len(counts), chunk)


def samples(
    label: str, model: AnytimeModel, count: int, counts: Sequence[int], seed: int, temperature: float = 1.0
) -> FeatureSource:
    """Samples, generated once at full length and decoded from each prefix.

    A prefix of a sample is the sample of a shorter request: a budget only decides where sampling stops (law 2).

    Chunk i is `model.sample(1000, seed=derive(seed, "evaluation", i))`, so that memory holds one chunk at most.
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
    """Return the statistics of every series; saved in `folder`, whole or in part, for the next call with the same source.

    With a folder, `Paused` is raised after a saved chunk.
    """
    reporter = reporter or SilentReporter()
    facts = {"kind": FORMAT, "network": network.digest, "series": source.series, **source.facts}
    path = None if folder is None else folder / f"{source.label}-{facts_key(facts)}.safetensors"
    done, found = _resume(path, facts, network, source.series)
    if done < source.count:
        reporter.stage(source.label, done * source.series, source.count * source.series)
    saved = time.monotonic()
    for first in range(done, source.count, CHUNK):
        last = min(first + CHUNK, source.count)
        processed = first * source.series
        for index, part in zip(range(source.series), source.chunk(first, last), strict=True):
            for piece in part.split(network.batch):
                found[index] = found[index].plus(network(piece), network.max_kept)
                processed += len(piece)
                reporter.progress(processed, {})
        pausing = pause.due and last < source.count
        if path is not None and (last == source.count or pausing or time.monotonic() - saved >= SAVE_SECONDS):
            try:
                _save(path, found, {**facts, "done": last})
            except UserError as error:  # costs time at the next start, nothing else
                reporter.say(f"continuing without saving the feature statistics: {error}")
                path = None
            saved = time.monotonic()
        if pausing and path is not None:
            raise Paused(f"{source.label}, {last:,} of {source.count:,}")
    return found


def facts_key(facts: Mapping[str, Any]) -> str:
    """Return a short name of JSON facts, for the file that depends on them."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _save(path: Path, found: list[FeatureStatistics], facts: Mapping[str, Any]) -> None:
    tensors: dict[str, Tensor] = {}
    for index, known in enumerate(found):
        tensors |= {f"{index}/total": known.moments.total, f"{index}/outer": known.moments.outer, f"{index}/kept": known.kept}
    storage.write_tensors(path, tensors, facts)


def _resume(
    path: Path | None, facts: Mapping[str, Any], network: FeatureNetwork, series: int
) -> tuple[int, list[FeatureStatistics]]:
    """Return how many examples of each series are done, and their statistics."""
    fresh_start = 0, [FeatureStatistics.empty(network)] * series
    if path is None or not path.is_file():
        return fresh_start
    try:
        tensors, recorded, _ = storage.read_tensors(path)
        done = recorded.pop("done")
        if recorded != facts or type(done) is not int or done < 0:
            return fresh_start
        return done, [_statistics(tensors, index, done, network) for index in range(series)]
    except (storage.DamagedFileError, KeyError, ValueError):  # it can be computed again
        return fresh_start


def _statistics(tensors: Mapping[str, Tensor], index: int, done: int, network: FeatureNetwork) -> FeatureStatistics:
    """Return the statistics of one series; raise a `ValueError` if they are of another size."""
    total, outer, kept = (tensors[f"{index}/{name}"] for name in ("total", "outer", "kept"))
    if (total.shape, outer.shape) != ((network.size,), (network.size, network.size)) or kept.shape[1:] != (network.size,):
        raise ValueError("statistics of another size")
    return FeatureStatistics(Moments(done, total.to(network.device), outer.to(network.device)), kept)
