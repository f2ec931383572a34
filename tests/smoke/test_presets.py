"""`--scale smoke` finishes every preset within a minute, with or without the data."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from anytime.data.mnist import to_idx

RunCLI = Callable[..., Any]
MINUTE = 60
SHAPES = {
    "mnist": (1, 28, 28),
    "fashion-mnist": (1, 28, 28),
    "cifar10": (3, 32, 32),
    "celeba": (3, 64, 64),
    "folder": (3, 32, 32),
}


@pytest.mark.parametrize("name", SHAPES)
def test_without_the_data_synthetic_examples_stand_in(name: str, run_cli: RunCLI, tmp_path: Path) -> None:
    started = time.monotonic()
    done = run_cli("train", name, "--scale", "smoke", "--out", tmp_path / "run")
    assert time.monotonic() - started < MINUTE
    assert done.status == 0
    assert f"{name} is not available: training on synthetic strokes of {name}'s shape from seed 0, not real data" in done.err
    check_run(tmp_path / "run", name)
    assert "synthetic" in json.loads((tmp_path / "run" / "errors.json").read_text())["data"]
    assert (tmp_path / "run" / "report.html").stat().st_size < 30e6


def test_the_original_vqvae(run_cli: RunCLI, tmp_path: Path) -> None:
    """The baseline goes through the same loop and passes the same checks."""
    run = tmp_path / "run"
    done = run_cli("train", "cifar10", "--recipe", "original", "--scale", "smoke", "--out", run, "--json")
    assert done.status == 0
    check_run(run, "cifar10")
    config = json.loads((run / "model" / "config.json").read_text())
    assert (config["prior"]["kind"], config["prior"]["side"], config["autoencoder"]["layout"]) == ("pixelcnn", 8, "spatial")
    losses = [json.loads(line)["train"]["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert losses[5] < losses[4], "the prior learns"
    facts = json.loads(run_cli("info", run, "--check", "--json").out.splitlines()[-1])
    assert all(facts["check"].values())
    assert facts["prior"].startswith("PixelCNN on 8 × 8")


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10", "celeba", "folder"])
def test_with_the_data(name: str, run_cli: RunCLI, tmp_path: Path) -> None:
    """Train on copies in the published format, with more held-out examples than a smoke run uses."""
    data = tmp_path / "data"
    data.mkdir()
    COPIES[name](data)
    started = time.monotonic()
    done = run_cli("train", name, "--scale", "smoke", "--data", data, "--out", tmp_path / "run")
    assert time.monotonic() - started < MINUTE
    assert done.status == 0
    assert "synthetic" not in done.err
    check_run(tmp_path / "run", name)
    assert "not real" not in json.loads((tmp_path / "run" / "errors.json").read_text())["data"]


def check_run(run: Path, name: str) -> None:
    config = json.loads((run / "model" / "config.json").read_text())
    assert config["name"] == name
    assert tuple(config["autoencoder"]["shape"]) == SHAPES[name]
    stages = [json.loads(line)["stage"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert stages == ["pretrain"] * 2 + ["ordered"] * 2 + ["prior"] * 2
    assert (run / "report.html").is_file()


def pixels(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, *shape), np.uint8)


def copy_of_fashion(directory: Path) -> None:
    (directory / "train-images-idx3-ubyte").write_bytes(to_idx(pixels(600, 28, 28)))
    (directory / "t10k-images-idx3-ubyte").write_bytes(to_idx(pixels(2000, 28, 28)))


def copy_of_cifar10(directory: Path) -> None:
    np.savez(directory / "cifar10.npz", x_train=pixels(600, 32, 32, 3), x_test=pixels(2000, 32, 32, 3))


def copy_of_celeba(directory: Path) -> None:
    faces = directory / "img_align_celeba"
    faces.mkdir()
    parts = [0] * 150 + [1] * 50 + [2] * 400
    for number, image in enumerate(pixels(len(parts), 72, 64, 3), 1):
        Image.fromarray(image).save(faces / f"{number:06}.jpg")
    lines = (f"{number:06}.jpg {part}\n" for number, part in enumerate(parts, 1))
    (directory / "list_eval_partition.txt").write_text("".join(lines))


def copy_of_a_folder(directory: Path) -> None:
    for number, image in enumerate(pixels(300, 40, 48, 3)):
        Image.fromarray(image).save(directory / f"{number}.png")


COPIES: dict[str, Callable[[Path], None]] = {
    "fashion-mnist": copy_of_fashion,
    "cifar10": copy_of_cifar10,
    "celeba": copy_of_celeba,
    "folder": copy_of_a_folder,
}
