from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from anytime.core.errors import UserError
from anytime.data import load
from anytime.data.dataset import Dataset


def read(folder: Path, cache: Path, size: int | None = None) -> Dataset:
    return load("folder", data=folder, size=size, cache=cache)


def test_pictures_at_any_depth_in_sorted_order(photographs: Path, cache: Path) -> None:
    dataset = read(photographs, cache)
    assert dataset.shape == (3, 32, 32)
    assert dataset.test is None
    assert dataset.train[:, 0, 5, 5].tolist() == [10 * number for number in range(18)]
    assert dataset.held_out[:, 0, 5, 5].tolist() == [180, 190]
    assert "20 pictures from photographs" in dataset.source
    assert str(photographs) not in dataset.source
    assert read(photographs, cache, 40).shape == (3, 40, 40)


def test_a_zip_file_of_pictures_is_a_folder(photographs: Path, cache: Path, tmp_path: Path) -> None:
    archive = Path(shutil.make_archive(str(tmp_path / "zipped"), "zip", photographs))
    assert torch.equal(read(archive, cache).train, read(photographs, cache).train)


def test_grey_only_if_every_picture_is(photographs: Path, cache: Path) -> None:
    shutil.rmtree(photographs / "deep")
    for path in photographs.rglob("[0-9]*"):
        Image.new("L", (40, 40), 7).save(path, "PNG")  # whatever the ending says
    assert read(photographs, cache).shape == (1, 32, 32)
    Image.new("RGB", (40, 40)).save(photographs / "05.BMP")
    assert read(photographs, cache).shape == (3, 32, 32)


def test_the_second_start_reads_the_kept_array(photographs: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read(photographs, cache)
    monkeypatch.setattr("anytime.data.image_files.decode", None)
    monkeypatch.setattr("anytime.data.image_files.header", None)
    again = read(photographs, cache)
    assert torch.equal(again.train, first.train)
    assert torch.equal(again.validation, first.validation)
    again.train[0] = 9  # memory of its own: writing to it spoils neither the file nor torch


def test_a_changed_picture_or_a_spoilt_array_is_decoded_anew(photographs: Path, cache: Path) -> None:
    read(photographs, cache)
    Image.new("RGB", (40, 40), (77, 77, 77)).save(photographs / "00.png")
    os.utime(photographs / "00.png", ns=(1, 1))
    assert read(photographs, cache).train[0, 0, 0, 0] == 77
    for path in cache.rglob("*.npy"):
        path.write_bytes(path.read_bytes()[:1000])
    assert read(photographs, cache).train[0, 0, 0, 0] == 77


def test_a_cache_that_cannot_be_written_is_done_without(photographs: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert len(read(photographs, tmp_path / "file").train) == 18


def test_a_folder_of_non_images(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(UserError, match=r"holds no pictures \(bmp, .*webp\): point --data"):
        read(tmp_path, cache)


def test_a_corrupt_picture_is_named(photographs: Path, cache: Path) -> None:
    whole = (photographs / "04.png").read_bytes()
    (photographs / "04.png").write_bytes(whole[: len(whole) - 40])
    with pytest.raises(UserError, match=r"04\.png is not a readable picture"):
        read(photographs, cache)
    (photographs / "04.png").write_bytes(b"text")
    with pytest.raises(UserError, match=r"04\.png is not a readable picture"):
        read(photographs, cache)
    assert not list(cache.rglob("*"))


def test_small_pictures_are_counted_and_the_first_named(photographs: Path, cache: Path) -> None:
    for name in ("03.webp", "07.webp", "08.png"):
        Image.new("RGB", (60, 31)).save(photographs / name)
    with pytest.raises(UserError, match=r"03\.webp and 2 more are smaller than 32 x 32: choose a smaller --size"):
        read(photographs, cache)
    for path in photographs.rglob("[0-9]*"):
        if path.name not in ("03.webp", "07.webp", "08.png"):
            Image.new("RGB", (64, 64)).save(path)
    with pytest.raises(UserError, match=r"03\.webp and 2 more are smaller than 64 x 64"):  # noticed while decoding
        load("celeba", data=photographs, cache=cache)


def test_too_few_pictures(photographs: Path, cache: Path) -> None:
    shutil.rmtree(photographs / "deep")
    (photographs / "00.png").unlink()
    with pytest.raises(UserError, match="holds 9 pictures and at least 10"):
        read(photographs, cache)


@pytest.mark.parametrize("size", [-1, 0, 7, 1025])
def test_sizes_out_of_range(photographs: Path, cache: Path, size: int) -> None:
    with pytest.raises(UserError, match=rf"--size {size} is outside 8\.\.1024"):
        read(photographs, cache, size)
