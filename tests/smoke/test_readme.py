"""README and docs name only commands, options, make targets and files that exist; those of README and guides are run."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Callable
from itertools import dropwhile
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

import anytime
from anytime.cli import VERBS
from anytime.cli.options import parse

ROOT = Path(anytime.__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = ("anytime", ".venv/bin/anytime")
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=.*")
"""An environment variable in front of a command."""
EXPECTED = {
    "README.md": (
        "digits.png",
        "refining.gif",
        "images.png",
        "photo.png",
        "runs/mnist-paper/evaluation/report.html",
        "runs/results/theorem/discrete.png",
    ),
    "docs/tutorial.md": ("quarter.png", "full.png", "deadline.png", "sharpening.gif", "chosen.png", "alike.png", "good.png"),
    "docs/index.md": ("digits.png", "refining.gif", "images.png"),
    "docs/deadlines.md": ("deadline.png", "both.png"),
    "docs/refine.md": ("drafts.png", "chosen.png", "alike.png"),
}
"""Pages whose commands and Python are run, and files that the commands write."""
OWN_DATA = {
    "docs/own-images.md": ("runs/photos/report.html", "new.png", "sharpening.gif", "back/1.png", "bundled.png"),
    "docs/own-audio.md": ("runs/speech/report.html", "clip-0001.wav", "quarter.png", "back/0.wav", "finer-0003.wav"),
}
"""Pages that train on `photos` or `recordings`, and files that their commands and their Python write."""


def commands(page: Path) -> list[list[str]]:
    """Return every line of the page's shell blocks as words."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def python(page: Path) -> str:
    """Return the page's Python blocks as one program."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks
    return "\n".join(blocks)


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


def run_commands(name: str, run_cli: Callable[..., object]) -> None:
    """Run the commands of a page in the working directory."""
    # A server does not end by itself; tests/smoke/test_server.py runs it, and the commands of its page.
    verbs = [words for words in commands(ROOT / name) if words[0] in COMMAND and words[1] != "serve"]
    assert len(verbs) >= 2
    for _, verb, *rest in verbs:
        # Real schedules take hours on a CPU; smoke scale parses the same options and runs the same stages.
        scale = [] if verb not in ("train", "evaluate", "reproduce") or "smoke" in rest else ["--scale", "smoke"]
        outcome = run_cli(verb, *rest, *scale)
        assert outcome.status == 0, (verb, rest, outcome.err)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_commands_work_as_written(name: str, workdir: Path, run_cli: Callable[..., object]) -> None:
    run_commands(name, run_cli)
    for file in EXPECTED[name]:
        assert (workdir / file).stat().st_size > 0


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.filterwarnings("ignore::anytime.sampling.budget.DeadlineWarning")  # 20 ms may be too little for a busy machine
def test_the_python_works_as_written(name: str, workdir: Path) -> None:
    exec(compile(python(ROOT / name), name, "exec"), {})


@pytest.mark.parametrize("name", ["index.md", pytest.param("training.md", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::anytime.sampling.budget.DeadlineWarning")
def test_the_examples_of_the_python_reference_work(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(python(ROOT / "docs" / "api" / name), name, "exec"), {})
    assert (tmp_path / "digits.png").stat().st_size > 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", OWN_DATA)
@pytest.mark.filterwarnings("ignore::anytime.sampling.budget.DeadlineWarning")
def test_the_guides_to_own_data_work_as_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., object]
) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for number in range(40):
        Image.fromarray(random.integers(0, 255, (40, 48, 3), dtype=np.uint8)).save(tmp_path / "photos" / f"{number}.png")
    for speaker in ("anna", "ben", "carla"):
        for take in range(4):
            path = tmp_path / "recordings" / speaker / f"{take}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(path, 0.1 * random.standard_normal(20_000), 16_000)
    run_commands(name, run_cli)
    exec(compile(python(ROOT / name), name, "exec"), {})
    for file in OWN_DATA[name]:
        assert (tmp_path / file).stat().st_size > 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_exists(page: Path) -> None:
    for line in commands(page):
        words = list(dropwhile(VARIABLE.fullmatch, line))
        if words[0] in COMMAND and words[1] in VERBS:
            module = importlib.import_module(f"anytime.cli.{words[1]}")
            parse(module.Arguments, words[2:], f"anytime {words[1]}", VERBS[words[1]])
        elif words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE), words
        elif words[0] in ("python", ".venv/bin/python"):
            assert (ROOT / words[1]).is_file(), words
        else:
            assert words[0] in ("torchrun", "pip", ".venv/bin/pip", "until", "curl", "ray"), words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_and_link_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / link).exists(), f"{page.name} points at {link}"
    for path in re.findall(r"`((?:[\w-]+/)+[\w.-]*\.py|(?:src|tests|scripts|benchmarks|results|docs)/[a-z0-9./_-]+)`", text):
        assert (ROOT / path).exists() or (ROOT / "src" / "anytime" / path).exists(), f"{page.name} names {path}"
