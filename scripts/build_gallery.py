"""Draw the images of docs/gallery.md with the bundled models: python scripts/build_gallery.py

Every image is a table of samples by number of codes, `docs/gallery/NAME.png`. The gallery page of the site shows it with a
slider, by the size of a tile and the number of columns that its link text names.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

import anytime
from anytime.model import AnytimeModel

OUT = Path(__file__).resolve().parents[1] / "docs" / "gallery"
ROWS = 16
"""Samples of a table."""
COLOURS = 255


def by_code(model: AnytimeModel, n: int, seed: int) -> Tensor:
    """Return samples from 1, 2, … codes, [n, length, channel, height, width] as bytes."""
    codes = model.sample(n, seed=seed).codes
    return torch.stack([_bytes(model.decode(codes[:, :count])) for count in range(1, model.length + 1)], dim=1)


def alike(model: AnytimeModel, kept: int, n: int, seed: int) -> Tensor:
    """Return rows of samples that share their first codes, [kept + 1, n, channel, height, width] as bytes."""
    codes = model.sample(1, seed=seed).codes
    return torch.stack([_bytes(model.sample(n, seed=seed + 1, prefix=codes[:, :k]).data) for k in range(kept + 1)])


def table(tiles: Tensor) -> Image.Image:
    """Return tiles [rows, columns, channel, height, width] as one image, without gaps."""
    rows, columns, channels, height, width = tiles.shape
    pixels = tiles.permute(0, 3, 1, 4, 2).reshape(rows * height, columns * width, channels).cpu().numpy()
    return Image.fromarray(pixels.squeeze(-1) if channels == 1 else pixels)


def _bytes(data: Tensor) -> Tensor:
    return (data * 255).round().clamp(0, 255).to(torch.uint8)


def main() -> None:
    """Write all images and say how large they are."""
    argparse.ArgumentParser(description="Draw the images of docs/gallery.md.").parse_args()
    OUT.mkdir(exist_ok=True)
    for name in anytime.models():
        model = anytime.load(name, device="cpu")
        save(table(by_code(model, ROWS, seed=0)), OUT / f"{name}-by-code.png")
        save(table(alike(model, 4, 12, seed=3)), OUT / f"{name}-alike.png")


def save(image: Image.Image, path: Path) -> None:
    """Write a small file: colours of a palette, enough for small images."""
    image = image if image.mode == "L" else image.quantize(COLOURS)
    image.save(path, optimize=True)
    print(f"{path}  {image.width} × {image.height}, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
