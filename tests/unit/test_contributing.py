"""The files for contributors name targets, tools and versions that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import anytime

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, flags=re.MULTILINE))
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_workflow_runs_the_targets_of_a_release_on_two_pythons() -> None:
    job = read(".github/workflows/check.yml")["jobs"]["check"]
    made = [step["run"].removeprefix("make ") for step in job["steps"] if "run" in step]
    (release,) = re.findall(r"^release: (.*)", MAKEFILE, flags=re.MULTILINE)
    assert made == release.split()
    assert set(made) <= TARGETS
    assert "TORCH_SOURCE" in job["env"] and "TORCH_SOURCE ?=" in MAKEFILE
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12"]


def test_pre_commit_runs_the_tools_of_make_lint_and_make_types() -> None:
    (repository,) = read(".pre-commit-config.yaml")["repos"]
    tools = {hook["entry"].partition(" --")[0].replace(".venv/bin/", "$(BIN)/") for hook in repository["hooks"]}
    assert tools == {"$(BIN)/ruff check", "$(BIN)/ruff format", "$(BIN)/mypy"}
    assert all(tool in MAKEFILE for tool in tools)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_issue_templates_are_forms(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= form.keys()
    assert len({field["id"] for field in form["body"]}) == len(form["body"])
    assert all(field["type"] == "textarea" and field["attributes"]["label"] for field in form["body"])


def test_templates_are_there() -> None:
    assert [path.stem for path in TEMPLATES] == ["bug", "idea"]
    text = (ROOT / ".github" / "pull_request_template.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`make ([a-z-]+)`", text)) <= TARGETS


def test_one_version_everywhere() -> None:
    """The release steps in CONTRIBUTING.md name these three files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == anytime.__version__ == read("CITATION.cff")["version"]
