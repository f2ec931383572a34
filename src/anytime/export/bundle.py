"""Bundling: a run becomes a small model directory with quantised weights and a model card, for the package or a release."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torch import Tensor

from anytime.core import storage
from anytime.core.config import read_json, to_dict
from anytime.core.errors import UserError
from anytime.core.quantized_weights import FILE_KIND, WeightFormat, dequantize_weights, quantize_weights
from anytime.evaluation.model_card import TRAINING, TrainingRecord, add_evaluation, read_evaluation, redact_paths, write_card
from anytime.metrics.code_stats import read_code_stats
from anytime.model import load
from anytime.models import registry
from anytime.models.registry import CONFIG, WEIGHTS
from anytime.sampling import quality_table
from anytime.training import log
from anytime.training.run_dir import RunPaths, read_config, read_starts
from anytime.training.truncate_model import truncate_model

CODEBOOK = "autoencoder.quantizer.codebook"


@dataclass(frozen=True, kw_only=True)
class WeightFormats:
    """Formats of the large tensors; vectors and the codebook, 1 % of all, stay float32."""

    prior: WeightFormat = "int8"
    autoencoder: WeightFormat = "bf16"

    def choose(self, name: str, tensor: Tensor) -> WeightFormat:
        """Return the format of a tensor."""
        if tensor.ndim < 2 or not tensor.is_floating_point() or name == CODEBOOK:
            return "fp32"
        return self.prior if name.startswith("prior.") else self.autoencoder


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle on disk."""

    folder: Path
    hash: str  # of the expanded weights: the hash of the loaded model
    bytes: int  # of all its files


def bundle(
    run: Path,
    name: str,
    formats: WeightFormats | None = None,
    *,
    codes: int | None = None,
    temperature: float | None = None,
    evaluations: Sequence[Path] = (),
    out: Path | None = None,
) -> Bundle:
    """Write a run's model with quantised weights and its card into `out / name`; `out` is the package's models by default.

    Keep only the first `codes` codes, and make `temperature` the default. Each of `evaluations` is an evaluation.json of this
    bundle, whose figures the card shows.
    """
    formats = formats or WeightFormats()
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise UserError(f"`name` {name!r} must be lower-case letters, digits and hyphens, such as mnist")
    if not RunPaths(run).environment.is_file():
        raise UserError(f"{run} is not a run directory, which a model card needs; name one that `anytime train` made")
    model = load(run, "cpu")  # first: it refuses a run without codes
    if model.is_audio and evaluations:
        raise UserError(f"`evaluation` is for image models, and {run} generates audio; leave it out")
    if codes is not None:
        model = truncate_model(model, model.code_count(codes))
    if temperature is not None:
        model.config = replace(model.config, temperature=temperature)
    tensors = quantize_weights(model.state_dict(), formats.choose)
    weights_hash, folder = storage.digest(dequantize_weights(tensors)), (out or registry.BUNDLED_DIR) / name
    for path in evaluations:
        read_evaluation(path, weights_hash, folder)  # refuses a mistake before anything is written
    storage.write_tensors(folder / WEIGHTS, tensors, {"kind": FILE_KIND})
    table = folder / quality_table.FILE
    if table.is_file() and read_json(table).get("model") != weights_hash:
        table.unlink()  # one of the same weights stays
    for old in folder.glob("evaluation*.json"):
        old.unlink()
    storage.write_json(folder / CONFIG, {"hash": weights_hash, **to_dict(model.config)})
    storage.write_json(folder / TRAINING, asdict(_training_record(run, formats)))
    write_card(folder)
    for path in evaluations:
        add_evaluation(folder, path)
    if load(folder, "cpu").hash != weights_hash:
        raise RuntimeError(f"{folder} does not hold what was written there")
    return Bundle(folder, weights_hash, registry.total_bytes(folder))


def _training_record(run: Path, formats: WeightFormats) -> TrainingRecord:
    paths, config, stats = RunPaths(run), read_config(run), read_code_stats(run)
    start = read_starts(paths.environment)[-1]
    seconds: dict[str, float] = {}
    for line in log.read(paths.metrics):
        seconds[line["stage"]] = seconds.get(line["stage"], 0.0) + line["seconds"]
    name = config.model.name
    return TrainingRecord(
        data=start["data"] if start["data"].startswith(name) else f"{name}: {start['data']}",
        examples=start["examples"],
        recipe=f"{config.recipe}, scale {config.scale}, seed {config.seed}, {config.precision}",
        epochs=config.epochs,
        command=redact_paths(start["command"]),
        hardware=start["hardware"],
        minutes=", ".join(f"{stage} {value / 60:.1f}" for stage, value in seconds.items()) or "not known",
        versions=f"anytime {start['anytime']}, torch {start['torch']}, commit {start['commit']}, {start['date']}",
        length=config.training_model.autoencoder.length,
        formats=f"prior in {formats.prior}, autoencoder in {formats.autoencoder}",
        warnings=() if stats is None else tuple(stats.warnings or ()),
    )
