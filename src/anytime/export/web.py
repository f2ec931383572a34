"""Web export: a static folder with a page that samples inside the browser.

The page is the server's (`server/static`); `static/source.js` takes the place of the server. The models are ONNX exports.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from anytime.core import storage
from anytime.core.config import read_json
from anytime.core.errors import UserError
from anytime.data.audio_io import SAMPLE_RATE
from anytime.export.exported import DESCRIPTION, load_exportable
from anytime.export.onnx import check_installed, export_onnx
from anytime.export.web_runtime import find_runtime, read_files
from anytime.models.registry import total_bytes

INDEX, MODELS, RUNTIME = "index.html", "models.json", "runtime"
PAGE = ("page.js", "page.css", "problem.js")
"""Files of the server's page; its index.html gets a content security policy."""
SCRIPTS = ("source.js", "request.js", "worker.js", "sampler.js", "latency.js", "gumbel.js", "model.js", "files.js")
LICENSE = "onnxruntime-LICENSE"
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; style-src 'self'; "
    "img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
)
CHARSET = '<meta charset="utf-8">'
WAITING = "Sampling…"
HINT = "Starting… This page needs JavaScript and a web server, such as <code>python -m http.server</code>."


@dataclass(frozen=True, slots=True)
class WebExport:
    """A web export on disk."""

    folder: Path
    models: dict[str, int]  # bytes of each model's networks
    runtime: int  # bytes of ONNX Runtime, of which a browser loads one of two builds
    bytes: int  # of all files


def export_web(names: Sequence[str], folder: Path, progress: bool = True) -> WebExport:
    """Write a page with one or several models into a new or empty directory; the page is complete once it has its index."""
    ids = _ids(names)
    _check_empty(folder)
    check_installed()
    for name in names:
        load_exportable(name)  # refuses a mistake before anything is written
    runtime = read_files(find_runtime(progress))
    described = [_export_model(own, name, folder) for own, name in ids.items()]
    for name, content in runtime.items():
        storage.write_atomic(folder / RUNTIME / name, content)
    own_files, page = files("anytime.export") / "static", files("anytime") / "server" / "static"
    storage.write_atomic(folder / RUNTIME / "LICENSE", (own_files / LICENSE).read_bytes())
    for source, file_names in ((page, PAGE), (own_files, SCRIPTS)):
        for name in file_names:
            storage.write_atomic(folder / name, (source / name).read_bytes())
    storage.write_json(folder / MODELS, {"models": described})
    storage.write_text(folder / INDEX, _index((page / INDEX).read_text(encoding="utf-8")))
    sizes = {one["id"]: sum(file["bytes"] for file in one["files"].values()) for one in described}
    return WebExport(folder, sizes, sum(map(len, runtime.values())), total_bytes(folder))


def _ids(names: Sequence[str]) -> dict[str, str]:
    """Return the models by the names that the page gives them, which are names of directories too."""
    ids = dict[str, str]()
    for name in names:
        own = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(name).resolve().name).strip("._-") or "model"
        if ids.get(own) == name:
            raise UserError(f"{name} is named twice; name it once")
        if own in ids:
            raise UserError(f"two models are called {own}, {ids[own]} and {name}; rename the directory of one")
        ids[own] = name
    return ids


def _check_empty(folder: Path) -> None:
    """Refuse a directory with files; those of an export that was killed are written again."""
    if folder.is_file():
        raise UserError(f"`out` {folder} is a file; name a directory")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if foreign := names - {MODELS, RUNTIME, "models", *PAGE, *SCRIPTS}:
        raise UserError(f"`out` {folder} is not empty: it holds {min(foreign)}; name an empty or a new directory")
    storage.remove_partials(folder, recursive=True)


def _export_model(own: str, name: str, folder: Path) -> dict[str, Any]:
    """Write a model as ONNX; return its description for the page, in the words of the server's list of models."""
    place = f"models/{own}"
    export_onnx(name, folder / place)
    facts = read_json(folder / place / DESCRIPTION)
    kept = {key: facts[key] for key in ("length", "codebook_size", "layers", "heads", "head_dim", "files")}
    return {
        "id": own,
        "folder": place,
        "shape": facts["data"]["shape"],
        "sample_rate": SAMPLE_RATE if facts["data"]["kind"] == "audio" else None,
        "temperature": facts["settings"]["temperature"],
        "start_token": facts["start"],
        "hash": facts["model"],
        **kept,
    }


def _index(page: str) -> str:
    """Return the server's page with a content security policy, and a hint for whoever opens it as a file."""
    for part in (CHARSET, WAITING):
        if page.count(part) != 1:
            raise RuntimeError(f"{INDEX} must have {part!r} once")
    policy = f'{CHARSET}\n  <meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    return page.replace(CHARSET, policy).replace(WAITING, HINT)
