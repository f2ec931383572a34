from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from anytime.core.config import read_json
from anytime.core.errors import UserError
from anytime.core.storage import (
    DamagedFileError,
    atomic_path,
    digest,
    read_tensors,
    remove_partials,
    write_atomic,
    write_json,
    write_tensors,
)

TENSORS = {
    "weight": torch.arange(6, dtype=torch.float32).view(2, 3),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "count": torch.tensor(7),
    "mask": torch.tensor([True, False]),
    "empty": torch.zeros(0),
}
FACTS = {"stage": "prior", "step": 12, "best_loss": 0.1, "none": None}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.safetensors"
    write_tensors(path, TENSORS, FACTS)
    return path


def test_round_trip(file: Path) -> None:
    tensors, metadata, found = read_tensors(file)
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)
    assert metadata == FACTS
    assert found == digest(TENSORS) == write_tensors(file, TENSORS, FACTS)


def test_metadata_is_empty_by_default(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", {"a": torch.ones(1)})
    assert read_tensors(tmp_path / "x")[1] == {}


def test_equal_contents_are_equal_bytes(file: Path, tmp_path: Path) -> None:
    for attempt in range(20):
        path = tmp_path / f"{attempt}.safetensors"
        write_tensors(path, dict(reversed(TENSORS.items())), FACTS)
        assert path.read_bytes() == file.read_bytes()


def test_strided_tensors_and_parameters_are_saved_by_value(tmp_path: Path) -> None:
    whole = torch.arange(12.0).view(3, 4)
    strided = {"t": whole.T, "column": whole[:, 1], "parameter": torch.nn.Parameter(whole.clone())}
    write_tensors(tmp_path / "x", strided)
    tensors, _, found = read_tensors(tmp_path / "x")
    assert torch.equal(tensors["t"], whole.T)
    assert torch.equal(tensors["column"], whole[:, 1])
    assert found == digest({name: tensor.detach().clone() for name, tensor in strided.items()})


def test_the_digest_covers_names_types_shapes_and_bytes() -> None:
    base = {"a": torch.zeros(4), "b": torch.ones(2)}
    others = [
        {"a": torch.zeros(4), "c": torch.ones(2)},
        {"a": torch.zeros(4, dtype=torch.int32), "b": torch.ones(2)},
        {"a": torch.zeros(2, 2), "b": torch.ones(2)},
        {"a": torch.zeros(4), "b": torch.tensor([1.0, 1.0000001])},
        {"a": torch.ones(2), "b": torch.zeros(4)},
        {"a": torch.tensor([0.0, 0.0, 0.0, -0.0]), "b": torch.ones(2)},
        {"a": torch.zeros(4)},
    ]
    assert len({digest(base), *map(digest, others)}) == len(others) + 1
    assert digest(base) == digest({"b": torch.ones(2), "a": torch.zeros(4)})


def damage(path: Path) -> str:
    with pytest.raises(DamagedFileError) as error:
        read_tensors(path)
    text = str(error.value)
    assert text.startswith(str(path)) and "\n" not in text and "restore it" in text
    return text


def test_a_file_cut_anywhere_is_damaged(file: Path) -> None:
    content = file.read_bytes()
    for size in [*range(40), *range(40, len(content), 37), len(content) - 1]:
        file.write_bytes(content[:size])
        damage(file)


def test_a_byte_flipped_anywhere_is_damaged(file: Path) -> None:
    """Every byte, header and metadata included: the file is refused or its contents are unchanged."""
    content = file.read_bytes()
    same = 0
    for place in range(len(content)):
        for bit in (0x01, 0x20):
            flipped = bytearray(content)
            flipped[place] ^= bit
            file.write_bytes(flipped)
            try:
                tensors, metadata, found = read_tensors(file)
            except DamagedFileError as error:
                assert str(error).startswith(str(file))
            else:
                same += 1
                assert (metadata, found) == (FACTS, digest(TENSORS)), f"byte {place}"
                assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert same < 60, "only the format number, its name and the like may change unnoticed"


@pytest.mark.parametrize("content", [b"", b"no tensors here", b"\x80\x04pickle", b"\xff" * 64, b"{}"])
def test_a_file_of_another_format_is_damaged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    assert "not a safetensors file" in damage(path)


def test_appended_bytes_are_damage(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")
    damage(file)


def test_another_programs_safetensors_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.ones(2)}, path)
    damage(path)
    save_file({"a": torch.ones(2)}, path, {"format": "pt"})
    damage(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is missing"):
        read_tensors(tmp_path / "x.safetensors")
    with pytest.raises(UserError, match="is missing"):
        read_tensors(tmp_path)


# write_whole


def test_write_creates_directories_and_replaces_files(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "x.bin"
    write_atomic(path, b"old")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("where", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "interrupted"])
def test_a_failed_write_leaves_the_old_file_and_no_partial_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException
) -> None:
    path = tmp_path / "x.bin"
    write_atomic(path, b"old")

    def fail(*args: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os if where == "fsync" else Path, where, fail)
        expected = UserError if isinstance(error, OSError) else KeyboardInterrupt
        with pytest.raises(expected) as caught:
            write_atomic(path, b"new")
    if expected is UserError:
        assert str(caught.value) == f"{path} cannot be written (No space left on device); make room or choose another place"
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "x.json", tmp_path / "file" / "deeper" / "x.json", tmp_path / "folder"):
        with pytest.raises(UserError, match=r"cannot be written \(.+\); make room or choose another place"):
            write_json(path, {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """Only files with the exact form of our temporary names, and none that is being written."""
    (tmp_path / "inner").mkdir()
    left, inner = tmp_path / ".x.png.0123abcd.partial", tmp_path / "inner" / ".x.png.0123abcd.partial"
    others = [tmp_path / name for name in (".x.png.partial", ".x.png.0123abcg.partial", "x.png.0123abcd.partial", "x.png")]
    link, folder = tmp_path / ".link.0123abcd.partial", tmp_path / ".folder.0123abcd.partial"
    for path in (left, inner, *others):
        path.write_bytes(b"part")
    link.symlink_to(others[0])
    folder.mkdir()
    with atomic_path(tmp_path / "y.png") as partial:
        partial.write_bytes(b"whole")
        remove_partials(tmp_path)
        assert partial.exists()
        assert not left.exists()
        assert inner.exists()
    assert (tmp_path / "y.png").read_bytes() == b"whole"
    assert all(path.read_bytes() == b"part" for path in others)
    assert link.is_symlink() and folder.is_dir()
    remove_partials(tmp_path, recursive=True)
    assert not inner.exists()
    remove_partials(tmp_path / "absent")


def test_json_with_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"file": "é\udcff.png"})
    assert read_json(path) == {"file": "é\udcff.png"}
    assert "é" in path.read_text(encoding="utf-8")


def test_tensors_in_a_path_that_is_not_utf8(tmp_path: Path) -> None:
    """One sentence that does not call the file damaged: a resumed run would set its checkpoints aside."""
    path = tmp_path / "\udcff.safetensors"
    write_tensors(path, TENSORS)
    with pytest.raises(UserError, match="not a UTF-8 path") as error:
        read_tensors(path)
    assert not isinstance(error.value, DamagedFileError)
