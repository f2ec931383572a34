"""The generated parts of README and docs are up to date, and every table of figures is generated."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import build_docs
from anytime.cli import VERBS
from anytime.core.errors import UserError
from pages import reference, tables
from pages.markdown import table

ROOT = build_docs.ROOT
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GENERATED = ("results.md", "paper.md", "choices.md", "reference.md")


def test_all_pages_are_up_to_date() -> None:
    assert [str(path.relative_to(ROOT)) for path in build_docs.outdated()] == [], "run `make docs`"


@pytest.mark.parametrize("page", [path for path in PAGES if path.name not in GENERATED], ids=lambda path: path.name)
def test_every_table_of_figures_is_generated(page: Path) -> None:
    assert tables.unmarked_figures(page.read_text(encoding="utf-8")) == [], (
        "put the numbers in JSON and the table in scripts/pages"
    )


def test_a_marked_table_is_replaced_and_the_rest_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tables.TABLES, "example", lambda root: table(["codes", "FID"], [["20", "28.9"]]))
    text = "before\n\n<!-- table: example -->\n| codes | FID |\n|---|---|\n| 20 | 30.0 |\n<!-- end -->\n\nafter\n"
    filled = tables.fill(text, ROOT)
    assert filled == text.replace("30.0", "28.9")
    assert tables.fill(filled, ROOT) == filled


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(UserError, match="there is no table 'bundle'"):
        tables.fill("<!-- table: bundle -->\n<!-- end -->\n", ROOT)


def test_every_table_is_used() -> None:
    names = {
        match["name"]
        for page in [*PAGES, ROOT / "SECURITY.md"]
        for match in tables.MARKED.finditer(page.read_text(encoding="utf-8"))
    }
    assert names == tables.TABLES.keys()


@pytest.mark.parametrize(
    ("cell", "is_figure"), [("28.9", True), ("51.3 %", True), ("−0.2", True), ("–", False), ("Fig. 2", False)]
)
def test_figures_outside_markers_are_found(cell: str, is_figure: bool) -> None:
    line = f"| FID | {cell} |"
    assert tables.unmarked_figures(f"| a | b |\n|---|---|\n{line}\n") == ([line] if is_figure else [])


def test_the_reference_names_every_verb_and_option() -> None:
    text = reference.page(ROOT)
    for verb in VERBS:
        assert f"### anytime {verb}\n" in text
    for option in ("`--within TIME`", "`--reuse RUN`", "`-n/--n N`", "`MODEL`"):
        assert f"| {option} |" in text
    assert "|  |\n" not in text.partition("## Python")[0], "an option without a meaning"
    assert "| `sampling/budget.py` |" in text
    assert "### anytime.AnytimeModel" in text


def test_results_without_a_figure_are_found(tmp_path: Path) -> None:
    (tmp_path / "fid").mkdir()
    (tmp_path / "fid" / "cifar10.json").write_text("{}")
    assert build_docs.missing_figures(tmp_path) == [tmp_path / "fid" / "cifar10.json"]
    (tmp_path / "fid" / "cifar10.png").write_bytes(b"")
    assert build_docs.missing_figures(tmp_path) == []


def test_the_figures_in_the_readme_s_text_are_those_of_its_table() -> None:
    text = tables.MARKED.sub("", (ROOT / "README.md").read_text(encoding="utf-8"))
    (sentence,) = re.findall(r"has FID ([\d.]+) by the paper's recipe and ([\d.]+) by ours", text)
    rows = tables.build("bundled", ROOT).splitlines()
    assert [row.split(" | ")[-1].rstrip(" |") for row in rows if "CIFAR-10" in row] == list(sentence)


def sampling_record(root: Path, name: str, rows: list[dict[str, Any]]) -> None:
    path = root / f"benchmarks/results/sampling/{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"environment": {"hardware": "CPU, 2 threads"}, "rows": rows}))


def speed(series: str, batch: int, p50: float, times_roofline: float = 4.0) -> dict[str, Any]:
    return {"series": series, "batch": batch, "fraction": 1.0, "p50": p50, "times_roofline": times_roofline}


def test_cpu_engines_stand_beside_huggingface_at_its_fastest(tmp_path: Path) -> None:
    rows = [
        speed("anytime packed fp32", 1, 1.0),
        speed("anytime packed fp32", 100, 8.0),
        speed("anytime onnx fp32", 1, 0.5, 0.8),
    ]
    rows += [speed("huggingface static fp32", 1, 3.0), speed("huggingface dynamic bf16", 1, 2.5)]
    rows += [{"series": "start-up", "batch": 1, "codes": 70, "seconds": 0.345}]
    sampling_record(tmp_path, "cifar10-cpu", rows)
    sampling_record(tmp_path, "cifar10-best-cpu", [])
    sampling_record(tmp_path, "mnist-best-cpu", [])
    _, _, packed, onnx = tables.build("cpu", tmp_path).splitlines()
    assert packed.endswith("| anytime packed fp32 | 2.50 | 25 % | – | 25 % | 0.34 |")
    assert onnx.endswith("| anytime onnx fp32 | 5.00 | 125 % | – | – | – |")


@pytest.mark.parametrize(("engine", "said"), [("packed", False), ("compiled", True)])
def test_a_record_of_an_engine_that_is_gone_says_so(tmp_path: Path, engine: str, said: bool) -> None:
    sampling_record(tmp_path, "cifar10-cuda", [speed("anytime cuda bf16", 1, 1.0)])
    sampling_record(tmp_path, "cifar10-cpu", [speed(f"anytime {engine} fp32", 1, 1.0)])
    assert tables.build("engines", tmp_path).endswith("to be measured again: `compiled`.") is said
