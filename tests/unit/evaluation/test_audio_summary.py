"""Notes and rows of an audio evaluation."""

from __future__ import annotations

from anytime.core.results import Row
from anytime.evaluation.audio import notes
from anytime.metrics.audio import BANDS


def sampled(codes: int, by_digit: list[int]) -> Row:
    about = {"seed": 0, "temperature": 1.0, "samples": 90, "reference": 100, "nearest": 1.0, "frechet_digits": 2.0}
    return {"series": "samples", "codes": codes, "fraction": codes / 4, "by_digit": by_digit, **about}


def test_digits_are_counted_at_the_greatest_length_whatever_the_order() -> None:
    data = {"frechet_digits": 1.0, "nearest": 1.0, "accuracy": 0.98, "accuracy_examples": 10, "classified": 0.9}
    codes = {"bits_per_code": 1.0, "bits": 4.0, "used": 3, "codebook_size": 4, "perplexity": 2.0}
    rows: list[Row] = [
        sampled(4, [9] * 10),
        sampled(1, [3] * 10),
        {"series": "held-out data", **data},
        {"series": "codes", **codes},
        *({"series": "error", "codes": k, "error": 1.0 / (1 + k), "examples": 5} for k in range(5)),
        *({"series": "bits", "position": k, "bits": 1.0, "entropy": 1.0} for k in range(1, 5)),
        *({"series": "half-way", "band": band, "codes": 2} for band in BANDS),
    ]
    (line,) = (line for line in notes(rows) if "Classified digits" in line)
    assert line.startswith("Classified digits from 4 codes: 0: 9, 1: 9")
