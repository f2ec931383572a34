"""Tables of exported models: what other programs decided is not shown as a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anytime.core.storage import write_json
from measure_export import LIBRARY
from pages import export


def row(series: str, threads: int, step: float, slowdown: float) -> dict[str, Any]:
    times = {"request_ms": 10 * step, "request_p50_ms": 10 * step * slowdown, "step_ms": step, "step_speedup": 4.0 / step}
    return {"series": series, "threads": threads, "batch": 1, **times}


def test_spoilt_times_are_dashes_and_have_no_ratio(tmp_path: Path) -> None:
    rows = [row(series, 1, step, 1.5) for series, step in (("eager", 4.0), ("compiled", 2.0), ("onnx", 1.0))]
    rows += [row("aoti", 1, 3.0, 3.5), row("eager", 2, 4.0, 9.0), row("compiled", 2, 2.0, 9.0)]
    rows += [row("onnx", 2, 1.0, 1.5), row("aoti", 2, 3.0, 1.5)]
    write_json(tmp_path / export.FOLDER / "mnist.json", {"rows": rows})
    one, two = export.steps(tmp_path).splitlines()[2:]
    assert one == "| mnist | 1 | 1 | 4.00 ms | 2.00 ms (2.00 ×) | 1.00 ms (4.00 ×) | – |"
    assert two == "| mnist | 2 | 1 | – | – | 1.00 ms | 3.00 ms |"


def test_a_table_has_the_engines_that_were_measured(tmp_path: Path) -> None:
    """A new measurement has other engines than an older one, which stays beside it."""
    for model, engine in (("mnist", "compiled"), ("cifar10", LIBRARY[1])):
        rows = [row(series, 1, step, 1.5) for series, step in (("eager", 4.0), (engine, 2.0), ("onnx", 1.0), ("aoti", 3.0))]
        write_json(tmp_path / export.FOLDER / f"{model}.json", {"rows": rows})
    header, _, old, new = export.steps(tmp_path).splitlines()
    assert header.count("engine `compiled`") == header.count(f"engine `{LIBRARY[1]}`") == 1
    assert old == "| mnist | 1 | 1 | 4.00 ms | 2.00 ms (2.00 ×) | – | 1.00 ms (4.00 ×) | 3.00 ms (1.33 ×) |"
    assert new == "| cifar10 | 1 | 1 | 4.00 ms | – | 2.00 ms (2.00 ×) | 1.00 ms (4.00 ×) | 3.00 ms (1.33 ×) |"
