"""Verdicts of `reproduce audio` on synthetic rows."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from anytime.core.errors import UserError
from anytime.core.plots import plot_png
from anytime.core.results import Results, Row, Verdict
from anytime.evaluation.audio import AUDIO_FRACTIONS, CLIP_FRACTIONS
from anytime.experiments import audio, audio_verdicts
from anytime.experiments.registry import BEST_PAIR, PAIR
from anytime.metrics.audio import BANDS

LENGTH = 32
RANK = {"best": 0, "ordered": 1, "best-unordered": 2, "unordered": 3}  # the best first


def synthetic_rows() -> list[Row]:
    """Return the rows of four models that support every claim."""
    rows: list[Row] = []
    for variant in (*PAIR, *BEST_PAIR):
        shared: Row = {"series": variant, "seed": 0, "length": LENGTH, "audio_classifier": "a", "first_stage": "f"}
        for codes in range(LENGTH + 1):
            fraction = {"fraction": codes / LENGTH} if codes / LENGTH in AUDIO_FRACTIONS else {}
            missing = 1 - codes / LENGTH + RANK[variant]
            rows.append(
                {**shared, **fraction, "measure": "error", "codes": codes, **dict.fromkeys(audio_verdicts.METRICS, missing)}
            )
        rows += [{**shared, "measure": "half-way", "band": band, "codes": 3 + place} for place, band in enumerate(BANDS)]
        for temperature in audio_verdicts.TEMPERATURES:
            rows += [
                {
                    **shared, "measure": "samples", "fraction": fraction, "codes": round(LENGTH * fraction),
                    "temperature": temperature, "frechet_digits": 100 * (1 - fraction) + RANK[variant], "nearest": 2.0,
                    "nearest_p01": 1.0, "classified": 0.5 + 0.4 * fraction - (temperature < 1) * 0.1, "by_digit": [5] * 10,
                }
                for fraction in AUDIO_FRACTIONS
            ]  # fmt: skip
        rows += [
            {
                **shared, "measure": "speed", "device": device, "engine": "eager", "fraction": fraction,
                "seconds_p50": 0.1 + fraction * (1 if device == "cpu" else 10), "real_time_factor": fraction,
            }
            for device in ("cuda", "cpu")
            for fraction in AUDIO_FRACTIONS
        ]  # fmt: skip
        rows += [
            {**shared, "measure": "panel", "fraction": fraction, "codes": 1, "envelope": "-1 1 -2 2", "png": PIXEL}
            for fraction in CLIP_FRACTIONS
        ]
    rows.append(
        {
            "series": audio.HELD_OUT,
            "audio_classifier": "a",
            "accuracy": 0.98,
            "accuracy_examples": 2400,
            "classified": 0.95,
            "nearest": 2.0,
            "nearest_p01": 1.0,
        }
    )
    return rows


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="


def decided(rows: list[Row], words: str) -> Verdict:
    (verdict,) = (verdict for verdict in audio.decide(rows) if words in verdict.claim)
    return verdict


def test_all_claims_hold_except_the_time_on_a_cpu() -> None:
    verdicts = {verdict.claim: verdict.holds for verdict in audio.decide(synthetic_rows())}
    assert len(verdicts) == 18
    assert [claim for claim, holds in verdicts.items() if not holds] == [
        "cpu: the first complete clip, from 1/16 of the codes, takes at most an eighth of the full run's time"
    ]
    assert "0.9" in decided(synthetic_rows(), "at least 80%").claim
    assert (
        "90.0% at temperature 1, the goal is not met; 80.0% at temperature 0.8"
        in decided(synthetic_rows(), "at least 80%").evidence
    )


def changed(rows: list[Row], where: dict[str, Any], values: dict[str, Any]) -> list[Row]:
    rows = copy.deepcopy(rows)
    hit = [row for row in rows if all(row.get(key) == value for key, value in where.items())]
    assert hit
    for row in hit:
        row.update(values)
    return rows


@pytest.mark.parametrize(
    ("where", "values", "words"),
    [
        ({"measure": "error", "series": "ordered", "fraction": 0.25}, {"high": 9.0}, "paper recipe: ordered beats unordered"),
        ({"measure": "error", "series": "best", "fraction": 0.5}, {"stft": 9.0}, "best recipe: ordered beats unordered"),
        ({"measure": "error", "series": "ordered", "fraction": 0.5}, {"log_mel": 1.9}, "paper recipe, ordered: the log-mel"),
        ({"measure": "half-way", "series": "best", "band": "low"}, {"codes": 4}, "best recipe, ordered: the low band"),
        ({"measure": "half-way", "series": "ordered", "band": "low"}, {"codes": None}, "paper recipe, ordered: the low band"),
        (
            {"measure": "samples", "series": "ordered", "fraction": 0.25},
            {"frechet_digits": 999.0},
            "paper recipe: frechet_digits of samples at",
        ),
        (
            {"measure": "samples", "series": "best", "fraction": 1.0},
            {"frechet_digits": 9.0},
            "best recipe: frechet_digits of samples of all codes",
        ),
        ({"measure": "error", "series": "best", "codes": 5}, {"low": 9.0}, "best recipe beats the paper's"),
        ({"measure": "samples", "series": "best", "fraction": 1.0}, {"classified": 0.79}, "at least 80%"),
        ({"measure": "samples", "series": "best", "fraction": 0.5}, {"classified": 0.51}, "share rises"),
        ({"measure": "samples", "series": "best", "fraction": 1.0}, {"by_digit": [0] + [9] * 9}, "every digit"),
        ({"measure": "samples", "series": "best", "fraction": 1.0}, {"nearest": 0.9}, "not memorised"),
        ({"series": audio.HELD_OUT}, {"accuracy": 0.96}, "the classifier is right"),
        ({"measure": "speed", "device": "cuda", "series": "best", "fraction": 0.0625}, {"seconds_p50": 1.5}, "cuda: the first"),
    ],
)
def test_one_number_refutes_a_claim(where: dict[str, Any], values: dict[str, Any], words: str) -> None:
    assert decided(synthetic_rows(), words).holds is True
    assert decided(changed(synthetic_rows(), where, values), words).holds is False


def test_a_band_that_never_halves_does_not_come_before_the_low_band() -> None:
    rows = changed(synthetic_rows(), {"measure": "half-way", "series": "best", "band": "high"}, {"codes": None})
    verdict = decided(rows, "best recipe, ordered: the low band")
    assert verdict.holds is True
    assert "high never" in verdict.evidence


def test_no_classifier_verdicts_without_digits() -> None:
    rows = [
        {("frechet_audio" if key == "frechet_digits" else key): value for key, value in row.items() if key != "classified"}
        for row in synthetic_rows()
    ]
    claims = [verdict.claim for verdict in audio.decide(rows)]
    assert not any("classifie" in claim for claim in claims)
    assert any("frechet_audio" in claim for claim in claims)


def test_seeds_that_disagree_leave_a_claim_undecided() -> None:
    rows = synthetic_rows()
    second = [{**row, "seed": 1} for row in rows if row["series"] != audio.HELD_OUT]
    assert [verdict.holds for verdict in audio.decide([*rows, *second])] == [v.holds for v in audio.decide(rows)]
    worse = changed(second, {"measure": "samples", "series": "best", "fraction": 1.0}, {"classified": 0.79})
    verdict = decided([*rows, *worse], "at least 80%")
    assert verdict.holds is None
    assert "seed 0: 90.0%" in verdict.evidence and "seed 1: 79.0%" in verdict.evidence


@pytest.mark.parametrize("series", ["best-unordered", audio.HELD_OUT])
@pytest.mark.parametrize("other", ["b", None])
def test_models_measured_with_other_classifiers_are_not_compared(series: str, other: str | None) -> None:
    verdicts = audio.decide(changed(synthetic_rows(), {"series": series}, {"audio_classifier": other}))
    before = audio.decide(synthetic_rows())
    undecided = [now.claim for now, then in zip(verdicts, before, strict=True) if now.holds is None and then.holds is not None]
    assert len(undecided) == 9, "four of samples, four of the classifier, one of memorisation"
    assert all("different classifiers" in verdict.evidence for verdict in verdicts if verdict.holds is None)


def test_pairs_share_their_first_stage() -> None:
    rows = [row for row in synthetic_rows() if row["series"] != audio.HELD_OUT]
    audio.check_first_stages(rows)
    with pytest.raises(UserError, match="best and best-unordered of seed 0 have different first stages; remove the run"):
        audio.check_first_stages(changed(rows, {"series": "best-unordered"}, {"first_stage": "g"}))


def test_figure() -> None:
    results = Results("audio", "audiomnist", "anytime reproduce audio", {"scale": "smoke"}, "", synthetic_rows(), [])
    assert len(plot_png(audio.draw(results))) > 10_000
