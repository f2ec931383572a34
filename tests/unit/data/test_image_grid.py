from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from anytime.core.errors import UserError
from anytime.data.image_grid import grid, labelled_rows, png_bytes, write_gif, write_png
from anytime.data.image_io import read_image
from anytime.data.loader import to_float


@pytest.mark.parametrize("channel", [1, 3])
def test_a_png_comes_back_as_it_was(channel: int, random: np.random.Generator, tmp_path: Path) -> None:
    pixels = random.integers(0, 256, (17, 23, channel), dtype=np.uint8)
    path = tmp_path / "new" / "a.png"
    write_png(path, pixels)
    assert path.read_bytes() == png_bytes(pixels)
    with Image.open(io.BytesIO(png_bytes(pixels))) as image:
        assert np.array_equal(np.asarray(image).reshape(17, 23, channel), pixels)
    assert [path.name for path in path.parent.iterdir()] == ["a.png"]


def test_a_grid_holds_every_image_in_its_place(random: np.random.Generator) -> None:
    x = torch.from_numpy(random.integers(0, 255, (5, 3, 4, 6), dtype=np.uint8))
    sheet = grid(to_float(x), columns=3, gap=1)
    assert sheet.shape == (2 * 5 + 1, 3 * 7 + 1, 3)
    for place in range(5):
        top, left = 1 + place // 3 * 5, 1 + place % 3 * 7
        assert np.array_equal(sheet[top : top + 4, left : left + 6].transpose(2, 0, 1), x[place].numpy())
    assert (sheet[6:10, 15:21] == 255).all()  # the sixth place is empty


def test_a_grid_is_square_clamped_and_enlarged_by_a_whole_factor() -> None:
    x = torch.tensor([-1.0, 0.5, 2.0, 0.0]).reshape(4, 1, 1, 1)
    assert grid(x, gap=0)[..., 0].tolist() == [[0, 128], [255, 0]]
    assert grid(x, gap=0, scale=3).shape == (6, 6, 1)
    assert grid(x[:3], gap=0).shape == (2, 2, 1)


def test_rows_carry_labels_and_visible_images() -> None:
    x = torch.zeros(5, 1, 28, 28)
    sheet = labelled_rows([("4 of 16 codes", x), ("16 of 16 codes", x[:3])])
    assert sheet.dtype == np.uint8
    assert sheet.shape[0] == 2 * (2 * 28 + 4)
    margin = sheet.shape[1] - 5 * (2 * 28 + 2) - 2
    assert margin > 50
    assert (sheet[:60, :margin].min(), sheet[60:, :margin].min()) == (0, 0)  # both labels are drawn
    assert (sheet[2:58, margin + 2 : margin + 58] == 0).all()
    colour = labelled_rows([("a", torch.zeros(2, 3, 64, 64))])
    assert colour.shape[0] == 64 + 4


def test_a_gif_keeps_its_frames_and_their_time(tmp_path: Path) -> None:
    frames = [np.full((8, 9, 1), value, np.uint8) for value in (0, 100, 200)]
    write_gif(tmp_path / "a.gif", frames, 0.25)
    with Image.open(tmp_path / "a.gif") as image:
        assert (image.n_frames, image.size, image.info["duration"]) == (3, (9, 8), 250)  # type: ignore[attr-defined]


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    pixels = np.zeros((8, 8, 1), np.uint8)
    with pytest.raises(UserError, match=r"a\.png cannot be written .*choose another place"):
        write_png(tmp_path / "file" / "a.png", pixels)
    with pytest.raises(UserError, match=r"a\.gif cannot be written .*choose another place"):
        write_gif(tmp_path / "file" / "a.gif", [pixels], 0.1)
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UserError, match=r"folder\.png cannot be written"):
        write_png(tmp_path / "folder.png", pixels)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.png"]


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        with path.open("wb") as stream:
            stream.write(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"a\.png cannot be written \(No space left on device\)"):
        write_png(tmp_path / "a.png", np.zeros((8, 8, 1), np.uint8))
    assert not list(tmp_path.iterdir())


def test_reading_an_image(tmp_path: Path) -> None:
    write_png(tmp_path / "a.png", np.full((30, 40, 3), 90, np.uint8))
    assert read_image(tmp_path / "a.png", 1, 28).shape == (1, 28, 28)
    x = read_image(tmp_path / "a.png", 3, 64)
    assert (x.dtype, x.shape) == (torch.uint8, (3, 64, 64))
    assert (x == 90).all()
    (tmp_path / "b.png").write_text("text")
    with pytest.raises(UserError, match=r"b\.png is not a readable image"):
        read_image(tmp_path / "b.png", 1, 28)
    with pytest.raises(UserError, match=r"c\.png cannot be read"):
        read_image(tmp_path / "c.png", 1, 28)
