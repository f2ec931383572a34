"""README and docs name only commands, options, make targets and files that exist; README's and the tutorial's are run."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import anytime
from anytime.cli import VERBS
from anytime.cli.options import parse

ROOT = Path(anytime.__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = ("anytime", ".venv/bin/anytime")
EXPECTED = {
    "README.md": (
        "digits.png",
        "refining.gif",
        "images.png",
        "runs/mnist-paper/evaluation/report.html",
        "results/theorem/discrete.png",
    ),
    "docs/tutorial.md": ("quarter.png", "full.png", "deadline.png", "sharpening.gif", "chosen.png", "alike.png", "good.png"),
}


def commands(page: Path) -> list[list[str]]:
    """Return every line of the page's shell blocks as words."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def python(page: Path) -> str:
    """Return the page's one Python block."""
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return str(block)


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., object], once: Callable[..., Path]) -> Path:
    """An empty working directory with runs/digits, trained at smoke scale."""

    def train(folder: Path) -> None:
        outcome = run_cli("train", "digits", "--scale", "smoke", "--out", folder)
        assert outcome.status == 0, outcome.err  # type: ignore[attr-defined]

    run = once("demo", train)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "digits").symlink_to(run)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", EXPECTED)
def test_the_commands_work_as_written(name: str, workdir: Path, run_cli: Callable[..., object]) -> None:
    # A server does not end by itself; tests/smoke/test_server.py runs it, and the commands of its page.
    verbs = [words for words in commands(ROOT / name) if words[0] in COMMAND and words[1] != "serve"]
    assert len(verbs) >= 7
    for _, verb, *rest in verbs:
        # Real schedules take hours on a CPU; smoke scale parses the same options and runs the same stages.
        scale = [] if verb not in ("train", "evaluate", "reproduce") or "smoke" in rest else ["--scale", "smoke"]
        outcome = run_cli(verb, *rest, *scale)
        assert outcome.status == 0, (verb, rest, outcome.err)  # type: ignore[attr-defined]
    for file in EXPECTED[name]:
        assert (workdir / file).stat().st_size > 0


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.filterwarnings("ignore::anytime.sampling.budget.DeadlineWarning")  # 20 ms may be too little for a busy machine
def test_the_python_works_as_written(name: str, workdir: Path) -> None:
    exec(compile(python(ROOT / name), name, "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_exists(page: Path) -> None:
    for words in commands(page):
        if words[0] in COMMAND and words[1] in VERBS:
            module = importlib.import_module(f"anytime.cli.{words[1]}")
            parse(module.Arguments, words[2:], f"anytime {words[1]}", VERBS[words[1]])
        elif words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE), words
        elif words[0] in ("python", ".venv/bin/python"):
            assert (ROOT / words[1]).is_file(), words
        else:
            assert words[0] in ("torchrun", "pip", ".venv/bin/pip", "until", "ANYTIME_CIFAR10=DIR", "curl", "ray"), words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_and_link_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / link).exists(), f"{page.name} points at {link}"
    for path in re.findall(r"`((?:[\w-]+/)+[\w.-]*\.py|(?:src|tests|scripts|benchmarks|results|docs)/[a-z0-9./_-]+)`", text):
        assert (ROOT / path).exists() or (ROOT / "src" / "anytime" / path).exists(), f"{page.name} names {path}"
