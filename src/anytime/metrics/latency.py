"""Latency of sampling by code count, and the part of it that decoding takes (Fig. 4b)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from anytime.model import AnytimeModel
from anytime.sampling.sample import Sample

BATCH = 100
"""The paper's batch size."""
REPEATS, MIN_REPEATS = 20, 3
MAX_SECONDS_PER_COUNT = 10.0  # no round begins later, except for the first few
Clock = Callable[[], float]


@runtime_checkable
class Timeable(Protocol):
    """A sampler that can be timed."""

    @property
    def device(self) -> torch.device:
        """Device to synchronise with."""

    def sample(self, n: int, *, seed: int, codes: int) -> Sample:
        """Generate and decode."""

    def generate_codes(self, n: int, *, seed: int, codes: int) -> object:
        """Generate codes without decoding them."""

    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Tensor:
        """Decode codes."""


@dataclass(frozen=True, slots=True)
class TimedSampler:
    """A model with its engine and the engine's decoder."""

    model: AnytimeModel

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return self.model.device

    def sample(self, n: int, *, seed: int, codes: int) -> Sample:
        """Generate and decode."""
        return self.model.sample(n, seed=seed, codes=codes)

    def generate_codes(self, n: int, *, seed: int, codes: int) -> list[Tensor]:
        """Generate codes in microbatches, without decoding them."""
        microbatch = self.model.engine.microbatch
        return [
            self.model.session(min(microbatch, n - first), seed=seed).generate_codes(codes) for first in range(0, n, microbatch)
        ]

    @torch.no_grad()
    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Tensor:
        """Decode codes with the engine."""
        return self.model.engine.decode(codes)


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds of one request for `batch` samples, decoding included."""

    codes: int
    batch: int
    repeats: int
    p50: float
    p95: float
    draw: float  # median seconds of the same request without decoding
    decode: float  # median seconds of decoding alone; on a GPU it may overlap with sampling

    @property
    def samples_per_second(self) -> float:
        """Throughput at the median latency."""
        return self.batch / self.p50

    @property
    def decode_fraction(self) -> float:
        """Seconds of decoding alone relative to the median latency."""
        return self.decode / self.p50


def latency_by_codes(
    model: Timeable,
    counts: Sequence[int],
    *,
    batch: int = BATCH,
    repeats: int = REPEATS,
    clock: Clock = time.perf_counter,
    progress: Callable[[int], None] | None = None,
) -> list[Latency]:
    """Time `model.sample(batch, codes=count)`, the same without decoding, and decoding alone, for each count."""
    return latencies([(model, count) for count in counts], batch=batch, repeats=repeats, clock=clock, progress=progress)


def latencies(
    requests: Sequence[tuple[Timeable, int]],
    *,
    batch: int,
    repeats: int = REPEATS,
    clock: Clock = time.perf_counter,
    progress: Callable[[int], None] | None = None,
) -> list[Latency]:
    """Time requests of `batch` samples, each a sampler and a number of codes.

    A warm-up comes first. Rounds go over all requests, so that a machine that slows down for a while slows down all of them.
    `progress` is called with the number of finished rounds.
    """
    sampled_codes = [sampler.sample(batch, seed=0, codes=count).codes for sampler, count in requests]  # warm-up
    for (sampler, _), codes in zip(requests, sampled_codes, strict=True):
        sampler.decode(codes)
    totals, draws, decodes = ([list[float]() for _ in requests] for _ in range(3))
    started, rounds = clock(), 0
    while rounds < min(MIN_REPEATS, repeats) or (
        rounds < repeats and clock() - started < MAX_SECONDS_PER_COUNT * len(requests)
    ):
        rounds += 1
        for (sampler, count), codes, total, draw, decode in zip(requests, sampled_codes, totals, draws, decodes, strict=True):
            total.append(time_call(partial(sampler.sample, batch, seed=rounds, codes=count), sampler.device, clock))
            draw.append(time_call(partial(sampler.generate_codes, batch, seed=rounds, codes=count), sampler.device, clock))
            decode.append(time_call(partial(sampler.decode, codes), sampler.device, clock))
        if progress is not None:
            progress(rounds)
    return [
        Latency(count, batch, rounds, quantile(total, 0.5), quantile(total, 0.95), quantile(draw, 0.5), quantile(decode, 0.5))
        for (_, count), total, draw, decode in zip(requests, totals, draws, decodes, strict=True)
    ]


def time_call(work: Callable[[], object], device: torch.device, clock: Clock = time.perf_counter) -> float:
    """Return the seconds until the work is done, on the device too."""
    _wait(device)
    started = clock()
    work()
    _wait(device)
    return clock() - started


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def quantile(times: Sequence[float], fraction: float) -> float:
    """Return the smallest time that at least this fraction of the times do not exceed.

    >>> quantile([3.0, 1.0, 2.0], 0.5), quantile([3.0, 1.0, 2.0], 0.95)
    (2.0, 3.0)
    """
    return sorted(times)[max(0, math.ceil(fraction * len(times)) - 1)]
