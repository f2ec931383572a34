from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from anytime import data
from anytime.core.errors import UserError
from anytime.core.progress import SilentReporter
from anytime.core.random import derive, permutation
from anytime.core.results import Row
from anytime.data.loader import to_float
from anytime.data.registry import load_labels
from anytime.evaluation import image
from anytime.evaluation.classifier_training import load_or_train_image_classifier
from anytime.evaluation.evaluate import EvaluationSettings, Workspace, evaluate, quality_table
from anytime.evaluation.image import IMAGE_FRACTIONS, ImageEvaluation
from anytime.evaluation.summary import curves
from anytime.metrics.classifier import ClassifierConfig
from anytime.metrics.features import RandomNetwork
from anytime.metrics.quality import distance_name
from anytime.metrics.reconstruction import error_by_codes
from anytime.model import AnytimeModel


@pytest.fixture(scope="module")
def dataset() -> data.Dataset:
    return data.load("digits").subset(120, 40)


@pytest.fixture(scope="module")
def adapter(tiny: AnytimeModel, dataset: data.Dataset) -> ImageEvaluation:
    settings = EvaluationSettings(samples=80, fractions=IMAGE_FRACTIONS, seed=2, repeats=3)
    return ImageEvaluation(tiny, dataset, RandomNetwork(torch.device("cpu")), settings)


@pytest.fixture(scope="module")
def rows(adapter: ImageEvaluation, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    patch = pytest.MonkeyPatch()
    patch.setattr(image, "ERROR_EXAMPLES", 30)
    workspace = Workspace(SilentReporter(), cache=tmp_path_factory.mktemp("cache"))
    found = evaluate(adapter, workspace)
    patch.undo()
    return found


def of(rows: list[Row], series: str) -> list[Row]:
    return [row for row in rows if row["series"] == series]


def test_every_series_is_there(rows: list[Row]) -> None:
    counts = {name: len(of(rows, name)) for name in dict.fromkeys(row["series"] for row in rows)}
    assert counts == {
        "samples": 5, "reconstructions": 5, "held-out data": 1, "error": 9, "bits": 8, "codes": 1, "neighbours": 1,
        "memorisation": 1, "speed": 5,
    }  # fmt: skip
    for series in ("samples", "reconstructions", "speed"):
        assert [row["fraction"] for row in of(rows, series)] == list(IMAGE_FRACTIONS)
        assert [row["codes"] for row in of(rows, series)] == [2, 3, 5, 6, 8]


def test_the_reference_is_the_published_training_set(rows: list[Row], dataset: data.Dataset) -> None:
    assert {row["reference"] for row in rows if "reference" in row} == {120 + 40}
    assert of(rows, "held-out data")[0]["samples"] == len(dataset.held_out) == 40
    assert {row["samples"] for row in of(rows, "samples")} == {80}


def test_errors_and_what_each_code_brings(rows: list[Row], tiny: AnytimeModel, dataset: data.Dataset) -> None:
    errors = of(rows, "error")
    assert [row["error"] for row in errors] == pytest.approx(error_by_codes(tiny, dataset.held_out[:30], range(9)))
    assert errors[0]["gain"] is None
    assert sum(row["gain"] for row in errors[1:]) == pytest.approx(errors[0]["error"] - errors[-1]["error"])
    assert {row["examples"] for row in errors} == {30}


def test_codes(rows: list[Row], tiny: AnytimeModel, dataset: data.Dataset) -> None:
    (whole,) = of(rows, "codes")
    bits = [row["bits"] for row in of(rows, "bits")]
    assert [row["position"] for row in of(rows, "bits")] == list(range(1, 9))
    assert whole["bits"] == pytest.approx(sum(bits))
    assert whole["bits_per_code"] == pytest.approx(sum(bits) / 8)
    assert 0.5 * math.log2(16) < whole["bits_per_code"] < 2 * math.log2(16), "the prior is not trained"
    assert whole["used"] == len(tiny.encode(to_float(dataset.held_out)).unique())
    assert whole["used"] + whole["dead"] == whole["codebook_size"] == 16


def test_neighbours_search_every_training_image(rows: list[Row], adapter: ImageEvaluation) -> None:
    tiny, dataset = adapter.model, adapter.dataset
    (row,) = of(rows, "neighbours")
    assert (row["samples"], row["reference"], row["seed"]) == (100, 160, 2)
    x, train = tiny.sample(100, seed=2).uint8().flatten(1) / 255, to_float(dataset.published_train).flatten(1)
    distances = torch.cdist(x, train, compute_mode="donot_use_mm_for_euclid_dist") / 28
    assert row["distance"] == pytest.approx(float(distances.amin(1).median()), rel=1e-4)
    assert row["least_distance"] == pytest.approx(float(distances.min()), rel=1e-4)
    assert len(row["nearest"]) == 100
    with Image.open(io.BytesIO(adapter.neighbour_grid(rows))) as sheet:
        assert sheet.height > 4 * 28, "samples and three rows below them"


def test_memorisation_row(rows: list[Row], tiny: AnytimeModel, dataset: data.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies are nearer to the training images; other images of the same source are as near to either set."""
    (row,) = of(rows, "memorisation")
    assert (row["samples"], row["images"], row["seed"]) == (80, 40, 2)
    assert 0 <= row["nearer_to_seen"] <= 1 and 0.25 < row["validation_nearer_to_seen"] < 0.75
    assert row["seen_distance"] > 0 and row["unseen_distance"] > 0
    settings = EvaluationSettings(samples=30, fractions=(1.0,))
    for part, share in ((dataset.images, 1.0), (dataset.held_out, 0.0)):
        taken = SimpleNamespace(data=to_float(part[permutation(len(part), 0)[:30]]))
        monkeypatch.setattr(tiny, "sample", lambda *given, taken=taken, **named: taken)
        assert image.memorisation_row(tiny, dataset, settings)["nearer_to_seen"] == share
    monkeypatch.undo()
    alone = replace(dataset, test=None, random_validation=False)
    assert image.memorisation_row(tiny, alone, settings)["validation_nearer_to_seen"] is None


def test_speed(rows: list[Row]) -> None:
    for row in of(rows, "speed"):
        assert row["batch"] == 100
        assert row["repeats"] == 3
        assert row["samples_per_second"] == pytest.approx(100 / row["seconds_p50"])
        assert row["decode_fraction"] > 0 and row["draw_seconds"] > 0


def test_the_rows_as_lines_and_notes(rows: list[Row]) -> None:
    table = image.main_table(rows)
    assert table.head[2] == "frechet_random"
    assert [line[:2] for line in table.body] == [["0.2", "2"], ["0.4", "3"], ["0.6", "5"], ["0.8", "6"], ["1", "8"]]
    assert all(len(line) == len(table.head) for line in table.body)
    text = " ".join(image.notes(rows))
    assert "80 samples (seed 2, temperature 1) against 160 training images, network random" in text
    assert "Warning, reconstructions: frechet_random is too high: 40 samples for 64 features" in text
    assert "Warning, samples" not in text
    smoke = " ".join(image.notes(rows, smoke=True))
    assert "Usual at smoke scale, reconstructions: frechet_random is too high: 40 samples" in smoke
    assert "Warning" not in smoke


def test_numbers_of_inception_are_called_by_their_names(rows: list[Row]) -> None:
    renamed = [{key.replace("frechet_random", "fid").replace("_random", ""): v for key, v in row.items()} for row in rows]
    assert distance_name(renamed) == "fid"
    assert image.main_table(renamed).body == image.main_table(rows).body
    assert curves(renamed, image.PLOTS).keys() == {"quality", "error", "bits", "speed"}


FACTS = {"model": "a" * 64, "data": "digits", "engine": "eager", "hardware": "a machine", "date": "2026-11-15"}


def test_the_table_that_is_left_with_the_model(rows: list[Row]) -> None:
    table = quality_table(rows, FACTS, "smoke")
    assert [row.error for row in table.rows] == [row["error"] for row in of(rows, "error")[1:]]
    assert (table.length, table.metric, table.samples, table.examples, table.batch) == (8, "error", 80, 30, 100)
    assert {row.codes: row.latency_ms for row in table.rows if row.latency_ms} == {
        row["codes"]: 1000 * row["seconds_p50"] for row in of(rows, "speed")
    }
    renamed = [{key.replace("frechet_random", "fid"): value for key, value in row.items()} for row in rows]
    by_fid = quality_table(renamed, FACTS, "full")
    assert by_fid.metric == "fid"
    assert [row.fid for row in by_fid.rows if row.fid is not None] == [row["fid"] for row in of(renamed, "samples")]


def test_samples_that_more_codes_make_worse_are_named(rows: list[Row]) -> None:
    fids = dict(zip(IMAGE_FRACTIONS, (66.8, 55.9, 59.1, 61.2, 64.8), strict=True))
    renamed = [{key.replace("frechet_random", "fid").replace("_random", ""): v for key, v in row.items()} for row in rows]
    worse = [row | {"fid": fids[row["fraction"]]} if row["series"] == "samples" else row for row in renamed]
    assert any("more codes make them worse, fid 55.90 at 3 codes and 64.80 at 8" in note for note in image.notes(worse))
    better = [row | {"fid": 100 / row["fraction"]} if row["series"] == "samples" else row for row in renamed]
    assert not any("worse" in note for note in image.notes(better))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"samples": 1}, "`samples` must be at least 2"),
        ({"samples": -3}, "-3"),
        ({"fractions": ()}, "`fractions`"),
        ({"fractions": (0.5, 0.0)}, "`fractions` '0.5,0'"),
        ({"fractions": (1.5,)}, "`fractions` '1.5'"),
        ({"fractions": (math.nan,)}, "`fractions` 'nan'"),
        ({"seed": -1}, "`seed`"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, object], named: str) -> None:
    with pytest.raises(UserError, match=named):
        EvaluationSettings(**{"samples": 10, "fractions": (1.0,), **settings})  # type: ignore[arg-type]


def test_data_of_another_shape(adapter: ImageEvaluation, tmp_path: Path) -> None:
    other = data.synthetic_images("cifar10", (3, 32, 32), 20)
    with pytest.raises(UserError, match="makes images of 1 x 28 x 28, cifar10 has images of 3 x 32 x 32"):
        evaluate(replace(adapter, dataset=other), Workspace(SilentReporter(), cache=tmp_path))
    assert not list(tmp_path.iterdir())


def test_classifier_rows(tiny: AnytimeModel, tmp_path: Path) -> None:
    dataset, labels = data.load("digits").subset(1500, 200), load_labels("digits").subset(1500, 200)
    settings = EvaluationSettings(samples=150, fractions=(0.5, 1.0), seed=3)
    config = ClassifierConfig(widths=(8, 16, 16, 16), epochs=3, batch=64)
    adapter = ImageEvaluation(tiny, dataset, RandomNetwork(torch.device("cpu")), settings, labels, config)
    workspace = Workspace(SilentReporter(), cache=tmp_path)
    classifier, real, *sampled = adapter.classifier_rows(labels, workspace)
    network = load_or_train_image_classifier(dataset, labels, config, torch.device("cpu"), cache=tmp_path)
    assert (classifier["series"], classifier["accuracy"]) == ("classifier", network.report.accuracy)
    assert "trust it less" in classifier["warning"]
    assert real["series"] == "classified data"
    assert real["classified"] > 0.5 and max(real["class_fractions"]) < 0.25 and real["recall_classifier"] > 0.5
    assert [(row["series"], row["fraction"], row["codes"]) for row in sampled] == [
        ("classified", 0.5, 4),
        ("classified", 1.0, 8),
    ]
    assert {(row["samples"], row["reference"], row["seed"]) for row in sampled} == {(150, 200, 3)}
    x = tiny.sample(150, seed=derive(3, "evaluation", 0)).uint8()
    assert sampled[-1]["classified"] == pytest.approx(network.predict(network(x)).classified)
    assert all(row["recall_classifier"] < real["recall_classifier"] for row in sampled), "the model is untrained"
    (table,) = image.classifier_tables([classifier, real, *sampled])
    assert [line[0] for line in table.body] == ["0.5", "1", "data"]
    alone = replace(adapter, dataset=replace(dataset, test=None))
    with pytest.raises(UserError, match="digits has none"):
        alone.classifier_rows(labels, workspace)
