"""What the README tells a newcomer to type, typed: its commands at smoke scale, its Python as it stands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import anytime

ROOT = Path(anytime.__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., object], once: Callable[..., Path]) -> Path:
    """A folder with runs/demo in it, as `make demo` leaves it."""

    def demo(folder: Path) -> None:
        outcome = run_cli("train", "digits", "--scale", "smoke", "--out", folder)
        assert outcome.status == 0, outcome.err  # type: ignore[attr-defined]

    run = once("demo", demo)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "demo").symlink_to(run)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_work_as_written(workdir: Path, run_cli: Callable[..., object]) -> None:
    verbs = [words for words in COMMANDS if words[0] in ("anytime", ".venv/bin/anytime")]
    assert len(verbs) >= 9
    for _, verb, *rest in verbs:
        # Real schedules take hours on a CPU; at smoke scale the same flags are parsed, the same stages run, and data may lack.
        scale = [] if verb not in ("train", "evaluate", "reproduce") else ["--scale", "smoke"]
        outcome = run_cli(verb, *[w for w in rest if w not in ("short", "--scale", "--data", "DIR")], *scale)
        assert outcome.status == 0, (verb, rest, outcome.err)  # type: ignore[attr-defined]
    for name in (
        "refining.gif",
        "pictures.png",
        "quarter.png",
        "sharpening.gif",
        "alike.png",
        "runs/mnist-paper/report.html",
        "runs/demo/evaluation/report.html",
        "results/theorem/discrete.png",
        "results/ordering/mnist.png",
    ):
        assert (workdir / name).stat().st_size > 0


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {words[1] for words in COMMANDS if words[0] == "make"}
    assert targets >= {"install", "demo", "test"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


@pytest.mark.filterwarnings("ignore::anytime.sampling.budget.DeadlineWarning")  # 20 ms may be too little for a busy machine
def test_the_python_works_as_written(workdir: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})
    assert (workdir / "somewhere" / "model.safetensors").is_file()


def test_the_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name} points at {link}"
