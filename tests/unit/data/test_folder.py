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


def test_images_at_any_depth_in_sorted_order(image_dir: Path, cache: Path) -> None:
    dataset = read(image_dir, cache)
    assert dataset.shape == (3, 32, 32)
    assert dataset.test is None
    assert dataset.train[:, 0, 5, 5].tolist() == [10 * number for number in range(18)]
    assert dataset.held_out[:, 0, 5, 5].tolist() == [180, 190]
    assert "20 images from photographs" in dataset.source
    assert str(image_dir) not in dataset.source
    assert read(image_dir, cache, 40).shape == (3, 40, 40)


def test_a_zip_file_of_images_is_a_folder(image_dir: Path, cache: Path, tmp_path: Path) -> None:
    archive = Path(shutil.make_archive(str(tmp_path / "zipped"), "zip", image_dir))
    assert torch.equal(read(archive, cache).train, read(image_dir, cache).train)


def test_grey_only_if_every_image_is(image_dir: Path, cache: Path) -> None:
    shutil.rmtree(image_dir / "deep")
    for path in image_dir.rglob("[0-9]*"):
        Image.new("L", (40, 40), 7).save(path, "PNG")  # whatever the suffix says
    assert read(image_dir, cache).shape == (1, 32, 32)
    Image.new("RGB", (40, 40)).save(image_dir / "05.BMP")
    assert read(image_dir, cache).shape == (3, 32, 32)


def test_the_second_start_reads_the_cached_array(image_dir: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read(image_dir, cache)
    monkeypatch.setattr("anytime.data.image_io.decode", None)
    monkeypatch.setattr("anytime.data.image_io.header", None)
    again = read(image_dir, cache)
    assert torch.equal(again.train, first.train)
    assert torch.equal(again.validation, first.validation)
    again.train[0] = 9  # copy-on-write: the cached file stays as it is


def test_a_changed_image_or_a_damaged_array_is_decoded_again(image_dir: Path, cache: Path) -> None:
    read(image_dir, cache)
    Image.new("RGB", (40, 40), (77, 77, 77)).save(image_dir / "00.png")
    os.utime(image_dir / "00.png", ns=(1, 1))
    assert read(image_dir, cache).train[0, 0, 0, 0] == 77
    for path in cache.rglob("*.npy"):
        path.write_bytes(path.read_bytes()[:1000])
    assert read(image_dir, cache).train[0, 0, 0, 0] == 77


def test_a_read_only_cache_is_not_an_error(image_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert len(read(image_dir, tmp_path / "file").train) == 18


def test_a_folder_without_images_is_refused(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(UserError, match=r"holds no images \(bmp, .*webp\): point `data`"):
        read(tmp_path, cache)


def test_a_corrupt_image_is_named(image_dir: Path, cache: Path) -> None:
    whole = (image_dir / "04.png").read_bytes()
    (image_dir / "04.png").write_bytes(whole[: len(whole) - 40])
    with pytest.raises(UserError, match=r"04\.png is not a readable image"):
        read(image_dir, cache)
    (image_dir / "04.png").write_bytes(b"text")
    with pytest.raises(UserError, match=r"04\.png is not a readable image"):
        read(image_dir, cache)
    assert not list(cache.rglob("*"))


def test_small_images_are_counted_and_the_first_named(image_dir: Path, cache: Path) -> None:
    for name in ("03.webp", "07.webp", "08.png"):
        Image.new("RGB", (60, 31)).save(image_dir / name)
    with pytest.raises(UserError, match=r"03\.webp and 2 more are smaller than 32 x 32: choose a smaller `size`"):
        read(image_dir, cache)
    for path in image_dir.rglob("[0-9]*"):
        if path.name not in ("03.webp", "07.webp", "08.png"):
            Image.new("RGB", (64, 64)).save(path)
    with pytest.raises(UserError, match=r"03\.webp and 2 more are smaller than 64 x 64"):  # found while decoding
        load("celeba", data=image_dir, cache=cache)


def test_too_few_images_are_refused(image_dir: Path, cache: Path) -> None:
    shutil.rmtree(image_dir / "deep")
    (image_dir / "00.png").unlink()
    with pytest.raises(UserError, match="holds 9 images and at least 10"):
        read(image_dir, cache)


@pytest.mark.parametrize("size", [-1, 0, 7, 1025])
def test_a_size_out_of_range_is_refused(image_dir: Path, cache: Path, size: int) -> None:
    with pytest.raises(UserError, match=f"`size` must be between 8 and 1024, not {size}"):
        read(image_dir, cache, size)


def test_all_bad_files_are_named_or_skipped(image_dir: Path, cache: Path) -> None:
    extra = [image_dir / f"more-{row}.png" for row in range(3)]
    for path in extra:
        shutil.copy(image_dir / "00.png", path)
    whole = read(image_dir, cache)
    for name in ("bad-1.png", "bad-2.jpg"):
        (image_dir / name).write_bytes(b"text")
    with pytest.raises(UserError, match=r"2 of \d+ files in .* cannot be read \(bad-1.png, bad-2.jpg\): .*`skip_bad`"):
        read(image_dir, cache)
    for _ in range(2):  # the second time from the cache
        dataset = load("folder", data=image_dir, size=32, cache=cache, skip_bad=True)
        assert torch.equal(torch.as_tensor(dataset.train), torch.as_tensor(whole.train))
        assert dataset.source.endswith("; skipped bad-1.png, bad-2.jpg")


def test_skipping_is_for_folders(image_dir: Path, cache: Path) -> None:
    with pytest.raises(UserError, match="`skip_bad` is for folders of your own files, not for celeba"):
        load("celeba", data=image_dir, cache=cache, skip_bad=True)
