from __future__ import annotations

import json
from typing import Any

import pytest

from anytime.server.messages import ModelInfo, Submit
from anytime.server.protocol import (
    DEFAULT_DEADLINE_MS,
    ProblemError,
    RefineRequest,
    SampleRequest,
    code_count,
    find_model,
    parse,
    to_refine,
    to_submit,
)

INFO = ModelInfo(
    name="digits", dataset="mnist", hash="abc", length=8, codebook_size=16, shape=(1, 28, 28), sample_rate=None,
    temperature=1.0, quality=(None, 0.2, 0.5, 0.5, 0.8, 0.9, 0.95, 1.0), step_ms=1.0, decode_ms=1.0, slots=32,
)  # fmt: skip


def submit(**fields: Any) -> Submit:
    return to_submit(SampleRequest(**fields), INFO, 5, 100.0)


def test_defaults() -> None:
    made = submit()
    assert (made.rows, made.prefix, made.codes) == ((0,), ((),), 8)
    assert made.deadline == 100.0 + DEFAULT_DEADLINE_MS / 1000
    assert 0 <= made.seed < 1 << 53
    assert submit().seed != submit().seed, "the server chooses a seed"


def test_a_prefix_is_for_all_rows_or_for_each() -> None:
    assert submit(n=2, prefix=((1, 2),)).prefix == ((1, 2), (1, 2))
    assert submit(n=2, prefix=((1,), (2,))).prefix == ((1,), (2,))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"n": 0}, "n must be between 1 and 32, not 0"),
        ({"n": 10**9}, "n must be between 1 and 32"),
        ({"n": 2, "rows": (1,)}, "rows must have n = 2 numbers"),
        ({"rows": (-1,)}, "rows must be between 0 and"),
        ({"codes": 9}, "codes must be between 1 and 8, not 9"),
        ({"deadline_ms": 0.0}, "deadline_ms must be above 0"),
        ({"deadline_ms": 1e12}, "at most 600000"),
        ({"seed": -1}, "seed must be between 0 and 2^63 - 1"),
        ({"seed": 1 << 64}, "seed must be between 0 and 2^63 - 1"),
        ({"prefix": ((16,),)}, "prefix must have codes of digits: 0 to 15"),
        ({"prefix": ((-1,),)}, "prefix must have codes of digits: 0 to 15"),
        ({"n": 3, "prefix": ((1,), (2,))}, "prefix must have 1 row or 3 rows"),
        ({"n": 2, "prefix": ((1,), (2, 3))}, "of equal length"),
        ({"prefix": ((1, 2, 3),), "codes": 2}, "prefix has 3 codes, more than the 2 requested"),
        ({"temperature": 0.0}, "temperature must be between 0.001 and 100"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1"),
        ({"every": 0}, "every must be between 1 and 8"),
        ({"quality": 0.0}, "quality must be above 0"),
        ({"quality": 0.5, "codes": 3}, "codes and quality both set the length"),
    ],
)
def test_what_is_out_of_range_is_refused_in_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ProblemError) as refused:
        submit(**fields)
    assert refused.value.status == 422
    assert sentence in refused.value.detail


@pytest.mark.parametrize(("quality", "codes"), [(0.1, 2), (0.5, 3), (0.81, 6), (0.95, 7), (1.0, 8)])
def test_a_quality_takes_the_fewest_codes(quality: float, codes: int) -> None:
    assert code_count(None, quality, INFO) == codes


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[" * 60_000, 400),
        (b'{"seed": ' + b"9" * 5000 + b"}", 400),
        (b'{"deadline_ms": NaN}', 400),
        (b'{"deadline_ms": 1' + b"0" * 400 + b"}", 422),
        (b"[]", 422),
        (b"3", 422),
        (b'{"n": "8"}', 422),
        (b'{"n": 1.5}', 422),
        (b'{"n": true}', 422),
        (b'{"nn": 8}', 422),
        (b'{"prefix": [1, 2]}', 422),
        (b'{"model": 3}', 422),
    ],
)
def test_a_broken_body_is_refused_in_one_sentence(body: bytes, status: int) -> None:
    with pytest.raises(ProblemError) as refused:
        parse(body, SampleRequest)
    assert refused.value.status == status
    assert "\n" not in refused.value.detail and len(refused.value.detail) < 500


def test_an_unknown_field_gets_its_nearest_match() -> None:
    with pytest.raises(ProblemError, match="unknown key 'sead'; did you mean 'seed'"):
        parse(json.dumps({"sead": 1}).encode(), SampleRequest)


def test_an_unknown_model_gets_its_nearest_match() -> None:
    assert find_model([INFO], None) is INFO
    with pytest.raises(ProblemError, match="no model 'digit'; did you mean 'digits'"):
        find_model([INFO], "digit")


def test_a_refinement_keeps_seed_rows_and_settings() -> None:
    earlier = submit(n=3, seed=9, temperature=0.5, top_p=0.9)
    given = ((1, 2), (3, 4), (5, 6))
    whole = to_refine(RefineRequest(id="x"), earlier, given, INFO, 6, 200.0)
    assert (whole.rows, whole.prefix, whole.seed, whole.temperature, whole.top_p) == ((0, 1, 2), given, 9, 0.5, 0.9)
    assert whole.continues == 5
    some = to_refine(RefineRequest(id="x", pick=(2, 0), codes=4), earlier, given, INFO, 6, 200.0)
    assert (some.rows, some.prefix, some.codes, some.continues) == ((2, 0), ((5, 6), (1, 2)), 4, None)
    with pytest.raises(ProblemError, match=r"pick names rows that the answer does not have: \[7\]"):
        to_refine(RefineRequest(id="x", pick=(7,)), earlier, given, INFO, 6, 200.0)
    with pytest.raises(ProblemError, match="n must be between"):
        to_refine(RefineRequest(id="x", pick=()), earlier, given, INFO, 6, 200.0)
