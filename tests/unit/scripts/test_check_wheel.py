"""The wheel and the sdist hold what they should. `make wheel` also installs the wheel into a fresh environment."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import check_wheel


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return check_wheel.build(tmp_path_factory.mktemp("built"))


def test_the_wheel_is_whole(built: tuple[Path, Path]) -> None:
    assert list(check_wheel.wheel_problems(built[0])) == []


def test_the_sdist_builds_the_same_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    wheel, sdist = built
    assert list(check_wheel.sdist_problems(sdist, wheel, tmp_path)) == []


def test_what_is_missing_or_strange_is_named(built: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel without py.typed, a model and a licence, with tests, under another name, and too large."""
    bad = tmp_path / "bad.whl"
    left_out = ("anytime/py.typed", "mnist/model.safetensors", "licenses/LICENSE")
    with zipfile.ZipFile(built[0]) as good, zipfile.ZipFile(bad, "w") as changed:
        for name in good.namelist():
            content = good.read(name)
            if name.endswith("METADATA"):
                content = content.replace(b"Name: anytime-sampling", b"Name: anytime")
            if not name.endswith(left_out):
                changed.writestr(name, content)
        changed.writestr("tests/test_model.py", "")
    monkeypatch.setattr(check_wheel, "LARGEST", 1e6)
    problems = "\n".join(check_wheel.wheel_problems(bad))
    for words in (
        "anytime/py.typed is missing",
        "anytime/models/mnist/model.safetensors is missing",
        "licenses/LICENSE is missing or",
        "tests/test_model.py is not a file of the package",
        "Name 'anytime' instead of 'anytime-sampling'",
        "more than 1 MB",
    ):
        assert words in problems
    assert "LICENSE-CC-BY-SA-3.0 is missing" not in problems


def test_the_first_commands_and_the_example_come_from_the_readme() -> None:
    commands = check_wheel.readme_commands()
    assert len(commands) >= 3
    assert all(words[:2] == ["anytime", "sample"] for words in commands)
    assert "anytime.load(" in check_wheel.readme_example()


def test_torch_is_borrowed_with_what_it_requires() -> None:
    found = check_wheel.closure("torch")
    assert {"torch", "sympy", "mpmath"} <= found.keys()  # mpmath is required by sympy
    assert "numpy" not in found


def test_other_pythons_are_those_that_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shim of pyenv is on the PATH although its version is not active."""
    shims, real = tmp_path / "shims", tmp_path / "versions" / "3.12.9" / "bin"
    for folder, status in ((shims, 1), (real, 0)):
        folder.mkdir(parents=True)
        (folder / "python3.12").write_text(f"#!/bin/sh\nexit {status}\n")
        (folder / "python3.12").chmod(0o755)
    monkeypatch.setenv("PATH", str(shims))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert check_wheel.other_pythons() == [str(real / "python3.12")]


def test_a_command_that_fails_is_shown(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="failed with status 3"):
        check_wheel.run("sh", "-c", "exit 3", cwd=tmp_path)
