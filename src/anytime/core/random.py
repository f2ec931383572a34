"""Counter-based randomness: every random number is a pure function of integers that name it.

There is no generator and no state, so a number never depends on the caller, the order of calls or the device. Example order,
truncation and sampling noise are all addressed by integers. Arithmetic is on int32 with wrap-around, exact on every device.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

# A 32-bit finaliser found by search for low bias (constants of the public `lowbias32`), as signed int32.
_MULTIPLIERS = (0x7FEB352D, 0x846CA68B - (1 << 32))
_GOLDEN = 0x9E3779B9 - (1 << 32)  # 2^32 / golden ratio: spreads small consecutive integers
_MASK32 = 0xFFFFFFFF  # the bits of a word


def _mix(x: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Mix the bits of each word."""
    return _xor_shift(_xor_shift(_xor_shift(x, 16).mul_(_MULTIPLIERS[0]), 15).mul_(_MULTIPLIERS[1]), 16)


def _xor_shift(x: Int[Tensor, "*shape"], places: int) -> Int[Tensor, "*shape"]:
    """Return x ^ (x >> places) of unsigned words. In place where possible: noise takes a sixth less time."""
    return (x >> places).bitwise_and_((1 << 32 - places) - 1).bitwise_xor_(x)


def _word(value: int) -> int:
    """Return the low 32 bits of `value` as a signed int32."""
    value &= _MASK32
    return value - (1 << 32) if value >= 1 << 31 else value


def _absorb(word: Int[Tensor, "..."], value: int | Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    value = _word(value) if isinstance(value, int) else value.to(torch.int32)
    return _mix((word ^ value) + _GOLDEN)


@lru_cache(maxsize=256)
def key(seed: int) -> tuple[int, int]:
    """Return two int32 words that depend on all 64 bits of the seed in different ways.

    In plain integers: dozens of tensor operations would delay every request.
    """
    low, high = seed & _MASK32, seed >> 32 & _MASK32
    # If `high` were mixed into both in the same way, seeds with the same low ^ high would collide.
    return _word(_absorb_int(low, high)), _word(_absorb_int(low ^ 0x5851F42D, _mix_int(high)))


def _absorb_int(word: int, value: int) -> int:
    """`_absorb` of unsigned words."""
    return _mix_int((word ^ value) + _GOLDEN & _MASK32)


def _mix_int(x: int) -> int:
    """`_mix` of an unsigned word."""
    x = (x ^ x >> 16) * _MULTIPLIERS[0] & _MASK32
    x = (x ^ x >> 15) * _MULTIPLIERS[1] & _MASK32
    return x ^ x >> 16


def bits(seed: int, *counters: int | Int[Tensor, "..."], device: torch.device | None = None) -> Int[Tensor, "..."]:
    """Return 32 random bits (as int32) for each element of the broadcast counters, under a 64-bit `seed`.

    All counters but the last make a 64-bit key, so that streams do not collide among millions of (row, position) pairs. The
    last counter runs inside the stream and costs two mixes per element.
    """
    device = next((c.device for c in counters if isinstance(c, Tensor)), device)
    words = [torch.full((), word, dtype=torch.int32, device=device) for word in key(seed)]
    for word in range(2):
        for counter in counters[:-1]:
            words[word] = _absorb(words[word], counter)
    last = counters[-1]
    last = torch.full((), _word(last), dtype=torch.int32, device=device) if isinstance(last, int) else last.to(torch.int32)
    return _mix(_mix(last * _GOLDEN + words[0]).bitwise_xor_(words[1]))


def uniform(seed: int, *counters: int | Int[Tensor, "..."], device: torch.device | None = None) -> Float[Tensor, "..."]:
    """Return uniform float32 numbers strictly between 0 and 1."""
    # 23 bits: with 24 the largest value plus a half rounds to 1.0 in float32, and log(-log(1)) is not finite.
    mantissa = (bits(seed, *counters, device=device) >> 9).bitwise_and_(0x7FFFFF)
    return mantissa.to(torch.float32).add_(0.5).mul_(2.0**-23)


def normal(seed: int, *counters: int | Int[Tensor, "..."], device: torch.device | None = None) -> Float[Tensor, "..."]:
    """Return unit normal float32 numbers, by the inverse of the distribution function; none is beyond ±5.3."""
    numbers: Tensor = torch.special.ndtri(uniform(seed, *counters, device=device))
    return numbers


def permutation(count: int, seed: int, *counters: int) -> Int[Tensor, " count"]:
    """Return a permutation of `count` indices, a pure function of the seed and the counters."""
    keys = bits(seed, *counters, torch.arange(count, dtype=torch.int32))
    return torch.argsort(keys, stable=True)


def derive(seed: int, *names: int | str) -> int:
    """Return a 63-bit seed for a named purpose, independent of those for other purposes."""
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
