"""Fig. 4b: seconds for 50,000 or 100,000 pictures in batches of 100, by code length (Section 5.2.2).

Beside them the original VQ-VAE with its PixelCNN and a model of PixelCNN++'s size class on pixels. Weights do not change how
long a network takes: they are random where no run is there. The paper's claims are about methods, so verdicts compare what one
engine, eager, computes; the engine that a request gets by default has rows of its own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from anytime.baselines.pixelcnn_pp import PixelCNNPlusPlus, PixelCNNPlusPlusConfig
from anytime.core.environment import environment
from anytime.core.results import Results, Row, Verdict, read, write_figure
from anytime.experiments.runner import ExperimentContext, Runner
from anytime.metrics.latency import BATCH, REPEATS, TimedSampler, latency_by_codes, quantile, time_call
from anytime.model import AnytimeModel, load
from anytime.sampling.budget import code_count
from anytime.training.config import RunConfig
from anytime.training.run import training_subset
from anytime.training.run_dir import RunPaths, check_finished_run, config_identity, upgrade_config

TIMED_FRACTIONS = (0.2, 0.4, 0.6, 0.8, 1.0)
IMAGES, PAPER = 50_000, {"celeba": 100_000}
"""Pictures that the times are for."""
SMOKE_BATCH, SMOKE_REPEATS = 10, 3
PIXEL_REPEATS = 3  # a batch takes many seconds: of three the median knows nothing of the first one's warming up
EAGER = "eager"
MIN_R_SQUARED, MAX_DECODE_SHARE, MIN_SPEEDUP, MIN_SAVED = 0.99, 0.1, 10.0, 0.35
"""Bounds of the verdicts, set before any of it was measured."""


def compute(runner: Runner) -> Results:
    """Times of the anytime model with every engine that suits the device, of the original VQ-VAE and of the pixel model."""
    s, rows = runner.context, list[Row]()
    env = environment(s.device)
    configs = [runner.plan(variant, s.seed).codes for variant in ("ordered", "original")]
    networks = [config_identity(config)["model"] for config in configs]
    facts = {"hardware": env["hardware"], "torch": env["torch"], "networks": networks, "batch": _batch(s)}
    measured = partial(runner.measure_data, facts=facts, update=partial(update_facts, configs))
    graphs = s.device.type == "cuda" and importlib.util.find_spec("triton") is not None
    engines = [EAGER, "cuda"] if graphs else [EAGER]
    for engine in engines:
        name = f"anytime, {engine}"
        rows += measured(name, measure=partial(model_rows, runner, name, "ordered", engine, TIMED_FRACTIONS))
    rows += measured("original", measure=partial(model_rows, runner, "original VQ-VAE", "original", EAGER, (1.0,)))
    rows += measured("pixels", measure=partial(pixel_rows, s))
    return runner.results(rows, decide(rows), ["nothing is trained"])


def update_facts(configs: Sequence[RunConfig], facts: dict[str, Any]) -> dict[str, Any]:
    """Facts of an older version: keys that its networks' configs had not have their defaults."""
    known = zip(facts.get("networks", []), configs, strict=False)
    return {
        **facts,
        "networks": [upgrade_config({**config_identity(config), "model": model}, config)["model"] for model, config in known],
    }


def _batch(context: ExperimentContext) -> int:
    return SMOKE_BATCH if context.smoke else BATCH


def model_rows(runner: Runner, series: str, variant: str, engine: str, fractions: Sequence[float]) -> list[Row]:
    """Times by code length of one model."""
    s = runner.context
    model, weights = _model(runner, variant, engine)
    counts = [code_count(model.length, fraction=fraction) for fraction in fractions]
    repeats = SMOKE_REPEATS if s.smoke else REPEATS
    s.reporter.stage(series, 0, repeats)
    report_progress = s.reporter.progress
    found = latency_by_codes(
        TimedSampler(model), counts, batch=_batch(s), repeats=repeats, progress=lambda done: report_progress(done, {})
    )
    about = {"series": series, "engine": model.engine.name, "precision": getattr(model.engine, "precision", "fp32")}
    return [
        {
            **about,
            "fraction": fraction,
            "codes": speed.codes,
            "length": model.length,
            **_scaled(s, speed.p50, speed.p95, speed.repeats),
            "decode_seconds": speed.decode * _batches(s),
            "decode_fraction": speed.decode_fraction,
            "weights": weights,
        }
        for fraction, speed in zip(fractions, found, strict=True)
    ]


def _model(runner: Runner, variant: str, engine: str) -> tuple[AnytimeModel, str]:
    """A finished run of that kind, else the same networks with random weights."""
    s, run = runner.context, runner.plan(variant, runner.context.seed)
    if RunPaths(run.run_dir).finished:
        check_finished_run(run.run_dir, run.config, training_subset(s.dataset, run.config))
        return load(run.run_dir, s.device, engine), run.run_dir.name
    with torch.random.fork_rng():
        return AnytimeModel(run.codes.model).to(s.device).eval().use(engine), "random"


def pixel_rows(context: ExperimentContext) -> list[Row]:
    """The time of a model that draws pixel by pixel."""
    channels, height, width = context.dataset.shape
    config = PixelCNNPlusPlusConfig(shape=(channels, height, width))
    if context.smoke:
        config = replace(config, width=4, blocks=1, stages=1, mixtures=2)
    with torch.random.fork_rng():
        model = PixelCNNPlusPlus(config).to(context.device).eval()
    repeats = 1 if context.smoke else PIXEL_REPEATS
    context.reporter.stage("pixel space", 0, repeats)
    times = list[float]()
    for seed in range(repeats):
        times.append(time_call(partial(model.sample, _batch(context), seed), context.device))
        context.reporter.progress(1 + seed, {})
    scaled = _scaled(context, quantile(times, 0.5), quantile(times, 0.95), repeats)
    about = {"series": "pixel space", "engine": EAGER, "precision": "fp32", "fraction": 1.0}
    return [{**about, **scaled, "weights": "random", "parameters": sum(p.numel() for p in model.parameters())}]


def _batches(context: ExperimentContext) -> float:
    return PAPER.get(context.dataset.name, IMAGES) / _batch(context)


def _scaled(context: ExperimentContext, p50: float, p95: float, repeats: int) -> dict[str, Any]:
    """Seconds for all pictures, from a few batches, and that it is so."""
    count, images = _batches(context), PAPER.get(context.dataset.name, IMAGES)
    return {
        "images": images,
        "seconds": p50 * count,
        "batch": _batch(context),
        "seconds_p50": p50,
        "seconds_p95": p95,
        "repeats": repeats,
        "scaled": f"median of {repeats} batches of {_batch(context)}, times {count:,.0f}",
    }


def decide(rows: list[Row]) -> list[Verdict]:
    """The claims of Section 5.2.2, by what the eager engine took."""
    own = {row["fraction"]: row for row in rows if row["series"] == f"anytime, {EAGER}"}
    (original,), (pixels,) = ([row for row in rows if row["series"] == name] for name in ("original VQ-VAE", "pixel space"))
    full, short = own[1.0], own[0.6]
    fit = r_squared([row["codes"] for row in own.values()], [row["seconds"] for row in own.values()])
    saved, faster = 1 - short["seconds"] / full["seconds"], pixels["seconds"] / full["seconds"]
    default = {row["fraction"]: row["seconds"] for row in rows if row["series"] == "anytime, cuda"}
    cuda_note = f"; the cuda engine takes {default[1.0]:.1f} s, saving {1 - default[0.6] / default[1.0]:.0%}" if default else ""
    return [
        Verdict(
            f"seconds grow linearly with the code length (a line explains at least {MIN_R_SQUARED})",
            fit >= MIN_R_SQUARED,
            f"a line explains {fit:.4f}",
            "the time increases almost linearly with the code length",
        ),
        Verdict(
            f"decoding takes at most {MAX_DECODE_SHARE} of the time at full length",
            full["decode_fraction"] <= MAX_DECODE_SHARE,
            f"{full['decode_seconds']:.1f} of {full['seconds']:.1f} s: {full['decode_fraction']:.3f}",
            "24 s of 634 s on CelebA, over an order of magnitude less than sampling",
        ),
        Verdict(
            "faster than the original VQ-VAE at full length",
            full["seconds"] < original["seconds"],
            f"{full['seconds']:.1f} s against {original['seconds']:.1f} s, both eager, the PixelCNN a place at a time",
            "faster than the original VQ-VAE even at full code length",
        ),
        Verdict(
            f"at least {MIN_SPEEDUP:.0f} times faster than the pixel-space model",
            faster >= MIN_SPEEDUP,
            f"{faster:.1f} times: {full['seconds']:.1f} s against {pixels['seconds']:.0f} s, both eager",
            "an order of magnitude faster than PixelCNN++",
        ),
        Verdict(
            f"60 % of the codes save about 40 % of the time (at least {MIN_SAVED:.0%})",
            saved >= MIN_SAVED,
            f"{saved:.0%}{cuda_note}",
            "around 40% of the run-time saved at 60% of the codes on CelebA",
        ),
    ]


def r_squared(x: Sequence[int], y: Sequence[float]) -> float:
    """The share of y's variance that the best line in x explains.

    >>> r_squared([1, 2, 3], [2.0, 4.0, 6.0])
    1.0
    """
    correlation = torch.corrcoef(torch.tensor([list(map(float, x)), list(y)], dtype=torch.float64))[0, 1]
    return float(correlation.square())


def draw(path: Path) -> Path:
    """The figure beside a results file, from its numbers alone."""
    import matplotlib.figure

    results = read(path)
    figure = matplotlib.figure.Figure(figsize=(9, 3.4), layout="constrained")
    seconds, shares = figure.subplots(1, 2)
    curves: Mapping[str, list[Row]] = {row["series"]: [] for row in results.rows}
    for row in results.rows:
        curves[row["series"]].append(row)
    for name, own, colour in zip(curves, curves.values(), ("C0", "C1", "C2", "C3"), strict=False):
        if name.startswith("anytime"):
            seconds.plot([row["fraction"] for row in own], [row["seconds"] for row in own], f"{colour}o-", label=name)
            if known := [row for row in own if "decode_fraction" in row]:  # not of engines whose own decoder was not timed
                shares.plot(
                    [row["fraction"] for row in known], [row["decode_fraction"] for row in known], f"{colour}o-", label=name
                )
        else:
            seconds.axhline(own[0]["seconds"], linestyle="--", label=f"{name}, {own[0]['engine']}", color=colour)
    images = results.rows[0]["images"]
    seconds.set(xlabel="fraction of the codes", ylabel=f"seconds for {images:,} pictures", yscale="log", title=results.dataset)
    shares.axhline(MAX_DECODE_SHARE, linestyle=":", color="0.6", label="bound of the verdict")
    shares.set(xlabel="fraction of the codes", ylabel="decoder's share", title=results.environment["hardware"])
    shares.set_ylim(bottom=0)
    seconds.set_ylim(top=20 * max(row["seconds"] for row in results.rows))  # room for the legend
    seconds.legend(fontsize="small", ncols=2)
    shares.legend(fontsize="small")
    return write_figure(path, figure)
