"""The metadata of the package: its licences, and no advice to install a stranger's project."""

from __future__ import annotations

import email
import re
import tomllib
from pathlib import Path

import hatchling.build
import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ADVICE = re.compile(r"anytime\[(plots|audio|server|ray|dev)|pip install ['\"]?anytime|the extra\b")
TEXTS = sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in {".py", ".js", ".html"})


@pytest.fixture
def metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> email.message.Message:
    """The metadata of the wheel, as it is built."""
    monkeypatch.chdir(ROOT)
    folder = hatchling.build.prepare_metadata_for_build_wheel(str(tmp_path))
    return email.message_from_string((tmp_path / folder / "METADATA").read_text(encoding="utf-8"))


def test_both_licences_are_named(metadata: email.message.Message) -> None:
    assert metadata["License-Expression"] == "MIT AND CC-BY-SA-3.0"
    files = metadata.get_all("License-File")
    assert files == ["LICENSE", "LICENSE-CC-BY-SA-3.0"]
    assert "MIT License" in (ROOT / files[0]).read_text(encoding="utf-8")
    digits = (ROOT / files[1]).read_text(encoding="utf-8")
    assert "data/embedded/digits.xz" in digits
    assert "Attribution-ShareAlike 3.0 Unported" in digits
    assert "Yann LeCun, Corinna Cortes and Christopher Burges" in digits


def test_no_message_advises_to_install_an_extra() -> None:
    """Somebody else may own the name on a package index: messages name the packages that are missing."""
    lines = ((path, line) for path in TEXTS for line in path.read_text(encoding="utf-8").splitlines())
    assert not [f"{path}: {line}" for path, line in lines if ADVICE.search(line.partition("  # ")[0])]
    assert len(TEXTS) > 100


def test_the_extras_require_the_project_under_its_own_name() -> None:
    every = [requirement for extra in PROJECT["optional-dependencies"].values() for requirement in extra]
    own = {requirement.partition("[")[0] for requirement in every if requirement.startswith("anytime")}
    assert own <= {PROJECT["name"]}
