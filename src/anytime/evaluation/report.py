"""The training report: one HTML file with loss curves, errors and samples by code count."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from torch import Tensor

from anytime.baselines.density import DensityModel, held_out_bits_per_dim
from anytime.baselines.vae import VAE
from anytime.core.config import read_json
from anytime.core.plots import can_plot, plot_png
from anytime.core.storage import write_json, write_text
from anytime.data import Dataset
from anytime.data.audio_io import write_wav
from anytime.data.image_grid import grid, labelled_rows, png_bytes, write_gif, write_png
from anytime.evaluation.code_stats_view import code_stats_section
from anytime.evaluation.html import facts_table, html_page, image
from anytime.evaluation.summary import new_figure
from anytime.metrics.code_stats import read_code_stats
from anytime.metrics.reconstruction import error_by_codes, mean_errors
from anytime.model import AnytimeModel
from anytime.training import log
from anytime.training.run_dir import is_smoke, read_starts
from anytime.training.sample_grids import code_rows

REPORT_EXAMPLES = 2000  # held-out examples for the error curve: enough for three digits, seconds on a CPU
FRAMES = 32  # of the animation: a hundred frames of faces would be most of the report
FRAME_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Report:
    """A report on disk."""

    paths: dict[str, Path]  # written files by name
    metrics: dict[str, Any]  # measured values


def write_report(folder: Path, model: AnytimeModel, dataset: Dataset) -> Report:
    """Write `report.html`, a grid of samples by code count and an animation into a finished run directory."""
    sample = model.sample(64, seed=0)
    errors = error_by_codes(model, dataset.held_out[:REPORT_EXAMPLES], range(model.length + 1))
    rows = labelled_rows([(label, x[:16]) for label, x in code_rows(model, sample.codes)])
    paths = {
        "grid": folder / "samples" / "by-length.png",
        "animation": folder / "samples" / "refining.gif",
        "errors": folder / "errors.json",
        "report": folder / "report.html",
    }
    if model.is_audio:
        paths |= {"audio": folder / "samples" / "x-0000.wav"}
        write_wav(paths["audio"], sample.data[0])
    write_png(paths["grid"], rows)
    write_gif(paths["animation"], _frames(model, sample.codes), FRAME_SECONDS)
    metrics = _write_metrics(paths["errors"], dataset, {"error_by_codes": errors}).metrics
    write_text(paths["report"], _page(folder, model, errors, rows, paths["animation"].read_bytes()))
    return Report(paths, metrics)


def write_vae_report(folder: Path, vae: VAE, dataset: Dataset) -> Report:
    """Write a VAE's errors by number of latent groups; it has no samples to show."""
    errors = mean_errors(dataset.held_out[:REPORT_EXAMPLES], range(vae.length + 1), vae.latents, vae.decode, vae.device)
    return _write_metrics(folder / "errors.json", dataset, {"error_by_codes": errors})


def write_density_report(folder: Path, model: DensityModel, dataset: Dataset, seed: int) -> Report:
    """Write the held-out bits per dimension of a density model."""
    bits = held_out_bits_per_dim(model, dataset.held_out[:REPORT_EXAMPLES], seed)
    return _write_metrics(folder / "bits.json", dataset, {"bits_per_dim": bits})


def _write_metrics(path: Path, dataset: Dataset, metrics: dict[str, Any]) -> Report:
    write_json(path, {"data": dataset.source, "examples": min(REPORT_EXAMPLES, len(dataset.held_out)), **metrics})
    return Report({path.stem: path}, metrics)


def _frames(model: AnytimeModel, codes: Int[Tensor, "n length"]) -> list[np.ndarray]:
    """Decode the samples from one code to all codes, in at most 32 frames."""
    counts = np.linspace(1, model.length, min(model.length, FRAMES)).round().astype(int)
    scale = 1 if model.is_audio else max(1, 64 // model.config.autoencoder.shape[-1])
    return [grid(model.decode(codes[:, :count]).cpu(), scale=scale) for count in counts]


def _page(folder: Path, model: AnytimeModel, errors: list[float], rows: np.ndarray, animation: bytes) -> str:
    metrics = log.read(folder / "metrics.jsonl")
    title = f"{model.config.name}: {model.length} codes of {model.codebook_size}"
    parts = [
        "<p>Codes are generated one by one, the most important first; every prefix decodes to a complete sample.</p>",
        image("png", png_bytes(rows), "The same samples from a quarter, a half, three quarters and all of their codes."),
        image("gif", animation, "A batch refined code by code."),
        *_curves(metrics, errors, "samples in [-1, 1]" if model.is_audio else "pixels in [0, 1]"),
        *code_stats_section(read_code_stats(folder), smoke=is_smoke(folder)),
        "<h2>Provenance</h2>",
        _table(folder, metrics),
    ]
    return html_page(title, parts)


def _curves(metrics: list[dict[str, Any]], errors: list[float], unit: str) -> list[str]:
    """Return loss curves and the error by code count; without matplotlib, the errors as text."""
    if not can_plot():
        text = ", ".join(f"{e:.4f}" for e in errors)
        return [f"<p>Curves need matplotlib. Error from 0, 1, … codes: {text}.</p>"]
    stages = list(dict.fromkeys(line["stage"] for line in metrics))
    losses, every = new_figure(max(1, len(stages)))
    for axes, stage in zip(every, stages, strict=False):
        lines = [line for line in metrics if line["stage"] == stage]
        for part in ("train", "validation"):
            axes.plot([line["epoch"] for line in lines], [line[part]["loss"] for line in lines], label=part, marker=".")
        axes.set(title=stage, xlabel="epoch", ylabel="nats per code" if stage == "prior" else "loss")
        axes.legend()
    curve, (axes,) = new_figure(1)
    axes.plot(range(len(errors)), errors, marker=".")
    axes.set(xlabel="codes kept", ylabel="mean squared error", ylim=(0, None))
    return [
        "<h2>Training</h2>",
        image("png", plot_png(losses), "Loss by epoch, on training and validation data."),
        "<h2>Error by code count</h2>",
        image("png", plot_png(curve), f"Held-out reconstruction error, {unit}, from the first codes."),
    ]


def _table(folder: Path, metrics: list[dict[str, Any]]) -> str:
    start = read_starts(folder / "environment.json")[-1]
    rows = {name: str(start[name]) for name in ("command", "data", "examples", "hardware", "torch", "commit", "date")}
    for stage in dict.fromkeys(line["stage"] for line in metrics):
        best = min((line for line in metrics if line["stage"] == stage), key=lambda line: float(line["validation"]["loss"]))
        figures = ", ".join(f"{name} {value:.4g}" for name, value in best["validation"].items())
        rows[stage] = f"best epoch {best['epoch']}: {figures}"
    config = html.escape(json.dumps(read_json(folder / "config.json"), indent=1))
    return f"{facts_table(rows)}\n<details><summary>The whole config</summary><pre>{config}</pre></details>"
