"""Exact arithmetic: right up to rounding, and the same whatever the order of sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from anytime.compression.exact import PRECISION, SUM_BITS, ExactLinear, ExactNorm, exp, frequencies, quantize, sum_bits


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("width", [3, 320, 1280])
def test_products_are_exact_and_close(width: int) -> None:
    layer, x = ExactLinear(normal(7, width), normal(7, seed=1)), normal(5, width, seed=2)
    given = quantize(x, layer.bits)
    integers = [[int(v) for v in row] for row in given.integers]
    weights = [[int(v) for v in column] for column in layer.weight.T]
    product = [[sum(a * b for a, b in zip(row, w, strict=True)) for w in weights] for row in integers]  # Python's own integers
    assert ((given.integers @ layer.weight) == np.array(product, dtype=np.float64)).all()
    assert max(abs(v) for row in product for v in row) < 1 << 53
    wanted = x @ normal(7, width).T + normal(7, seed=1)
    np.testing.assert_allclose(layer(x), wanted, atol=2e-4 * math.sqrt(width))


def test_the_largest_terms_still_fit() -> None:
    """Every input and weight at its maximum: the sum is the largest there is."""
    width = 1280
    layer = ExactLinear(np.full((1, width), 1.9999999))
    largest = quantize(np.full((1, width), 1.9999999), layer.bits).integers
    assert float((largest @ layer.weight)[0, 0]) == width * int(largest[0, 0]) * int(layer.weight[0, 0])
    assert layer.weight.max() == 2**layer.bits
    assert width * layer.weight.max() ** 2 <= 2**SUM_BITS
    assert 2 * layer.bits <= sum_bits(width)


def test_the_order_of_the_columns_does_not_matter() -> None:
    weight, x, shuffled = normal(50, 400), normal(9, 400, seed=1), np.random.default_rng(2).permutation(400)
    assert (ExactLinear(weight)(x) == ExactLinear(weight[:, shuffled])(x[:, shuffled])).all()
    norm = ExactNorm(np.ones(400), np.zeros(400), 1e-5)
    assert (norm(x)[:, shuffled] == norm(x[:, shuffled])).all()


def test_layer_norm() -> None:
    x, weight, bias = normal(4, 320) * 3 + 1, normal(320, seed=1), normal(320, seed=2)
    wanted = F.layer_norm(*(torch.from_numpy(v) if k != 1 else (320,) for k, v in enumerate((x, None, weight, bias))))  # type: ignore[arg-type]
    np.testing.assert_allclose(ExactNorm(weight, bias, 1e-5)(x), wanted.numpy(), atol=1e-4)
    assert np.isfinite(ExactNorm(weight, bias, 1e-5)(np.zeros((1, 320)))).all()


def test_exponentials() -> None:
    x = -np.linspace(0, 100, 100_001)
    np.testing.assert_allclose(exp(x), np.exp(x), rtol=1e-12)
    assert exp(np.array([0.0]))[0] == 1.0
    assert 0 < exp(np.array([-1e9]))[0] < 1e-300


def test_frequencies_are_a_distribution() -> None:
    logits = normal(20, 1000) * 5
    found = frequencies(logits)
    assert (found.sum(-1) == 1 << PRECISION).all()
    assert found.min() >= 1
    softmax = torch.from_numpy(logits).softmax(-1).numpy()
    np.testing.assert_allclose(found / (1 << PRECISION), softmax, atol=1e-4)
    assert (frequencies(np.zeros((1, 3))) == [[5592406, 5592405, 5592405]]).all(), "the rest goes to the first of equals"
