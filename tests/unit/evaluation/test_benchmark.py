from __future__ import annotations

import pytest

from anytime.evaluation.benchmark import SamplingSpeed, decide, decide_start_up
from anytime.metrics.roofline import Hardware, roofline_seconds, step_cost
from anytime.metrics.start_up import StartUp
from anytime.priors.transformer import TransformerConfig

CONFIG = TransformerConfig(length=70, codebook_size=1000)


def row(series: str, p50: float, codes: int = 70, batch: int = 100, decode: float = 0.1) -> SamplingSpeed:
    return SamplingSpeed(
        series=series, batch=batch, codes=codes, fraction=codes / 70, p50=p50, p95=p50, repeats=1, per_second=batch / p50,
        ms_per_step=1.0, draw_seconds=p50 - decode / 2, decode_seconds=decode, decode_fraction=decode / p50,
        roofline_seconds=1.0, times_roofline=p50, bandwidth=1.0, flops=1.0,
    )  # fmt: skip


def test_a_step_reads_the_weights_and_the_filled_cache() -> None:
    weights = 6 * (4 * 512**2 + 2 * 512 * 2048) + 512 * 1000
    moved, done = step_cost(CONFIG, 1, 0, 2)
    assert moved == 2 * (weights + 2 * 6 * 512)
    assert done == 2 * (weights + 2 * 6 * 512)
    more, _ = step_cost(CONFIG, 100, 69, 2)
    assert more - moved == 2 * (100 * 70 - 1) * 2 * 6 * 512


def test_the_roofline_is_the_slower_of_memory_and_arithmetic() -> None:
    slow_memory, slow_arithmetic = Hardware(1e9, 1e18), Hardware(1e18, 1e9)
    moved, done = (sum(step_cost(CONFIG, 8, i, 2)[kind] for i in range(5)) for kind in range(2))
    assert roofline_seconds(CONFIG, 8, 5, 2, slow_memory) == pytest.approx(moved / 1e9)
    assert roofline_seconds(CONFIG, 8, 5, 2, slow_arithmetic) == pytest.approx(done / 1e9)


def test_ratios_are_to_the_best_of_the_others() -> None:
    rows = [
        row("anytime eager fp32", 3.0),
        row("anytime packed bf16", 2.0),
        row("huggingface dynamic fp32", 4.0),
        row("huggingface static fp32", 5.0),
        row("huggingface dynamic bf16", 1.0),
        row("huggingface dynamic bf16", 0.1, codes=35),
    ]
    fp32, fastest, default_fp32, default_fastest, *_ = decide(rows, "anytime eager fp32")
    assert fp32.holds
    assert fp32.evidence.startswith("2.00 times as fast: anytime packed bf16 2 s, huggingface dynamic fp32 4 s")
    assert not fastest.holds
    assert fastest.evidence.startswith("0.50 times as fast")
    assert default_fp32.holds
    assert default_fp32.evidence.startswith("1.33 times as fast: anytime eager fp32 3 s")
    assert not default_fastest.holds
    assert default_fastest.evidence.startswith("0.33 times as fast")


@pytest.mark.parametrize(("p50", "holds"), [(2.0, [True, True]), (2.5, [True, False]), (2.8, [False, False])])
def test_the_least_ratio_of_the_default_engine(p50: float, holds: list[bool]) -> None:
    """To Hugging Face at its fastest, whatever its precision, and not to another of our engines."""
    rows = [row("anytime packed fp32", p50), row("anytime packed bf16", 0.1), row("huggingface dynamic bf16", 4.0)]
    found = [
        verdict
        for verdict in decide([*rows, row("huggingface static fp32", 9.0)], "anytime packed fp32", {100: (1.5, 2.0)})
        if "default engine is at least" in verdict.claim
    ]
    assert [verdict.holds for verdict in found] == holds
    assert all(v.evidence.startswith(f"{4 / p50:.2f} times as fast: anytime packed fp32") for v in found)


@pytest.mark.parametrize(("seconds", "holds"), [(0.4, [True, True]), (0.7, [True, False]), (1.1, [False, False])])
def test_the_start_up_has_two_bounds(seconds: float, holds: list[bool]) -> None:
    parts = {"load_seconds": 0.25, "sample_seconds": 0.05, "torch_seconds": 1.5}
    found = decide_start_up(StartUp(codes=20, repeats=5, seconds=seconds, **parts))
    assert [verdict.holds for verdict in found] == holds
    assert found[0].evidence == f"{seconds:.2f} s, median of 5: load 0.25 s, sample 0.05 s; `import torch` 1.50 s"


@pytest.mark.parametrize(("half", "straight"), [(0.55, True), (0.4, True), (0.7, False)])
def test_linearity_sets_decoding_apart(half: float, straight: bool) -> None:
    rows = [row("anytime cuda bf16", t, codes) for codes, t in ((7, 0.19), (35, half), (70, 1.0))]
    _, found = decide(rows, "anytime cuda bf16")
    assert found.holds is straight
    assert "decoding takes 10.0% of all" in found.evidence


@pytest.mark.parametrize(("decode", "little"), [(0.1, True), (0.2, False)])
def test_decoding_overhead_at_full_length(decode: float, little: bool) -> None:
    """Half of the decoding overlaps with sampling."""
    rows = [row("anytime cuda bf16", 1.0, decode=decode), row("anytime cuda bf16", 0.5, 35, decode=decode)]
    (found,) = decide([*rows, row("huggingface static bf16", 1.0, 35)], "anytime cuda bf16")
    assert found.holds is little
    assert found.evidence == {0.1: "5.3% of 0.95 s; decoding alone 10.5%", 0.2: "11.1% of 0.9 s; decoding alone 22.2%"}[decode]
