"""Seconds for a batch of samples by code length, and the part of them that decoding takes (Fig. 4b)."""

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
"""The paper's."""
REPEATS, MIN_REPEATS = 20, 3
MAX_SECONDS_PER_LENGTH = 10.0  # seconds for each code length: after them no round is begun, save for the first few
Clock = Callable[[], float]


@runtime_checkable
class Sampler(Protocol):
    """What is timed."""

    @property
    def device(self) -> torch.device: ...

    def sample(self, n: int, *, seed: int, codes: int) -> Sample: ...

    def draw(self, n: int, *, seed: int, codes: int) -> object:
        """The same request without its decode."""

    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class TimedSampler:
    """A model with its engine, timed with the engine's own decoder."""

    model: AnytimeModel

    @property
    def device(self) -> torch.device:
        return self.model.device

    def sample(self, n: int, *, seed: int, codes: int) -> Sample:
        return self.model.sample(n, seed=seed, codes=codes)

    def draw(self, n: int, *, seed: int, codes: int) -> list[Tensor]:
        microbatch = self.model.engine.microbatch
        return [
            self.model.session(min(microbatch, n - first), seed=seed).generate_codes(codes) for first in range(0, n, microbatch)
        ]

    @torch.no_grad()
    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Tensor:
        return self.model.engine.decode(codes)


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds of one request for `batch` samples, from the call to the decoded samples."""

    codes: int
    batch: int
    repeats: int
    p50: float
    p95: float
    draw: float  # median seconds of the same request without its decode
    decode: float  # median seconds of decoding alone, which a GPU may be asked for while it still draws

    @property
    def samples_per_second(self) -> float:
        return self.batch / self.p50

    @property
    def decode_fraction(self) -> float:
        """The part of the time that decoding takes, were it asked for when all codes are there."""
        return self.decode / self.p50


def latency_by_codes(
    model: Sampler,
    counts: Sequence[int],
    *,
    batch: int = BATCH,
    repeats: int = REPEATS,
    clock: Clock = time.perf_counter,
    progress: Callable[[int], None] | None = None,
) -> list[Latency]:
    """Time `model.sample(batch, codes=count)`, its drawing and the decoding of as many codes, for each count, after a try.

    In rounds over all counts: a machine that is slower for a while is so for all of them. `progress` is told the rounds.
    """
    sampled_codes = [
        model.sample(batch, seed=0, codes=count).codes for count in counts
    ]  # warms up caches, compilers and graphs
    for codes in sampled_codes:
        model.decode(codes)
    totals, draws, decodes = ([list[float]() for _ in counts] for _ in range(3))
    started, rounds = clock(), 0
    while rounds < min(MIN_REPEATS, repeats) or (rounds < repeats and clock() - started < MAX_SECONDS_PER_LENGTH * len(counts)):
        rounds += 1
        for codes, total, draw, decode in zip(sampled_codes, totals, draws, decodes, strict=True):
            total.append(time_call(partial(model.sample, batch, seed=rounds, codes=codes.shape[1]), model.device, clock))
            draw.append(time_call(partial(model.draw, batch, seed=rounds, codes=codes.shape[1]), model.device, clock))
            decode.append(time_call(partial(model.decode, codes), model.device, clock))
        if progress is not None:
            progress(rounds)
    return [
        Latency(count, batch, rounds, quantile(total, 0.5), quantile(total, 0.95), quantile(draw, 0.5), quantile(decode, 0.5))
        for count, total, draw, decode in zip(counts, totals, draws, decodes, strict=True)
    ]


def time_call(work: Callable[[], object], device: torch.device, clock: Clock = time.perf_counter) -> float:
    """Seconds until the work is done on the device, too."""
    _wait(device)
    started = clock()
    work()
    _wait(device)  # what a GPU was asked for may not be done when the call returns
    return clock() - started


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def quantile(times: Sequence[float], fraction: float) -> float:
    """The smallest time that at least this share of the times do not exceed.

    >>> quantile([3.0, 1.0, 2.0], 0.5), quantile([3.0, 1.0, 2.0], 0.95)
    (2.0, 3.0)
    """
    return sorted(times)[max(0, math.ceil(fraction * len(times)) - 1)]
