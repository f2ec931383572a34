"""anytime evaluate MODEL"""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from anytime.cli.options import Common, typed_command
from anytime.core.errors import UserError

if TYPE_CHECKING:
    from anytime.core.progress import Reporter
    from anytime.core.results import Results
    from anytime.data import Dataset
    from anytime.data.labels import ImageLabels
    from anytime.evaluation.evaluate import EvaluationSettings
    from anytime.evaluation.image_summary import ReportContent
    from anytime.model import AnytimeModel
    from anytime.sampling.quality_table import QualityTable

RESULTS_FILE = "evaluation.json"
SMOKE_SAMPLES, SMOKE_EXAMPLES, SMOKE_REPEATS = 256, 512, 3
SMOKE_CLIPS = 64

EXAMPLES = ("anytime train digits --scale smoke", "anytime evaluate runs/digits-best --scale smoke")


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run's folder, a saved model's, or the name of a model of the package."""
    samples: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Samples behind FID at every length, by default 50000, of sounds 5000; fewer read higher."""
    fractions: Annotated[str | None, tyro.conf.arg(metavar="F,F,…")] = None
    """Shares of the codes to decode from, each above 0 and at most 1; by default 0.2 to 1, of sounds 1/16, 1/4, 1/2 and 1."""
    temperature: Annotated[float | None, tyro.conf.arg(metavar="T")] = None
    """Of the samples: below 1 safer, above 1 more varied; by default the model's own."""
    inception: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """The FID network's file; by default from the cache, or downloaded once."""
    dataset: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The data set to compare with; by default the one the model was trained on."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """A local copy of the set in its published format, or the folder of pictures or sounds."""
    classifier: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Also let a small classifier of the real pictures judge the samples, for mnist, fashion-mnist and digits."""
    scale: Literal["smoke", "full"] = "full"
    """smoke: seconds, with few samples and a random network in place of Inception, whose distance is not called FID; of sounds,
    with a recogniser that has learned nothing."""
    seed: int = 0
    """Same seed, same samples."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for evaluation.json, curves and report.html; by default MODEL/evaluation, or NAME-evaluation."""


def run(arguments: Arguments) -> dict[str, Any]:
    from anytime.cli.console import TrainingConsole
    from anytime.cli.output import check_out_dir
    from anytime.core.environment import environment
    from anytime.core.results import Results, read
    from anytime.core.storage import write_atomic, write_json
    from anytime.evaluation.evaluate import check_shape, quality_table
    from anytime.evaluation.image_summary import report
    from anytime.model import load

    started = time.monotonic()
    _settings(arguments, is_audio=False)  # what is wrong with them is said before the model is loaded
    folder = arguments.out or _default_out(arguments.model)
    check_out_dir(folder)
    if (folder / RESULTS_FILE).exists():
        read(folder / RESULTS_FILE)  # another version's numbers are not replaced
    model = load(arguments.model, arguments.device)
    if arguments.temperature is None:
        arguments = replace(arguments, temperature=model.config.temperature)
    for flag, given in (("--inception", arguments.inception is not None), ("--classifier", arguments.classifier)):
        if model.is_audio and given:
            raise UserError(f"{flag} is for pictures, and {arguments.model} makes sound; leave it out")
    dataset = _dataset(arguments, model)
    check_shape(model, dataset)
    labels = _labels(arguments, dataset) if arguments.classifier else None
    with TrainingConsole() as console:
        if dataset.synthetic:
            console.say(f"{dataset.name} is not here: comparing with {dataset.source}")
        if model.is_audio:
            rows, view = _evaluate_audio(arguments, model, dataset, folder, console)
        else:
            rows, view = _evaluate_images(arguments, model, dataset, labels, folder, console)
    facts = {**environment(model.device), "data": dataset.source, "model": model.hash, "engine": model.engine.name}
    results = Results("evaluation", dataset.name, typed_command(), facts, _schedule(arguments.model), rows, [])
    write_json(folder / RESULTS_FILE, asdict(results))
    for name, content in view.images.items():
        write_atomic(folder / f"{name}.png", content)
    title = f"{model.config.name}: {model.length} codes of {model.codebook_size}, evaluated"
    write_atomic(folder / "report.html", report(title, view, _provenance(results)).encode())
    shutil.rmtree(folder / "progress", ignore_errors=True)
    _print(view)
    quality_path = (
        None
        if model.is_audio
        else _write_quality_table(arguments, model.config.temperature, quality_table(rows, facts, arguments.scale))
    )
    print(f"{time.monotonic() - started:.0f} s: {folder / RESULTS_FILE}  {folder / 'report.html'}")
    paths = {
        "evaluation": str(folder / RESULTS_FILE),
        "report": str(folder / "report.html"),
        "quality": quality_path and str(quality_path),
    }
    return {"out": str(folder), **paths, "rows": rows}


def _default_out(model: str) -> Path:
    """Beside the model; for one of the package, whose folder is not ours to fill, here."""
    from anytime.models.registry import find_bundled, locate

    return Path(f"{model}-evaluation") if locate(model) == find_bundled(model) else Path(model) / "evaluation"


def _write_quality_table(arguments: Arguments, default: float, table: QualityTable) -> Path | None:
    """Put the table beside the model, for --quality; not where a better one lies, or where nothing can be written."""
    from anytime.models.registry import find_bundled, locate
    from anytime.sampling.quality_table import read_table, write_table

    model = arguments.model
    folder = locate(model)
    if arguments.temperature != default:
        print(f"--quality goes by samples at the model's temperature, {default:g}: these make no table")
        return None
    if folder == find_bundled(model):
        print(f"{model} keeps the table that it came with")
        return None
    existing = read_table(folder, table.model)
    if existing is not None and (existing.scale, table.scale) == ("full", "smoke"):
        print(f"{folder} keeps its table of full scale")
        return None
    try:
        path = write_table(folder, table)
    except UserError as error:
        print(f"note: --quality goes without a table: {error}")
        return None
    print(f"{path}: {table.explain(0.95)}")
    return path


def _evaluate_images(
    arguments: Arguments, model: AnytimeModel, dataset: Dataset, labels: ImageLabels | None, folder: Path, reporter: Reporter
) -> tuple[list[dict[str, Any]], ReportContent]:
    """Numbers, grids and curves; with labels also what a classifier thinks of the samples."""
    from anytime.evaluation import image_summary
    from anytime.evaluation.evaluate import evaluate_images
    from anytime.metrics.inception import load_feature_network

    settings = _settings(arguments, is_audio=False)
    network = load_feature_network(arguments.inception, arguments.scale == "smoke", model.device)
    rows = evaluate_images(model, dataset, network, settings, labels=labels, folder=folder / "progress", reporter=reporter)
    drawn = {
        **image_summary.grids(model, dataset.held_out, settings),
        **image_summary.neighbour_grid(model, dataset.published_train, rows),
        **image_summary.curves(rows),
    }
    tables = [image_summary.lines(rows), *image_summary.classifier_tables(rows)]
    return rows, image_summary.ReportContent(tables, image_summary.notes(rows), drawn, image_summary.CAPTIONS)


def _evaluate_audio(
    arguments: Arguments, model: AnytimeModel, dataset: Dataset, folder: Path, reporter: Reporter
) -> tuple[list[dict[str, Any]], ReportContent]:
    """Numbers and panels; 90 sounds go to the folder, named by their share of the codes."""
    from anytime.evaluation import audio_panels, audio_summary
    from anytime.evaluation.evaluate_audio import evaluate_audio
    from anytime.evaluation.image_summary import ReportContent
    from anytime.metrics.audio_features import load_or_train_audio_features

    settings = _settings(arguments, is_audio=True)
    audio_features = load_or_train_audio_features(dataset, model.device, smoke=arguments.scale == "smoke", reporter=reporter)
    rows = evaluate_audio(model, dataset, audio_features, settings, folder=folder / "progress", reporter=reporter)
    drawn = model.sample(audio_panels.CLIPS, seed=settings.seed, temperature=settings.temperature).codes
    sounds = audio_panels.by_fraction(model, drawn)
    audio_panels.write_clips(folder / "audio", sounds)
    images = {**audio_panels.audio_figures(model, dataset.held_out, sounds), **audio_summary.curves(rows)}
    audio_players = audio_panels.audio_players(sounds)
    return rows, ReportContent(
        [audio_summary.lines(rows)], audio_summary.notes(rows), images, audio_summary.CAPTIONS, audio_players
    )


def _settings(arguments: Arguments, is_audio: bool) -> EvaluationSettings:
    from anytime.evaluation import evaluate_audio
    from anytime.evaluation.evaluate import FRACTIONS, EvaluationSettings

    default = evaluate_audio.FRACTIONS if is_audio else FRACTIONS
    try:
        given = default if arguments.fractions is None else map(float, arguments.fractions.split(","))
        fractions = tuple(dict.fromkeys(given))
    except ValueError:
        raise UserError(
            f"--fractions {arguments.fractions!r} must be numbers with commas between, such as 0.25,0.5,1"
        ) from None
    settings = EvaluationSettings(fractions=fractions, seed=arguments.seed)
    if arguments.temperature is not None:
        settings = replace(settings, temperature=arguments.temperature)
    if is_audio:
        settings = replace(settings, samples=evaluate_audio.SAMPLES)
    if arguments.scale == "smoke":
        classifier = replace(settings.classifier, epochs=2)
        samples = SMOKE_CLIPS if is_audio else SMOKE_SAMPLES
        settings = replace(settings, samples=samples, repeats=SMOKE_REPEATS, classifier=classifier)
    return settings if arguments.samples is None else replace(settings, samples=arguments.samples)


def _dataset(arguments: Arguments, model: AnytimeModel) -> Dataset:
    from anytime.cli.datasets import find_dataset
    from anytime.data.registry import find

    name, smoke = arguments.dataset or model.config.name, arguments.scale == "smoke"
    size = model.config.autoencoder.shape[-1] if find(name).shape is None and not model.is_audio else None
    dataset = find_dataset(name, arguments.data, size, smoke)
    return dataset.subset(SMOKE_EXAMPLES, SMOKE_EXAMPLES // 4) if smoke else dataset


def _labels(arguments: Arguments, dataset: Dataset) -> ImageLabels:
    from anytime.data.registry import load_labels

    if dataset.synthetic:
        raise UserError(
            f"--classifier learns from {dataset.name}'s labels, and it is not here; "
            f"run `anytime data get {dataset.name}` or pass a copy with --data DIR"
        )
    labels = load_labels(dataset.name, data=arguments.data)
    if arguments.scale == "smoke":
        labels = labels.subset(SMOKE_EXAMPLES, SMOKE_EXAMPLES // 4)
    labels.check(dataset)
    return labels


def _schedule(model: str) -> str:
    """How the model was trained, where that is known."""
    from anytime.training.run_dir import RunPaths, read_config

    folder = Path(model)
    if not RunPaths(folder).environment.is_file():
        return "a saved model; its training is not recorded beside it"
    config = read_config(folder)
    truncation = type(config.ordered.truncation).__name__.lower()
    scale = f"recipe {config.recipe}, scale {config.scale}: {config.epochs} epochs"
    return f"{scale}, {truncation}, seed {config.seed}, {config.precision}"


def _provenance(results: Results) -> dict[str, str]:
    environment = results.environment
    named = ("data", "model", "hardware", "torch", "anytime", "commit", "date")
    facts = {"command": results.command, "schedule": results.schedule}
    return facts | {name: str(environment[name]) for name in named}


def _print(view: ReportContent) -> None:
    for head, body in view.tables:
        widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
        for line in [head, *body]:
            print("  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)))
    print(*view.notes, sep="\n")
