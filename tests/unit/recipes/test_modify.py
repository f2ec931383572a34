from __future__ import annotations

from dataclasses import replace

import pytest

from anytime.autoencoders.truncation import Full
from anytime.core.errors import UserError
from anytime.model import ModelConfig
from anytime.priors import parameter_count
from anytime.priors.lstm import LSTMConfig
from anytime.priors.pixelcnn import PixelCNNConfig
from anytime.priors.transformer import TransformerConfig
from anytime.recipes.modify import with_layout, with_length, with_prior, with_scale, with_truncation
from anytime.recipes.presets import preset

CIFAR = preset("cifar10", "paper", (3, 32, 32))


def test_the_lstm_has_the_transformers_size_and_schedule() -> None:
    config = with_prior(CIFAR, "lstm")
    prior = config.model.prior
    assert isinstance(prior, LSTMConfig)
    assert (prior.length, prior.codebook_size, prior.layers, prior.dropout) == (70, 1000, 3, 0.1)
    assert abs(parameter_count(prior) / parameter_count(CIFAR.model.prior) - 1) < 0.01
    assert replace(config, model=CIFAR.model) == CIFAR


@pytest.mark.parametrize(("shape", "side"), [((1, 28, 28), 4), ((3, 32, 32), 9), ((3, 64, 64), 10)])
def test_the_pixelcnn_has_the_smallest_square_that_holds_the_codes(shape: tuple[int, int, int], side: int) -> None:
    config = preset("any", "paper", shape)
    other = with_prior(config, "pixelcnn")
    length, codebook_size = config.model.autoencoder.length, config.model.autoencoder.quantizer.codebook_size
    expected = PixelCNNConfig(length=length, codebook_size=codebook_size, side=side, dropout=0.1)
    assert isinstance(other.model.prior, PixelCNNConfig)
    assert replace(other.model.prior, width=expected.width) == expected
    assert replace(other, model=config.model) == config, "the Transformer's optimiser and schedule"


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64)])
def test_the_pixelcnn_has_the_transformers_number_of_weights(shape: tuple[int, int, int]) -> None:
    config = preset("any", "paper", shape)
    other = with_prior(config, "pixelcnn")
    assert abs(parameter_count(other.model.prior) / parameter_count(config.model.prior) - 1) < 0.05


def test_a_recipes_own_prior_changes_nothing() -> None:
    assert with_prior(CIFAR, "transformer") == CIFAR
    baseline = preset("cifar10", "original", (3, 32, 32))
    assert with_prior(baseline, "pixelcnn") == baseline
    assert with_prior(baseline, "transformer").model.prior == TransformerConfig(length=64, codebook_size=512)
    assert with_prior(baseline, "transformer").prior == CIFAR.prior


def test_the_lstm_of_a_small_recipe_is_small() -> None:
    digits = preset("digits", "best", (1, 28, 28))
    assert abs(parameter_count(with_prior(digits, "lstm").model.prior) / parameter_count(digits.model.prior) - 1) < 0.05


@pytest.mark.parametrize("length", [14, 28, 42, 56, 70])
def test_tailored_models_differ_in_their_length_alone(length: int) -> None:
    config = with_truncation(with_length(CIFAR, length), Full())
    old, new = CIFAR.model, config.model
    assert new == replace(old, autoencoder=replace(old.autoencoder, length=length), prior=replace(old.prior, length=length))
    assert replace(config, model=old, ordered=CIFAR.ordered) == CIFAR


def test_the_square_follows_the_length() -> None:
    prior = with_length(with_prior(CIFAR, "pixelcnn"), 14).model.prior
    assert isinstance(prior, PixelCNNConfig)
    assert (prior.length, prior.side) == (14, 4)


def test_a_length_that_cannot_be() -> None:
    with pytest.raises(UserError, match="`length` must be at least 1, not 0"):
        with_length(CIFAR, 0)
    for config in (preset("cifar10", "original", (3, 32, 32)), with_layout(CIFAR, "spatial")):
        with pytest.raises(UserError, match=r"`length` 14 cannot be: .* channel-wise"):
            with_length(config, 14)


def test_a_prior_of_another_length_is_refused() -> None:
    with pytest.raises(UserError, match="prior models 14 codes of 1000, the autoencoder makes 70 of 1000"):
        ModelConfig(name="any", autoencoder=CIFAR.model.autoencoder, prior=with_length(CIFAR, 14).model.prior)


def test_smoke_shrinks_every_kind_of_prior() -> None:
    for prior_type in ("transformer", "lstm", "pixelcnn"):
        prior = with_scale(with_prior(CIFAR, prior_type), "smoke").model.prior
        assert parameter_count(prior) < 1e5
        assert prior.length == 70
