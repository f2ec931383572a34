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

from anytime.core.results import Results, Row, Verdict, curve, read, write_figure
from anytime.evaluation import audio_panels, evaluate_audio
from anytime.evaluation.evaluate import Settings
from anytime.experiments.image_strips import show, strip
from anytime.experiments.registry import BEST, PAIR
from anytime.experiments.runner import Workbench, digest
from anytime.metrics.audio import BANDS
from anytime.metrics.audio_features import ENOUGH, KIND, Ears, ears_for
from anytime.metrics.feature_stats import Statistics
from anytime.metrics.quality import reference
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count
from anytime.training.run_dir import environment

FRACTIONS = evaluate_audio.FRACTIONS
SHORT = FRACTIONS[:-1]
METRICS = ("log_mel", "stft", *BANDS)
TEMPERATURES = (1.0, 0.8)
SHARE, GOAL, EIGHTH, COPIED = 0.8, 0.95, 1 / 8, 0.5
"""Bounds of the verdicts, set before any model was measured."""
SMOKE_SAMPLES, SMOKE_EXAMPLES, SMOKE_REPEATS = 32, 8, 3
REPEATS = 20
SHOWN = 3  # clips of the figure
RECIPES = {"paper": PAIR, "best": BEST}
HELD_OUT = "held-out data"


def compute(bench: Workbench) -> Results:
    """Four runs, each measured by all that a sound can be measured by."""
    s = bench.setting
    count = s.samples or (SMOKE_SAMPLES if s.smoke else evaluate_audio.SAMPLES)
    settings = Settings(samples=count, fractions=FRACTIONS, repeats=SMOKE_REPEATS if s.smoke else REPEATS)
    examples = SMOKE_EXAMPLES if s.smoke else evaluate_audio.EXAMPLES

    @cache
    def listening() -> tuple[Ears, Statistics]:  # minutes on a CPU, which a finished experiment does without
        ears = ears_for(s.dataset, s.device, smoke=s.smoke, reporter=s.reporter)
        return ears, reference(s.dataset.published_train, ears, None, s.reporter, s.pause)

    told = environment(s.device)
    facts = {"ears": KIND, "x": digest(s.dataset.held_out), "examples": examples, "panels": [audio_panels.CLIPS, SHOWN]}
    timing = {"hardware": told["hardware"], "torch": told["torch"]}
    shared = {**facts, **timing, "samples": count, "temperatures": TEMPERATURES, "fractions": FRACTIONS}
    bench.announce([(kind, s.seed) for kind in (*PAIR, *BEST)], facts=shared)
    rows: list[Row] = []
    for kind in (*PAIR, *BEST):
        rows += bench.of_run(kind, s.seed, shared, partial(model_rows, bench, kind, settings, examples, listening))

    def held_out() -> list[Row]:
        ears, real = listening()
        return [evaluate_audio.data_row(s.dataset, real, ears, s.reporter)]

    rows += bench.of_data(HELD_OUT, facts, held_out)
    return bench.results(rows, decide(rows), [f"{count:,} samples at each length", f"distances of {examples} held-out crops"])


def model_rows(
    bench: Workbench,
    kind: str,
    settings: Settings,
    examples: int,
    listening: Callable[[], tuple[Ears, Statistics]],
    model: AnytimeModel,
) -> list[Row]:
    """Everything about one run; its 90 sounds lie in the run's folder."""
    s = bench.setting
    ears, real = listening()
    settings = replace(settings, seed=s.seed)
    rows: list[Row] = []
    for temperature in TEMPERATURES:
        scratch = bench.scratch(f"{kind} {s.seed}")
        warm = replace(settings, temperature=temperature)
        rows += evaluate_audio.sample_rows(model, warm, real, ears, folder=scratch, reporter=s.reporter, pause=s.pause)
    rows += evaluate_audio.reconstruction_rows(model, s.dataset, FRACTIONS, real, ears, reporter=s.reporter)
    errors = evaluate_audio.error_rows(model, s.dataset, s.reporter, examples)
    rows += [row if row["fraction"] in FRACTIONS else _without_fraction(row) for row in errors]
    rows += evaluate_audio.half_way_rows(errors)
    if kind in (PAIR[0], BEST[0]):  # the unordered ones have the same networks
        rows += timed_rows(model, settings, bench)
    rows += panel_rows(model, bench.plan(kind, s.seed).folder / "sounds", s.seed)
    about = {"series": kind, "length": model.length, "recogniser": ears.digest[:16]}
    return [{**row, "measure": row["series"], **about} for row in rows]


def _without_fraction(row: Row) -> Row:
    return {key: value for key, value in row.items() if key != "fraction"}


def timed_rows(model: AnytimeModel, settings: Settings, bench: Workbench) -> list[Row]:
    """Seconds for one sound by code length on the device, and on the CPU where that is another."""
    reporter, device = bench.setting.reporter, model.device.type
    rows = evaluate_audio.speed_rows(model, settings, reporter, device=device)
    if device != "cpu":
        twin = AnytimeModel(model.config)
        twin.load_state_dict(model.state_dict())
        rows += evaluate_audio.speed_rows(twin.eval().use("eager"), settings, reporter, device="cpu")
    return rows


def panel_rows(model: AnytimeModel, folder: Path, seed: int) -> list[Row]:
    """Waveforms and spectrograms of a few samples at the paper's fractions; 90 sounds go to the folder, named by fraction."""
    found = audio_panels.by_fraction(model, model.sample(audio_panels.CLIPS, seed=seed).codes)
    audio_panels.write_sounds(folder, found)
    return [
        {
            "series": "panel",
            "fraction": fraction,
            "codes": code_count(model.length, fraction=fraction),
            "waves": [audio_panels.envelope(clip) for clip in x[:SHOWN]],
            "png": strip(x[:SHOWN]),
            "files": f"{folder.parent.name}/{folder.name}/{audio_panels.file_name(fraction, 0)}",
        }
        for fraction, x in found.items()
    ]


def decide(rows: list[Row]) -> list[Verdict]:
    """The claims of the appendix, and those that a user would want to rely on."""
    verdicts = [
        verdict for recipe in RECIPES for verdict in (ahead(rows, recipe), low_first(rows, recipe), noise(rows, recipe))
    ]
    verdicts.append(better(rows))
    if any("recognised" in row for row in rows):
        verdicts += [*recognisable(rows), believed(rows)]
    verdicts.append(no_copies(rows))
    return verdicts + [soon(rows, device) for device in dict.fromkeys(r["device"] for r in rows if "device" in r)]


def of(rows: Sequence[Row], measure: str, **where: Any) -> list[Row]:
    """Rows of one measure with these values."""
    return [row for row in rows if row.get("measure") == measure and all(row.get(key) == value for key, value in where.items())]


def ahead(rows: list[Row], recipe: str) -> Verdict:
    """Ordered ahead of unordered where codes are missing."""
    errors = of(rows, "error")
    found = {name: [curve(errors, kind, "fraction", name) for kind in RECIPES[recipe]] for name in METRICS}
    lost = [f"{name} at {f:g}" for name, (one, other) in found.items() for f in SHORT if not one[f] < other[f]]
    text = "; ".join(_against(name, *curves) for name, curves in found.items())
    return Verdict(
        f"{recipe} recipe: ordered beats unordered on every reconstruction metric at 1/16, 1/4 and 1/2 of the codes",
        not lost,
        f"not so for {', '.join(lost)}; {text}" if lost else f"nearest each other: {text}",
        "the correct global structure using as few as 6.25% of the full code length",
    )


def _against(name: str, one: dict[float, float], other: dict[float, float]) -> str:
    """Where the one is least ahead of the other."""
    worst = max(SHORT, key=lambda fraction: one[fraction] / other[fraction])
    return f"{name} {one[worst]:.3f} against {other[worst]:.3f} at {worst:g}"


def low_first(rows: list[Row], recipe: str) -> Verdict:
    """The low band is halfway there with the fewest codes."""
    ordered = RECIPES[recipe][0]
    half = {row["band"]: row["codes"] for row in of(rows, "half-way", series=ordered)}
    low = half["low"]
    first = low is not None and all(half[band] is None or low < half[band] for band in BANDS if band != "low")
    return Verdict(
        f"{recipe} recipe, ordered: the low band's error falls first (its half-way code index is the smallest)",
        first,
        "half-way at " + ", ".join(f"{band} {'never' if half[band] is None else half[band]}" for band in BANDS),
        "low frequency features first, then higher frequency components",
    )


def noise(rows: list[Row], recipe: str) -> Verdict:
    """Samples from few codes are nearer to real sounds when ordered."""
    name = _distance(rows)
    found = [
        {row["fraction"]: row[name] for row in of(rows, "samples", series=kind, temperature=1.0)} for kind in RECIPES[recipe]
    ]
    return Verdict(
        f"{recipe} recipe: {name} of samples at 1/16 and 1/4 of the codes is lower ordered than unordered",
        all(found[0][f] < found[1][f] for f in SHORT[:2]),
        "; ".join(f"{f:g}: {found[0][f]:.1f} against {found[1][f]:.1f}" for f in FRACTIONS),
        "samples from the unordered VQ-VAE contain considerably more noise when using truncated codes",
    )


def _distance(rows: Sequence[Row]) -> str:
    return "frechet_digits" if any("frechet_digits" in row for row in rows) else "frechet_sounds"


def better(rows: list[Row]) -> Verdict:
    """Our recipe against the paper's, both ordered."""
    errors = of(rows, "error")
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


def recognisable(rows: list[Row]) -> list[Verdict]:
    """How many samples are digits: enough at full length, more with every further code, and all ten of them."""
    series = BEST[0]
    by = {t: {row["fraction"]: row for row in of(rows, "samples", series=series, temperature=t)} for t in TEMPERATURES}
    warmth = max(by, key=lambda t: by[t][1.0]["recognised"])
    found = by[warmth]
    shares = {f: found[f]["recognised"] for f in FRACTIONS}
    text = ", ".join(f"{f:g}: {share:.1%}" for f, share in shares.items())
    others = "; ".join(f"{by[t][1.0]['recognised']:.1%} at temperature {t:g}" for t in by if t != warmth)
    digits = found[1.0]["by_digit"]
    return [
        Verdict(
            f"best recipe: at least {SHARE:.0%} of full-length samples are recognised as a digit with confidence over 0.9"
            f" (goal {GOAL:.0%})",
            shares[1.0] >= SHARE,
            f"{shares[1.0]:.1%} at temperature {warmth:g}, the goal {'is' if shares[1.0] >= GOAL else 'is not'} met; {others}",
        ),
        Verdict(
            "best recipe: the recognised share rises with the code length",
            all(shares[a] < shares[b] for a, b in pairwise(FRACTIONS)),
            f"{text}, at temperature {warmth:g}",
        ),
        Verdict(
            "best recipe: every digit is among the recognised samples",
            min(digits) > 0,
            ", ".join(f"{digit}: {count}" for digit, count in enumerate(digits)),
        ),
    ]


def believed(rows: list[Row]) -> Verdict:
    """The recogniser itself, on real digits."""
    (data,) = (row for row in rows if row["series"] == HELD_OUT)
    return Verdict(
        f"the recogniser hears at least {ENOUGH:.0%} of real digits of unheard voices right",
        data["accuracy"] >= ENOUGH,
        f"{data['accuracy']:.2%} of {data['unheard']:,}; sure of {data['recognised']:.1%} of the test voices'",
    )


def no_copies(rows: list[Row]) -> Verdict:
    """Samples do not sit on training examples."""
    (data,) = (row for row in rows if row["series"] == HELD_OUT)
    (full,) = of(rows, "samples", series=BEST[0], temperature=1.0, fraction=1.0)
    return Verdict(
        "best recipe: samples are no copies "
        f"(median distance to the nearest training example at least {COPIED} of that of held-out data)",
        full["nearest"] >= COPIED * data["nearest"],
        f"{full['nearest']:.2f} against {data['nearest']:.2f}; the nearest hundredth {full['nearest_p01']:.2f} against "
        f"{data['nearest_p01']:.2f}",
    )


def soon(rows: list[Row], device: str) -> Verdict:
    """The first complete sound against the whole run's time, by both recipes' ordered models."""
    texts, shares = list[str](), list[float]()
    for recipe, (kind, _) in RECIPES.items():
        own = {row["fraction"]: row for row in of(rows, "speed", series=kind, device=device)}
        shares.append(own[FRACTIONS[0]]["seconds_p50"] / own[1.0]["seconds_p50"])
        factors = ", ".join(f"{f:g}: {own[f]['real_time_factor']:.4f}" for f in FRACTIONS)
        ratios = ", ".join(f"{f:g}: {own[f]['seconds_p50'] / own[1.0]['seconds_p50']:.3f}" for f in FRACTIONS)
        texts.append(
            f"{recipe}, {own[1.0]['engine']}: {shares[-1]:.3f} of the full run; real-time factor {factors}; share {ratios}"
        )
    return Verdict(
        f"{device}: the first complete sound, from 1/16 of the codes, in at most an eighth of the full run's time",
        max(shares) <= EIGHTH,
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
    for line, kind in zip(every, kinds, strict=True):
        for column, fraction in enumerate(audio_panels.FRACTIONS):
            (row,) = of(rows, "panel", series=kind, fraction=fraction)
            audio_panels.draw_envelope(line[2 * column], row["waves"][0])
            line[2 * column].set_title(f"{kind}, {row['codes']} of {row['length']}", fontsize="x-small")
            show(line[2 * column + 1], row["png"], "")
    distances, bands, heard = below.subplots(1, 3)
    for kind in kinds:
        points = curve(of(rows, "error"), kind, "codes", "log_mel")
        distances.plot(list(points), list(points.values()), label=kind)
    for band in BANDS:
        points = curve(of(rows, "error"), BEST[0], "codes", band)
        bands.plot(list(points), list(points.values()), label=band)
    value = "recognised" if any("recognised" in row for row in rows) else _distance(rows)
    for kind in kinds:
        points = {row["fraction"]: row[value] for row in of(rows, "samples", series=kind, temperature=1.0)}
        heard.plot(list(points), list(points.values()), marker="o", label=kind)
    distances.set(xlabel="codes kept", ylabel="log-mel distance, nats", title=results.dataset)
    bands.set(xlabel="codes kept", ylabel="error / energy", title=BEST[0])
    heard.set(xlabel="fraction of the codes", ylabel=value, title="samples, temperature 1")
    for axes in (distances, bands, heard):
        axes.legend(fontsize="small")
    return write_figure(path, figure)
