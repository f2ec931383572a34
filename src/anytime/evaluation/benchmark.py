"""Sampling speed by engine, batch size and code count, beside Hugging Face's `generate` and the roofline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from anytime.core.results import Verdict
from anytime.evaluation.hf_baseline import CacheKind, HFSampler
from anytime.metrics.latency import Timeable, TimedSampler, latency_by_codes
from anytime.metrics.roofline import measure_hardware, roofline_seconds
from anytime.model import AnytimeModel
from anytime.priors.transformer import TransformerConfig
from anytime.sampling.engines.base import DTYPES

OURS, HF = "anytime", "huggingface"
MAX_DECODE_OVERHEAD = 0.1  # of the time of all codes
LINEAR_TOLERANCE = 1.02  # times the line from decoding alone to the full length: jitter


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSpeed:
    """One line of the benchmark; the fields are the keys of its results file."""

    series: str
    batch: int
    codes: int
    fraction: float
    p50: float
    p95: float
    repeats: int
    per_second: float
    ms_per_step: float
    draw_seconds: float
    decode_seconds: float
    decode_fraction: float
    roofline_seconds: float
    times_roofline: float
    bandwidth: float
    flops: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """What to measure of each sampler; `say` gets every line."""

    batches: Sequence[int]
    counts: Sequence[int]
    repeats: int
    say: Callable[[SamplingSpeed], None]


def engine_speeds(model: AnytimeModel, engine: str, precision: str, schedule: Schedule) -> list[SamplingSpeed]:
    """Measure one of our engines."""
    model.use(engine, precision)
    return _measure(TimedSampler(model), model, f"{OURS} {engine} {precision}", precision, schedule)


def hf_baseline_speeds(model: AnytimeModel, precision: str, cache: CacheKind, schedule: Schedule) -> list[SamplingSpeed]:
    """Measure Hugging Face's `generate` at the same size, decoded by the model's current engine."""
    assert isinstance(model.config.prior, TransformerConfig)
    baseline = HFSampler(model.config.prior, model.engine.decode, model.device, DTYPES[precision], cache)
    return _measure(baseline, model, f"{HF} {cache} {precision}", precision, schedule)


def _measure(sampler: Timeable, model: AnytimeModel, series: str, precision: str, schedule: Schedule) -> list[SamplingSpeed]:
    config, dtype, found = model.config.prior, DTYPES[precision], list[SamplingSpeed]()
    assert isinstance(config, TransformerConfig)
    hardware = measure_hardware(model.device, dtype)
    for batch in schedule.batches:
        for count in schedule.counts:
            (latency,) = latency_by_codes(sampler, [count], batch=batch, repeats=schedule.repeats)
            roofline = roofline_seconds(config, batch, count, dtype.itemsize, hardware)
            speed = SamplingSpeed(
                series=series,
                batch=batch,
                codes=count,
                fraction=count / model.length,
                p50=latency.p50,
                p95=latency.p95,
                repeats=latency.repeats,
                per_second=latency.samples_per_second,
                ms_per_step=1000 * (latency.p50 - latency.decode) / count,
                draw_seconds=latency.draw,
                decode_seconds=latency.decode,
                decode_fraction=latency.decode_fraction,
                roofline_seconds=roofline,
                times_roofline=latency.p50 / roofline,
                **asdict(hardware),
            )
            found.append(speed)
            schedule.say(speed)
    return found


def decide(speeds: Sequence[SamplingSpeed]) -> list[Verdict]:
    """Decide: ratios to Hugging Face at full length, the cost of decoding, and whether time grows at most linearly."""
    full = [speed for speed in speeds if speed.fraction == 1]
    verdicts = list[Verdict]()
    for batch in dict.fromkeys(speed.batch for speed in full):
        here = [speed for speed in full if speed.batch == batch]
        ours = min((speed for speed in here if speed.series.startswith(OURS)), key=lambda speed: speed.p50, default=None)
        theirs = [speed for speed in here if speed.series.startswith(HF)]
        if ours is None or not theirs:
            continue
        for name, among in (("in fp32", [s for s in theirs if s.series.endswith("fp32")]), ("at its fastest", theirs)):
            if among:
                baseline = min(among, key=lambda speed: speed.p50)
                claim = f"batch {batch}: faster than Hugging Face {name}"
                ratio = f"{baseline.p50 / ours.p50:.2f} times as fast: {ours.series} {ours.p50:.4g} s"
                evidence = f"{ratio}, {baseline.series} {baseline.p50:.4g} s"
                verdicts.append(Verdict(claim, ours.p50 < baseline.p50, evidence))
    return verdicts + [_decode_overhead(speed) for speed in full if speed.series.startswith(OURS)] + _linearity(speeds)


def _decode_overhead(speed: SamplingSpeed) -> Verdict:
    """Compare a request with its decode to one without."""
    added, alone = speed.p50 / speed.draw_seconds - 1, speed.decode_seconds / speed.draw_seconds
    claim = f"{speed.series}, batch {speed.batch}: decoding adds less than a tenth to the time of all codes"
    return Verdict(claim, added < MAX_DECODE_OVERHEAD, f"{added:.1%} of {speed.draw_seconds:.4g} s; decoding alone {alone:.1%}")


def _linearity(speeds: Sequence[SamplingSpeed]) -> list[Verdict]:
    """Fig. 4b: half of the codes take at most half of the time, not counting decoding."""
    verdicts = []
    ours = [speed for speed in speeds if speed.series.startswith(OURS)]
    for series, batch in dict.fromkeys((speed.series, speed.batch) for speed in ours):
        curve = [speed for speed in ours if (speed.series, speed.batch) == (series, batch)]
        full = next((speed for speed in curve if speed.fraction == 1), None)
        if full is None or len(curve) < 3:
            continue
        decode = full.decode_fraction * full.p50
        excess, codes = max((s.p50 / (decode + (full.p50 - decode) * s.fraction), s.codes) for s in curve)
        part = f"decoding takes {full.decode_fraction:.1%} of all"
        evidence = f"at most {excess:.3f} of the line (at {codes} codes); {part}"
        claim = f"{series}, batch {batch}: time by code count is a straight line or better"
        verdicts.append(Verdict(claim, excess <= LINEAR_TOLERANCE, evidence))
    return verdicts
