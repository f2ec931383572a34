"""Appendix B: audio by code length, ordered against unordered, by the paper's recipe and by ours.

Reconstructions and the order of the frequency bands are measured on held-out speakers. A classifier counts the samples that
are spoken digits. Latencies show when the first complete clip is ready.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from anytime.core.results import Results, Row, Verdict, curve, select
from anytime.evaluation import audio as clips
from anytime.evaluation.audio import AUDIO_FRACTIONS, CLIP_FRACTIONS, error_rows, half_error_rows
from anytime.evaluation.classifier_training import FORMAT, MIN_DIGIT_ACCURACY, load_or_train_audio_features
from anytime.evaluation.evaluate import EvaluationSettings, speed_rows
from anytime.experiments.plots import encode_strip, new_figure, plot_curve, show_strip
from anytime.experiments.registry import BEST_PAIR, PAIR
from anytime.experiments.runner import RunMeasurement, Runner, digest
from anytime.metrics.audio import BANDS
from anytime.metrics.classifier import AudioFeatures
from anytime.metrics.feature_stats import FeatureStatistics
from anytime.metrics.quality import data_row, distance_name, reconstruction_rows, reference_statistics, sample_rows
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

TRUNCATED = AUDIO_FRACTIONS[:-1]
METRICS = ("log_mel", "stft", *BANDS)
TEMPERATURES = (1.0, 0.8)
MIN_CLASSIFIED, GOAL_CLASSIFIED, MAX_TIME_SHARE, MIN_NEAREST_RATIO = 0.8, 0.95, 1 / 8, 0.5
"""Bounds of the verdicts, set before any model was measured."""
SMOKE_SAMPLES, SMOKE_EXAMPLES, SMOKE_REPEATS, REPEATS = 32, 8, 3, 20
SHOWN = 3  # clips in the figure
VARIANTS = (*PAIR, *BEST_PAIR)
RECIPES = {"paper": PAIR, "best": BEST_PAIR}
HELD_OUT = "held-out data"


@dataclass(frozen=True)
class AudioMeasurements:
    """Measures runs and held-out data with one set of audio features."""

    runner: Runner
    settings: EvaluationSettings
    examples: int  # held-out crops for the distances

    @cached_property
    def features(self) -> AudioFeatures:
        """The audio features: minutes on a CPU, which a cached experiment does not need."""
        s = self.runner.context
        return load_or_train_audio_features(s.dataset, s.device, smoke=s.smoke, reporter=s.reporter)

    @cached_property
    def real(self) -> FeatureStatistics:
        """The statistics of the training set."""
        s = self.runner.context
        return reference_statistics(s.dataset.published_train, self.features, None, s.reporter, s.pause)

    def model_rows(self, variant: str, model: AnytimeModel) -> list[Row]:
        """Return all rows of one run; its clips are written to the run directory."""
        s, rows = self.runner.context, list[Row]()
        for temperature in TEMPERATURES:
            rows += sample_rows(
                model, AUDIO_FRACTIONS, self.settings.samples, self.real, self.features, seed=s.seed, temperature=temperature,
                folder=self.runner.scratch(f"{variant} {s.seed}"), reporter=s.reporter, pause=s.pause,
            )  # fmt: skip
        rows += reconstruction_rows(model, s.dataset.held_out, AUDIO_FRACTIONS, self.real, self.features, reporter=s.reporter)
        errors = error_rows(model, s.dataset, s.reporter, self.examples)
        rows += [{k: v for k, v in row.items() if k != "fraction" or v in AUDIO_FRACTIONS} for row in errors]
        rows += half_error_rows(errors)
        if variant in (PAIR[0], BEST_PAIR[0]):  # the unordered runs have the same networks
            rows += speed_rows(model, self.settings, s.reporter, 1, device=model.device.type)
            if model.device.type != "cpu":
                cpu_model = AnytimeModel(model.config)
                cpu_model.load_state_dict(model.state_dict())
                rows += speed_rows(cpu_model.eval().use("eager"), self.settings, s.reporter, 1, device="cpu")
        rows += panel_rows(model, self.runner.plan(variant, s.seed).run_dir / "audio", s.seed)
        shared = {"series": variant, "length": model.length, "audio_classifier": self.features.digest[:16]}
        return [{**row, "measure": row["series"], **shared} for row in rows]


def measure(runner: Runner) -> list[Row]:
    """Return samples, reconstructions, errors, latency and panels of four runs, and the row of held-out data."""
    s = runner.context
    count = s.samples or (SMOKE_SAMPLES if s.smoke else clips.AUDIO_SAMPLES)
    repeats = SMOKE_REPEATS if s.smoke else REPEATS
    settings = EvaluationSettings(samples=count, fractions=AUDIO_FRACTIONS, repeats=repeats, seed=s.seed)
    examples = SMOKE_EXAMPLES if s.smoke else clips.AUDIO_ERROR_EXAMPLES
    runner.notes += [f"{count:,} samples at each length", f"distances of {examples} held-out crops"]
    own, x = AudioMeasurements(runner, settings, examples), s.dataset.held_out
    facts = {"audio_features": FORMAT, "x": digest(x), "examples": examples, "panels": [clips.CLIPS, SHOWN]}
    run_facts = {**facts, **s.timing, "samples": count, "temperatures": TEMPERATURES, "fractions": AUDIO_FRACTIONS}
    runs = [RunMeasurement(variant, s.seed, partial(own.model_rows, variant), run_facts) for variant in VARIANTS]
    rows = runner.measure_runs(runs)
    return rows + runner.measure_data(HELD_OUT, facts, lambda: [data_row(x, own.real, own.features, None, s.reporter)])


def panel_rows(model: AnytimeModel, folder: Path, seed: int) -> list[Row]:
    """Return waveforms and spectrograms of a few samples at the paper's fractions; write 90 clips to `folder`."""
    found = clips.decode_fractions(model, model.sample(clips.CLIPS, seed=seed).codes)
    clips.write_clips(folder, found)
    return [
        {
            "series": "panel",
            "fraction": fraction,
            "codes": code_count(model.length, fraction=fraction),
            "envelope": clips.envelope(x[0]),
            "png": encode_strip(x[:SHOWN]),
        }
        for fraction, x in found.items()
    ]


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide the claims of the appendix, and those that a user would rely on."""
    verdicts = [verdict for recipe in RECIPES for verdict in _ordered_ahead(rows, recipe)]
    verdicts.append(_best_beats_paper(rows))
    (data,) = (row for row in rows if row["series"] == HELD_OUT)
    if "classified" in data:
        verdicts += _classified(rows, data)
    verdicts.append(_not_memorised(rows, data))
    return verdicts + [_first_clip_early(rows, device) for device in dict.fromkeys(r["device"] for r in rows if "device" in r)]


def _by_fraction(rows: Sequence[Row], measure: str, variant: str, **where: Any) -> dict[float, Row]:
    return {row["fraction"]: row for row in select(rows, measure=measure, series=variant, **where)}


def _ordered_ahead(rows: list[Row], recipe: str) -> list[Verdict]:
    """Compare reconstructions, bands and samples of a recipe's ordered and unordered run."""
    errors, name = select(rows, measure="error"), distance_name(rows)
    lost, leads = list[str](), list[str]()
    for metric in METRICS:
        one, other = (curve(errors, variant, "fraction", metric) for variant in RECIPES[recipe])
        lost += [f"{metric} at {f:g}" for f in TRUNCATED if not one[f] < other[f]]
        worst = max(TRUNCATED, key=lambda f: one[f] / other[f])
        leads.append(f"{metric} {one[worst]:.3f} against {other[worst]:.3f} at {worst:g}")
    half = {row["band"]: row["codes"] for row in select(rows, measure="half-way", series=RECIPES[recipe][0])}
    low, *higher = (math.inf if half[band] is None else half[band] for band in BANDS)
    ordered, unordered = (_by_fraction(rows, "samples", variant, temperature=1.0) for variant in RECIPES[recipe])
    return [
        Verdict(
            f"{recipe} recipe: ordered beats unordered on every reconstruction metric at 1/16, 1/4 and 1/2 of the codes",
            not lost,
            (f"not so for {', '.join(lost)}; " if lost else "smallest lead: ") + "; ".join(leads),
            "the correct global structure using as few as 6.25% of the full code length",
        ),
        Verdict(
            f"{recipe} recipe, ordered: the low band's error falls first (fewest codes to halve it)",
            low < min(higher),
            "halved at " + ", ".join(f"{band} {'never' if half[band] is None else half[band]}" for band in BANDS),
            "low frequency features first, then higher frequency components",
        ),
        Verdict(
            f"{recipe} recipe: {name} of samples at 1/16 and 1/4 of the codes is lower ordered than unordered",
            all(ordered[f][name] < unordered[f][name] for f in TRUNCATED[:2]),
            "; ".join(f"{f:g}: {ordered[f][name]:.1f} against {unordered[f][name]:.1f}" for f in AUDIO_FRACTIONS),
            "samples from the unordered VQ-VAE contain considerably more noise when using truncated codes",
        ),
    ]


def _best_beats_paper(rows: list[Row]) -> Verdict:
    errors = select(rows, measure="error")
    lost, ratios = list[str](), list[str]()
    for name in METRICS:
        papers, ours = (curve(errors, variant, "codes", name) for variant, _ in RECIPES.values())
        every = [k for k in ours if k > 0]
        worst = max(every, key=lambda k: ours[k] / papers[k])
        if not ours[worst] < papers[worst]:
            lost.append(f"{name} at {sum(not ours[k] < papers[k] for k in every)} lengths")
        ratios.append(f"{name} at most {ours[worst] / papers[worst]:.2f} of the paper's (at {worst} codes)")
    return Verdict(
        "best recipe beats the paper's on every reconstruction metric at every length",
        not lost,
        (f"not so for {', '.join(lost)}; " if lost else "") + "; ".join(ratios),
    )


def _classified(rows: list[Row], data: Row) -> list[Verdict]:
    by = {t: _by_fraction(rows, "samples", BEST_PAIR[0], temperature=t) for t in TEMPERATURES}
    best = max(by, key=lambda t: by[t][1.0]["classified"])
    shares = {f: by[best][f]["classified"] for f in AUDIO_FRACTIONS}
    text = ", ".join(f"{f:g}: {share:.1%}" for f, share in shares.items())
    others = "; ".join(f"{by[t][1.0]['classified']:.1%} at temperature {t:g}" for t in by if t != best)
    goal = "is" if shares[1.0] >= GOAL_CLASSIFIED else "is not"
    digits = by[best][1.0]["by_digit"]
    return [
        Verdict(
            f"best recipe: at least {MIN_CLASSIFIED:.0%} of full-length samples are classified as a digit "
            f"with confidence over 0.9 (goal {GOAL_CLASSIFIED:.0%})",
            shares[1.0] >= MIN_CLASSIFIED,
            f"{shares[1.0]:.1%} at temperature {best:g}, the goal {goal} met; {others}",
        ),
        Verdict(
            "best recipe: the classified share rises with the code length",
            all(shares[a] < shares[b] for a, b in pairwise(AUDIO_FRACTIONS)),
            f"{text}, at temperature {best:g}",
        ),
        Verdict(
            "best recipe: every digit is among the classified samples",
            min(digits) > 0,
            ", ".join(f"{digit}: {count}" for digit, count in enumerate(digits)),
        ),
        Verdict(
            f"the classifier is right on at least {MIN_DIGIT_ACCURACY:.0%} of real digits by unseen speakers",
            data["accuracy"] >= MIN_DIGIT_ACCURACY,
            f"{data['accuracy']:.2%} of {data['accuracy_examples']:,}; "
            f"confident on {data['classified']:.1%} of the test speakers'",
        ),
    ]


def _not_memorised(rows: list[Row], data: Row) -> Verdict:
    full = _by_fraction(rows, "samples", BEST_PAIR[0], temperature=1.0)[1.0]
    return Verdict(
        "best recipe: samples are not memorised "
        f"(median distance to the nearest training example at least {MIN_NEAREST_RATIO} of that of held-out data)",
        full["nearest"] >= MIN_NEAREST_RATIO * data["nearest"],
        f"{full['nearest']:.2f} against {data['nearest']:.2f}; "
        f"first percentile {full['nearest_p01']:.2f} against {data['nearest_p01']:.2f}",
    )


def _first_clip_early(rows: list[Row], device: str) -> Verdict:
    texts, shares = list[str](), list[float]()
    for recipe, (variant, _) in RECIPES.items():
        own = _by_fraction(rows, "speed", variant, device=device)
        share = {f: own[f]["seconds_p50"] / own[1.0]["seconds_p50"] for f in AUDIO_FRACTIONS}
        shares.append(share[AUDIO_FRACTIONS[0]])
        factors = ", ".join(f"{f:g}: {own[f]['real_time_factor']:.4f}" for f in AUDIO_FRACTIONS)
        ratios = ", ".join(f"{f:g}: {share[f]:.3f}" for f in AUDIO_FRACTIONS)
        text = f"{shares[-1]:.3f} of the full run; real-time factor {factors}; share {ratios}"
        texts.append(f"{recipe}, {own[1.0]['engine']}: {text}")
    return Verdict(
        f"{device}: the first complete clip, from 1/16 of the codes, takes at most an eighth of the full run's time",
        max(shares) <= MAX_TIME_SHARE,
        "; ".join(texts),
    )


def draw(results: Results) -> Any:
    """Draw waveforms and spectrograms, then curves."""
    rows = results.rows
    figure = new_figure(12.0, 4 + 1.6 * len(VARIANTS))
    above, below = figure.subfigures(2, 1, height_ratios=(1.6 * len(VARIANTS), 4))
    every = above.subplots(len(VARIANTS), 2 * len(CLIP_FRACTIONS), squeeze=False)
    for line, variant in zip(every, VARIANTS, strict=True):
        for column, row in enumerate(select(rows, measure="panel", series=variant)):
            clips.draw_envelope(line[2 * column], row["envelope"])
            line[2 * column].set_title(f"{variant}, {row['codes']} of {row['length']}", fontsize="x-small")
            show_strip(line[2 * column + 1], row["png"], "")
    distances, bands, samples = below.subplots(1, 3)
    value = "classified" if any("classified" in row for row in rows) else distance_name(rows)
    for variant in VARIANTS:
        plot_curve(distances, select(rows, measure="error"), variant, "codes", "log_mel")
        plot_curve(samples, select(rows, measure="samples", temperature=1.0), variant, "fraction", value, marker="o")
    for band in BANDS:
        plot_curve(bands, select(rows, measure="error"), BEST_PAIR[0], "codes", band, label=band)
    distances.set(xlabel="codes kept", ylabel="log-mel distance, nats", title=results.dataset)
    bands.set(xlabel="codes kept", ylabel="error / energy", title=BEST_PAIR[0])
    samples.set(xlabel="fraction of the codes", ylabel=value, title="samples, temperature 1")
    for axes in (distances, bands, samples):
        axes.legend(fontsize="small")
    return figure
