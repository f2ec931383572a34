"""Appendix B: sounds by code length, ordered against unordered, by the paper's recipe and by ours.

Held-out voices say how good reconstructions are and in which band they get better first; a recogniser of our own says how many
samples of spoken digits are digits; a clock says how soon the first complete sound is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from anytime.core.environment import environment
from anytime.core.results import Results, Row, Verdict, curve, read, write_figure
from anytime.evaluation import audio_panels, evaluate_audio
from anytime.evaluation.evaluate import EvaluationSettings
from anytime.experiments.image_strips import show, strip
from anytime.experiments.registry import BEST, PAIR
from anytime.experiments.runner import Runner, digest
from anytime.metrics.audio import BANDS
from anytime.metrics.audio_features import AUDIO_FEATURES_KIND, MIN_DIGIT_ACCURACY, AudioFeatures, load_or_train_audio_features
from anytime.metrics.feature_stats import FeatureStatistics
from anytime.metrics.quality import reference_statistics
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

FRACTIONS = evaluate_audio.FRACTIONS
SHORT = FRACTIONS[:-1]
METRICS = ("log_mel", "stft", *BANDS)
TEMPERATURES = (1.0, 0.8)
MIN_RECOGNISED, GOAL_RECOGNISED, MAX_TIME_SHARE, MIN_NEAREST_RATIO = 0.8, 0.95, 1 / 8, 0.5
"""Bounds of the verdicts, set before any model was measured."""
SMOKE_SAMPLES, SMOKE_EXAMPLES, SMOKE_REPEATS = 32, 8, 3
REPEATS = 20
SHOWN = 3  # clips of the figure
RECIPES = {"paper": PAIR, "best": BEST}
HELD_OUT = "held-out data"


def compute(runner: Runner) -> Results:
    """Four runs, each measured by all that a sound can be measured by."""
    s = runner.context
    count = s.samples or (SMOKE_SAMPLES if s.smoke else evaluate_audio.SAMPLES)
    settings = EvaluationSettings(samples=count, fractions=FRACTIONS, repeats=SMOKE_REPEATS if s.smoke else REPEATS)
    examples = SMOKE_EXAMPLES if s.smoke else evaluate_audio.AUDIO_ERROR_EXAMPLES

    @cache
    def load_features() -> tuple[
        AudioFeatures, FeatureStatistics
    ]:  # minutes on a CPU, which a finished experiment does without
        audio_features = load_or_train_audio_features(s.dataset, s.device, smoke=s.smoke, reporter=s.reporter)
        return audio_features, reference_statistics(s.dataset.published_train, audio_features, None, s.reporter, s.pause)

    env = environment(s.device)
    facts = {
        "audio_features": AUDIO_FEATURES_KIND,
        "x": digest(s.dataset.held_out),
        "examples": examples,
        "panels": [audio_panels.CLIPS, SHOWN],
    }
    timing = {"hardware": env["hardware"], "torch": env["torch"]}
    shared = {**facts, **timing, "samples": count, "temperatures": TEMPERATURES, "fractions": FRACTIONS}
    runner.announce([(variant, s.seed) for variant in (*PAIR, *BEST)], facts=shared)
    rows: list[Row] = []
    for variant in (*PAIR, *BEST):
        rows += runner.measure_run(
            variant, s.seed, shared, partial(model_rows, runner, variant, settings, examples, load_features)
        )

    def held_out() -> list[Row]:
        audio_features, real = load_features()
        return [evaluate_audio.data_row(s.dataset, real, audio_features, s.reporter)]

    rows += runner.measure_data(HELD_OUT, facts, held_out)
    return runner.results(rows, decide(rows), [f"{count:,} samples at each length", f"distances of {examples} held-out crops"])


def model_rows(
    runner: Runner,
    variant: str,
    settings: EvaluationSettings,
    examples: int,
    load_features: Callable[[], tuple[AudioFeatures, FeatureStatistics]],
    model: AnytimeModel,
) -> list[Row]:
    """Everything about one run; its 90 sounds lie in the run's folder."""
    s = runner.context
    audio_features, real = load_features()
    settings = replace(settings, seed=s.seed)
    rows: list[Row] = []
    for temperature in TEMPERATURES:
        scratch = runner.scratch(f"{variant} {s.seed}")
        settings_at = replace(settings, temperature=temperature)
        rows += evaluate_audio.sample_rows(
            model, settings_at, real, audio_features, folder=scratch, reporter=s.reporter, pause=s.pause
        )
    rows += evaluate_audio.reconstruction_rows(model, s.dataset, FRACTIONS, real, audio_features, reporter=s.reporter)
    errors = evaluate_audio.error_rows(model, s.dataset, s.reporter, examples)
    rows += [row if row["fraction"] in FRACTIONS else _without_fraction(row) for row in errors]
    rows += evaluate_audio.half_error_rows(errors)
    if variant in (PAIR[0], BEST[0]):  # the unordered ones have the same networks
        rows += timed_rows(model, settings, runner)
    rows += panel_rows(model, runner.plan(variant, s.seed).run_dir / "audio", s.seed)
    about = {"series": variant, "length": model.length, "audio_classifier": audio_features.digest[:16]}
    return [{**row, "measure": row["series"], **about} for row in rows]


def _without_fraction(row: Row) -> Row:
    return {key: value for key, value in row.items() if key != "fraction"}


def timed_rows(model: AnytimeModel, settings: EvaluationSettings, runner: Runner) -> list[Row]:
    """Seconds for one sound by code length on the device, and on the CPU where that is another."""
    reporter, device = runner.context.reporter, model.device.type
    rows = evaluate_audio.speed_rows(model, settings, reporter, device=device)
    if device != "cpu":
        cpu_model = AnytimeModel(model.config)
        cpu_model.load_state_dict(model.state_dict())
        rows += evaluate_audio.speed_rows(cpu_model.eval().use("eager"), settings, reporter, device="cpu")
    return rows


def panel_rows(model: AnytimeModel, folder: Path, seed: int) -> list[Row]:
    """Waveforms and spectrograms of a few samples at the paper's fractions; 90 sounds go to the folder, named by fraction."""
    found = audio_panels.by_fraction(model, model.sample(audio_panels.CLIPS, seed=seed).codes)
    audio_panels.write_clips(folder, found)
    return [
        {
            "series": "panel",
            "fraction": fraction,
            "codes": code_count(model.length, fraction=fraction),
            "envelopes": [audio_panels.envelope(clip) for clip in x[:SHOWN]],
            "png": strip(x[:SHOWN]),
            "files": f"{folder.parent.name}/{folder.name}/{audio_panels.file_name(fraction, 0)}",
        }
        for fraction, x in found.items()
    ]


def decide(rows: list[Row]) -> list[Verdict]:
    """The claims of the appendix, and those that a user would want to rely on."""
    verdicts = [
        verdict
        for recipe in RECIPES
        for verdict in (ordered_ahead(rows, recipe), low_band_first(rows, recipe), less_noise(rows, recipe))
    ]
    verdicts.append(best_beats_paper(rows))
    if any("classified" in row for row in rows):
        verdicts += [*recognition_rate(rows), classifier_accurate(rows)]
    verdicts.append(not_memorised(rows))
    return verdicts + [first_clip_early(rows, device) for device in dict.fromkeys(r["device"] for r in rows if "device" in r)]


def select(rows: Sequence[Row], measure: str, **where: Any) -> list[Row]:
    """Rows of one measure with these values."""
    return [row for row in rows if row.get("measure") == measure and all(row.get(key) == value for key, value in where.items())]


def ordered_ahead(rows: list[Row], recipe: str) -> Verdict:
    """Ordered ahead of unordered where codes are missing."""
    errors = select(rows, "error")
    found = {name: [curve(errors, variant, "fraction", name) for variant in RECIPES[recipe]] for name in METRICS}
    lost = [f"{name} at {f:g}" for name, (one, other) in found.items() for f in SHORT if not one[f] < other[f]]
    text = "; ".join(_smallest_lead(name, *curves) for name, curves in found.items())
    return Verdict(
        f"{recipe} recipe: ordered beats unordered on every reconstruction metric at 1/16, 1/4 and 1/2 of the codes",
        not lost,
        f"not so for {', '.join(lost)}; {text}" if lost else f"nearest each other: {text}",
        "the correct global structure using as few as 6.25% of the full code length",
    )


def _smallest_lead(name: str, one: dict[float, float], other: dict[float, float]) -> str:
    """Where the one is least ahead of the other."""
    worst = max(SHORT, key=lambda fraction: one[fraction] / other[fraction])
    return f"{name} {one[worst]:.3f} against {other[worst]:.3f} at {worst:g}"


def low_band_first(rows: list[Row], recipe: str) -> Verdict:
    """The low band is halfway there with the fewest codes."""
    ordered = RECIPES[recipe][0]
    half = {row["band"]: row["codes"] for row in select(rows, "half-way", series=ordered)}
    low = half["low"]
    first = low is not None and all(half[band] is None or low < half[band] for band in BANDS if band != "low")
    return Verdict(
        f"{recipe} recipe, ordered: the low band's error falls first (its half-way code index is the smallest)",
        first,
        "half-way at " + ", ".join(f"{band} {'never' if half[band] is None else half[band]}" for band in BANDS),
        "low frequency features first, then higher frequency components",
    )


def less_noise(rows: list[Row], recipe: str) -> Verdict:
    """Samples from few codes are nearer to real sounds when ordered."""
    name = _distance_name(rows)
    found = [
        {row["fraction"]: row[name] for row in select(rows, "samples", series=variant, temperature=1.0)}
        for variant in RECIPES[recipe]
    ]
    return Verdict(
        f"{recipe} recipe: {name} of samples at 1/16 and 1/4 of the codes is lower ordered than unordered",
        all(found[0][f] < found[1][f] for f in SHORT[:2]),
        "; ".join(f"{f:g}: {found[0][f]:.1f} against {found[1][f]:.1f}" for f in FRACTIONS),
        "samples from the unordered VQ-VAE contain considerably more noise when using truncated codes",
    )


def _distance_name(rows: Sequence[Row]) -> str:
    return "frechet_digits" if any("frechet_digits" in row for row in rows) else "frechet_audio"


def best_beats_paper(rows: list[Row]) -> Verdict:
    """Our recipe against the paper's, both ordered."""
    errors = select(rows, "error")
    lost, ratios = list[str](), list[str]()
    for name in METRICS:
        ours, papers = (curve(errors, RECIPES[recipe][0], "codes", name) for recipe in ("best", "paper"))
        every = [k for k in ours if k > 0]
        worst = max(every, key=lambda k: ours[k] / papers[k])
        lost += [f"{name} at {sum(not ours[k] < papers[k] for k in every)} lengths"] * (not ours[worst] < papers[worst])
        ratios.append(f"{name} at most {ours[worst] / papers[worst]:.2f} of the paper's (at {worst} codes)")
    return Verdict(
        "best recipe beats the paper's on every reconstruction metric at every length",
        not lost,
        "; ".join([*([f"not so for {', '.join(lost)}"] if lost else []), *ratios]),
    )


def recognition_rate(rows: list[Row]) -> list[Verdict]:
    """How many samples are digits: enough at full length, more with every further code, and all ten of them."""
    series = BEST[0]
    by = {t: {row["fraction"]: row for row in select(rows, "samples", series=series, temperature=t)} for t in TEMPERATURES}
    best_temperature = max(by, key=lambda t: by[t][1.0]["classified"])
    found = by[best_temperature]
    shares = {f: found[f]["classified"] for f in FRACTIONS}
    text = ", ".join(f"{f:g}: {share:.1%}" for f, share in shares.items())
    others = "; ".join(f"{by[t][1.0]['classified']:.1%} at temperature {t:g}" for t in by if t != best_temperature)
    digits = found[1.0]["by_digit"]
    return [
        Verdict(
            f"best recipe: at least {MIN_RECOGNISED:.0%} of full-length samples are recognised as a digit "
            f"with confidence over 0.9 (goal {GOAL_RECOGNISED:.0%})",
            shares[1.0] >= MIN_RECOGNISED,
            f"{shares[1.0]:.1%} at temperature {best_temperature:g}, "
            f"the goal {'is' if shares[1.0] >= GOAL_RECOGNISED else 'is not'} met; {others}",
        ),
        Verdict(
            "best recipe: the recognised share rises with the code length",
            all(shares[a] < shares[b] for a, b in pairwise(FRACTIONS)),
            f"{text}, at temperature {best_temperature:g}",
        ),
        Verdict(
            "best recipe: every digit is among the recognised samples",
            min(digits) > 0,
            ", ".join(f"{digit}: {count}" for digit, count in enumerate(digits)),
        ),
    ]


def classifier_accurate(rows: list[Row]) -> Verdict:
    """The recogniser itself, on real digits."""
    (data,) = (row for row in rows if row["series"] == HELD_OUT)
    return Verdict(
        f"the recogniser hears at least {MIN_DIGIT_ACCURACY:.0%} of real digits of unheard voices right",
        data["accuracy"] >= MIN_DIGIT_ACCURACY,
        f"{data['accuracy']:.2%} of {data['accuracy_examples']:,}; sure of {data['classified']:.1%} of the test voices'",
    )


def not_memorised(rows: list[Row]) -> Verdict:
    """Samples do not sit on training examples."""
    (data,) = (row for row in rows if row["series"] == HELD_OUT)
    (full,) = select(rows, "samples", series=BEST[0], temperature=1.0, fraction=1.0)
    return Verdict(
        "best recipe: samples are no copies "
        f"(median distance to the nearest training example at least {MIN_NEAREST_RATIO} of that of held-out data)",
        full["nearest"] >= MIN_NEAREST_RATIO * data["nearest"],
        f"{full['nearest']:.2f} against {data['nearest']:.2f}; the nearest hundredth {full['nearest_p01']:.2f} against "
        f"{data['nearest_p01']:.2f}",
    )


def first_clip_early(rows: list[Row], device: str) -> Verdict:
    """The first complete sound against the whole run's time, by both recipes' ordered models."""
    texts, shares = list[str](), list[float]()
    for recipe, (variant, _) in RECIPES.items():
        own = {row["fraction"]: row for row in select(rows, "speed", series=variant, device=device)}
        shares.append(own[FRACTIONS[0]]["seconds_p50"] / own[1.0]["seconds_p50"])
        factors = ", ".join(f"{f:g}: {own[f]['real_time_factor']:.4f}" for f in FRACTIONS)
        ratios = ", ".join(f"{f:g}: {own[f]['seconds_p50'] / own[1.0]['seconds_p50']:.3f}" for f in FRACTIONS)
        texts.append(
            f"{recipe}, {own[1.0]['engine']}: {shares[-1]:.3f} of the full run; real-time factor {factors}; share {ratios}"
        )
    return Verdict(
        f"{device}: the first complete sound, from 1/16 of the codes, in at most an eighth of the full run's time",
        max(shares) <= MAX_TIME_SHARE,
        "; ".join(texts),
    )


def draw(path: Path) -> Path:
    """The figure beside a results file, from its numbers and panels alone: waveforms and spectrograms, then curves."""
    import matplotlib.figure

    results = read(path)
    rows, kinds = results.rows, (*PAIR, *BEST)
    figure: Any = matplotlib.figure.Figure(figsize=(12, 4 + 1.6 * len(kinds)), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1.6 * len(kinds), 4))
    every = above.subplots(len(kinds), 2 * len(audio_panels.FRACTIONS), squeeze=False)
    for line, variant in zip(every, kinds, strict=True):
        for column, fraction in enumerate(audio_panels.FRACTIONS):
            (row,) = select(rows, "panel", series=variant, fraction=fraction)
            audio_panels.draw_envelope(line[2 * column], row["envelopes"][0])
            line[2 * column].set_title(f"{variant}, {row['codes']} of {row['length']}", fontsize="x-small")
            show(line[2 * column + 1], row["png"], "")
    distances, bands, audio_metrics = below.subplots(1, 3)
    for variant in kinds:
        points = curve(select(rows, "error"), variant, "codes", "log_mel")
        distances.plot(list(points), list(points.values()), label=variant)
    for band in BANDS:
        points = curve(select(rows, "error"), BEST[0], "codes", band)
        bands.plot(list(points), list(points.values()), label=band)
    value = "classified" if any("classified" in row for row in rows) else _distance_name(rows)
    for variant in kinds:
        points = {row["fraction"]: row[value] for row in select(rows, "samples", series=variant, temperature=1.0)}
        audio_metrics.plot(list(points), list(points.values()), marker="o", label=variant)
    distances.set(xlabel="codes kept", ylabel="log-mel distance, nats", title=results.dataset)
    bands.set(xlabel="codes kept", ylabel="error / energy", title=BEST[0])
    audio_metrics.set(xlabel="fraction of the codes", ylabel=value, title="samples, temperature 1")
    for axes in (distances, bands, audio_metrics):
        axes.legend(fontsize="small")
    return write_figure(path, figure)
