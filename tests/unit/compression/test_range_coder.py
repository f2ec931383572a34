"""The range coder against a reader written from docs/compression.md alone, and the codes that a cut payload determines."""

from __future__ import annotations

import numpy as np
import pytest

from anytime.compression.exact import frequencies
from anytime.compression.range_coder import PrefixDecoder, check_codebook, encode_payload
from anytime.core.errors import UserError

LENGTH, SIZE = 12, 40


def example(seed: int, sharpness: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Codes that follow their tables, as an image's codes do."""
    rng = np.random.default_rng(seed)
    tables = frequencies(rng.normal(size=(LENGTH, SIZE)) * sharpness)
    return np.array([rng.choice(SIZE, p=table / table.sum()) for table in tables]), tables


def decoded(payload: bytes, tables: np.ndarray) -> list[int]:
    decoder = PrefixDecoder(payload, len(tables))
    found = [decoder.next(table) for table in tables]
    assert None not in found or set(found[found.index(None) :]) == {None}, "nothing follows a code that is not determined"
    return [code for code in found if code is not None]


def interval(codes: list[int], tables: np.ndarray) -> tuple[int, int, int]:
    """Return lower end, width and binary digits of the interval of some codes, in Python's integers."""
    low, width, digits = 0, (1 << 64) - 1, 64
    for code, table in zip(codes, tables, strict=False):
        scale = width >> 24
        low, width = low + scale * int(table[:code].sum()), scale * int(table[code])
        if width < 1 << 32:
            low, width, digits = low << 32, width << 32, digits + 32
    return low, width, digits


def lies_within(payload: bytes, codes: list[int], tables: np.ndarray) -> bool:
    """Return whether every continuation of the payload lies in the interval of the codes."""
    low, width, digits = interval(codes, tables)
    shift = max(0, 8 * len(payload) - digits)  # to the finer of the two units
    unit = digits + shift - 8 * len(payload)
    first = int.from_bytes(payload) << unit
    return low << shift <= first and first + (1 << unit) <= (low + width) << shift


@pytest.mark.parametrize("sharpness", [0.0, 3.0, 30.0])
def test_payloads_by_the_definition(sharpness: float) -> None:
    """The payload lies in the codes' interval, no shorter one does, and each cut gives exactly the codes it lies in."""
    for seed in range(20):
        codes, tables = example(seed, sharpness)
        payload = encode_payload(codes, tables)
        assert lies_within(payload, codes.tolist(), tables)
        for cut in range(len(payload) + 1):
            found = decoded(payload[:cut], tables)
            wanted = next(n for n in range(LENGTH, -1, -1) if n == 0 or lies_within(payload[:cut], codes[:n].tolist(), tables))
            assert found == codes[:wanted].tolist()
        assert not any(
            lies_within(candidate.to_bytes(len(payload) - 1), codes.tolist(), tables)
            for near in [int.from_bytes(payload[:-1])]
            for candidate in range(max(0, near - 2), min(near + 3, 1 << 8 * (len(payload) - 1)))
            if payload
        )


def test_every_continuation_decodes_to_the_determined_codes() -> None:
    rng = np.random.default_rng(0)
    for seed in range(10):
        codes, tables = example(seed)
        payload = encode_payload(codes, tables)
        for cut in range(len(payload) + 1):
            found = decoded(payload[:cut], tables)
            for tail in (b"", b"\0" * 60, b"\xff" * 60, rng.bytes(3), rng.bytes(60)):
                assert decoded(payload[:cut] + tail, tables)[: len(found)] == found


def test_more_bytes_never_determine_fewer_codes() -> None:
    codes, tables = example(3)
    payload = encode_payload(codes, tables)
    counts = [len(decoded(payload[:cut], tables)) for cut in range(len(payload) + 1)]
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] == LENGTH
    assert decoded(payload + b"rest", tables) == codes.tolist()


def test_extreme_codes() -> None:
    """The least and the most probable codes, at the lowest and the highest end of the interval."""
    tables = frequencies(np.where(np.arange(SIZE) == SIZE - 1, 0.0, -800.0)[None].repeat(LENGTH, 0))
    for code, size in ((0, 3 * LENGTH), (SIZE - 1, 1), (SIZE - 2, 3 * LENGTH)):
        codes = np.full(LENGTH, code)
        payload = encode_payload(codes, tables)
        assert decoded(payload, tables) == codes.tolist()
        assert abs(len(payload) - size) <= 2


def test_any_bytes_decode_to_some_codes() -> None:
    _, tables = example(0)
    rng = np.random.default_rng(1)
    for payload in (b"", b"\xff" * 100, b"\0" * 100, *(rng.bytes(int(n)) for n in rng.integers(0, 60, 300))):
        assert all(0 <= code < SIZE for code in decoded(payload, tables))


@pytest.mark.parametrize("size", [1, (1 << 20) + 1])
def test_codebooks_without_probabilities(size: int) -> None:
    with pytest.raises(UserError, match="codebook of 2 to"):
        check_codebook(size)
