"""Files of models, sessions and runs that were made to do harm: each is refused in one sentence, within time and memory."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save as tensors_bytes

from anytime.baselines.vae import VAE, VAEConfig, load_vae
from anytime.cli.serve import read_token
from anytime.core import storage
from anytime.core.config import parse_json, read_json
from anytime.core.errors import UserError
from anytime.model import AnytimeModel, _tiny, load
from anytime.sampling.sample_file import npz_bytes, read_npz
from anytime.training import checkpoint, log, run_lock
from anytime.training.run_dir import read_starts

from .data.limits import Limits
from .hostile import npz

GB = 1 << 30
CONFIG, WEIGHTS = "config.json", "model.safetensors"


class Attack:
    """Written when a pickle of it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("/tmp/anytime-attacked",)


@pytest.fixture(scope="module")
def tiny() -> AnytimeModel:
    torch.manual_seed(0)
    return AnytimeModel(_tiny()).eval()


@pytest.fixture
def folder(tiny: AnytimeModel, tmp_path: Path) -> Path:
    return tiny.save(tmp_path / "model")


def refusal(read: Callable[[], object]) -> str:
    limits = Limits()
    text = limits.run(read)
    limits.check_memory()
    assert text is not None, "it was accepted"
    assert not Path("/tmp/anytime-attacked").exists()
    return text


def sparse(path: Path, size: int, start: bytes = b"") -> None:
    path.write_bytes(start)
    os.truncate(path, size)


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def seal(tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> bytes:
    checksum = hashlib.sha256(f"{storage.digest(tensors)} {json.dumps(facts)}".encode()).hexdigest()
    header = {"format": 1, "facts": facts, "seal": checksum}
    return tensors_bytes(tensors, {"anytime": json.dumps(header)})


def test_a_config_of_a_gigabyte(folder: Path) -> None:
    sparse(folder / CONFIG, GB, b'{"format": 1}')
    assert "it has more than 4 MiB" in refusal(lambda: load(folder, "cpu"))


@pytest.mark.parametrize("depth", [70, 500, 900, 10_000, 1_000_000])
@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_deep_nesting(folder: Path, depth: int, pair: str) -> None:
    deep = "[" * depth + "]" * depth if pair == "[]" else '{"a":' * depth + "1" + "}" * depth
    (folder / CONFIG).write_text(f'{{"format": 1, "name": {deep}}}')
    assert "cannot be read as JSON" in refusal(lambda: load(folder, "cpu"))


@pytest.mark.parametrize("value", ["{}", "[]", "1"])
def test_millions_of_small_values(value: str, tmp_path: Path) -> None:
    """In another process: the checks of types in tests take ten times as long as the parser."""
    (tmp_path / "a.json").write_text(f'{{"format": 1, "a": [{",".join([value] * (4_000_000 // (len(value) + 1)))}]}}')
    program = (
        "import pathlib, resource, time\n"
        "from anytime.core.config import read_json\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "start = time.process_time()\n"
        "read_json(pathlib.Path('a.json'))\n"
        "print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    seconds, kilobytes = map(float, done.stdout.split())
    assert seconds < 1 and kilobytes < 1 << 20


def test_a_key_that_comes_twice(folder: Path) -> None:
    (folder / CONFIG).write_text('{"format": 1, "name": "a", "name": "b"}')
    assert "the key 'name' comes twice" in refusal(lambda: load(folder, "cpu"))
    with pytest.raises(ValueError, match="comes twice"):
        parse_json('{"a": {"b": 1, "b": 1}}')


@pytest.mark.parametrize("kind", [[], {}, 3, None, "x" * 100_000, ["vae"]])
def test_odd_kinds(folder: Path, kind: object) -> None:
    config = json.loads((folder / CONFIG).read_text())
    edit(folder / CONFIG, prior={**config["prior"], "kind": kind})
    assert "prior" in refusal(lambda: load(folder, "cpu"))
    edit(folder / CONFIG, prior=config["prior"], kind=kind)
    assert "unknown key 'kind'" in refusal(lambda: load(folder, "cpu"))


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "1" + "0" * 400, "1" + "0" * 5000])
def test_numbers_beyond_all_bounds(folder: Path, number: str) -> None:
    text = (folder / CONFIG).read_text()
    assert '"temperature": 1.0' in text
    (folder / CONFIG).write_text(text.replace('"temperature": 1.0', f'"temperature": {number}'))
    refusal(lambda: load(folder, "cpu"))


def test_control_characters_are_not_printed(folder: Path) -> None:
    renamed = folder.rename(folder.with_name("a\x1b]0;b\x07\n"))
    edit(renamed / CONFIG, **{"\x1b[2J": 1})
    assert "\\x1b" in refusal(lambda: load(renamed, "cpu"))


@pytest.mark.parametrize("size", [1 << 23, 1 << 40, (1 << 64) - 1])
def test_an_oversized_header(folder: Path, size: int) -> None:
    sparse(folder / WEIGHTS, GB, size.to_bytes(8, "little") + b'{"a":')
    assert "its header has more than 4 MiB" in refusal(lambda: load(folder, "cpu"))


@pytest.mark.parametrize("length", [0, 1, 7, 8, 100, -1])
def test_truncated_weights(folder: Path, length: int) -> None:
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:length])
    assert "truncated" in refusal(lambda: load(folder, "cpu"))


def test_huge_tensors_are_refused_by_the_header(folder: Path) -> None:
    """8 GB that exist on disk only as a hole."""
    size = 8 * GB
    header = json.dumps({"a": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    sparse(folder / WEIGHTS, size + 8 + len(header), len(header).to_bytes(8, "little") + header)
    assert "does not fit its config.json" in refusal(lambda: load(folder, "cpu"))


def test_a_huge_session_is_refused_by_the_header(tiny: AnytimeModel, tmp_path: Path) -> None:
    size, path = 8 * GB, tmp_path / "session"
    header = json.dumps({"codes": {"dtype": "I64", "shape": [size // 8, 1], "data_offsets": [0, size]}}).encode()
    sparse(path, size + 8 + len(header), len(header).to_bytes(8, "little") + header)
    assert "has more than 33,554,432 codes" in refusal(lambda: tiny.load_session(path))


@pytest.mark.parametrize("offered", ["pickle", "torch"])
def test_pickles_offered_as_weights(folder: Path, offered: str) -> None:
    if offered == "pickle":
        (folder / WEIGHTS).write_bytes(pickle.dumps(Attack()))
    else:
        torch.save({"a": Attack()}, folder / WEIGHTS)
    refusal(lambda: load(folder, "cpu"))


@pytest.mark.parametrize("facts", [[], "text", 3, None])
def test_metadata_that_is_not_an_object(folder: Path, facts: Any) -> None:
    tensors = {"a": torch.zeros(1)}
    (folder / WEIGHTS).write_bytes(seal(tensors, facts))
    assert "metadata is not a JSON object" in refusal(lambda: load(folder, "cpu"))


def test_more_layers_than_tensors(folder: Path) -> None:
    config = json.loads((folder / CONFIG).read_text())
    edit(folder / CONFIG, prior={**config["prior"], "layers": 10**9})
    assert "does not fit" in refusal(lambda: load(folder, "cpu"))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_baseline_with_nan_weights(tmp_path: Path, value: float) -> None:
    vae = VAE(VAEConfig(name="a", shape=(1, 8, 8), length=2, widths=(4,), kernels=(4, 4), strides=(2, 2)))
    with torch.no_grad():
        next(vae.parameters()).view(-1)[0] = value
    folder = vae.save(tmp_path / "vae")
    assert "has NaN or infinite weights" in refusal(lambda: load_vae(folder))


SPECIAL: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "directory": lambda path: path.mkdir(),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", SPECIAL)
def test_special_files_are_refused_at_once(kind: str, tiny: AnytimeModel, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "special"
    SPECIAL[kind](path)
    readers: list[Callable[[], object]] = [
        lambda: read_json(path),
        lambda: read_npz(path, "--refine"),
        lambda: tiny.load_session(path),
        lambda: storage.read_tensors(path),
        lambda: read_token(path),
        lambda: read_starts(path),
    ]
    for read in readers:
        refusal(read)
    for name in (CONFIG, WEIGHTS):
        copy = shutil.copytree(folder, tmp_path / f"copy-{name}")
        (copy / name).unlink()
        SPECIAL[kind](copy / name)
        refusal(lambda copy=copy: load(copy, "cpu"))  # type: ignore[misc]
    path.rename(tmp_path / run_lock.OWNER)
    assert run_lock.describe_owner(tmp_path) == ""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
def test_special_metrics_and_checkpoints(kind: str, tmp_path: Path) -> None:
    SPECIAL[kind](tmp_path / "metrics.jsonl")
    assert "cannot be read" in refusal(lambda: log.read(tmp_path / "metrics.jsonl"))
    SPECIAL[kind](tmp_path / "step-000000001.safetensors")
    said: list[str] = []
    assert checkpoint.read_latest(tmp_path, said.append) is None
    assert "is damaged" in said[0]


def test_endless_metrics(tmp_path: Path) -> None:
    sparse(tmp_path / "metrics.jsonl", 2 * GB)
    assert "more than 67,108,864 bytes" in refusal(lambda: log.read(tmp_path / "metrics.jsonl"))


def draft(tiny: AnytimeModel) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(npz_bytes(tiny.sample(2, codes=2)))) as arrays:
        return dict(arrays)


def test_a_draft_that_unpacks_to_gigabytes(tiny: AnytimeModel, tmp_path: Path) -> None:
    """8 GB of zeros in 8 MB."""
    path = tmp_path / "bomb.npz"
    path.write_bytes(npz({name: array for name, array in draft(tiny).items() if name != "data"}))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (2, GB)})
        with archive.open("data.npy", "w", force_zip64=True) as member:
            member.write(head.getvalue())
            for _ in range(160):
                member.write(bytes(1 << 24))
    assert "it has more than 128 MiB" in refusal(lambda: read_npz(path, "--refine"))


@pytest.mark.parametrize("shape", [(1 << 62,), (1 << 40, 1 << 40), (-1,), (-5, 3), (2, "3")])
def test_drafts_of_impossible_shapes(tiny: AnytimeModel, tmp_path: Path, shape: tuple[Any, ...]) -> None:
    arrays, path = draft(tiny), tmp_path / "a.npz"
    path.write_bytes(npz({name: array for name, array in arrays.items() if name != "codes"}))
    text = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("codes.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64))
    assert "is not an .npz file of samples" in refusal(lambda: read_npz(path, "--refine"))


@pytest.mark.parametrize("name", ["data", "codes", "rows", "seed", "seconds", "settings", "model"])
def test_drafts_with_objects(tiny: AnytimeModel, tmp_path: Path, name: str) -> None:
    array = np.empty((2, 2), object)
    array[:] = Attack()
    (tmp_path / "a.npz").write_bytes(npz({**draft(tiny), name: array}))
    assert "Object arrays cannot be loaded" in refusal(lambda: read_npz(tmp_path / "a.npz", "--refine"))


@pytest.mark.parametrize(("name", "value"), [("seconds", float("nan")), ("seconds", -1.0), ("seed", 2.5), ("settings", 3)])
def test_drafts_with_odd_values(tiny: AnytimeModel, tmp_path: Path, name: str, value: object) -> None:
    (tmp_path / "a.npz").write_bytes(npz({**draft(tiny), name: np.array(value)}))
    assert "is not an .npz file of samples" in refusal(lambda: read_npz(tmp_path / "a.npz", "--refine"))


@pytest.mark.parametrize("starts", [None, [], {}, [3], [{}], "text"])
def test_starts_of_wrong_types(tmp_path: Path, starts: object) -> None:
    path = tmp_path / "environment.json"
    path.write_text(json.dumps({"format": 1, "starts": starts}))
    assert str(path) in refusal(lambda: read_starts(path))


def test_errors_are_one_printable_line() -> None:
    assert str(UserError("a\x1b[31m\nb\udcff")) == "a\\x1b[31m\\nb\\udcff"
    assert len(str(UserError("x" * 10**6))) < 2000
