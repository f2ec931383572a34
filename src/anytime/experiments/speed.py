"""Fig. 4b: seconds for 50,000 or 100,000 images in batches of 100, by code length (Section 5.2.2).

Beside them the original VQ-VAE, whose PixelCNN is sampled naively (the whole network for every code, as the authors' code does)
and incrementally (one position for every code), and a pixel model of PixelCNN++'s size class. Weights do not change the time,
so they are random if there is no run. The paper's claims are about methods, so the verdicts compare the eager engine;
the default engine has its own rows.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import correlation
from typing import Any

import torch
from torch import Tensor

from anytime.baselines.pixelcnn_pp import PixelCNNPlusPlus, PixelCNNPlusPlusConfig
from anytime.core.results import Results, Row, Verdict, select
from anytime.experiments.plots import new_figure, plot_curve
from anytime.experiments.registry import PAPER_FRACTIONS
from anytime.experiments.runner import ExperimentContext, Runner
from anytime.metrics.latency import BATCH, REPEATS, TimedSampler, latency_by_codes, quantile, time_call
from anytime.model import AnytimeModel, load
from anytime.sampling.budget import code_count
from anytime.sampling.gumbel import GumbelNoise, SamplingSettings, gumbel_argmax
from anytime.sampling.sample import Sample
from anytime.training.run import training_subset
from anytime.training.run_dir import RunPaths, check_finished_run, config_identity

IMAGES, PAPER_IMAGES = 50_000, {"celeba": 100_000}
"""Number of images that the times are for."""
SMOKE_BATCH, SMOKE_REPEATS = 10, 3
PIXEL_REPEATS = 3  # a batch takes many seconds; the median of three leaves out the warm-up of the first
EAGER = "eager"
ORIGINAL = "original VQ-VAE"
"""Its series in results from before both samplers were measured: the incremental one."""
NAIVE, INCREMENTAL = f"{ORIGINAL}, naive", f"{ORIGINAL}, incremental"
PAPER_ORIGINAL = "faster than the original VQ-VAE even at full code length"
MIN_R_SQUARED, MAX_DECODE_SHARE, MIN_SPEEDUP, MIN_SAVED, MAX_DECODE_GROWTH = 0.99, 0.1, 10.0, 0.35, 1.25
"""Bounds of the verdicts, set before anything was measured; that of the decoder's growth is younger than the first rows."""


def measure(runner: Runner) -> list[Row]:
    """Return times of the anytime model with every engine of the device, of the original VQ-VAE and of the pixel model."""
    s, rows = runner.context, list[Row]()
    runner.notes.append("nothing is trained")
    networks = [config_identity(runner.plan(variant, s.seed).config)["model"] for variant in ("ordered", "original")]
    facts = {**s.timing, "networks": networks, "batch": _sizes(s)[1]}
    graphs = s.device.type == "cuda" and importlib.util.find_spec("triton") is not None
    for engine in [EAGER, "cuda"] if graphs else [EAGER]:
        name = f"anytime, {engine}"
        rows += runner.measure_data(name, facts, partial(model_rows, runner, name, "ordered", engine, PAPER_FRACTIONS))
    for name in (NAIVE, INCREMENTAL):
        rows += runner.measure_data(name, facts, partial(model_rows, runner, name, "original", EAGER, (1.0,)))
    return rows + runner.measure_data("pixels", facts, partial(pixel_rows, s))


def _sizes(context: ExperimentContext) -> tuple[int, int]:
    """Return the number of images and of images in a batch."""
    return PAPER_IMAGES.get(context.dataset.name, IMAGES), SMOKE_BATCH if context.smoke else BATCH


def model_rows(runner: Runner, series: str, variant: str, engine: str, fractions: Sequence[float]) -> list[Row]:
    """Return the times by code length of one model."""
    s, (images, batch) = runner.context, _sizes(runner.context)
    model, weights = _model(runner, variant, engine)
    counts = [code_count(model.length, fraction=fraction) for fraction in fractions]
    repeats, progress = SMOKE_REPEATS if s.smoke else REPEATS, s.reporter.progress
    s.reporter.stage(series, 0, repeats)
    sampler = NaiveSampler(model) if series == NAIVE else TimedSampler(model)
    found = latency_by_codes(sampler, counts, batch=batch, repeats=repeats, progress=lambda done: progress(done, {}))
    shared = {"series": series, "engine": model.engine.name, "precision": getattr(model.engine, "precision", "fp32")}
    return [
        {
            **shared,
            "fraction": fraction,
            "codes": latency.codes,
            "length": model.length,
            **_scaled(s, latency.p50, latency.p95, latency.repeats),
            "decode_seconds": latency.decode * (images / batch),
            "decode_fraction": latency.decode_fraction,
            "weights": weights,
        }
        for fraction, latency in zip(fractions, found, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class NaiveSampler(TimedSampler):
    """A model whose prior computes all positions anew for every code. It samples the same codes, only more slowly."""

    def sample(self, n: int, *, seed: int, codes: int) -> Sample:
        """Generate and decode."""
        started = time.perf_counter()
        found, rows = self.generate_codes(n, seed=seed, codes=codes)[0], torch.arange(n, device=self.device)
        settings, data = SamplingSettings(), self.decode(found)
        return Sample(data, found, time.perf_counter() - started, seed, rows, settings, self.model.hash)

    @torch.no_grad()
    def generate_codes(self, n: int, *, seed: int, codes: int) -> list[Tensor]:
        """Generate codes in one batch, without decoding them."""
        prior, rows = self.model.prior, torch.arange(n, device=self.device)
        found, noise = rows.new_zeros(n, prior.length), GumbelNoise(seed, rows, prior.codebook_size)
        for position in range(codes):
            logits = prior(found)[:, position]
            found[:, position] = gumbel_argmax(logits, SamplingSettings(), noise.at(position))
        return [found[:, :codes]]


def _model(runner: Runner, variant: str, engine: str) -> tuple[AnytimeModel, str]:
    """Return the model of a finished run and its name, else the same networks with random weights."""
    s, run = runner.context, runner.plan(variant, runner.context.seed)
    if RunPaths(run.run_dir).finished:
        check_finished_run(run.run_dir, run.config, training_subset(s.dataset, run.config))
        return load(run.run_dir, s.device, engine), run.run_dir.name
    with torch.random.fork_rng():
        return AnytimeModel(run.codes.model).to(s.device).eval().use(engine), "random"


def pixel_rows(context: ExperimentContext) -> list[Row]:
    """Return the time of a model that samples pixel by pixel."""
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
        times.append(time_call(partial(model.sample, _sizes(context)[1], seed), context.device))
        context.reporter.progress(1 + seed, {})
    shared = {"series": "pixel space", "engine": EAGER, "precision": "fp32", "fraction": 1.0}
    parameters = sum(parameter.numel() for parameter in model.parameters())
    scaled = _scaled(context, quantile(times, 0.5), quantile(times, 0.95), repeats)
    return [{**shared, **scaled, "weights": "random", "parameters": parameters}]


def _scaled(context: ExperimentContext, p50: float, p95: float, repeats: int) -> Row:
    """Return the seconds for all images, scaled up from a few batches."""
    images, batch = _sizes(context)
    return {
        "images": images,
        "seconds": p50 * (images / batch),
        "batch": batch,
        "seconds_p50": p50,
        "seconds_p95": p95,
        "repeats": repeats,
        "scaled": f"median of {repeats} batches of {batch}, times {images / batch:,.0f}",
    }


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide the claims of Section 5.2.2 by the times of the eager engine."""
    own = {row["fraction"]: row for row in select(rows, series=f"anytime, {EAGER}")}
    (pixels,) = select(rows, series="pixel space")
    full, short = own[1.0], own[0.6]
    r_squared = correlation([row["codes"] for row in own.values()], [row["seconds"] for row in own.values()]) ** 2
    saved, faster = 1 - short["seconds"] / full["seconds"], pixels["seconds"] / full["seconds"]
    default = {row["fraction"]: row["seconds"] for row in rows if row["series"] == "anytime, cuda"}
    cuda_note = f"; the cuda engine takes {default[1.0]:.1f} s, saving {1 - default[0.6] / default[1.0]:.0%}" if default else ""
    return [
        Verdict(
            f"seconds grow linearly with the code length (R² of a line at least {MIN_R_SQUARED})",
            r_squared >= MIN_R_SQUARED,
            f"R² {r_squared:.4f}",
            "the time increases almost linearly with the code length",
        ),
        Verdict(
            f"decoding takes at most {MAX_DECODE_SHARE} of the time at full length",
            full["decode_fraction"] <= MAX_DECODE_SHARE,
            f"{full['decode_seconds']:.1f} of {full['seconds']:.1f} s: {full['decode_fraction']:.3f}",
            "24 s of 634 s on CelebA, over an order of magnitude less than sampling",
        ),
        _decode_growth(own),
        *_against_original(rows, full),
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


def _decode_growth(own: dict[float, Row]) -> Verdict:
    """Decide whether the decoder takes as long for few codes as for all."""
    short, full = (own[fraction]["decode_seconds"] for fraction in (PAPER_FRACTIONS[0], 1.0))
    every = ", ".join(f"{row['decode_seconds']:.2f}" for row in own.values())
    return Verdict(
        f"decoding all codes takes at most {MAX_DECODE_GROWTH} times as long as decoding {PAPER_FRACTIONS[0]} of them",
        full <= MAX_DECODE_GROWTH * short,
        f"{full / short:.2f} times; {every} s by code length",
        "the code length has minimal effect on the run-time of decoding",
    )


def _against_original(rows: Sequence[Row], full: Row) -> list[Verdict]:
    """Compare with the original VQ-VAE, whose PixelCNN the paper sampled naively; the incremental sampler comes beside it."""
    whole, single = "the whole PixelCNN for every code", "the PixelCNN one position at a time"
    incremental = "not the paper's sampler, which computes the whole PixelCNN for every code"
    samplers = {
        NAIVE: (", sampled naively", whole, PAPER_ORIGINAL),
        INCREMENTAL: (", sampled incrementally", single, incremental),
        ORIGINAL: ("", single, PAPER_ORIGINAL),
    }
    return [
        Verdict(
            f"faster than the original VQ-VAE{sampler} at full length",
            full["seconds"] < row["seconds"],
            f"{full['seconds']:.1f} s against {row['seconds']:.1f} s, both eager, {computes}",
            paper,
        )
        for series, (sampler, computes, paper) in samplers.items()
        for row in select(rows, series=series)
    ]


def draw(results: Results) -> Any:
    """Draw seconds by code length, as the paper does; then all engines and baselines; then the decoder's share."""
    figure = new_figure(13.0, 3.4)
    paper, every, shares = figure.subplots(1, 3)
    for number, name in enumerate(dict.fromkeys(row["series"] for row in results.rows)):
        first, colour = select(results.rows, series=name)[0], f"C{number}"
        for axes in (paper, every) if name == f"anytime, {EAGER}" or name.startswith(ORIGINAL) else (every,):
            if name.startswith("anytime"):
                plot_curve(axes, results.rows, name, "fraction", "seconds", f"{colour}o-")
            else:
                axes.axhline(first["seconds"], linestyle="--", label=f"{name}, {first['engine']}", color=colour)
        if "decode_fraction" in first and name.startswith("anytime"):  # not measured for every engine
            plot_curve(shares, results.rows, name, "fraction", "decode_fraction", f"{colour}o-")
    for axes in (paper, every):
        axes.set(xlabel="fraction of the codes", ylabel=f"seconds for {results.rows[0]['images']:,} images")
    paper.set(title=f"{results.dataset}, one engine for all", ylim=(0, None))
    every.set(title="all engines and baselines", yscale="log")
    every.set_ylim(top=20 * max(row["seconds"] for row in results.rows))  # room for the legend
    shares.axhline(MAX_DECODE_SHARE, linestyle=":", color="0.6", label="bound of the verdict")
    shares.set(xlabel="fraction of the codes", ylabel="decoder's share", title=results.environment["hardware"])
    shares.set_ylim(bottom=0)
    for axes in (paper, every, shares):
        axes.legend(fontsize="x-small")
    return figure
