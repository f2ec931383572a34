"""Exact arithmetic: functions whose result is the same on every machine, at any number of threads and in any batch.

Floating-point sums depend on their order, and the order depends on the machine. Here every sum is over integers that float64
or int64 holds exactly, so that no order matters. Everything else is one correctly rounded operation of IEEE 754 at a time
(+, −, ·, /, √, rint, floor, comparison) on single elements; numpy does not fuse two of its operations into one. `np.exp` is
not correctly rounded, so `exp` is a polynomial of such operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

Array = Float[np.ndarray, "..."]

SUM_BITS = 52
"""Sums stay below 2^52, so that float64 holds every partial sum exactly: it holds all integers up to 2^53."""
PRECISION = 24
"""Bits of the range coder's probabilities: the frequencies of one code add up to 2^24."""
EXP_BITS = 30  # of the largest exponential in `frequencies`
MIN_EXPONENT = -700.0  # exp(-700) is 1e-304, still a normal number
LOG2_E = float.fromhex("0x1.71547652b82fep+0")
LN_2 = float.fromhex("0x1.62e42fefa39efp-1")
TERMS = 13  # of the series of 2^x; the error is below 1e-12 for x in [0, 1)


@dataclass(frozen=True, slots=True)
class Quantized:
    """Rows of integers, each times a power of two."""

    integers: Array  # [..., columns], float64 without a fraction
    scale: Array  # [..., 1], the power of two


def sum_bits(terms: int) -> int:
    """Return the bits that `terms` terms leave for one term of an exact sum.

    >>> sum_bits(320), sum_bits(1)
    (43, 52)
    """
    return SUM_BITS - (terms - 1).bit_length()


def quantize(x: Array, bits: int) -> Quantized:
    """Round each row to integers of at most `bits` bits and a sign, by a power of two of its own."""
    _, exponent = np.frexp(np.abs(x).max(-1, keepdims=True))  # the largest value is below 2^exponent
    return Quantized(np.rint(x * np.ldexp(1.0, bits - exponent)), np.ldexp(1.0, exponent - bits))


class ExactLinear:
    """A linear layer: y = x Wᵀ + b, with inputs and weights rounded to about 20 bits."""

    def __init__(self, weight: Float[np.ndarray, "out in"], bias: Float[np.ndarray, " out"] | None = None) -> None:
        self.bits = sum_bits(weight.shape[1]) // 2
        quantized = quantize(weight.astype(np.float64), self.bits)
        self.weight, self.scale = np.ascontiguousarray(quantized.integers.T), quantized.scale[:, 0]
        self.bias = np.zeros(len(weight)) if bias is None else bias.astype(np.float64)

    def __call__(self, x: Float[np.ndarray, "batch in"]) -> Float[np.ndarray, "batch out"]:
        """Return y. A matrix product of integers in float64 is exact whatever the order of its sums."""
        given = quantize(x, self.bits)
        y: Array = given.integers @ self.weight * given.scale * self.scale + self.bias
        return y


@dataclass(frozen=True, slots=True)
class ExactNorm:
    """A layer norm: y = (x − mean) / √(variance + eps) · weight + bias."""

    weight: Array
    bias: Array
    eps: float

    def __call__(self, x: Float[np.ndarray, "batch width"]) -> Float[np.ndarray, "batch width"]:
        """Return y; with integers X of a row, S = ΣX and V = n ΣX² − S², it is (n X − S) / √(V + n² eps / scale²)."""
        n = x.shape[-1]
        quantized = quantize(x, 31 - (n - 1).bit_length())  # V stays below 2^62
        integers = quantized.integers.astype(np.int64)
        total = integers.sum(-1, keepdims=True)
        variance = n * (integers * integers).sum(-1, keepdims=True) - total * total
        eps = self.eps * (n * n) / (quantized.scale * quantized.scale)
        y: Array = (n * integers - total) / np.sqrt(variance + eps) * self.weight + self.bias
        return y


def exp(x: Array) -> Array:
    """Return e^x for x ≤ 0, with a relative error below 1e-12; below −700 it is e^−700.

    >>> float(exp(np.array([-1.0]))[0])
    0.36787944117...
    """
    exponent = np.maximum(x, MIN_EXPONENT) * LOG2_E
    whole = np.floor(exponent)
    fraction, result = exponent - whole, np.zeros_like(exponent)
    for coefficient in reversed(_series()):
        result = result * fraction + coefficient
    power: Array = np.ldexp(result, whole.astype(np.int32))
    return power


def _series() -> list[float]:
    """Return the coefficients ln(2)^k / k! of 2^x, by multiplications and divisions only."""
    coefficients = [1.0]
    for k in range(1, TERMS):
        coefficients.append(coefficients[-1] * LN_2 / k)
    return coefficients


def frequencies(logits: Float[np.ndarray, "batch codebook_size"]) -> Int[np.ndarray, "batch codebook_size"]:
    """Return softmax(logits) in units of 2^−24: integers of at least 1 that add up to 2^24.

    What rounding leaves over goes to the most probable code.

    >>> frequencies(np.array([[0.0, 0.0, -800.0]]))
    array([[8388608, 8388607,       1]])
    """
    relative = exp(logits - logits.max(-1, keepdims=True))
    weights = np.rint(relative * float(1 << EXP_BITS)).astype(np.int64)
    free = (1 << PRECISION) - logits.shape[-1]
    shares: Int[np.ndarray, "..."] = weights * free // weights.sum(-1, keepdims=True)
    shares[np.arange(len(shares)), weights.argmax(-1)] += free - shares.sum(-1)
    return shares + 1
