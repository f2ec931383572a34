from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anytime.core.errors import UserError
from anytime.sampling.quality_table import FILE, QualityRow, QualityTable, lines, read_table, write_table


def table(errors: list[float], fids: dict[int, float] | None = None, model: str = "a" * 64) -> QualityTable:
    """Build a table with a row for every number of codes, and FID and latency where given."""
    rows = tuple(
        QualityRow(
            codes=codes,
            fraction=codes / len(errors),
            error=error,
            fid=(fids or {}).get(codes),
            latency_ms=1.5 * codes if codes in (fids or {}) else None,
        )
        for codes, error in enumerate(errors, start=1)
    )
    return QualityTable(
        model=model, scale="full", rows=rows, data="strokes", examples=2000, samples=50_000, batch=100,
        engine="eager", hardware="a machine", date="2026-11-15",
    )  # fmt: skip


FALLING = [1.0, 0.5, 0.25, 0.2, 0.16]


def test_quality_is_relative_to_the_best() -> None:
    """Within 1/0.8 of the least error, and so on."""
    found = table(FALLING)
    assert found.metric == "error"
    assert [found.codes_for(quality) for quality in (0.01, 0.16, 0.17, 0.32, 0.6, 0.64, 0.8, 0.81, 1.0)] == [
        1, 1, 2, 2, 3, 3, 4, 5, 5,
    ]  # fmt: skip


def test_fid_is_used_if_it_was_measured() -> None:
    """Linear between measured lengths: quality 0.95 allows FID 94.7, reached between 2 and 4 codes."""
    found = table([0.1] * 10, {2: 120.0, 4: 94.0, 6: 91.0, 10: 90.0})
    assert found.metric == "fid"
    assert found.codes_for(0.95) == 4
    assert found.codes_for(90 / 107) == 3, "halfway from 120 to 94"
    assert found.codes_for(90 / 106.9) == 4
    assert found.codes_for(0.2) == 2, "fewer codes were not measured"
    assert found.codes_for(0.999) == 10
    assert found.at(5) == pytest.approx(92.5)
    assert found.explain(0.95) == "quality 0.95 takes 4 of 10 codes (FID about 94, at best 90)"


def test_fid_without_that_of_all_codes_is_not_used() -> None:
    assert table(FALLING, {1: 90.0, 4: 80.0}).metric == "error"
    assert table(FALLING, {5: 80.0}).metric == "error", "one length is not enough"


def test_harmful_last_codes_are_used_at_quality_1_only() -> None:
    found = table([0.1] * 10, {2: 66.8, 4: 55.9, 6: 59.1, 8: 61.2, 10: 64.8})
    assert found.codes_for(0.999999) == 4
    assert found.codes_for(1.0) == 10


def test_an_error_of_0() -> None:
    assert table([0.5, 0.0, 0.0]).codes_for(0.9) == 2
    assert table([0.0, 0.0]).codes_for(0.9) == 1
    assert table([0.3]).codes_for(0.9) == 1


@given(
    st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=20),
    st.lists(st.floats(1e-3, 1), min_size=2, max_size=6),
)
def test_higher_quality_never_takes_fewer_codes(errors: list[float], wanted: list[float]) -> None:
    found = table(errors)
    chosen = [found.codes_for(quality) for quality in sorted(wanted)]
    assert chosen == sorted(chosen)
    assert all(1 <= codes <= len(errors) for codes in chosen)
    assert found.codes_for(1.0) == len(errors)
    for quality in wanted:
        assert min(errors) / found.at(found.codes_for(quality)) >= quality * (1 - 1e-6), "the quality requested"


def test_a_table_is_written_and_read(tmp_path: Path) -> None:
    found = table(FALLING, {2: 120.0, 5: 90.0})
    assert read_table(tmp_path, found.model) is None
    assert write_table(tmp_path, found) == tmp_path / FILE
    assert read_table(tmp_path, found.model) == found


def test_a_table_of_another_model_is_refused(tmp_path: Path) -> None:
    write_table(tmp_path, table(FALLING))
    with pytest.raises(
        UserError, match=r"quality.json is the quality table of another model \(aaaaaaaaaaaa…, this is bbbbbbbbbbbb…\)"
    ):
        read_table(tmp_path, "b" * 64)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda data: data["rows"].pop(1), "a row for every number of codes"),
        (lambda data: data["rows"].clear(), "a row for every number of codes"),
        (lambda data: data["rows"][2].update(error=math.nan), "finite"),
        (lambda data: data["rows"][2].update(colour="blue"), "unknown key 'colour'"),
        (lambda data: data.pop("hardware"), "lacks the key 'hardware'"),
        (lambda data: data.update(format=2), "format 2"),
    ],
)
def test_an_invalid_table_is_refused(change: object, named: str, tmp_path: Path) -> None:
    found = table(FALLING)
    path = write_table(tmp_path, found)
    data = json.loads(path.read_text())
    change(data)  # type: ignore[operator]
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match=named):
        read_table(tmp_path, found.model)


def test_the_table_for_a_terminal() -> None:
    first, head, *rest = lines(table(FALLING, {2: 120.0, 5: 90.0}))
    assert "FID of 50,000 samples" in first
    assert head.split() == ["fraction", "codes", "quality", "error", "fid", "ms"]
    assert [line.split() for line in rest] == [
        ["0.40", "2", "0.750", "0.50000", "120.00", "3.0"],
        ["1.00", "5", "1.000", "0.16000", "90.00", "7.5"],
    ]
    by_error = table(FALLING)
    timed = replace(by_error, rows=tuple(replace(row, latency_ms=2.0) for row in by_error.rows))
    assert [line.split()[2] for line in lines(timed)[2:]] == ["0.160", "0.320", "0.640", "0.800", "1.000"]
