"""Sampling speed by engine, batch size and code count, beside Hugging Face's `generate` and the roofline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from anytime.core.results import Verdict
from anytime.evaluation.hf_baseline import CacheKind, HFSampler
from anytime.metrics.latency import Timeable, latencies
from anytime.metrics.roofline import measure_hardware, roofline_seconds
from anytime.metrics.start_up import StartUp
from anytime.model import AnytimeModel
from anytime.priors.transformer import TransformerConfig
from anytime.sampling.engines.base import DTYPES

OURS, HF, START_UP = "anytime", "huggingface", "start-up"
CPU_RATIOS = {1: (2.0, 4.0), 100: (1.5, 2.0)}
"""The default engine on a CPU against Hugging Face at its fastest, by batch size: the least ratio, and the goal."""
CPU_START_UP = (1.0, 0.5)
"""Seconds from the import to the first image on a CPU, without those of `import torch`: the most, and the goal."""
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
class Candidate:
    """A sampler to measure, at these batch sizes and numbers of codes."""

    series: str
    precision: str
    sampler: Timeable
    batches: Sequence[int]
    counts: Sequence[int]


def engine_series(engine: str, precision: str) -> str:
    """Return the name of one of our engines in the results."""
    return f"{OURS} {engine} {precision}"


def hf_baseline(
    model: AnytimeModel, precision: str, cache: CacheKind, batches: Sequence[int], counts: Sequence[int]
) -> Candidate:
    """Return Hugging Face's `generate` at the same size, decoded by the model's engine."""
    assert isinstance(model.config.prior, TransformerConfig)
    sampler = HFSampler(model.config.prior, model.engine.decode, model.device, DTYPES[precision], cache)
    return Candidate(f"{HF} {cache} {precision}", precision, sampler, batches, counts)


def measure(
    candidates: Sequence[Candidate], model: AnytimeModel, repeats: int, say: Callable[[SamplingSpeed], None]
) -> list[SamplingSpeed]:
    """Measure candidates of the model's size; at each batch size and number of codes they take turns. `say` gets every line."""
    config, found = model.config.prior, list[SamplingSpeed]()
    assert isinstance(config, TransformerConfig)
    hardware = {name: measure_hardware(model.device, DTYPES[name]) for name in {c.precision for c in candidates}}
    points = {(batch, count) for candidate in candidates for batch in candidate.batches for count in candidate.counts}
    for batch, count in sorted(points):
        here = [candidate for candidate in candidates if batch in candidate.batches and count in candidate.counts]
        timed = latencies([(candidate.sampler, count) for candidate in here], batch=batch, repeats=repeats)
        for candidate, latency in zip(here, timed, strict=True):
            name = candidate.precision
            roofline = roofline_seconds(config, batch, count, DTYPES[name].itemsize, hardware[name])
            speed = SamplingSpeed(
                series=candidate.series,
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
                **asdict(hardware[name]),
            )
            found.append(speed)
            say(speed)
    return found


def decide(speeds: Sequence[SamplingSpeed], default: str, ratios: Mapping[int, Sequence[float]] | None = None) -> list[Verdict]:
    """Decide: ratios of the fastest and of the default engine to Hugging Face at full length, the cost of decoding, and whether
    time grows at most linearly.

    `ratios` are the least ratios of the default engine to Hugging Face at its fastest, by batch size.
    """
    full = [speed for speed in speeds if speed.fraction == 1]
    verdicts = list[Verdict]()
    for batch in dict.fromkeys(speed.batch for speed in full):
        here = [speed for speed in full if speed.batch == batch]
        ours = [speed for speed in here if speed.series.startswith(OURS)]
        theirs = [speed for speed in here if speed.series.startswith(HF)]
        for us, named in ((ours, "our fastest engine"), ([s for s in ours if s.series == default], "the default engine")):
            for them, how in (([s for s in theirs if s.series.endswith("fp32")], "in fp32"), (theirs, "at its fastest")):
                if us and them:
                    verdicts.append(_ratio(f"batch {batch}: {named} is faster than Hugging Face {how}", us, them))
        own = [speed for speed in ours if speed.series == default]
        for least in (ratios or {}).get(batch, ()) if own and theirs else ():
            claim = f"batch {batch}: the default engine is at least {least:g} times as fast as Hugging Face at its fastest"
            verdicts.append(_ratio(claim, own, theirs, least))
    return verdicts + [_decode_overhead(speed) for speed in full if speed.series.startswith(OURS)] + _linearity(speeds)


def decide_start_up(found: StartUp, bounds: Sequence[float] = CPU_START_UP) -> list[Verdict]:
    """Decide whether the first image is there in time."""
    parts = f"load {found.load_seconds:.2f} s, sample {found.sample_seconds:.2f} s; `import torch` {found.torch_seconds:.2f} s"
    evidence = f"{found.seconds:.2f} s, median of {found.repeats}: {parts}"
    claim = "from the import to the first image, beyond `import torch`: at most"
    return [Verdict(f"{claim} {most:g} s", found.seconds <= most, evidence) for most in bounds]


def _ratio(claim: str, ours: Sequence[SamplingSpeed], theirs: Sequence[SamplingSpeed], least: float | None = None) -> Verdict:
    """Compare the fastest of ours with the fastest of theirs: ours is faster, or `least` times as fast."""
    us, them = (min(speeds, key=lambda speed: speed.p50) for speeds in (ours, theirs))
    evidence = f"{them.p50 / us.p50:.2f} times as fast: {us.series} {us.p50:.4g} s, {them.series} {them.p50:.4g} s"
    return Verdict(claim, us.p50 < them.p50 if least is None else us.p50 * least <= them.p50, evidence)


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
