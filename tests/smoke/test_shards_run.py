"""Training on images in tar shards: the weights of training on the same images in memory."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from anytime.core.config import override
from anytime.data import Dataset, load
from anytime.data.image_shards import ImageShards
from anytime.recipes.modify import with_scale
from anytime.recipes.presets import preset
from anytime.training.config import Recipe
from anytime.training.run import train

SETTINGS = ["pretrain.epochs=1", "ordered.epochs=1", "prior.epochs=1", "examples=96"]
WEIGHTS = "model/model.safetensors"


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two shards of 60 images each."""
    (tmp_path / "shards").mkdir()
    random = np.random.default_rng(0)
    for shard in range(2):
        with tarfile.open(tmp_path / "shards" / f"{shard}.tar", "w") as archive:
            for number in range(60):
                stream = io.BytesIO()
                Image.fromarray(random.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(stream, "PNG")
                info = tarfile.TarInfo(f"{shard}-{number}.png")
                info.size = stream.tell()
                archive.addfile(info, io.BytesIO(stream.getvalue()))
    return tmp_path / "shards"


@pytest.mark.parametrize("recipe", ["paper", pytest.param("best", marks=pytest.mark.slow)])
def test_shards_train_the_weights_of_images_in_memory(recipe: Recipe, shards: Path, tmp_path: Path) -> None:
    """With prior samples, augmentations and fine-tuning in `best`."""
    streamed: Dataset = load("folder", data=shards, size=32, cache=tmp_path / "cache")
    assert isinstance(streamed.train, ImageShards)
    config = override(with_scale(preset("folder", recipe, streamed.shape), "smoke"), SETTINGS)
    for name, dataset in (("memory", replace(streamed, train=streamed.train.load())), ("shards", streamed)):
        train(config, dataset, tmp_path / f"run-{name}")
    assert (tmp_path / "run-shards" / WEIGHTS).read_bytes() == (tmp_path / "run-memory" / WEIGHTS).read_bytes()


def test_the_command(shards: Path, run_cli: Callable[..., Any], tmp_path: Path) -> None:
    words = ("--data", shards, "--size", "32", "--scale", "smoke")
    refused = run_cli("train", "folder", *words, "--recipe", "pca", "--out", tmp_path / "pca")
    assert "tar shards go with --recipe paper, best or original" in refused.sentence
    assert not (tmp_path / "pca").exists()
