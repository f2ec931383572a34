"""Evaluation of image models: FID features, nearest neighbours, memorisation, an optional classifier; grids and curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch

from anytime.core.errors import UserError
from anytime.core.random import derive, permutation
from anytime.core.results import Row, column, select
from anytime.data import Dataset
from anytime.data.dataset import Labels
from anytime.data.image_grid import labelled_rows, png_bytes
from anytime.data.loader import to_float, to_uint8
from anytime.evaluation.classifier_training import MIN_ACCURACY, load_or_train_image_classifier
from anytime.evaluation.evaluate import Adapter, EvaluationSettings, Workspace
from anytime.evaluation.summary import Summary, Table, bits_figure, codes_note, curves, new_figure, plot_series, warning_notes
from anytime.metrics import latency
from anytime.metrics.classifier import CONFIDENCE, ClassifierConfig
from anytime.metrics.features import MAX_KEPT
from anytime.metrics.memorisation import compare_seen, nearest_images
from anytime.metrics.precision_recall import NEAREST
from anytime.metrics.quality import distance_name, quality_row, reference_statistics, sample_rows
from anytime.metrics.reconstruction import error_by_codes, gains
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

IMAGE_SAMPLES, IMAGE_FRACTIONS = 50_000, (0.2, 0.4, 0.6, 0.8, 1.0)
ERROR_EXAMPLES = 2000  # held-out images for the error of every code count: enough for three digits
NEIGHBOUR_SAMPLES, NEIGHBOURS = 100, 3  # samples compared with every training image, and neighbours kept of each
MEMORISATION_SAMPLES, MEMORISATION_IMAGES = 1000, 10_000  # samples, and at most how many seen and unseen images
GRID_COLUMNS = 16
FID_TOLERANCE = 1.0  # samples of all codes may have a FID higher by this than shorter ones before a warning
CAPTIONS = {
    "samples": "The same samples from fewer and more codes.",
    "reconstructions": "Held-out images and their reconstructions from fewer and more codes.",
    "neighbours": "Samples, and below each its nearest training images, pixel by pixel: copies would show.",
    "quality": "Distance to the training set, precision and recall by fraction of the codes; dashed: held-out images.",
    "error": "Held-out reconstruction error by code count, pixels in [0, 1], and the gain of each code.",
    "bits": "Bits of each held-out code under the prior; dashed: a uniform prior.",
    "speed": "Samples per second by code count, and the decoder's fraction of the time.",
}


@dataclass(frozen=True)
class ImageEvaluation(Adapter):
    """What `evaluate` needs to measure an image model."""

    labels: Labels | None = None
    """Labels of the dataset, to train a classifier that measures the samples too."""
    classifier: ClassifierConfig = field(default_factory=ClassifierConfig)
    latency_batch: ClassVar[int] = latency.BATCH

    def error_rows(self, workspace: Workspace) -> list[Row]:
        """Return the error and Δ(i) by code count (Fig. 3)."""
        x, reporter = self.dataset.held_out[:ERROR_EXAMPLES], workspace.reporter
        reporter.stage("errors", 0, len(x))
        errors = error_by_codes(self.model, x, range(self.model.length + 1), lambda done: reporter.progress(done, {}))
        return [
            {"series": "error", "codes": count, "error": error, "gain": gain, "examples": len(x)}
            for count, (error, gain) in enumerate(zip(errors, [None, *gains(errors)], strict=True))
        ]

    def extra_rows(self, workspace: Workspace) -> list[Row]:
        """Return the rows of the classifier, of the nearest neighbours and of memorisation."""
        found = [] if self.labels is None else self.classifier_rows(self.labels, workspace)
        given = self.model, self.dataset, self.settings
        return [*found, neighbour_row(*given), memorisation_row(*given)]

    def classifier_rows(self, labels: Labels, workspace: Workspace) -> list[Row]:
        """Return `classifier`: its accuracy; `classified data`: real images; `classified`: samples by fraction.

        At most 10,000 samples are classified. Precision and recall are relative to the held-out images.
        """
        test, reporter, settings = self.dataset.test, workspace.reporter, self.settings
        if test is None:
            raise UserError(f"`classifier` needs held-out images with labels; {self.dataset.name} has none")
        network = load_or_train_image_classifier(
            self.dataset, labels, self.classifier, self.model.device, reporter, workspace.cache
        )
        report = network.report
        sizes = {"examples": len(test), "train": len(self.dataset.train)}
        row: Row = {"series": "classifier", "accuracy": report.accuracy, **sizes}
        if report.accuracy < MIN_ACCURACY:
            row["warning"] = f"its accuracy is {report.accuracy:.2%}, below {MIN_ACCURACY:.0%}: trust it less"
        real = reference_statistics(test, network, workspace.cache, reporter, label="held-out")
        train = reference_statistics(self.dataset.images, network, workspace.cache, reporter)
        rows = sample_rows(
            self.model, settings.fractions, min(settings.samples, MAX_KEPT), real, network, seed=settings.seed,
            temperature=settings.temperature, series="classified", folder=workspace.folder, reporter=reporter,
        )  # fmt: skip
        return [row, {"series": "classified data", **quality_row(train, real, network)}, *rows]

    def summary(self, rows: Sequence[Row], folder: Path) -> Summary:
        """Return tables, notes, grids and curves."""
        images = {**self.grids(), "neighbours": self.neighbour_grid(rows), **curves(rows, PLOTS)}
        return Summary([main_table(rows), *classifier_tables(rows)], notes(rows, smoke=self.settings.smoke), images, CAPTIONS)

    def grids(self) -> dict[str, bytes]:
        """Return PNG files of samples and reconstructions, a row for each fraction of the codes."""
        model, settings = self.model, self.settings
        counts = [code_count(model.length, fraction=fraction) for fraction in settings.fractions]
        pixels = to_float(self.dataset.held_out[:GRID_COLUMNS])
        sampled = model.sample(GRID_COLUMNS, seed=settings.seed, temperature=settings.temperature).codes
        labels = [f"{count} of {model.length} codes" for count in counts]
        samples, back = (
            [(label, model.decode(codes[:, :count]).cpu()) for label, count in zip(labels, counts, strict=True)]
            for codes in (sampled, model.encode(pixels))
        )
        sheets = {"samples": labelled_rows(samples), "reconstructions": labelled_rows([("data", pixels), *back])}
        return {name: png_bytes(sheet) for name, sheet in sheets.items()}

    def neighbour_grid(self, rows: Sequence[Row]) -> bytes:
        """Return a PNG file of samples and below each its nearest training images."""
        (row,) = select(rows, series="neighbours")
        x = self.model.sample(row["samples"], seed=row["seed"], temperature=row["temperature"]).data[:GRID_COLUMNS].cpu()
        index, train = torch.tensor(row["nearest"])[:GRID_COLUMNS], self.dataset.published_train
        names = ("nearest", "second nearest", "third nearest")[: index.shape[1]]
        below = [(name, to_float(train[index[:, rank]])) for rank, name in enumerate(names)]
        return png_bytes(labelled_rows([("samples", x), *below]))


def neighbour_row(model: AnytimeModel, dataset: Dataset, settings: EvaluationSettings) -> Row:
    """Distance of samples to the nearest training image, beside that of held-out images."""
    train = dataset.published_train
    x = to_uint8(model.sample(NEIGHBOUR_SAMPLES, seed=settings.seed, temperature=settings.temperature).data)
    near, far = (nearest_images(part, train, NEIGHBOURS, model.device) for part in (x, dataset.held_out[:NEIGHBOUR_SAMPLES]))
    return {
        "series": "neighbours",
        "seed": settings.seed,
        "temperature": settings.temperature,
        "samples": len(x),
        "reference": len(train),
        "distance": float(near.distance[:, 0].median()),
        "held_out_distance": float(far.distance[:, 0].median()),
        "least_distance": float(near.distance.min()),
        "nearest": near.index.tolist(),
    }


def memorisation_row(model: AnytimeModel, dataset: Dataset, settings: EvaluationSettings) -> Row:
    """Compare the distances of samples to training images and to as many held-out images.

    One distance alone shows nothing, as smooth samples are near to everything. If nothing is copied, about half of the samples
    are nearer to a training image: the same share as for validation images, the control.
    """
    images = min(MEMORISATION_IMAGES, len(dataset.held_out), len(dataset.train))
    samples = min(MEMORISATION_SAMPLES, settings.samples)
    seen, unseen = (part[permutation(len(part), settings.seed)[:images]] for part in (dataset.images, dataset.held_out))
    x = to_uint8(model.sample(samples, seed=derive(settings.seed, "memorisation"), temperature=settings.temperature).data)
    control = None
    if dataset.test is not None:
        control = compare_seen(dataset.validation[:samples], seen, unseen, model.device).nearer_to_seen
    return {
        "series": "memorisation",
        "seed": settings.seed,
        "temperature": settings.temperature,
        "samples": samples,
        "images": images,
        **asdict(compare_seen(x, seen, unseen, model.device)),
        "validation_nearer_to_seen": control,
    }


def memorisation_text(row: Row) -> str:
    """Describe a row of the series `memorisation`."""
    control = row["validation_nearer_to_seen"]
    usual = "without copies it is half" if control is None else f"of validation images it is {control:.1%}"
    return (
        f"Of {row['samples']:,} samples, {row['nearer_to_seen']:.1%} are nearer to one of {row['images']:,} training images "
        f"than to any of as many held-out images; {usual}."
    )


def main_table(rows: Sequence[Row]) -> Table:
    """Return the table of metrics, a line for each fraction."""
    name = distance_name(rows)
    suffix = "" if name == "fid" else "_random"
    head = ["fraction", "codes", name, f"kid{suffix}", "± sd", "precision", "recall", f"reconstruction {name}", "samples / s"]
    series = (select(rows, series=each) for each in ("samples", "reconstructions", "speed"))
    body = [
        [
            f"{row['fraction']:g}",
            str(row["codes"]),
            f"{row[name]:.2f}",
            *(f"{row[key + suffix]:.5f}" for key in ("kid", "kid_sd")),
            *(f"{row[key + suffix]:.3f}" for key in ("precision", "recall")),
            f"{back[name]:.2f}",
            f"{speed['samples_per_second']:.1f}",
        ]
        for row, back, speed in zip(*series, strict=True)
    ]
    return Table(head, body)


def classifier_tables(rows: Sequence[Row]) -> list[Table]:
    """Return a table of the classified samples by fraction, real images last; none without a classifier."""
    classified = [*select(rows, series="classified"), *select(rows, series="classified data")]
    if not classified:
        return []
    head = ["fraction", "codes", "classified", "rarest class", "commonest", "precision", "recall", "frechet_classifier"]
    body = [
        [
            f"{row['fraction']:g}" if "fraction" in row else "data",
            str(row.get("codes", "")),
            f"{row['classified']:.3f}",
            f"{min(row['class_fractions']):.3f}",
            f"{max(row['class_fractions']):.3f}",
            *(f"{row[key]:.3f}" for key in ("precision_classifier", "recall_classifier")),
            f"{row['frechet_classifier']:.2f}",
        ]
        for row in classified
    ]
    return [Table(head, body)]


def notes(rows: Sequence[Row], *, smoke: bool = False) -> list[str]:
    """Return the sentences below the tables: how it was measured, reference values, warnings."""
    name = distance_name(rows)
    (data,), sampled = select(rows, series="held-out data"), select(rows, series="samples")
    (near,), (copies,), first = select(rows, series="neighbours"), select(rows, series="memorisation"), sampled[0]
    back = select(rows, series="reconstructions")[0]["samples"]
    return [
        f"{first['samples']:,} samples (seed {first['seed']}, temperature {first['temperature']:g}) against "
        f"{first['reference']:,} training images, network {first['network']}; "
        f"precision and recall from {first['kept']:,} features.",
        f"{back:,} reconstructions of held-out images; {name} falls with the number of images, so compare equal numbers only.",
        f"{data['samples']:,} held-out images themselves: {name} {data[name]:.2f}.",
        codes_note(rows, "image"),
        *_classifier_notes(rows),
        f"The training image nearest to a sample is {near['distance']:.3f} away, that nearest to a held-out image "
        f"{near['held_out_distance']:.3f} (medians of {near['samples']}, root mean square of pixels in [0, 1]).",
        memorisation_text(copies),
        *warning_notes(rows, *_length_warnings(sampled, name), smoke=smoke),
    ]


def _classifier_notes(rows: Sequence[Row]) -> list[str]:
    return [
        f"Classified: with a confidence above {CONFIDENCE}, by a classifier with an accuracy of {row['accuracy']:.2%} on "
        f"{row['examples']:,} held-out images; {own['samples']:,} samples at temperature {own['temperature']:g}; precision and "
        f"recall (k = {NEAREST}) on its features against {own['reference']:,} held-out images."
        for row, own in zip(select(rows, series="classifier"), select(rows, series="classified"), strict=False)
    ]


def _length_warnings(sampled: Sequence[Row], name: str) -> list[str]:
    """Warn if fewer codes have a lower FID: then the prior's errors outweigh what the last codes add."""
    best, last = min(sampled, key=lambda row: float(row[name])), max(sampled, key=lambda row: int(row["codes"]))
    if name != "fid" or best[name] >= last[name] - FID_TOLERANCE:
        return []
    return [
        f"samples: more codes make them worse, {name} {best[name]:.2f} at {best['codes']} codes and "
        f"{last[name]:.2f} at {last['codes']}"
    ]


def _quality_figure(rows: Sequence[Row]) -> Any:
    figure, (distances, kids, coverage) = new_figure(3)
    name = distance_name(rows)
    suffix = "" if name == "fid" else "_random"
    other = suffix.replace("_", ", ")
    for series in ("samples", "reconstructions"):
        plot_series(distances, rows, series, "fraction", name, series, ylabel="FID" if name == "fid" else name)
        x, kid, sd = (column(select(rows, series=series), key) for key in ("fraction", f"kid{suffix}", f"kid_sd{suffix}"))
        kids.errorbar(x, kid, sd, marker="o", capsize=3, label=series)
    for row in select(rows, series="held-out data"):
        distances.axhline(row[name], linestyle="--", color="grey")
        kids.axhline(row[f"kid{suffix}"], linestyle="--", color="grey")
    for part in ("precision", "recall"):
        plot_series(coverage, rows, "samples", "fraction", part + suffix, part, ylabel=f"fraction{other}", ylim=(0, 1))
    kids.set(xlabel="fraction of the codes", ylabel=f"KID{other}")
    kids.legend()
    return figure


def _error_figure(rows: Sequence[Row]) -> Any:
    figure, (errors, drops) = new_figure(2)
    plot_series(errors, rows, "error", "codes", "error", marker=".", ylabel="mean squared error")
    own = select(rows, series="error")[1:]
    drops.bar(column(own, "codes"), column(own, "gain"))
    drops.set(xlabel="code i", ylabel="Δ(i)")
    return figure


def _speed_figure(rows: Sequence[Row]) -> Any:
    figure, (throughput, decoding) = new_figure(2)
    batch = select(rows, series="speed")[0]["batch"]
    plot_series(throughput, rows, "speed", "codes", "samples_per_second", ylabel=f"samples / s, batch {batch}")
    plot_series(decoding, rows, "speed", "codes", "decode_fraction", ylabel="decoder's fraction", ylim=(0, 1))
    return figure


PLOTS = {"quality": _quality_figure, "error": _error_figure, "bits": bits_figure, "speed": _speed_figure}
