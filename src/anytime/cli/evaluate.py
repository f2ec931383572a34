"""anytime evaluate MODEL"""

from __future__ import annotations

import itertools
import shlex
import shutil
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from anytime.cli.options import Common, Model, option, typed_command
from anytime.cli.stdout import say
from anytime.core.errors import UserError

if TYPE_CHECKING:
    from anytime.core.progress import Reporter
    from anytime.data import Dataset
    from anytime.data.dataset import Labels
    from anytime.evaluation.evaluate import Adapter, EvaluationSettings
    from anytime.evaluation.summary import Summary
    from anytime.model import AnytimeModel
    from anytime.sampling.quality_table import QualityTable

RESULTS_FILE = "evaluation.json"
CPU_SAMPLES, CPU_CLIPS = 5000, 1000
"""Samples of full scale on a CPU, by default: minutes instead of hours."""
SMOKE_SAMPLES, SMOKE_CLIPS, SMOKE_EXAMPLES, SMOKE_REPEATS = 256, 64, 512, 3

EXAMPLES = ("anytime train digits --scale smoke", "anytime evaluate runs/digits-best --scale smoke")


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    """Options of `anytime evaluate`."""

    model: Model
    samples: Annotated[int | None, option("N")] = None
    """Samples for FID at every code count; by default 50000, for audio 5000; on a CPU 5000 and 1000.
    With fewer samples FID is higher."""
    fractions: Annotated[str | None, option("F,F,…")] = None
    """Fractions of the codes to decode from, above 0 and at most 1; by default 0.2 to 1, for audio 1/16, 1/4, 1/2 and 1."""
    temperature: Annotated[float | None, option("T")] = None
    """Sampling temperature: below 1 less varied, above 1 more varied; by default the model's."""
    inception: Annotated[Path | None, option("PATH")] = None
    """File of the FID network; by default from the cache, or downloaded once."""
    dataset: Annotated[str | None, option("NAME")] = None
    """Dataset to compare with; by default the one that the model was trained on."""
    data: Annotated[Path | None, option("DIR")] = None
    """A local copy of the dataset in its published format, or a folder of images or audio; by default that of the run."""
    skip_bad: Annotated[bool, option()] = False
    """Leave out files of --data that cannot be read, and say which; for folder only."""
    classifier: Annotated[bool, option()] = False
    """Also classify the samples with a small classifier of the real images; for mnist, fashion-mnist and digits."""
    scale: Annotated[Literal["smoke", "full"], option("smoke|full")] = "full"
    """smoke: seconds, with few samples, a random network in place of Inception (its distance is not called FID), and for audio
    a classifier that is hardly trained."""
    seed: Annotated[int, option("S")] = 0
    """The same seed gives the same samples."""
    out: Annotated[Path | None, option("DIR")] = None
    """Directory for evaluation.json, figures and report.html; by default MODEL/evaluation, or NAME-evaluation."""


def run(arguments: Arguments) -> dict[str, Any]:
    """Evaluate a model; write results, figures and a report."""
    from anytime.cli.console import TrainingConsole
    from anytime.cli.output import check_out_dir
    from anytime.core.environment import environment
    from anytime.core.results import Results
    from anytime.core.storage import remove_partials, write_atomic, write_json, write_text
    from anytime.evaluation.evaluate import Workspace, check_examples, check_shape, evaluate, quality_table
    from anytime.model import load

    started = time.monotonic()
    _settings(arguments, is_audio=False)  # refuses mistakes before the model is loaded
    folder = arguments.out or _default_out(arguments.model)
    check_out_dir(folder)
    _check_overwrite(folder / RESULTS_FILE, arguments.scale)
    model = load(arguments.model, arguments.device)
    if arguments.temperature is None:
        arguments = replace(arguments, temperature=model.config.temperature)
    for flag, given in (("--inception", arguments.inception is not None), ("--classifier", arguments.classifier)):
        if model.is_audio and given:
            raise UserError(f"{flag} is for images, and {arguments.model} generates audio; leave it out")
    arguments = _with_data_of_run(arguments)
    dataset = _dataset(arguments, model)
    check_shape(model, dataset)
    check_examples(dataset)
    remove_partials(folder, recursive=True)
    labels = _labels(arguments, dataset) if arguments.classifier else None
    with TrainingConsole() as console:
        if dataset.synthetic:
            console.say(f"{dataset.name} is not here: comparing with {dataset.source}")
        adapter = _adapter(arguments, model, dataset, labels, console)
        if arguments.scale == "full" and arguments.samples is None and model.device.type == "cpu":
            full, fewer = (_settings(arguments, model.is_audio, device).samples for device in ("cuda", "cpu"))
            console.say(f"{fewer:,} samples, because this is a CPU; for {full:,}, as papers have, add --samples {full}")
        rows = evaluate(adapter, Workspace(console, folder / "progress"))
        summary = adapter.summary(rows, folder)
    facts = {**environment(model.device), "data": dataset.source, "model": model.hash, "engine": model.engine.name}
    facts |= {"scale": arguments.scale}
    results = Results("evaluation", dataset.name, typed_command(), facts, _schedule(arguments.model), rows, [])
    write_json(folder / RESULTS_FILE, asdict(results))
    for name, content in summary.images.items():
        write_atomic(folder / f"{name}.png", content)
    named = ("data", "model", "hardware", "torch", "anytime", "commit", "date")
    provenance = {"command": results.command, "schedule": results.schedule, **{name: str(facts[name]) for name in named}}
    title = f"{model.config.name}: {model.length} codes of {model.codebook_size}, evaluated"
    write_text(folder / "report.html", summary.page(title, provenance))
    shutil.rmtree(folder / "progress", ignore_errors=True)
    _print(summary)
    quality_path = None
    if not model.is_audio:
        table = quality_table(rows, facts, arguments.scale)
        quality_path = _write_quality_table(arguments, model.config.temperature, table, synthetic=dataset.synthetic)
    say(f"{time.monotonic() - started:.0f} s: {folder / RESULTS_FILE}  {folder / 'report.html'}")
    paths = {"evaluation": str(folder / RESULTS_FILE), "report": str(folder / "report.html")}
    return {"out": str(folder), **paths, "quality": quality_path and str(quality_path), "rows": rows}


def _default_out(model: str) -> Path:
    """Beside the model; for a bundled model, in the working directory."""
    from anytime.models.registry import find_bundled, locate

    return Path(f"{model}-evaluation") if locate(model) == find_bundled(model) else Path(model) / "evaluation"


def _check_overwrite(path: Path, scale: str) -> None:
    """Refuse to replace an evaluation of another version, or one of full scale by one of smoke scale."""
    from anytime.core.results import read

    if path.exists() and read(path).environment.get("scale") == "full" and scale == "smoke":
        raise UserError(f"{path} holds an evaluation of full scale, which --scale smoke would replace; choose another --out")


def _write_quality_table(arguments: Arguments, default: float, table: QualityTable, *, synthetic: bool) -> Path | None:
    """Write the table of --quality beside the model, unless the data is synthetic, a better one is there or it is bundled."""
    from anytime.models.registry import find_bundled, locate
    from anytime.sampling.quality_table import read_table, write_table

    folder = locate(arguments.model)
    if arguments.temperature != default:
        reason = f"no table for --quality: it needs samples at the model's temperature, {default:g}"
    elif synthetic:
        reason = f"no table for --quality: it needs real data, not {table.data}"
    elif folder == find_bundled(arguments.model):
        reason = f"{arguments.model} keeps its bundled table for --quality"
    elif (existing := read_table(folder, table.model)) and (existing.scale, table.scale) == ("full", "smoke"):
        reason = f"{folder} keeps its table of full scale"
    else:
        try:
            path = write_table(folder, table)
        except UserError as error:
            reason = f"note: no table for --quality: {error}"
        else:
            say(f"{path}: {table.explain(0.95)}")
            return path
    say(reason)
    return None


def _adapter(arguments: Arguments, model: AnytimeModel, dataset: Dataset, labels: Labels | None, reporter: Reporter) -> Adapter:
    settings = _settings(arguments, model.is_audio, model.device.type)
    smoke = arguments.scale == "smoke"
    if model.is_audio:
        from anytime.evaluation.audio import AudioEvaluation
        from anytime.evaluation.classifier_training import load_or_train_audio_features

        features = load_or_train_audio_features(dataset, model.device, smoke=smoke, reporter=reporter)
        return AudioEvaluation(model, dataset, features, settings)
    from anytime.evaluation.image import ImageEvaluation
    from anytime.metrics.classifier import ClassifierConfig
    from anytime.metrics.inception import load_feature_network

    network = load_feature_network(arguments.inception, smoke, model.device)
    classifier = ClassifierConfig(epochs=2) if smoke else ClassifierConfig()
    return ImageEvaluation(model, dataset, network, settings, labels, classifier)


def _settings(arguments: Arguments, is_audio: bool, device: str = "cuda") -> EvaluationSettings:
    from anytime.evaluation.audio import AUDIO_FRACTIONS, AUDIO_SAMPLES
    from anytime.evaluation.evaluate import EvaluationSettings
    from anytime.evaluation.image import IMAGE_FRACTIONS, IMAGE_SAMPLES
    from anytime.metrics.latency import REPEATS

    smoke, text = arguments.scale == "smoke", arguments.fractions
    full_samples, smoke_samples = (AUDIO_SAMPLES, SMOKE_CLIPS) if is_audio else (IMAGE_SAMPLES, SMOKE_SAMPLES)
    if device == "cpu":
        full_samples = CPU_CLIPS if is_audio else CPU_SAMPLES
    samples = smoke_samples if smoke else full_samples
    fractions: tuple[float, ...] = AUDIO_FRACTIONS if is_audio else IMAGE_FRACTIONS
    if text is not None:
        try:
            fractions = tuple(dict.fromkeys(map(float, text.split(","))))
        except ValueError:
            raise UserError(f"--fractions {text!r} must be numbers with commas between, such as 0.25,0.5,1") from None
    return EvaluationSettings(
        samples=samples if arguments.samples is None else arguments.samples,
        fractions=fractions,
        seed=arguments.seed,
        temperature=1.0 if arguments.temperature is None else arguments.temperature,
        repeats=SMOKE_REPEATS if smoke else REPEATS,
        smoke=smoke,
    )


def _with_data_of_run(arguments: Arguments) -> Arguments:
    """Take --data and --skip-bad from the command that trained the run, unless a dataset is given."""
    from anytime.training.run_dir import RunPaths, read_starts

    folder = Path(arguments.model)
    path = next((p for p in (RunPaths(folder).environment, RunPaths(folder.parent).environment) if p.is_file()), None)
    if arguments.data is not None or arguments.dataset is not None or path is None:
        return arguments
    try:
        words = shlex.split(read_starts(path)[-1]["command"])
    except (UserError, ValueError):  # another program's file: the user gives --data
        return arguments
    found = [after for word, after in itertools.pairwise(words) if word == "--data"]
    found += [word.removeprefix("--data=") for word in words if word.startswith("--data=")]
    if not found:
        return arguments
    return replace(arguments, data=Path(found[-1]), skip_bad=arguments.skip_bad or "--skip-bad" in words)


def _dataset(arguments: Arguments, model: AnytimeModel) -> Dataset:
    from anytime.cli.data import find_dataset
    from anytime.data.registry import find

    name, smoke = arguments.dataset or model.config.name, arguments.scale == "smoke"
    subject = "`dataset`" if arguments.dataset else "`dataset` is missing: the model's own"
    size = model.config.autoencoder.shape[-1] if find(name, subject).shape is None and not model.is_audio else None
    dataset = find_dataset(name, arguments.data, size, smoke, arguments.skip_bad, subject)
    return dataset.subset(SMOKE_EXAMPLES, SMOKE_EXAMPLES // 4) if smoke else dataset


def _labels(arguments: Arguments, dataset: Dataset) -> Labels:
    from anytime.data.registry import load_labels

    if dataset.synthetic:
        raise UserError(
            f"--classifier needs the labels of {dataset.name}, which is not here; "
            f"run `anytime data get {dataset.name}` or pass a copy with --data DIR"
        )
    labels = load_labels(dataset.name, data=arguments.data)
    if arguments.scale == "smoke":
        labels = labels.subset(SMOKE_EXAMPLES, SMOKE_EXAMPLES // 4)
    labels.check(dataset)
    return labels


def _schedule(model: str) -> str:
    """Describe how the model was trained, if its run is here."""
    from anytime.training.run_dir import RunPaths, read_config

    folder = Path(model)
    if not RunPaths(folder).environment.is_file():
        return "a saved model; its training is not recorded beside it"
    config = read_config(folder)
    truncation = type(config.ordered.truncation).__name__.lower()
    training = f"{config.epochs} epochs, {truncation}, seed {config.seed}, {config.precision}"
    return f"recipe {config.recipe}, scale {config.scale}: {training}"


def _print(summary: Summary) -> None:
    for table in summary.tables:
        widths = [max(map(len, column)) for column in zip(table.head, *table.body, strict=True)]
        for line in [table.head, *table.body]:
            print("  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)))
    for note in summary.notes:
        say(note)
