"""A run made small enough for the package, with its card.

python -m anytime.export.bundle runs/mnist-best mnist          packs the weights; anytime.load("mnist") finds them
python -m anytime.export.bundle runs/mnist-best mnist --codes 8 --temperature 0.9  keeps 8 codes
anytime evaluate src/anytime/models/mnist --out DIR     measures the packed file itself, and leaves its quality table there
python -m anytime.export.bundle runs/mnist-best mnist --evaluation DIR/evaluation.json     puts the figures on the card
python -m anytime.evaluation.model_card src/anytime/models/mnist FILE     adds those at another temperature
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import get_args

from torch import Tensor

from anytime.core import storage
from anytime.core.config import read_json, to_dict
from anytime.core.errors import UserError
from anytime.core.quantized_weights import FILE_KIND, WeightFormat, dequantize_weights, quantize_weights
from anytime.evaluation import model_card
from anytime.metrics.code_stats import read_code_stats
from anytime.model import AnytimeModel, load
from anytime.models import registry
from anytime.models.registry import CONFIG, WEIGHTS
from anytime.sampling import quality_table
from anytime.training import log
from anytime.training.run_dir import RunPaths, read_config
from anytime.training.truncate_model import truncate_model

CODEBOOK = "autoencoder.quantizer.codebook"
EVALUATION = "evaluation.json"
"""What the figures on the card are from, kept beside it."""


@dataclass(frozen=True, kw_only=True)
class WeightFormats:
    """How the large tensors are written; vectors and the codebook, a hundredth of all, stay as they are."""

    prior: WeightFormat = "int8"
    autoencoder: WeightFormat = "bf16"

    def choose(self, name: str, tensor: Tensor) -> WeightFormat:
        if tensor.ndim < 2 or not tensor.is_floating_point() or name == CODEBOOK:
            return "fp32"
        return self.prior if name.startswith("prior.") else self.autoencoder


@dataclass(frozen=True, slots=True)
class Bundle:
    folder: Path
    hash: str  # of the expanded weights: what the loaded model is called by
    bytes: int  # of all its files


def bundle(
    run: Path,
    name: str,
    formats: WeightFormats | None = None,
    *,
    codes: int | None = None,
    temperature: float | None = None,
    evaluation: Path | None = None,
    out: Path | None = None,
) -> Bundle:
    """Write a run's model, packed, with its card into `out / name`, by default where `anytime.load(name)` looks.

    With `codes`, without those behind the first so many; with a `temperature`, drawn at this one where nothing else is said.
    """
    formats = formats or WeightFormats()
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise UserError(f"{name!r} is no name for a model; use small letters, digits and hyphens, such as mnist")
    if not RunPaths(run).environment.is_file():
        raise UserError(f"{run} is no run's folder, which a model's card is written from; name one that `anytime train` made")
    model, training_info = load(run, "cpu"), _training_info(run)  # in this order: a run without codes is told as what it is
    if model.is_audio and evaluation is not None:
        raise UserError(
            f"--evaluation {evaluation} cannot be of {run}, which makes sound: "
            "the page tells of evaluated pictures only; leave it out"
        )
    if codes is not None:
        model = truncate_model(model, model.code_count(codes))
    if temperature is not None:
        model.config = replace(model.config, temperature=temperature)
    tensors = quantize_weights(model.state_dict(), formats.choose)
    weights_hash = storage.digest(dequantize_weights(tensors))
    folder = (out or registry.BUNDLED_DIR) / name
    measured = None if evaluation is None else model_card.measured(evaluation, weights_hash, folder)
    _write(folder, model, tensors, weights_hash)
    contents = model_card.ModelInfo(
        hash=weights_hash,
        codes=model.length,
        temperature=model.config.temperature,
        bytes=(folder / WEIGHTS).stat().st_size,
        formats=f"prior in {formats.prior}, autoencoder in {formats.autoencoder}",
        parameters={part: sum(p.numel() for p in getattr(model, part).parameters()) for part in ("autoencoder", "prior")},
    )
    storage.write_atomic(folder / model_card.FILE, model_card.model_card(name, training_info, contents, measured).encode())
    if measured is not None:
        storage.write_json(folder / EVALUATION, {**measured, "command": model_card.redact_paths(measured["command"])})
    if load(folder, "cpu").hash != weights_hash:
        raise RuntimeError(f"{folder} does not hold what was written there")
    return Bundle(folder, weights_hash, registry.total_bytes(folder))


def _training_info(run: Path) -> model_card.TrainingInfo:
    paths = RunPaths(run)
    seconds: dict[str, float] = {}
    for line in log.read(paths.metrics):
        seconds[line["stage"]] = seconds.get(line["stage"], 0.0) + line["seconds"]
    start = read_json(paths.environment)["starts"][-1]
    return model_card.TrainingInfo(
        config=read_config(run),
        start=start,
        seconds=seconds,
        warnings=(stats.warnings or []) if (stats := read_code_stats(run)) else [],
    )


def _write(folder: Path, model: AnytimeModel, tensors: Mapping[str, Tensor], weights_hash: str) -> None:
    """The folder of a saved model, its weights packed; a table of the same weights stays."""
    storage.write_tensors(folder / WEIGHTS, tensors, {"kind": FILE_KIND})
    path = folder / quality_table.FILE
    if path.is_file() and read_json(path).get("model") != weights_hash:
        path.unlink()
    for old in folder.glob("evaluation*.json"):  # they are of what was there before
        old.unlink()
    storage.write_json(folder / CONFIG, {"hash": weights_hash, **to_dict(model.config)})


def main(argv: Sequence[str] | None = None) -> int:
    """Make a bundle and say what it weighs; status 2 for a mistake."""
    parser = argparse.ArgumentParser(
        prog="python -m anytime.export.bundle", description="a run made small enough for the package"
    )
    parser.add_argument("run", type=Path, help="a finished run's folder")
    parser.add_argument("name", help="what anytime.load will know it by")
    parser.add_argument("--codes", type=int, metavar="N", help="how many of its codes to keep; by default all")
    parser.add_argument("--temperature", type=float, metavar="T", help="to draw at where nothing else is said")
    parser.add_argument("--prior", choices=get_args(WeightFormat), default="int8", help="format of its matrices")
    parser.add_argument("--autoencoder", choices=get_args(WeightFormat), default="bf16", help="format of its kernels")
    parser.add_argument("--evaluation", type=Path, metavar="FILE", help="evaluation.json of the bundle, for its card")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to put the folder; by default into the package")
    arguments = parser.parse_args(argv)
    try:
        formats = WeightFormats(prior=arguments.prior, autoencoder=arguments.autoencoder)
        made = bundle(
            arguments.run,
            arguments.name,
            formats,
            codes=arguments.codes,
            temperature=arguments.temperature,
            evaluation=arguments.evaluation,
            out=arguments.out,
        )
    except UserError as error:
        print(f"bundle: {error}", file=sys.stderr)
        return 2
    all_bytes = registry.total_bytes(made.folder.parent)
    most = registry.MAX_BYTES / 1e6
    print(f"{made.folder}: {made.bytes / 1e6:.2f} MB; with its neighbours {all_bytes / 1e6:.2f} of {most:.0f} MB")
    print(json.dumps({**asdict(made), "folder": str(made.folder)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
