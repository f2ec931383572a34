from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
import torch

from anytime.core.errors import UserError
from anytime.data import load


def values(x: torch.Tensor | None) -> list[int]:
    """The numbers of the images, whose value is ten times that."""
    assert x is not None
    return (x[:, 0, 32, 32].float() / 10).round().int().tolist()


def test_the_published_split(celeba: Path, cache: Path) -> None:
    dataset = load("celeba", data=celeba, cache=cache)
    assert dataset.shape == (3, 64, 64)
    assert values(dataset.train) == [2, 3, 4, 5, 6, 7, 8, 12]
    assert values(dataset.validation) == [9, 10]
    assert values(dataset.test) == [1, 11]
    assert "published split" in dataset.source


def test_unpacked_and_zipped_files_load_the_same(celeba: Path, cache: Path) -> None:
    first = load("celeba", data=celeba, cache=cache)
    assert torch.equal(load("celeba", data=celeba / "img_align_celeba.zip", cache=cache).train, first.train)
    with zipfile.ZipFile(celeba / "img_align_celeba.zip") as archive:
        archive.extractall(celeba)
    (celeba / "img_align_celeba.zip").unlink()
    assert torch.equal(load("celeba", data=celeba, cache=cache).train, first.train)
    assert torch.equal(load("celeba", data=celeba / "img_align_celeba", cache=cache).train, first.train)


def test_without_a_list_the_last_tenth_is_for_validation(celeba: Path, cache: Path, tmp_path: Path) -> None:
    archive = shutil.copy(celeba / "img_align_celeba.zip", tmp_path / "faces.zip")
    dataset = load("celeba", data=Path(archive), cache=cache)
    assert (values(dataset.train), values(dataset.validation)) == (list(range(1, 12)), [12])
    assert dataset.test is None
    assert "12 images from faces.zip" in dataset.source


def test_the_published_layout_needs_its_list(celeba: Path, cache: Path) -> None:
    (celeba / "list_eval_partition.txt").unlink()
    with pytest.raises(UserError, match=r"lacks list_eval_partition\.txt"):
        load("celeba", data=celeba, cache=cache)


@pytest.mark.parametrize("text", ["000001.jpg", "000001.jpg 3\n", "<html>no such file</html>", "000001.jpg 0\n000001.jpg 1\n"])
def test_a_damaged_list_is_refused(celeba: Path, cache: Path, text: str) -> None:
    (celeba / "list_eval_partition.txt").write_text(text)
    with pytest.raises(UserError, match="is not a list of names and parts"):
        load("celeba", data=celeba, cache=cache)


def test_a_list_of_other_images_is_refused(celeba: Path, cache: Path) -> None:
    (celeba / "list_eval_partition.txt").write_text("000001.jpg 0\n")
    with pytest.raises(UserError, match=r"lacks 11 images, first img_align_celeba/000002\.jpg"):
        load("celeba", data=celeba, cache=cache)
    (celeba / "list_eval_partition.txt").write_text("".join(f"{number:06}.jpg 2\n" for number in range(1, 13)))
    with pytest.raises(UserError, match="no images of one part"):
        load("celeba", data=celeba, cache=cache)


def test_a_folder_that_is_not_celeba_is_refused(celeba: Path, cache: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match=r"lacks img_align_celeba/ or img_align_celeba\.zip, and list_eval_partition\.txt"):
        load("celeba", data=empty, cache=cache)
    path = celeba / "img_align_celeba.zip"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match="neither a folder nor a whole zip file"):
        load("celeba", data=celeba, cache=cache)


def test_a_damaged_member_is_named(celeba: Path, cache: Path) -> None:
    path = celeba / "img_align_celeba.zip"
    content = bytearray(path.read_bytes())
    at = content.index(b"000003.jpg") + 200
    content[at] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"img_align_celeba/000003\.jpg cannot be read"):
        load("celeba", data=celeba, cache=cache)
