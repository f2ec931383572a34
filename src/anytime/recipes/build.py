"""Build a run's config: choose the preset for the data, change it, scale it. For `anytime train` and experiments alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from anytime.autoencoders.layout import Layout
from anytime.autoencoders.truncation import parse_truncation
from anytime.baselines.density import DensityRunConfig, Space
from anytime.baselines.vae import VAERunConfig
from anytime.core.config import override
from anytime.core.errors import UserError
from anytime.recipes import baselines
from anytime.recipes.modify import (
    PriorType,
    with_device_defaults,
    with_layout,
    with_length,
    with_prior,
    with_scale,
    with_truncation,
)  # fmt: skip
from anytime.recipes.presets import preset
from anytime.training.config import Recipe, RunConfig, Scale, Shape

AnyRecipe = Recipe | Literal["vae", "pixels", "pca"]
AnyRunConfig = RunConfig | VAERunConfig | DensityRunConfig


def build_config(
    name: str,
    recipe: AnyRecipe | None,
    shape: Shape,
    scale: Scale = "full",
    *,
    truncation: str | None = None,
    layout: Layout | None = None,
    prior: PriorType | None = None,
    length: int | None = None,
    examples: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    overrides: Sequence[str] = (),
) -> AnyRunConfig:
    """Build the config of a run.

    `shape` is that of one example. `truncation` is written as on the command line ("geometric:0.03"). `overrides` are
    "key=value" pairs and come last.
    """
    config: AnyRunConfig
    if recipe == "vae":
        _refuse(recipe, "has channels for dimensions and no prior", prior=prior, layout=layout)
        config = baselines.vae(name, shape, scale, length)
        if truncation is not None:
            config = replace(config, ordered=replace(config.ordered, truncation=parse_truncation(truncation)))
    elif recipe == "pixels" or recipe == "pca":
        _refuse(recipe, "has one stage and no codes", prior=prior, layout=layout, length=length, truncation=truncation)
        config = baselines.density(name, shape, recipe, scale)
    else:
        config = preset(name, recipe, shape)
        config = config if layout is None else with_layout(config, layout)
        config = config if length is None else with_length(config, length)
        config = config if prior is None else with_prior(config, prior)
        config = with_scale(config, scale)
        config = config if truncation is None else with_truncation(config, parse_truncation(truncation))
    config = replace(config, seed=seed, examples=config.examples if examples is None else examples)
    return override(with_device_defaults(config, device), overrides)


def _refuse(recipe: Space | Literal["vae"], reason: str, **options: object) -> None:
    for option, value in options.items():
        if value is not None:
            raise UserError(f"`{option}` does not go with `recipe` {recipe}, which {reason}; leave it out")
