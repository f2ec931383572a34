"""Verdicts about seconds by code length, from synthetic numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from anytime.core.results import Row
from anytime.experiments import speed
from anytime.metrics.latency import TimedSampler
from anytime.model import AnytimeModel
from anytime.priors.pixelcnn import PixelCNNConfig
from anytime.recipes.build import build_config
from anytime.training.config import RunConfig

EAGER = {0.2: 130.0, 0.4: 250.0, 0.6: 372.0, 0.8: 490.0, 1.0: 610.0}


def rows(
    times: dict[float, float] = EAGER,
    *,
    decode: float = 24.0,
    short_decode: float | None = None,
    original: float = 900.0,
    pixels: float = 7000.0,
) -> list[Row]:
    own = [
        {
            "series": "anytime, eager",
            "engine": "eager",
            "fraction": fraction,
            "codes": round(100 * fraction),
            "images": 100_000,
            "seconds": seconds,
            "decode_seconds": short_decode if short_decode is not None and fraction == min(times) else decode,
            "decode_fraction": decode / seconds,
        }
        for fraction, seconds in times.items()
    ]
    others = {"original VQ-VAE": original, "pixel space": pixels}
    marks: list[Row] = [
        {"series": name, "engine": "eager", "fraction": 1.0, "images": 100_000, "seconds": seconds}
        for name, seconds in others.items()
    ]
    return own + marks


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [True, True, True, True, True, True]),
        ({"times": EAGER | {0.4: 500.0, 0.6: 380.0}}, [False, True, True, True, True, True]),
        ({"decode": 62.0}, [True, False, True, True, True, True]),
        ({"short_decode": 19.0}, [True, True, False, True, True, True]),
        ({"original": 600.0}, [True, True, True, False, True, True]),
        ({"pixels": 6000.0}, [True, True, True, True, False, True]),
        ({"times": EAGER | {0.6: 400.0}}, [True, True, True, True, True, False]),
    ],
)
def test_verdicts_follow_the_numbers(changes: dict[str, Any], expected: list[bool]) -> None:
    assert [verdict.holds for verdict in speed.decide(rows(**changes))] == expected


def test_the_papers_claim_is_decided_by_the_naive_sampler() -> None:
    others: list[Row] = [
        {"series": f"original VQ-VAE, {name}", "engine": "eager", "fraction": 1.0, "images": 100_000, "seconds": seconds}
        for name, seconds in (("naive", 5000.0), ("incremental", 600.0))
    ]
    verdicts = speed.decide([row for row in rows() if row["series"] != "original VQ-VAE"] + others)
    naive, incremental = verdicts[3:5]
    assert (naive.holds, incremental.holds) == (True, False)
    assert naive.paper == "faster than the original VQ-VAE even at full code length"
    assert "610.0 s against 5000.0 s, both eager, the whole PixelCNN for every code" in naive.evidence
    assert "not the paper's sampler" in incremental.paper


def test_both_samplers_sample_the_same_codes() -> None:
    prior = PixelCNNConfig(length=12, codebook_size=16, side=4, layers=3, width=8, head=16)
    torch.manual_seed(0)
    config = build_config("mnist", "paper", (1, 28, 28), length=12)
    assert isinstance(config, RunConfig)
    quantizer = replace(config.model.autoencoder.quantizer, codebook_size=16)
    autoencoder = replace(config.model.autoencoder, quantizer=quantizer, widths=(4, 4))
    model = AnytimeModel(replace(config.model, autoencoder=autoencoder, prior=prior)).eval()
    slow, fast = (sampler(model).sample(5, seed=3, codes=9) for sampler in (speed.NaiveSampler, TimedSampler))
    assert torch.equal(slow.codes, fast.codes)
    torch.testing.assert_close(slow.data, fast.data)


def test_faster_engine_is_reported_but_decides_nothing() -> None:
    quick = [row | {"series": "anytime, cuda", "seconds": 12.0} for row in rows() if row["series"] == "anytime, eager"]
    verdicts = speed.decide(rows() + quick)
    assert [verdict.holds for verdict in verdicts] == [True] * 6
    assert "the cuda engine takes 12.0 s, saving 0%" in verdicts[5].evidence
