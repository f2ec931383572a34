"""Presets: the paper's numbers, ours, and what `build_config` makes of them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from anytime.autoencoders.truncation import Full, Geometric, Mixture, Uniform
from anytime.core.config import to_dict
from anytime.core.errors import UserError
from anytime.priors.pixelcnn import PixelCNNConfig
from anytime.priors.transformer import TransformerConfig
from anytime.recipes.build import AnyRecipe, build_config
from anytime.recipes.modify import with_layout, with_scale, with_truncation
from anytime.recipes.presets import preset
from anytime.training.config import RunConfig, Shape

SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32), "celeba": (3, 64, 64)}


@pytest.mark.parametrize(
    ("name", "length", "codebook_size", "dim", "prior_epochs"),
    [("mnist", 16, 126, 49, 50), ("cifar10", 70, 1000, 16, 50), ("celeba", 100, 500, 64, 100)],
)
def test_the_papers_numbers(name: str, length: int, codebook_size: int, dim: int, prior_epochs: int) -> None:
    config = preset(name, None, SHAPES[name])
    autoencoder, prior = config.model.autoencoder, config.model.prior
    assert (config.recipe, config.scale, config.precision, config.examples) == ("paper", "full", "float32", None)
    assert (autoencoder.shape, autoencoder.layout) == (SHAPES[name], "channel")
    assert (autoencoder.length, autoencoder.quantizer.codebook_size, autoencoder.dim) == (length, codebook_size, dim)
    assert (autoencoder.quantizer.commitment, autoencoder.quantizer.codebook, autoencoder.quantizer.revive_dead_codes) == (
        1,
        "gradient",
        False,
    )
    assert (prior.length, prior.codebook_size) == (length, codebook_size)
    assert (prior.layers, prior.width, prior.hidden, prior.heads, prior.dropout) == (6, 512, 2048, 8, 0.1)
    assert (config.pretrain.epochs, config.ordered.epochs, config.prior.epochs) == (200, 200, prior_epochs)
    assert (config.pretrain.batch, config.ordered.batch, config.prior.batch) == (128, 128, 128)
    assert (config.pretrain.lr, config.ordered.lr, config.prior.lr) == (1e-3, 1e-3, 2e-3)
    assert (config.prior.warmup, config.prior.weight_decay) == (3000, 0.1)
    assert (config.pretrain.truncation, config.ordered.truncation) == (Full(), Uniform())
    assert config.pretrain.reduction == config.ordered.reduction


@pytest.mark.parametrize(("name", "side", "prior_epochs"), [("mnist", 7, 50), ("cifar10", 8, 50), ("celeba", 16, 100)])
def test_the_original_vqvae(name: str, side: int, prior_epochs: int) -> None:
    config = preset(name, "original", SHAPES[name])
    autoencoder = config.model.autoencoder
    assert (config.recipe, autoencoder.shape, autoencoder.layout) == ("original", SHAPES[name], "spatial")
    assert (autoencoder.length, autoencoder.dim, autoencoder.quantizer.codebook_size) == (side * side, 256, 512)
    assert (autoencoder.quantizer.codebook, autoencoder.quantizer.commitment) == ("ema", 0.25)
    assert autoencoder.quantizer.revive_dead_codes, "or most entries die"
    assert (autoencoder.widths, autoencoder.kernels, autoencoder.strides, autoencoder.blocks) == ((128,), (4, 4), (2, 2), 2)
    assert config.model.prior == PixelCNNConfig(length=side * side, codebook_size=512, side=side)
    assert (config.pretrain.truncation, config.ordered.truncation) == (Full(), Full())
    assert (config.pretrain.epochs, config.ordered.epochs, config.prior.epochs) == (200, 200, prior_epochs)
    assert (config.prior.lr, config.prior.lr_schedule, config.prior.weight_decay) == (3e-4, "constant", 0)
    assert config.prior.batch == config.pretrain.batch == config.ordered.batch == 128


@pytest.mark.parametrize("shape", [(3, 30, 30), (3, 32, 64)])
def test_image_shapes_that_the_original_refuses(shape: tuple[int, int, int]) -> None:
    with pytest.raises(UserError, match=r"`recipe` original .* `size`"):
        preset("folder", "original", shape)


@pytest.mark.parametrize(("name", "length", "dim"), [("mnist", 49, 16), ("cifar10", 16, 70), ("celeba", 64, 100)])
def test_the_other_layout_is_the_same_networks_read_along_the_other_axis(name: str, length: int, dim: int) -> None:
    config = preset(name, "paper", SHAPES[name])
    spatial = with_layout(config, "spatial")
    assert with_layout(config, "channel") == config
    assert with_layout(spatial, "channel") == config
    old, new = config.model.autoencoder, spatial.model.autoencoder
    assert new == replace(old, layout="spatial", length=length, dim=dim)
    assert (new.channels, new.spatial_shape) == (old.channels, old.spatial_shape)
    assert isinstance(config.model.prior, TransformerConfig)
    assert spatial.model.prior == replace(config.model.prior, length=length)
    assert replace(spatial, model=config.model) == config


def test_the_original_has_one_layout() -> None:
    config = preset("cifar10", "original", SHAPES["cifar10"])
    assert with_layout(config, "spatial") == config
    with pytest.raises(UserError, match="`layout` channel does not go with `recipe` original"):
        with_layout(config, "channel")


def test_smoke_of_the_original_is_small_too() -> None:
    smoke = with_scale(preset("cifar10", "original", SHAPES["cifar10"]), "smoke")
    assert (smoke.model.autoencoder.length, smoke.model.autoencoder.dim, smoke.model.autoencoder.blocks) == (64, 16, 2)
    assert isinstance(smoke.model.prior, PixelCNNConfig)
    assert smoke.model.prior.width <= 32 and smoke.model.prior.layers <= 3
    assert (smoke.ordered.truncation, smoke.prior.lr_schedule, smoke.examples) == (Full(), "constant", 256)


@pytest.mark.parametrize("name", SHAPES)
def test_short_is_a_stated_part_of_the_epochs_and_nothing_else(name: str) -> None:
    full = preset(name, "paper", SHAPES[name])
    short = with_scale(full, "short")
    assert (short.pretrain.epochs, short.ordered.epochs, short.prior.epochs) == (40, 60, 20)
    expected = replace(
        full,
        scale="short",
        pretrain=replace(full.pretrain, epochs=40),
        ordered=replace(full.ordered, epochs=60),
        prior=replace(full.prior, epochs=20),
    )
    assert short == expected


def test_short_never_lengthens() -> None:
    full = preset("digits", "best", (1, 28, 28))
    short = with_scale(full, "short")
    assert short.pretrain.epochs <= full.pretrain.epochs
    assert short.ordered.epochs <= full.ordered.epochs
    assert short.prior.epochs <= full.prior.epochs


@pytest.mark.parametrize("name", SHAPES)
def test_smoke_is_small_but_keeps_shapes_and_stages(name: str) -> None:
    full = preset(name, "paper", SHAPES[name])
    smoke = with_scale(full, "smoke")
    assert smoke.scale == "smoke"
    assert (smoke.model.autoencoder.length, smoke.model.autoencoder.dim) == (
        full.model.autoencoder.length,
        full.model.autoencoder.dim,
    )
    assert max(smoke.model.autoencoder.widths) <= 8
    assert smoke.model.prior.width <= 32 and smoke.model.prior.layers <= 2
    assert smoke.examples is not None and smoke.examples <= 256
    for stage, same in ((smoke.pretrain, full.pretrain), (smoke.ordered, full.ordered)):
        assert (stage.epochs, stage.truncation, stage.reduction) == (2, same.truncation, same.reduction)
    assert smoke.prior.epochs == 2


def test_full_is_the_recipe_itself() -> None:
    full = preset("mnist", "paper", (1, 28, 28))
    assert with_scale(full, "full") == full


def test_digits_have_their_own_recipe_and_the_papers() -> None:
    best = preset("digits", None, (1, 28, 28))
    assert (best.recipe, best.model.autoencoder.quantizer.codebook, best.ordered.truncation) == (
        "best",
        "ema",
        Mixture(full=0.25),
    )
    assert preset("digits", "paper", (1, 28, 28)) == preset("digits", "paper", (1, 28, 28))


@pytest.mark.parametrize(("shape", "length"), [((1, 28, 28), 16), ((3, 32, 32), 20), ((3, 64, 64), 40)])
def test_best_is_within_the_papers_code_budget_and_finetunes_the_decoder(shape: tuple[int, int, int], length: int) -> None:
    best, reference = preset("images", "best", shape), preset("images", "paper", shape)
    ours, theirs = best.model.autoencoder, reference.model.autoencoder
    assert ours.length == best.model.prior.length == length <= theirs.length
    assert ours.quantizer.codebook_size == theirs.quantizer.codebook_size
    assert best.finetune is not None and best.finetune.prior_samples > 0
    assert best.training_model.autoencoder.length == {16: 16, 20: 40, 40: 100}[length] <= theirs.length
    assert best.prior.augmentations == {16: 1, 20: 18, 40: 2}[length], (
        "digits are not flipped, and large images are not shifted"
    )
    temperatures = {16: (1.0, 1.0), 20: (0.7, 0.85), 40: (0.8, 0.85)}[length]
    assert (best.model.temperature, best.finetune.prior_temperature) == temperatures, "what docs/deviations.md says"
    is_color = shape[0] == 3
    assert (best.finetune.epochs, best.finetune.conditional_discriminator, best.finetune.global_head) == (
        40 if is_color else 20,
        is_color,
        is_color,
    ), "and this"


def test_image_augmentations_are_limited() -> None:
    best = preset("cifar10", "best", (3, 32, 32))
    replace(best, prior=replace(best.prior, augmentations=18))
    with pytest.raises(UserError, match=r"`prior\.augmentations` is at most 18 for images, not 19"):
        replace(best, prior=replace(best.prior, augmentations=19))
    audio = preset("audiomnist", "best", (1, 15_360))
    replace(audio, prior=replace(audio.prior, augmentations=19))  # each augmentation of a recording is another crop


@pytest.mark.parametrize("shape", [(3, 30, 30), (1, 50, 50), (3, 64, 60)])
def test_sizes_that_do_not_halve_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(UserError, match="`size`"):
        preset("folder", "paper", shape)


@pytest.mark.parametrize("distribution", [Full(), Geometric(p=0.03)])
def test_another_truncation_changes_the_second_stage_only(distribution: Full | Geometric) -> None:
    config = preset("mnist", "paper", (1, 28, 28))
    assert with_truncation(config, distribution) == replace(config, ordered=replace(config.ordered, truncation=distribution))


@pytest.mark.parametrize("seed", [-1, 1 << 63])
def test_a_seed_outside_its_range_is_refused(seed: int) -> None:
    config: RunConfig = preset("mnist", "paper", (1, 28, 28))
    with pytest.raises(UserError, match="`seed`"):
        replace(config, seed=seed)


@pytest.mark.parametrize(
    ("recipe", "name", "shape", "digest"),
    [
        ("paper", "mnist", (1, 28, 28), "af5b8f19ae4a"),
        ("paper", "cifar10", (3, 32, 32), "e44684a7d9fd"),
        ("paper", "celeba", (3, 64, 64), "0b6adef8c339"),
        ("paper", "vctk", (1, 15_360), "5542ab5fbca9"),
        ("original", "cifar10", (3, 32, 32), "113ddf643a92"),
        ("best", "digits", (1, 28, 28), "f49a2209db10"),
        ("best", "mnist", (1, 28, 28), "8eb2e2cf342c"),
        ("best", "cifar10", (3, 32, 32), "11acad70c8f7"),
        ("best", "celeba", (3, 64, 64), "e803eeb76e58"),
        ("best", "vctk", (1, 15_360), "b05047f8243c"),
        ("vae", "cifar10", (3, 32, 32), "671705a7719d"),
        ("pca", "mnist", (1, 28, 28), "cae2931d8021"),
    ],
)
def test_no_value_of_a_preset_changes_unnoticed(recipe: AnyRecipe, name: str, shape: Shape, digest: str) -> None:
    """Whoever changes a value on purpose changes the digest of its configs at all scales, too."""
    configs = [to_dict(build_config(name, recipe, shape, scale)) for scale in ("smoke", "short", "full")]
    assert hashlib.sha256(json.dumps(configs, sort_keys=True).encode()).hexdigest()[:12] == digest


def test_overrides_come_last() -> None:
    settings = {"truncation": "full", "seed": 3, "examples": 64}
    config = build_config("mnist", "paper", (1, 28, 28), "smoke", **settings, overrides=["ordered.epochs=7", "examples=32"])  # type: ignore[arg-type]
    assert isinstance(config, RunConfig)
    assert (config.ordered.truncation, config.ordered.epochs, config.seed, config.examples) == (Full(), 7, 3, 32)


def test_a_gpu_computes_in_bfloat16_but_not_at_smoke_scale() -> None:
    full, smoke = (build_config("mnist", "paper", (1, 28, 28), scale, device="cuda") for scale in ("full", "smoke"))
    assert (full.precision, full.compile, full.graph) == ("bfloat16", True, True)
    assert (smoke.precision, smoke.compile, smoke.graph) == ("float32", False, False)


@pytest.mark.parametrize(
    ("recipe", "option"), [("vae", "prior"), ("vae", "layout"), ("pca", "length"), ("pixels", "truncation")]
)
def test_options_that_do_not_go_with_a_baseline(recipe: AnyRecipe, option: str) -> None:
    values = {"prior": "lstm", "layout": "spatial", "length": 8, "truncation": "full"}
    with pytest.raises(UserError, match=f"`{option}` does not go with `recipe` {recipe}"):
        build_config("mnist", recipe, (1, 28, 28), **{option: values[option]})  # type: ignore[arg-type]
