"""A model's card: what it was trained on and how, what it does by code length, its limits. Markdown, from files alone.

python -m anytime.evaluation.model_card FOLDER DIR/evaluation.json    adds another evaluation to the card
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anytime.autoencoders.vqvae import AutoencoderConfig
from anytime.core import storage
from anytime.core.config import read_json
from anytime.core.errors import UserError
from anytime.core.results import Row
from anytime.data.audio_io import SAMPLE_RATE
from anytime.data.registry import DATASETS
from anytime.models.registry import CONFIG
from anytime.training.config import RunConfig

FILE = "README.md"
LIMITATIONS = "## Limits"
UNMEASURED = "Not evaluated yet: there are no figures of this file."
OWN_LICENCE = "The weights are under the package's licence, MIT."


@dataclass(frozen=True, kw_only=True)
class TrainingInfo:
    """A run, as its own files tell of it."""

    config: RunConfig
    start: Mapping[str, Any]
    """The last start of its environment.json."""
    seconds: Mapping[str, float]
    """Of training, by stage."""
    warnings: Sequence[str]
    """What its order.json warns of."""


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """What is in the bundle."""

    hash: str
    codes: int
    temperature: float
    bytes: int
    """Of the weights' file."""
    formats: str
    parameters: Mapping[str, int]


def model_card(name: str, training_info: TrainingInfo, contents: ModelInfo, evaluation: Mapping[str, Any] | None) -> str:
    """The whole file; `evaluation` is an evaluation.json of this very model."""
    config, start = training_info.config, training_info.start
    autoencoder, length = config.model.autoencoder, contents.codes
    kind, size = ("sound", _seconds(autoencoder)) if autoencoder.is_audio else ("picture", _shape_text(autoencoder.shape))
    minutes = ", ".join(f"{stage} {seconds / 60:.1f}" for stage, seconds in training_info.seconds.items())
    training_table = {
        "data": start["data"] if start["data"].startswith(config.model.name) else f"{config.model.name}: {start['data']}",
        "examples": f"{start['examples']:,}",
        "recipe": f"{config.recipe}, scale {config.scale}, seed {config.seed}, {config.precision}",
        "epochs": config.epochs,
        "command": f"`{redact_paths(start['command'])}`",
        "hardware": start["hardware"],
        "minutes": minutes or "not known",
        "versions": f"anytime {start['anytime']}, torch {start['torch']}, commit {start['commit']}, {start['date']}",
    }
    contents_table = {
        "codes": f"{length} of {autoencoder.quantizer.codebook_size}, most important first{_truncated_text(config, length)}",
        **_temperature_row(contents.temperature),
        f"{kind}s": size,
        "autoencoder": f"{contents.parameters['autoencoder']:,} weights",
        "prior": f"{contents.parameters['prior']:,} weights; {config.model.prior.summary}",
        "file": f"{contents.bytes / 1e6:.2f} MB, {contents.formats}; expanded to float32 when loaded",
        "hash": f"`{contents.hash}`",
    }
    parts = [
        f"# {name}",
        f"An ordered autoencoder with an autoregressive prior over its codes, trained on {config.model.name}. Any number of "
        f"codes from 1 to {length} gives a complete {kind}: `anytime sample {name} --fraction 0.5`.",
        "## What it is",
        table(("", ""), contents_table.items()),
        "## How it was made",
        table(("", ""), training_table.items()),
        "## Figures",
        *(figures(evaluation) if evaluation is not None else [UNMEASURED]),
        LIMITATIONS,
        bullets(limitations(config, training_info.warnings, evaluation)),
        "## Licence",
        f"{OWN_LICENCE} {data_licence(config.model.name)}",
    ]
    return "\n\n".join(parts) + "\n"


def _truncated_text(config: RunConfig, codes: int) -> str:
    """What is to be said of codes that were learned and are not there."""
    learned = config.training_model.autoencoder.length
    return f"; {learned} were learned, the last {learned - codes} are cut off" if codes < learned else ""


def _temperature_row(temperature: float) -> dict[str, str]:
    """What is to be said of a temperature that is not everyone's."""
    return {} if temperature == 1 else {"temperature": f"{temperature:g} where nothing else is said"}


def measured(path: Path, found: str, folder: Path) -> dict[str, Any]:
    """An evaluation of the model with this hash, which lies in the folder."""
    data = read_json(path)
    theirs = data.get("environment", {}).get("model", "unknown")
    if theirs != found:
        raise UserError(
            f"{path} is of another model ({theirs[:12]}…, the bundle is {found[:12]}…); "
            f"evaluate the bundle itself: anytime evaluate {folder}"
        )
    if not any(row["series"] == "samples" and ("fid" in row or "frechet_random" in row) for row in data["rows"]):
        raise UserError(f"{path} holds no FID by code length, which a card tells of; only models of pictures have one")
    return data


def add_evaluation(folder: Path, path: Path) -> Path:
    """Put a further evaluation on the card, where its temperature's was before or behind all others, and keep it beside it.

    Its times are left out: they are no other than the first one's.
    """
    if not (folder / FILE).is_file():
        raise UserError(f"{folder} has no card; name a folder that `python -m anytime.export.bundle` made")
    data = measured(path, read_json(folder / CONFIG)["hash"], folder)
    data["rows"] = [row for row in data["rows"] if row["series"] != "speed"]
    temperature = next(row["temperature"] for row in data["rows"] if row["series"] == "samples")
    title = f"### At temperature {temperature:g}"
    before, after = (folder / FILE).read_text(encoding="utf-8").split(f"{LIMITATIONS}\n")
    before = re.sub(rf"{re.escape(title)}\n.*?(?=\n##|\Z)", "", before, flags=re.DOTALL).rstrip()
    parts = [before, title, *figures(data), f"{LIMITATIONS}\n{after}"]
    storage.write_atomic(folder / FILE, "\n\n".join(parts).encode())
    kept = folder / f"evaluation-{temperature}.json"
    storage.write_json(kept, {**data, "command": redact_paths(data["command"])})
    return kept


def figures(evaluation: Mapping[str, Any]) -> list[str]:
    """By code length, with how they were measured."""
    rows, facts = evaluation["rows"], evaluation["environment"]
    by_codes: dict[int, Row] = {}
    for row in rows:
        if "fraction" in row and row["series"] in CARD_METRICS:
            own = {f"{row['series']} {key}": row[key] for key in CARD_METRICS[row["series"]] if row.get(key) is not None}
            by_codes.setdefault(row["codes"], {"fraction": row["fraction"]}).update(own)
    errors = {row["codes"]: row["error"] for row in rows if row["series"] == "error"}
    columns = list(dict.fromkeys(key for row in by_codes.values() for key in row if key != "fraction"))
    head = ["fraction", "codes", *(heading(column) for column in columns), "reconstruction error"]
    body = [
        [f"{row['fraction']:g}", str(codes), *(_number(row.get(column)) for column in columns), _number(errors.get(codes))]
        for codes, row in sorted(by_codes.items())
    ]
    sampled = next(row for row in rows if row["series"] == "samples")
    how = (
        f"Measured from this file: {sampled['samples']:,} samples at temperature {sampled['temperature']:g} "
        f"(seed {sampled['seed']}) against {sampled['reference']:,} pictures, network {sampled['network']}, "
        f"{facts['engine']} engine, {facts['hardware']}, torch {facts['torch']}, commit {facts['commit']}, {facts['date']}: "
        f"`{redact_paths(evaluation['command'])}`"
    )
    return [table(head, body), how]


CARD_METRICS: dict[str, tuple[str, ...]] = {
    "samples": ("fid", "frechet_random", "precision", "recall"),
    "reconstructions": ("fid", "frechet_random"),
    "classified": ("classified", "recall_classifier"),
    "speed": ("samples_per_second",),
}
"""Series of an evaluation and those of their numbers that a card shows."""
HEADINGS = {
    "samples fid": "FID",
    "samples frechet_random": "frechet_random",
    "samples precision": "precision",
    "samples recall": "recall",
    "reconstructions fid": "reconstruction FID",
    "reconstructions frechet_random": "reconstruction frechet_random",
    "classified classified": "recognised above 0.9",
    "classified recall_classifier": "recall, classifier",
    "speed samples_per_second": "samples / s",
}


def heading(column: str) -> str:
    return HEADINGS[column]


def limitations(config: RunConfig, warnings: Sequence[str], evaluation: Mapping[str, Any] | None) -> list[str]:
    """What it should not be taken for."""
    autoencoder = config.model.autoencoder
    ours = f"Sounds of {_seconds(autoencoder)}" if autoencoder.is_audio else f"Pictures of {_shape_text(autoencoder.shape[1:])}"
    sentences = [
        f"{ours} like those of {config.model.name}, and nothing else; it knows no classes or words.",
        "What the training set has too much or too little of, samples have too.",
        "The weights are rounded: codes differ from those of the run that they were made from.",
    ]
    if evaluation is not None:
        sampled = [row for row in evaluation["rows"] if row["series"] == "samples" and "fid" in row]
        if sampled and min(sampled, key=lambda row: float(row["fid"]))["codes"] != max(row["codes"] for row in sampled):
            best = min(sampled, key=lambda row: float(row["fid"]))
            sentences.append(f"Its FID is lowest at {best['codes']} codes; the codes after them add detail, not FID.")
        near = next((row for row in evaluation["rows"] if row["series"] == "neighbours"), None)
        if near is not None:
            sentences.append(
                f"The training picture nearest to a sample is at {near['distance']:.3f} (median, root mean square of pixels in "
                f"[0, 1]), that nearest to a held-out picture at {near['held_out_distance']:.3f}."
            )
        sentences += [memorisation_text(row) for row in evaluation["rows"] if row["series"] == "memorisation"]
        sentences += [f"Of its figures: {row['warning']}." for row in evaluation["rows"] if "warning" in row]
    return list(dict.fromkeys([*sentences, *(f"Order: {text}." for text in warnings)]))


def memorisation_text(row: Row) -> str:
    """A row of the series `copies` in words."""
    control = row["validation_nearer_to_seen"]
    usual = "where nothing is copied it is half" if control is None else f"of validation pictures it is {control:.1%}"
    return (
        f"Of {row['samples']:,} samples {row['nearer_to_seen']:.1%} are nearer to one of {row['images']:,} training pictures "
        f"than to any of as many held-out ones; {usual}."
    )


def _shape_text(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


def _seconds(autoencoder: AutoencoderConfig) -> str:
    return f"{autoencoder.shape[-1] / SAMPLE_RATE:.2f} s at {SAMPLE_RATE / 1000:g} kHz"


def data_licence(name: str) -> str:
    """The terms of the data, where they are known."""
    entry = DATASETS.get(name)
    if entry is None or not entry.homepage:
        return "Of the data's licence nothing is known."
    return f"The data has its own ({entry.licence}): <{entry.homepage}>."


def redact_paths(command: str) -> str:
    """A command without places of the machine that it was given on.

    >>> redact_paths("anytime train mnist --data /home/me/mnist --out=/tmp/run --seed 1")
    'anytime train mnist --data PATH --out=PATH --seed 1'
    """
    return " ".join(_redact_path(word) for word in shlex.split(command))


def _redact_path(word: str) -> str:
    flag, equals, value = word.partition("=")
    place, before = (value, flag + equals) if equals and flag.startswith("-") else (word, "")
    return before + ("PATH" if place.startswith(("/", "~")) else shlex.quote(place))


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    rule = "|".join("---" for _ in head)
    return "\n".join([f"| {' | '.join(head)} |", f"|{rule}|", *(f"| {' | '.join(line)} |" for line in lines)])


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value >= 1 else f"{value:.4f}"


def main(argv: Sequence[str] | None = None) -> int:
    """Add an evaluation to a card; status 2 for a mistake."""
    parser = argparse.ArgumentParser(
        prog="python -m anytime.evaluation.model_card", description="a further evaluation on a card"
    )
    parser.add_argument("folder", type=Path, help="a packed model's")
    parser.add_argument("evaluation", type=Path, metavar="FILE", help="evaluation.json of this very model")
    arguments = parser.parse_args(argv)
    try:
        print(add_evaluation(arguments.folder, arguments.evaluation))
    except UserError as error:
        print(f"card: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
