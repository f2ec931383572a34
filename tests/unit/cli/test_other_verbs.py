"""`reconstruct`, `info` and `data`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from anytime import __version__
from anytime.data.loader import to_float
from anytime.model import load

Command = Callable[..., Any]


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    """Two grey images of the model's size and a larger one in colour."""
    folder = tmp_path / "images"
    folder.mkdir()
    levels = np.random.default_rng(0).integers(0, 256, (2, 28, 28), np.uint8)
    for number in range(2):
        Image.fromarray(levels[number]).save(folder / f"{number}.png")
    Image.new("RGB", (60, 40), (200, 30, 40)).save(folder / "2.jpg")
    return [folder / "0.png", folder / "1.png", folder / "2.jpg"]


def test_reconstructions_come_from_the_first_codes(command: Command, model: Path, images: list[Path], tmp_path: Path) -> None:
    outcome = command("reconstruct", model, *images, "--codes", 3, "--out", "back", "--json")
    assert outcome.status == 0
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["0.png", "1.png", "2.png"]
    rows = json.loads(outcome.out.splitlines()[-1])["files"]
    assert [row["file"] for row in rows] == [str(path) for path in images]
    x = torch.stack([to_float(torch.from_numpy(np.array(Image.open(path))))[None] for path in images[:2]])
    loaded = load(model)
    codes = loaded.encode(x)[:, :3]
    assert [row["codes"] for row in rows[:2]] == codes.tolist()
    x_hat = loaded.decode(codes)
    for number in range(2):
        assert rows[number]["error"] == pytest.approx(float((x[number] - x_hat[number]).square().mean()), rel=1e-5)
        with Image.open(tmp_path / "back" / f"{number}.png") as image:
            np.testing.assert_array_equal(np.asarray(image), (x_hat[number, 0] * 255).round().to(torch.uint8).numpy())


def test_the_output_directory_may_have_a_dot_in_its_name(
    command: Command, model: Path, images: list[Path], tmp_path: Path
) -> None:
    assert command("reconstruct", model, images[0], "--out", "back-v1.0").status == 0
    assert [path.name for path in (tmp_path / "back-v1.0").iterdir()] == ["0.png"]


def test_a_directory_stands_for_its_files(command: Command, model: Path, images: list[Path], tmp_path: Path) -> None:
    (images[0].parent / "notes.txt").write_text("not an image")
    assert command("reconstruct", model, images[0].parent, "--out", "back").status == 0
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["0.png", "1.png", "2.png"]


def test_images_of_the_same_name_do_not_overwrite_each_other(
    command: Command, model: Path, images: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "others").mkdir()
    shutil.copy(images[1], tmp_path / "others" / "0.png")
    outcome = command("reconstruct", model, images[0], tmp_path / "others" / "0.png", "--json")
    rows = json.loads(outcome.out.splitlines()[-1])["files"]
    assert [row["out"] for row in rows] == ["reconstructions/0000-0.png", "reconstructions/0001-0.png"]
    assert all((tmp_path / row["out"]).is_file() for row in rows)


def test_info_describes_a_model(command: Command, model: Path) -> None:
    outcome = command("info", model, "--json")
    assert outcome.status == 0
    *lines, last = outcome.out.splitlines()
    facts = json.loads(last)
    loaded = load(model)
    assert facts["shape"] == [1, 28, 28]
    assert facts["length"] == 8
    assert facts["codebook_size"] == 16
    assert facts["hash"] == loaded.hash
    assert facts["parameters"]["prior"] == sum(p.numel() for p in loaded.prior.parameters())
    assert "check" not in facts
    assert {line.split()[0] for line in lines} == set(facts)


def test_info_checks_the_laws(command: Command, model: Path) -> None:
    check = json.loads(command("info", model, "--check", "--json").out.splitlines()[-1])["check"]
    assert len(check) == 4
    assert all(value is True for value in check.values())


def test_a_broken_model_fails_its_check(command: Command, model: Path, tmp_path: Path) -> None:
    broken = load(model)
    with torch.no_grad():
        broken.prior.blocks[0].up.bias[0] = torch.nan
    broken.save(tmp_path / "broken")
    outcome = command("info", tmp_path / "broken", "--check")
    assert outcome.status == 2
    assert "NaN or infinite weights in prior.blocks.0.up.bias" in outcome.err


def test_data_lists_the_known_datasets(command: Command) -> None:
    outcome = command("data", "list", "--json")
    assert outcome.status == 0
    *lines, last = outcome.out.splitlines()
    states = {entry["name"]: entry["state"] for entry in json.loads(last)["datasets"]}
    assert states == {
        "digits": "embedded",
        "mnist": "not downloaded",
        "fashion-mnist": "not downloaded",
        "cifar10": "not downloaded",
        "celeba": "not downloaded",
        "vctk": "needs --data",
        "audiomnist": "needs --data",
        "folder": "needs --data",
    }
    assert [line.split()[0] for line in lines] == list(states)
    assert command("data").out.splitlines() == lines


def test_embedded_data_need_no_download(command: Command) -> None:
    outcome = command("data", "get", "digits", "--json")
    assert outcome.status == 0
    assert json.loads(outcome.out.splitlines()[-1])["name"] == "digits"


def test_version_is_printed(command: Command) -> None:
    assert command("--version").out == f"{__version__}\n"
