"""The metadata of the package: its name, licences and extras, and no advice to install a stranger's project."""

from __future__ import annotations

import email
import re
import tomllib
from pathlib import Path

import hatchling.build
import pytest

import anytime

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {"plots", "audio", "server", "compression", "onnx", "hub", "ray"}
ADVICE = re.compile(rf"anytime(-sampling)?\[({'|'.join(EXTRAS)}|all|dev)|pip install ['\"]?anytime|the extra\b")
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


def test_the_distribution_has_its_own_name_and_the_import_stays(metadata: email.message.Message) -> None:
    """On PyPI `anytime` is another project."""
    assert metadata["Name"] == "anytime-sampling"
    assert PROJECT["scripts"] == {"anytime": "anytime.cli:main"}
    assert metadata["Version"] == anytime.__version__


def test_the_extras_require_the_project_under_its_own_name() -> None:
    every = [requirement for extra in PROJECT["optional-dependencies"].values() for requirement in extra]
    own = {requirement.partition("[")[0] for requirement in every if requirement.startswith("anytime")}
    assert own == {PROJECT["name"]}


def test_all_holds_every_extra_for_users(metadata: email.message.Message) -> None:
    assert set(metadata.get_all("Provides-Extra", ())) == EXTRAS | {"all", "dev", "docs"}
    (everything,) = PROJECT["optional-dependencies"]["all"]
    assert set(re.findall(r"[a-z]+(?=[,\]])", everything)) == EXTRAS
