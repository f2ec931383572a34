"""The directory that an export writes: networks, a description, two programs and a README. The description comes last."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anytime import __version__
from anytime.core import storage
from anytime.core.errors import UserError
from anytime.export import runner, sample
from anytime.model import AnytimeModel, load
from anytime.models.registry import total_bytes
from anytime.priors.transformer import Transformer, TransformerConfig

NETWORKS = ("prior", "decoder")
DESCRIPTION = "model.json"
KIND = "anytime export"
RUNNER, COMMAND, README = "runner.py", "sample.py", "README.md"
PACKAGES = {"onnx": "numpy and onnxruntime", "aoti": "numpy and torch"}
"""What the programs need, by runtime."""


@dataclass(frozen=True, slots=True)
class Exported:
    """An export on disk."""

    folder: Path
    hash: str  # of the model
    bytes: int  # of all its files
    files: dict[str, int]  # bytes of each network's file


def load_exportable(name: str | Path) -> tuple[AnytimeModel, Transformer]:
    """Load a model and its prior; refuse one whose prior is not a Transformer."""
    model = load(name, "cpu")
    if not isinstance(model.prior, Transformer):
        kind = type(model.prior).__name__
        raise UserError(f"{name} has a prior of type {kind}; export a model with a Transformer prior")
    return model, model.prior


def check_empty(folder: Path, suffix: str) -> None:
    """Refuse a directory that holds other files than an earlier export's."""
    if folder.is_file():
        raise UserError(f"`out` {folder} is a file; name a directory")
    storage.remove_partials(folder)
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    foreign = names - {f"{network}{suffix}" for network in NETWORKS} - {DESCRIPTION, RUNNER, COMMAND, README, "__pycache__"}
    if foreign or (names and names <= {RUNNER, COMMAND, README}):  # without networks it is not an export
        raise UserError(f"`out` {folder} is not empty: it holds {min(foreign or names)}; name an empty or a new directory")


def write_exported(
    folder: Path, model: AnytimeModel, networks: Mapping[str, bytes], suffix: str, runtime_facts: Mapping[str, Any]
) -> Exported:
    """Write all files of an export. A killed export has no description, and the same command completes it."""
    (folder / DESCRIPTION).unlink(missing_ok=True)
    files: dict[str, dict[str, Any]] = {}
    for network, content in networks.items():
        name = f"{network}{suffix}"
        storage.write_atomic(folder / name, content)
        files[network] = {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    facts = {**runtime_facts, **_describe(model), "files": files}
    storage.write_atomic(folder / RUNNER, Path(runner.__file__).read_bytes())
    storage.write_atomic(folder / COMMAND, Path(sample.__file__).read_bytes().replace(b"from anytime.export.", b"from "))
    storage.write_text(folder / README, _readme(facts))
    storage.write_json(folder / DESCRIPTION, {"kind": KIND, **facts})
    return Exported(folder, model.hash, total_bytes(folder), {one["name"]: one["bytes"] for one in files.values()})


def _describe(model: AnytimeModel) -> dict[str, Any]:
    config, prior = model.config, model.config.prior
    assert isinstance(prior, TransformerConfig)
    lowest = -1 if model.is_audio else 0
    return {
        "name": config.name,
        "model": model.hash,
        "anytime": __version__,
        "precision": "fp32",
        "length": model.length,
        "codebook_size": model.codebook_size,
        "start": model.codebook_size,
        "layers": prior.layers,
        "heads": prior.heads,
        "head_dim": prior.width // prior.heads,
        "data": {"kind": "audio" if model.is_audio else "image", "shape": list(config.autoencoder.shape), "range": [lowest, 1]},
        "settings": asdict(model.settings()),
    }


def _readme(facts: Mapping[str, Any]) -> str:
    names = [one["name"] for one in facts["files"].values()]
    return f"""# {facts["name"]}: an anytime model of {facts["length"]} codes

`sample.py` needs {PACKAGES[facts["runtime"]]}:

    python sample.py -n 16 --seed 0 --out samples.npz                     # all codes
    python sample.py -n 16 --seed 0 --codes 4 --out draft.npz             # the first four: coarser, complete
    python sample.py --refine draft.npz --out samples.npz                 # continue: the same codes as in one go
    python sample.py -n 16 --within 50ms --prefix 3,17 --out samples.npz  # as many codes as 50 ms allow

In Python, from this directory:

    from sample import CheckedRunner
    runner = CheckedRunner()
    sample = runner.sample(16, seed=0, within=0.05)     # sample.data, sample.codes, sample.seconds
    finer = runner.refine(sample)
    data = runner.decode(sample.codes[:, :4])           # any number of codes
    logits = runner.logits(sample.codes)                # one parallel pass

A seed gives the codes that `anytime sample` gives in fp32, up to rounding ties. `{names[0]}` and `{names[1]}` are the
networks, `{DESCRIPTION}` describes them; their inputs and outputs are documented in docs/export.md of anytime. `runner.py`
is the algorithm alone, to be read and ported: its `Runner` checks only the model and the codes.
"""
