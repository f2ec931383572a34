"""The generated parts of README and docs are up to date, and every table of figures is generated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import build_docs
from anytime.cli import VERBS
from anytime.core.errors import UserError
from pages import reference, tables
from pages.markdown import table

ROOT = build_docs.ROOT
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GENERATED = ("results.md", "choices.md", "reference.md")


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
    names = {match["name"] for page in PAGES for match in tables.MARKED.finditer(page.read_text(encoding="utf-8"))}
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
