"""ONNX Runtime for browsers: one pinned package of npm, verified, and kept in the cache for exports without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

from anytime.core.errors import UserError
from anytime.data.download import RemoteFile, cache_dir, download, verify

VERSION = "1.30.0"
REGISTRY = "https://registry.npmjs.org"
PATH = f"onnxruntime-web/-/onnxruntime-web-{VERSION}.tgz"
PACKAGE = RemoteFile(
    f"onnxruntime-web-{VERSION}.tgz",
    f"{REGISTRY}/{PATH}",
    "sha256:d2228df7e4616bc3348bf504ee888f3bec43789a273f0a63f3e68d203ce3bf71",
    33_106_585,
)
"""The package, whose SHA-512 on npm is
q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ==."""
FILES = (
    "ort.wasm.bundle.min.mjs",
    "ort-wasm-simd-threaded.wasm",
    "ort.jspi.bundle.min.mjs",
    "ort-wasm-simd-threaded.jspi.wasm",
)
"""The smallest builds: WebAssembly alone, and with WebGPU. A browser loads one of them."""


def find_runtime(progress: bool = True) -> Path:
    """Return the package, verified: from the cache, or downloaded once from npm's registry."""
    folder = cache_dir() / "onnxruntime-web"
    path, name = folder / PACKAGE.name, f"onnxruntime-web {VERSION}"
    advice = f"try again, or run `npm pack onnxruntime-web@{VERSION}` elsewhere and put the file into {folder}"
    if path.is_file():
        verify(path, PACKAGE.hash, name, advice)
        return path
    return download(replace(PACKAGE, url=f"{registry()}/{PATH}"), folder, name, progress, advice)


def registry() -> str:
    """Return the registry that npm is set up with, or npm's public one."""
    npm = shutil.which("npm")
    command = [npm or "npm", "config", "get", "registry"]
    try:
        given = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # there is no npm, or it is broken
        given = os.environ.get("NPM_CONFIG_REGISTRY", "")
    return given.rstrip("/") if given.startswith(("https://", "http://")) else REGISTRY


def read_files(package: Path) -> dict[str, bytes]:
    """Return the files that a page needs, by name."""
    found = dict[str, bytes]()
    with tarfile.open(package) as archive:
        for member in archive:
            name = member.name.removeprefix("package/dist/")
            if name in FILES and (content := archive.extractfile(member)) is not None:
                found[name] = content.read()
    if missing := set(FILES) - found.keys():
        raise UserError(f"{package} lacks {min(missing)}; remove it and export again")
    return found
