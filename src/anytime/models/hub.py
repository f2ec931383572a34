"""Models on the Hugging Face Hub: found by user/name, published, and described by a model card.

Only `config.json`, safetensors and texts are read. `huggingface_hub` is imported when a function is called.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from anytime.core.errors import UserError, printable, reason
from anytime.models.registry import WEIGHTS, bundled_names

PACKAGE = "huggingface_hub"  # the extra `hub`
READ = ("*.json", "*.safetensors", "*.md")
"""Files that are downloaded."""
PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill"}
"""Suffixes of formats that run code when they are loaded."""
HUB_DATASETS = {"mnist": "ylecun/mnist", "cifar10": "uoft-cs/cifar10", "fashion-mnist": "zalando-datasets/fashion_mnist"}
"""Names on the Hub of the datasets that it has."""
_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def find_pretrained(name: str | Path, revision: str | None = None, token: str | None = None) -> Path:
    """Return the directory of a model: `name` if it is a directory, else a snapshot of that repository of the Hub.

    Without network, the last snapshot that was downloaded is used.
    """
    if not isinstance(name, str | os.PathLike) or name == "":
        raise UserError(f"`name` must be a directory or a name on the Hub, such as user/name, not {name!r}")
    if Path(name).is_dir():
        check_files(str(name), (path.name for path in Path(name).iterdir()))
        return Path(name)
    if not _NAME.fullmatch(str(name)):
        bundled = f"; `anytime.load({name!r})` loads the bundled model" if name in bundled_names() else ", such as user/name"
        raise UserError(f"{printable(str(name))!r} is neither a directory nor a name on the Hub{bundled}")
    api = _api(token)
    try:
        siblings = api.model_info(str(name), revision=revision).siblings or []
    except Exception as error:
        return _offline_snapshot(api, str(name), revision, error)
    check_files(str(name), (sibling.rfilename for sibling in siblings))
    try:
        return Path(api.snapshot_download(str(name), revision=revision, allow_patterns=list(READ)))
    except Exception as error:
        raise UserError(f"{name} cannot be downloaded ({reason(error)}); try again") from None


def check_files(name: str, files: Iterable[str]) -> None:
    """Refuse a repository with pickled files, or without safetensors."""
    found = sorted(files)
    if pickled := [file for file in found if PurePosixPath(file).suffix.lower() in PICKLES]:
        why = "a pickle, which can run code when it is loaded"
        raise UserError(f"{name} holds {pickled[0]}, {why}; only safetensors are loaded: remove it there or use another model")
    if WEIGHTS not in found:
        raise UserError(f"{name} has no {WEIGHTS}; only models that `save_pretrained` or `push_to_hub` wrote are loaded")


def upload(folder: Path, name: str, *, private: bool | None, token: str | None, message: str) -> str:
    """Upload a directory to a repository, which is created if needed; return its address."""
    if not _NAME.fullmatch(name):
        raise UserError(f"`name` {name!r} is not a name on the Hub; write user/name")
    api = _api(token)
    try:
        address = str(api.create_repo(name, private=private, exist_ok=True))
        api.upload_folder(repo_id=name, folder_path=folder, commit_message=message)
    except Exception as error:
        answered = getattr(error, "response", None) is not None or "token" in str(error).lower()
        advice = "log in with `hf auth login` or give `token`" if answered else "check the network"
        raise UserError(f"{name} cannot be uploaded ({reason(error)}); {advice}") from None
    return address


def hub_card(dataset: str, length: int, kind: str, weights_hash: str, name: str) -> str:
    """Return a model card whose first lines are metadata that the Hub reads."""
    datasets = [f"datasets: [{HUB_DATASETS[dataset]}]"] if dataset in HUB_DATASETS else []
    task = ["pipeline_tag: unconditional-image-generation"] if kind == "image" else []
    tags = f"tags: [anytime-sampling, vq-vae, autoregressive, {kind}]"
    return "\n".join(
        [
            "---", "library_name: anytime", *task, tags, *datasets, "---", "",
            f"# {name}", "",
            f"An ordered autoencoder with an autoregressive prior over its codes, trained on {dataset}.",
            f"Any number of codes from 1 to {length} gives a complete {kind}.", "",
            "```python", "from anytime import AnytimeModel", "",
            f'model = AnytimeModel.from_pretrained("{name}")',
            'sample = model.sample(16, within="50ms")', "```", "",
            f"Hash of the weights: `{weights_hash}`.", "",
        ]
    )  # fmt: skip


def _offline_snapshot(api: Any, name: str, revision: str | None, error: Exception) -> Path:
    """Return the snapshot in the cache if the Hub cannot be reached; refuse a repository that does not exist."""
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    if isinstance(error, RevisionNotFoundError):
        raise UserError(f"{name} has no revision {revision!r} on the Hub; correct `revision`") from None
    if isinstance(error, RepositoryNotFoundError):
        raise UserError(f"{name} is not on the Hub, or is private; correct the name, or log in with `hf auth login`") from None
    try:
        folder = Path(api.snapshot_download(name, revision=revision, local_files_only=True))
    except Exception:
        raise UserError(
            f"{name} cannot be read from the Hub ({reason(error)}); check the network or give a directory"
        ) from None
    check_files(name, (path.name for path in folder.iterdir()))
    return folder


def _api(token: str | None) -> Any:
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        # The package and not an extra of ours: whoever owns our name on a package index would be installed.
        raise UserError(f"models on the Hub need {PACKAGE}: run `pip install {PACKAGE}`") from error
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=token)
