"""Range coding of codes, and decoding of a payload that was cut at any byte.

The coder is `constriction`'s range coder: a queue, so that the first bytes hold the first codes. It computes with words of 32
bits. The payload holds them with the most significant byte first, so that its bytes are the digits of one number in [0, 1) to
the base 256: each code narrows an interval, and the number lies in the last one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int

from anytime.compression.exact import PRECISION
from anytime.core.errors import UserError

WORD = np.dtype(">u4")
STATE_BYTES = 8
"""The decoder looks at 64 bits at a time."""
BYTES_PER_CODE = PRECISION // 8
"""The most that one code adds: its probability is at least 2^−24."""


def max_payload(length: int) -> int:
    """Return the bytes of a payload that decide about `length` codes; later ones are not looked at."""
    return length * BYTES_PER_CODE + 2 * STATE_BYTES


def encode_payload(codes: Int[np.ndarray, " length"], tables: Int[np.ndarray, "length codebook_size"]) -> bytes:
    """Return the shortest bytes that determine all codes, given the frequencies of each position."""
    encoder = _constriction().stream.queue.RangeEncoder()
    encoder.encode(codes.astype(np.int32), _family(), _as_floats(tables))
    return _shortest(encoder.get_compressed().astype(WORD).tobytes(), codes, tables)


def _shortest(sealed: bytes, codes: Int[np.ndarray, " length"], tables: Int[np.ndarray, "length codebook_size"]) -> bytes:
    """Return the shortest payload for the interval that holds the number `sealed`.

    n bytes stand for all numbers that begin with them, an interval of 256^−n. If one of these lies inside the interval of the
    codes, then so does one that holds `sealed` or is next to it, because an interval has no gaps: three candidates for every n.
    """
    size = len(codes) * PRECISION // 8 + STATE_BYTES + len(sealed)
    point = int.from_bytes(sealed.ljust(size, b"\0"))
    bits = PRECISION * len(codes) - float(np.log2(tables[np.arange(len(codes)), codes]).sum())
    for count in range(max(0, int(bits // 8) - 1), size + 1):
        first = point >> 8 * (size - count)
        for candidate in (first, first + 1, first - 1):
            if 0 <= candidate < 1 << 8 * count and _determines(payload := candidate.to_bytes(count), codes, tables):
                return payload
    raise AssertionError("the sealed words of the range coder determine all codes")


def _determines(payload: bytes, codes: Int[np.ndarray, " length"], tables: Int[np.ndarray, "length codebook_size"]) -> bool:
    decoder = PrefixDecoder(payload, len(codes))
    return all(decoder.next(table) == code for code, table in zip(codes.tolist(), tables, strict=True))


class PrefixDecoder:
    """Decodes the codes that a payload determines: those that every continuation of its bytes decodes to.

    The continuations of n bytes are the numbers between the bytes followed by zeros and the bytes followed by 0xFF. Two
    decoders read these two ends. While they agree they have the same interval, and within one interval a larger number never
    has a smaller code: its quantile (number − lower end) / scale is not smaller, and neither is the code at that quantile. So
    where both ends decode to the same code, all numbers between do too. Where they differ, or an end lies in the part of the
    interval that rounding leaves unused, the next code is not determined, and neither is any later one.
    """

    def __init__(self, payload: bytes, length: int) -> None:
        size = -(-max_payload(length) // WORD.itemsize) * WORD.itemsize
        given, decoder = payload[:size], _constriction().stream.queue.RangeDecoder
        # The decoder itself continues with zeros only.
        self._ends = [decoder(np.frombuffer(given.ljust(size, pad), WORD).astype(np.uint32)) for pad in (b"\0", b"\xff")]
        self.is_exhausted = False

    def next(self, table: Int[np.ndarray, " codebook_size"]) -> int | None:
        """Return the next code, given its frequencies, or None if the payload does not determine it."""
        if self.is_exhausted:
            return None
        family, frequencies = _family(), _as_floats(table[None])
        try:
            lowest, highest = (int(end.decode(family, frequencies)[0]) for end in self._ends)
        except AssertionError:  # constriction's "invalid data": a number in the unused part of the interval
            lowest, highest = 0, -1
        self.is_exhausted = lowest != highest
        return None if self.is_exhausted else lowest


def check_codebook(codebook_size: int) -> None:
    """Refuse codebooks that the range coder has no probabilities for."""
    if not 2 <= codebook_size <= 1 << 20:  # above, most of 2^24 would go to the minimum frequency of 1
        raise UserError(f"a file needs a codebook of 2 to {1 << 20:,} entries, not {codebook_size:,}; choose another model")


def _as_floats(tables: Int[np.ndarray, "length codebook_size"]) -> Any:
    """Return what makes constriction use exactly these frequencies.

    It multiplies by (2^24 − entries) / sum, rounds cumulative sums down and adds 1 to each entry. Frequencies less 1 add up to
    2^24 − entries: the factor is 1 and nothing is rounded.
    """
    return (tables - 1).astype(np.float64)


def _family() -> Any:
    return _constriction().stream.model.Categorical(perfect=False)


def _constriction() -> Any:
    """Import the package where it is used: it is the optional extra `compression`."""
    try:
        import constriction
    except ImportError:
        raise UserError("compressed files need the package constriction; install it with `pip install constriction`") from None
    return constriction
