"""Sampling speed by engine, batch and code length, beside Hugging Face's `generate` and the physical limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from anytime.evaluation.hf_baseline import CacheKind, HFSampler
from anytime.metrics.latency import Latency, Timeable, TimedSampler, latency_by_codes
from anytime.metrics.roofline import Hardware, measure_hardware, roofline_seconds
from anytime.model import AnytimeModel
from anytime.priors.transformer import TransformerConfig
from anytime.sampling.engines.base import DTYPES

Row = dict[str, Any]
OURS, HF = "anytime", "huggingface"
MAX_DECODE_OVERHEAD = 0.1  # of the time that all codes take, that decoding should stay below
LINEAR_TOLERANCE = 1.02  # times above the line from the decode alone to the full run that still count as on it: jitter


def engine_rows(
    model: AnytimeModel, engine: str, precision: str, batches: Sequence[int], counts: Sequence[int], repeats: int,
    say: Callable[[Row], None],
) -> list[Row]:  # fmt: skip
    """Our engine at every batch and code length."""
    model.use(engine, precision)
    return _rows(TimedSampler(model), model, f"{OURS} {engine} {precision}", precision, batches, counts, repeats, say)


def hf_baseline_rows(
    model: AnytimeModel, precision: str, cache: CacheKind, batches: Sequence[int], counts: Sequence[int], repeats: int,
    say: Callable[[Row], None],
) -> list[Row]:  # fmt: skip
    """Hugging Face's `generate` at the same size, decoded by the engine that the model uses now."""
    assert isinstance(model.config.prior, TransformerConfig)
    baseline = HFSampler(model.config.prior, model.engine.decode, model.device, DTYPES[precision], cache)
    return _rows(baseline, model, f"{HF} {cache} {precision}", precision, batches, counts, repeats, say)


def _rows(
    sampler: Timeable, model: AnytimeModel, series: str, precision: str, batches: Sequence[int], counts: Sequence[int],
    repeats: int, say: Callable[[Row], None],
) -> list[Row]:  # fmt: skip
    config, dtype, rows = model.config.prior, DTYPES[precision], list[Row]()
    assert isinstance(config, TransformerConfig)
    hardware = measure_hardware(model.device, dtype)
    for batch in batches:
        for count in counts:
            (speed,) = latency_by_codes(sampler, [count], batch=batch, repeats=repeats)
            roofline = roofline_seconds(config, batch, count, dtype.itemsize, hardware)
            rows.append(_row(series, speed, model.length, roofline, hardware))
            say(rows[-1])
    return rows


def _row(series: str, speed: Latency, length: int, roofline: float, hardware: Hardware) -> Row:
    return {
        "series": series,
        "batch": speed.batch,
        "codes": speed.codes,
        "fraction": speed.codes / length,
        "p50": speed.p50,
        "p95": speed.p95,
        "repeats": speed.repeats,
        "per_second": speed.samples_per_second,
        "ms_per_step": 1000 * (speed.p50 - speed.decode) / speed.codes,
        "draw_seconds": speed.draw,
        "decode_seconds": speed.decode,
        "decode_fraction": speed.decode_fraction,
        "roofline_seconds": roofline,
        "times_roofline": speed.p50 / roofline,
        "bandwidth": hardware.bandwidth,
        "flops": hardware.flops,
    }


@dataclass(frozen=True, slots=True)
class Finding:
    claim: str
    holds: bool
    evidence: str


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Ratios to Hugging Face at full length, what decoding adds, and whether time grows no faster than a line."""
    full = [row for row in rows if row["fraction"] == 1]
    found = []
    for batch in dict.fromkeys(row["batch"] for row in full):
        here = [row for row in full if row["batch"] == batch]
        ours = min((row for row in here if row["series"].startswith(OURS)), key=lambda row: row["p50"], default=None)
        theirs = [row for row in here if row["series"].startswith(HF)]
        if ours is None or not theirs:
            continue
        for name, among in (("in fp32", [r for r in theirs if r["series"].endswith("fp32")]), ("at its fastest", theirs)):
            if among:
                baseline = min(among, key=lambda row: row["p50"])
                text = f"{baseline['p50'] / ours['p50']:.2f} times as fast: {ours['series']} {ours['p50']:.4g} s, "
                claim = f"batch {batch}: faster than Hugging Face {name}"
                found.append(
                    Finding(claim, ours["p50"] < baseline["p50"], f"{text}{baseline['series']} {baseline['p50']:.4g} s")
                )
    return found + [_decode_overhead(row) for row in full if row["series"].startswith(OURS)] + _linearity(rows)


def _decode_overhead(row: Row) -> Finding:
    """One pass of the decoder beside many of the prior: a request with its decode against one without."""
    sampling_seconds = row["draw_seconds"]
    added, alone = row["p50"] / sampling_seconds - 1, row["decode_seconds"] / sampling_seconds
    claim = f"{row['series']}, batch {row['batch']}: decoding adds less than a tenth to the time that all codes take"
    return Finding(
        claim, added < MAX_DECODE_OVERHEAD, f"{added:.3f} of {sampling_seconds:.4g} s; asked for by itself, {alone:.3f}"
    )


def _linearity(rows: Sequence[Row]) -> list[Finding]:
    """Fig. 4b: half of the codes in at most half of the time, the decode set apart."""
    found = []
    ours = [row for row in rows if row["series"].startswith(OURS)]
    for key in dict.fromkeys((row["series"], row["batch"]) for row in ours):
        curve = [row for row in ours if (row["series"], row["batch"]) == key]
        full_length = next((row for row in curve if row["fraction"] == 1), None)
        if full_length is None or len(curve) < 3:
            continue
        decode = full_length["decode_fraction"] * full_length["p50"]
        line = {row["codes"]: decode + (full_length["p50"] - decode) * row["fraction"] for row in curve}
        worst = max(curve, key=lambda row: row["p50"] / line[row["codes"]])
        excess = worst["p50"] / line[worst["codes"]]
        part = f"decoding takes {full_length['decode_fraction']:.1%} of all"
        text = f"at most {excess:.3f} of the line (at {worst['codes']} codes); {part}"
        found.append(
            Finding(
                f"{key[0]}, batch {key[1]}: time by code length is a straight line or better", excess <= LINEAR_TOLERANCE, text
            )
        )
    return found
