"""The preset of every recipe and shape of data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from anytime.core.errors import UserError
from anytime.recipes import best, original, paper
from anytime.training.config import Recipe, RunConfig, Shape

Preset = Callable[[str, Shape], RunConfig]
ShapeClass = Literal["mnist", "cifar10", "celeba", "greyscale-32", "greyscale-64", "audio"]

PRESETS: dict[Recipe, dict[ShapeClass, Preset]] = {
    "paper": {
        "mnist": paper.mnist, "cifar10": paper.cifar10, "celeba": paper.celeba,
        "greyscale-32": paper.cifar10, "greyscale-64": paper.celeba, "audio": paper.audio,
    },
    "best": {
        "mnist": best.mnist, "cifar10": best.cifar10, "celeba": best.celeba,
        "greyscale-32": best.greyscale_32, "greyscale-64": best.greyscale_64, "audio": best.audio,
    },
    "original": {
        "mnist": original.mnist_or_cifar10, "cifar10": original.mnist_or_cifar10, "celeba": original.celeba,
        "greyscale-32": original.mnist_or_cifar10, "greyscale-64": original.celeba,
    },
}  # fmt: skip


def shape_class(shape: Shape) -> ShapeClass:
    """Return the known dataset whose preset fits data of this shape.

    >>> shape_class((1, 28, 28)), shape_class((3, 32, 32)), shape_class((3, 64, 64)), shape_class((1, 15360))
    ('mnist', 'cifar10', 'celeba', 'audio')
    """
    if len(shape) == 2:
        return "audio"
    channels, height, width = shape
    if channels == 1 and height <= 28 and height % 4 == width % 4 == 0:
        return "mnist"
    if channels == 1:
        return "greyscale-32" if height <= 32 else "greyscale-64"
    return "cifar10" if height <= 32 else "celeba"


def preset(name: str, recipe: Recipe | None, shape: Shape) -> RunConfig:
    """Return a recipe at full scale; the default is best for the embedded digits and paper for everything else."""
    recipe = recipe or ("best" if name == "digits" else "paper")
    if name == "digits" and recipe == "best":
        return best.digits(name, shape)
    make = PRESETS[recipe].get(shape_class(shape))
    if make is None:
        raise UserError(f"`recipe` {recipe} is for images only; train {name} with `recipe` paper")
    return make(name, shape)
