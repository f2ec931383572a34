from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anytime.evaluation import code_stats_view
from anytime.evaluation.code_stats_view import code_stats_section, lines, sparkline, stats_from_evaluation
from anytime.metrics.code_stats import CodeStats

FOUND = CodeStats(
    error_examples=500,
    error=[1.0, 0.5, 0.3, 0.2, 0.2, 0.2],
    gain=[0.5, 0.2, 0.1, 0.0, 0.0],
    examples=700,
    entropy=[3.0, 2.5, 2.0, 0.0, 0.0],
    bits=[2.9, 2.0, 1.5, 0.1, 0.1],
    warnings=["codes 4-5 bring <no> gain"],
)


def test_terminal_shows_every_quantity_and_the_warning() -> None:
    gain, entropy, bits, head, *rest, warning = lines(FOUND)
    assert gain.startswith("gain     █▄▂▁▁")
    assert gain.endswith("0.5")
    assert entropy.startswith("entropy")
    assert bits.startswith("bits")
    assert head.split() == ["code", "error", "gain", "entropy", "bits"]
    assert [float(cell) for cell in rest[1].split()] == [2, 0.3, 0.2, 2.5, 2.0]
    assert len(rest) == 5
    assert warning == "warning: codes 4-5 bring <no> gain"
    assert lines(FOUND, smoke=True)[-1] == "usual at smoke scale: codes 4-5 bring <no> gain"


def test_a_run_whose_first_stages_are_not_known_shows_the_bits() -> None:
    bits, head, *rest = lines(CodeStats(examples=3, bits=[2.0, 1.0]))
    assert bits.split()[:2] == ["bits", "█▅"]
    assert head.split() == ["code", "bits"]
    assert len(rest) == 2


def test_long_codes_fit_a_terminal() -> None:
    assert len(sparkline([1.0] * 256)) == 60
    long = [1.0] * 256
    _, _, _, _, *rows, note, _ = lines(replace(FOUND, gain=long, entropy=long, bits=long, error=[1.0, *long]))
    assert [int(row.split()[0]) for row in rows] == [1, 26, 52, 78, 104, 130, 156, 182, 208, 234, 256]
    assert note == "shown: the first code, every multiple of 26, and the last"


def test_negative_gains_are_shown_as_zero() -> None:
    assert sparkline([-1.0, 0.0, 1.0]) == "▁▁█"
    assert sparkline([0.0, 0.0]) == "▁▁"


def test_report_shows_figure_and_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    head, warning, figure = code_stats_section(FOUND)
    assert "<h2>" in head
    assert "codes 4-5 bring &lt;no&gt; gain" in warning
    assert warning.replace("Warning", "Usual at smoke scale") in code_stats_section(FOUND, smoke=True)
    assert "data:image/png" in figure
    monkeypatch.setattr(code_stats_view, "can_plot", lambda: False)
    assert code_stats_section(FOUND) == [head, warning]
    assert code_stats_section(None) == code_stats_section(CodeStats(examples=3, bits=[1.0])) == []


def test_statistics_from_an_evaluation() -> None:
    errors = [1.0, 0.5, 0.3, 0.2999, 0.2998]
    rows: list[dict[str, Any]] = [{"series": "samples", "codes": 1, "fid": 5.0}]
    for codes, error in enumerate(errors):
        gain = errors[codes - 1] - error if codes else None
        rows.append({"series": "error", "codes": codes, "error": error, "gain": gain, "examples": 20})
    rows += [{"series": "bits", "position": i, "bits": 2.0 + i, "entropy": 6.0, "examples": 100} for i in range(1, 5)]
    stats = stats_from_evaluation(rows)
    assert stats is not None and stats.gain is not None
    assert stats.error == errors and len(stats.gain) == 4 and stats.bits == [3.0, 4.0, 5.0, 6.0]
    assert (stats.error_examples, stats.examples) == (20, 100)
    assert stats.warnings == ["codes 3-4 bring no gain: error 0.30000 without them, 0.29980 with them"]
    assert lines(stats)[-1] == f"warning: {stats.warnings[0]}"
    assert stats_from_evaluation(rows[:1]) == stats_from_evaluation([]) is None
