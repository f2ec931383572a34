"""Model cards: Markdown pages made from the files of a bundle alone.

A bundle holds config.json, model.safetensors, training.json (how it was trained), and evaluation*.json (its figures).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anytime.autoencoders.vqvae import AutoencoderConfig
from anytime.core import results, storage
from anytime.core.config import from_dict, read_json
from anytime.core.errors import UserError
from anytime.core.results import select
from anytime.data.audio_io import SAMPLE_RATE
from anytime.data.registry import DATASETS
from anytime.evaluation.image import memorisation_text
from anytime.model import AnytimeModel, load
from anytime.models.registry import WEIGHTS

FILE, TRAINING, EVALUATION = "README.md", "training.json", "evaluation.json"
UNMEASURED = "Not evaluated yet."
CARD_COLUMNS = {
    ("samples", "fid"): "FID",
    ("samples", "frechet_random"): "frechet_random",
    ("samples", "precision"): "precision",
    ("samples", "recall"): "recall",
    ("reconstructions", "fid"): "reconstruction FID",
    ("reconstructions", "frechet_random"): "reconstruction frechet_random",
    ("classified", "classified"): "classified above 0.9",
    ("classified", "recall_classifier"): "recall, classifier",
    ("speed", "samples_per_second"): "samples / s",
}
"""Series and key of an evaluation -> column of the card."""
COUNTED = ("fid", "frechet_random")
"""Keys whose column says how many images were compared."""
COUNTS_DIFFER = (
    "FID falls with the number of images, so the FID of samples and that of reconstructions are not to be compared: a sample "
    "FID below the reconstruction FID does not mean that samples are better."
)


@dataclass(frozen=True, kw_only=True)
class TrainingRecord:
    """How a bundled model was trained, from the files of its run."""

    data: str
    examples: int
    recipe: str
    epochs: str
    command: str
    hardware: str
    minutes: str
    """By stage."""
    versions: str
    length: int
    """Codes learned; the bundle may keep fewer."""
    formats: str
    """Formats of the weights in the bundle."""
    warnings: tuple[str, ...]
    """Of the code statistics."""


def write_card(folder: Path) -> Path:
    """Write the card of a bundle from its files."""
    record = from_dict(TrainingRecord, read_json(folder / TRAINING), str(folder / TRAINING))
    paths = sorted(folder.glob("evaluation*.json"), key=lambda path: (path.name != EVALUATION, path.name))
    text = model_card(folder, load(folder, "cpu"), record, [read_json(path) for path in paths])
    storage.write_text(folder / FILE, text)
    return folder / FILE


def add_evaluation(folder: Path, path: Path) -> Path:
    """Copy an evaluation of this bundle into it and rewrite the card.

    Figures at the model's own temperature come first; at other temperatures they follow, without latencies.
    """
    if not (folder / TRAINING).is_file():
        raise UserError(f"{folder} is not a bundle; name a directory written by `anytime export --to bundle`")
    model = load(folder, "cpu")
    data = read_evaluation(path, model.hash, folder)
    temperature, target = next(row["temperature"] for row in select(data["rows"], series="samples")), folder / EVALUATION
    if temperature != model.config.temperature:
        target = folder / f"evaluation-{temperature}.json"
        data["rows"] = [row for row in data["rows"] if row["series"] != "speed"]
    storage.write_json(target, {**data, "command": redact_paths(data["command"])})
    write_card(folder)
    return target


def read_evaluation(path: Path, model: str, folder: Path) -> dict[str, Any]:
    """Read an evaluation of the model with this hash, whose bundle is `folder`."""
    data = asdict(results.read(path))
    theirs = str(data["environment"].get("model", "unknown"))
    if theirs != model:
        raise UserError(
            f"{path} is of another model ({theirs[:12]}…, the bundle is {model[:12]}…); "
            f"evaluate the bundle itself: anytime evaluate {folder}"
        )
    if not any("fid" in row or "frechet_random" in row for row in select(data["rows"], series="samples")):
        raise UserError(f"{path} holds no FID by code count, which a card shows; only image models have one")
    return data


def model_card(folder: Path, model: AnytimeModel, record: TrainingRecord, evaluations: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a card."""
    name, autoencoder, length = folder.name, model.config.autoencoder, model.length
    kind = "clip" if autoencoder.is_audio else "image"
    parameters = {part: sum(p.numel() for p in getattr(model, part).parameters()) for part in ("autoencoder", "prior")}
    temperature, dropped = model.config.temperature, record.length - length
    truncated = f"; {record.length} were learned, the last {dropped} are dropped" if dropped else ""
    contents = {
        "codes": f"{length}, most important first{truncated}",
        "codebook size": f"{autoencoder.quantizer.codebook_size:,}",
        **({} if temperature == 1 else {"temperature": f"{temperature:g} by default"}),
        f"{kind}s": _size_text(autoencoder),
        "autoencoder": f"{parameters['autoencoder']:,} weights",
        "prior": f"{parameters['prior']:,} weights; {model.config.prior.summary}",
        "file": f"{(folder / WEIGHTS).stat().st_size / 1e6:.2f} MB, {record.formats}; expanded to float32 when loaded",
        "hash": f"`{model.hash}`",
    }
    training = {
        "data": record.data,
        "examples": f"{record.examples:,}",
        "recipe": record.recipe,
        "epochs": record.epochs,
        "command": f"`{redact_paths(record.command)}`",
        "export": f"`{_export_command(name, model, record)}`",
        "hardware": record.hardware,
        "minutes": record.minutes,
        "versions": record.versions,
    }
    first, *others = [figures(evaluation) for evaluation in evaluations] or [[UNMEASURED]]
    for evaluation, lines in zip(evaluations[1:], others, strict=True):
        first = [*first, f"### At temperature {select(evaluation['rows'], series='samples')[0]['temperature']:g}", *lines]
    parts = [
        f"# {name}",
        f"An ordered autoencoder with an autoregressive prior over its codes, trained on {model.config.name}. Any number of "
        f"codes from 1 to {length} gives a complete {kind}: `anytime sample {name} --fraction 0.5`.",
        "## Model",
        table(("", ""), contents.items()),
        "## Training",
        table(("", ""), training.items()),
        "## Figures",
        *first,
        "## Limitations",
        "\n".join(f"- {line}" for line in limitations(model, record, evaluations)),
        "## Licence",
        f"The weights are under the package's licence, MIT. {data_licence(model.config.name)}",
    ]
    return "\n\n".join(parts) + "\n"


def figures(evaluation: Mapping[str, Any]) -> list[str]:
    """Return the table of figures by code count, and how they were measured."""
    rows, facts = evaluation["rows"], evaluation["environment"]
    lines: dict[int, dict[str, float]] = {}
    for row in rows:
        for (series, key), title in CARD_COLUMNS.items():
            if row["series"] == series and "fraction" in row and row.get(key) is not None:
                lines.setdefault(row["codes"], {"fraction": row["fraction"]})[title] = row[key]
    for row in select(rows, series="error"):
        if row["codes"] in lines:
            lines[row["codes"]]["reconstruction error"] = row["error"]
    shown = {title for line in lines.values() for title in line}
    columns = [title for title in (*CARD_COLUMNS.values(), "reconstruction error") if title in shown]
    counts = {
        title: select(rows, series=series)[0]["samples"]
        for (series, key), title in CARD_COLUMNS.items()
        if key in COUNTED and title in shown
    }
    heads = [f"{title}, {counts[title]:,} images" if title in counts else title for title in columns]
    body = [
        [f"{line['fraction']:g}", str(codes), *(_number(line.get(title)) for title in columns)]
        for codes, line in sorted(lines.items())
    ]
    sampled, back = (select(rows, series=series)[0] for series in ("samples", "reconstructions"))
    how = (
        f"Measured on this file: FID on {sampled['samples']:,} samples at temperature {sampled['temperature']:g} "
        f"(seed {sampled['seed']}) and reconstruction FID on {back['samples']:,} held-out images, both against "
        f"{sampled['reference']:,} training images, network {sampled['network']}, {facts['engine']} engine, "
        f"{facts['hardware']}, torch {facts['torch']}, commit {facts['commit']}, {facts['date']}: "
        f"`{redact_paths(evaluation['command'])}`"
    )
    unequal = f"{COUNTS_DIFFER}\n\n" if sampled["samples"] != back["samples"] else ""
    return [table(("fraction", "codes", *heads), body), unequal + how]


def limitations(model: AnytimeModel, record: TrainingRecord, evaluations: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the model's limitations, one sentence each."""
    autoencoder = model.config.autoencoder
    kind = "Clips" if autoencoder.is_audio else "Images"
    sentences = [
        f"{kind} of {_size_text(autoencoder)} like those of {model.config.name}, nothing else; it knows no classes or words.",
        "The samples share the biases of the training set.",
        "The weights are rounded: codes differ from those of the original run.",
    ]
    for evaluation in evaluations[:1]:
        rows = evaluation["rows"]
        sampled = [row for row in select(rows, series="samples") if "fid" in row]
        best = min(sampled, key=lambda row: float(row["fid"]), default=None)
        if best is not None and best["codes"] != max(row["codes"] for row in sampled):
            sentences.append(f"Its FID is lowest at {best['codes']} codes; the codes after them add detail, not FID.")
        sentences += [
            f"The training image nearest to a sample is at {row['distance']:.3f} (median, root mean square of pixels in "
            f"[0, 1]), that nearest to a held-out image at {row['held_out_distance']:.3f}."
            for row in select(rows, series="neighbours")
        ]
        sentences += [memorisation_text(row) for row in select(rows, series="memorisation")]
        sentences += [f"Figures, {row['series']}: {row['warning']}." for row in rows if "warning" in row]
    return list(dict.fromkeys([*sentences, *(f"Codes: {text}." for text in record.warnings)]))


def _export_command(name: str, model: AnytimeModel, record: TrainingRecord) -> str:
    """Return a command that makes this bundle from its run; `record.formats` is "prior in int8, autoencoder in bf16"."""
    prior, autoencoder = (text.rsplit(" ", 1)[1] for text in record.formats.split(", "))
    codes = f" --codes {model.length}" if model.length < record.length else ""
    formats = f"--weights {prior} --autoencoder {autoencoder}"
    return f"anytime export PATH --to bundle --name {name}{codes} --temperature {model.config.temperature:g} {formats}"


def _size_text(autoencoder: AutoencoderConfig) -> str:
    if autoencoder.is_audio:
        return f"{autoencoder.shape[-1] / SAMPLE_RATE:.2f} s at {SAMPLE_RATE / 1000:g} kHz"
    return " × ".join(map(str, autoencoder.shape))


def data_licence(name: str) -> str:
    """Return the terms of the data, if they are known."""
    entry = DATASETS.get(name)
    if entry is None or not entry.homepage:
        return "The licence of the data is not known."
    return f"The data has its own ({entry.licence}): <{entry.homepage}>."


def redact_paths(command: str) -> str:
    """Replace every path in a command, except those of scripts.

    >>> redact_paths("anytime train mnist --data /home/me/mnist --out=runs/mine --seed 1")
    'anytime train mnist --data PATH --out=PATH --seed 1'
    """
    return " ".join(_redact_path(word) for word in shlex.split(command))


def _redact_path(word: str) -> str:
    flag, equals, value = word.partition("=")
    place, before = (value, flag + equals) if equals and flag.startswith("-") else (word, "")
    private = place.startswith(("/", "~")) or ("/" in place and not place.endswith(".py"))
    return before + ("PATH" if private else shlex.quote(place))


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    rule = "|".join("---" for _ in head)
    return "\n".join([f"| {' | '.join(head)} |", f"|{rule}|", *(f"| {' | '.join(line)} |" for line in lines)])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value >= 1 else f"{value:.4f}"
