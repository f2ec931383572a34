"""Appendix B: audio by code length, ordered against unordered, by the paper's recipe and by ours.

Reconstructions and the order of the frequency bands are measured on held-out speakers. A classifier counts the samples that
are spoken digits. Latencies show when the first complete clip is ready. All models are measured with one classifier, and the
ordered and the unordered model of a recipe have the same first stage.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from anytime.core import storage
from anytime.core.errors import UserError
from anytime.core.results import Results, Row, select
from anytime.data.audio_io import wav_bytes
from anytime.evaluation import audio as clips
from anytime.evaluation.audio import AUDIO_FRACTIONS, CLIP_FRACTIONS, ClipsByFraction, error_rows, half_error_rows
from anytime.evaluation.classifier_training import FORMAT, load_or_train_audio_features
from anytime.evaluation.evaluate import EvaluationSettings, speed_rows
from anytime.experiments.audio_verdicts import HELD_OUT, RECIPES, TEMPERATURES, decide
from anytime.experiments.plots import encode_strip, new_figure, plot_curve, show_strip
from anytime.experiments.registry import BEST_PAIR, PAIR
from anytime.experiments.runner import RunMeasurement, Runner, digest
from anytime.metrics.audio import BANDS
from anytime.metrics.classifier import AudioFeatures
from anytime.metrics.feature_stats import FeatureStatistics
from anytime.metrics.quality import data_row, distance_name, reconstruction_rows, reference_statistics, sample_rows
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count
from anytime.training.run_dir import RunPaths

__all__ = ["decide", "draw", "measure"]

SMOKE_SAMPLES, SMOKE_EXAMPLES, SMOKE_REPEATS, REPEATS = 32, 8, 3, 20
SHOWN = 3  # clips in the figure
KEPT_CLIPS = 4  # clips at each of the paper's fractions that are kept with the results
VARIANTS = (*PAIR, *BEST_PAIR)


@dataclass(frozen=True)
class AudioMeasurements:
    """Measures runs and held-out data with one set of audio features."""

    runner: Runner
    settings: EvaluationSettings
    examples: int  # held-out crops for the distances

    @cached_property
    def features(self) -> AudioFeatures:
        """The audio features: from the cache, or trained, which takes minutes on a CPU."""
        s = self.runner.context
        return load_or_train_audio_features(s.dataset, s.device, smoke=s.smoke, reporter=s.reporter, train=not s.cached)

    @cached_property
    def real(self) -> FeatureStatistics:
        """The statistics of the training set."""
        s = self.runner.context
        return reference_statistics(s.dataset.published_train, self.features, None, s.reporter, s.pause)

    def model_rows(self, variant: str, seed: int, model: AnytimeModel) -> list[Row]:
        """Return all rows of one run; its clips are written to the run directory."""
        s, rows, run_dir = self.runner.context, list[Row](), self.runner.plan(variant, seed).run_dir
        for temperature in TEMPERATURES:
            rows += sample_rows(
                model, AUDIO_FRACTIONS, self.settings.samples, self.real, self.features, seed=seed, temperature=temperature,
                folder=self.runner.scratch(f"{variant} {seed}"), reporter=s.reporter, pause=s.pause,
            )  # fmt: skip
        rows += reconstruction_rows(model, s.dataset.held_out, AUDIO_FRACTIONS, self.real, self.features, reporter=s.reporter)
        errors = error_rows(model, s.dataset, s.reporter, self.examples)
        rows += [{k: v for k, v in row.items() if k != "fraction" or v in AUDIO_FRACTIONS} for row in errors]
        rows += half_error_rows(errors)
        if variant in (PAIR[0], BEST_PAIR[0]):  # the unordered runs have the same networks
            rows += self._speed_rows(model)
        rows += clip_rows(model, run_dir / "audio", seed, variant if seed == s.seed else None)
        first_stage = storage.read_tensors(RunPaths(run_dir).stage_weights("pretrain"))[2]
        shared = {"series": variant, "seed": seed, "length": model.length}
        shared |= {"audio_classifier": self.features.digest[:16], "first_stage": first_stage[:16]}
        return [{**row, "measure": row["series"], **shared} for row in rows]

    def _speed_rows(self, model: AnytimeModel) -> list[Row]:
        reporter = self.runner.context.reporter
        rows = speed_rows(model, self.settings, reporter, 1, device=model.device.type)
        if model.device.type != "cpu":
            cpu_model = AnytimeModel(model.config)
            cpu_model.load_state_dict(model.state_dict())
            rows += speed_rows(cpu_model.eval().use("eager"), self.settings, reporter, 1, device="cpu")
        return rows

    def held_out_row(self) -> Row:
        """Return the row of held-out data, for reference."""
        s = self.runner.context
        row = data_row(s.dataset.held_out, self.real, self.features, None, s.reporter)
        return {**row, "audio_classifier": self.features.digest[:16]}


def measure(runner: Runner) -> list[Row]:
    """Return samples, reconstructions, errors, latency and panels of four runs, and the row of held-out data."""
    s = runner.context
    count = s.samples or (SMOKE_SAMPLES if s.smoke else clips.AUDIO_SAMPLES)
    repeats = SMOKE_REPEATS if s.smoke else REPEATS
    settings = EvaluationSettings(samples=count, fractions=AUDIO_FRACTIONS, repeats=repeats, seed=s.seed)
    examples = SMOKE_EXAMPLES if s.smoke else clips.AUDIO_ERROR_EXAMPLES
    runner.notes += [f"{count:,} samples at each length", f"distances of {examples} held-out crops"]
    own, x = AudioMeasurements(runner, settings, examples), s.dataset.held_out
    facts = {"audio_features": FORMAT, "classifier": own.features.digest, "x": digest(x), "examples": examples}
    run_facts = {**facts, **s.timing, "samples": count, "temperatures": TEMPERATURES, "fractions": AUDIO_FRACTIONS}
    run_facts |= {"panels": [clips.CLIPS, SHOWN], "kept_clips": KEPT_CLIPS}
    runs = [
        RunMeasurement(variant, seed, partial(own.model_rows, variant, seed), run_facts)
        for seed in s.seeds
        for variant in VARIANTS
    ]
    # The reference first: it is then measured wherever a run is.
    held_out = runner.measure_data(HELD_OUT, facts, lambda: [own.held_out_row()])
    rows = runner.measure_runs(runs)
    check_first_stages(rows)
    return rows + held_out


def check_first_stages(rows: Sequence[Row]) -> None:
    """Refuse an unordered model that was not trained from the first stage of its ordered model."""
    found = {(row["series"], row["seed"]): row["first_stage"] for row in rows}
    for (ordered, unordered), seed in ((pair, seed) for pair in RECIPES.values() for seed in {row["seed"] for row in rows}):
        if found[ordered, seed] != found[unordered, seed]:
            raise UserError(
                f"{ordered} and {unordered} of seed {seed} have different first stages; remove the run and the measurement of "
                f"{unordered}, and train it where the run of {ordered} is"
            )


def clip_rows(model: AnytimeModel, folder: Path, seed: int, keep_as: str | None) -> list[Row]:
    """Return waveforms and spectrograms of a few samples at the paper's fractions; write 90 clips to `folder`.

    With `keep_as`, also return a dozen clips for the results, with names that begin so.
    """
    found = clips.decode_fractions(model, model.sample(clips.CLIPS, seed=seed).codes)
    clips.write_clips(folder, found)
    panels: list[Row] = [
        {
            "series": "panel",
            "fraction": fraction,
            "codes": code_count(model.length, fraction=fraction),
            "envelope": clips.envelope(x[0]),
            "png": encode_strip(x[:SHOWN]),
        }
        for fraction, x in found.items()
    ]
    return panels + ([] if keep_as is None else _kept_clips(found, keep_as))


def _kept_clips(found: ClipsByFraction, name: str) -> list[Row]:
    """Return WAV files as text; `reproduce` writes them beside the results."""
    return [
        {"series": "clip", "file": f"{name}-{fraction}-{row}.wav", "base64": base64.b64encode(wav_bytes(x[row])).decode()}
        for fraction, x in found.items()
        for row in range(KEPT_CLIPS)
    ]


def draw(results: Results) -> Any:
    """Draw waveforms and spectrograms, then curves."""
    rows = results.rows
    shown = min((row["seed"] for row in rows if "seed" in row), default=0)  # the seed whose clips are shown
    figure = new_figure(12.0, 4 + 1.6 * len(VARIANTS))
    above, below = figure.subfigures(2, 1, height_ratios=(1.6 * len(VARIANTS), 4))
    every = above.subplots(len(VARIANTS), 2 * len(CLIP_FRACTIONS), squeeze=False)
    for line, variant in zip(every, VARIANTS, strict=True):
        for column, row in enumerate(select(rows, measure="panel", series=variant, seed=shown)):
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
