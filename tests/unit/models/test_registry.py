"""The model registry and the bundled models."""

from __future__ import annotations

import copy
import shutil
import tarfile
import zipfile
from itertools import combinations
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from anytime.core.config import read_json
from anytime.core.errors import UserError
from anytime.evaluation import model_card
from anytime.model import AnytimeModel, load
from anytime.models import registry
from anytime.models.registry import locate

ROOT = Path(__file__).parents[3]


@pytest.fixture
def bundled_dir(tiny: AnytimeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundled directory with one model, and an empty working directory."""
    monkeypatch.setattr(registry, "BUNDLED_DIR", tmp_path / "bundled")
    copy.deepcopy(tiny).save(tmp_path / "bundled" / "little-one")
    (tmp_path / "bundled" / "notes").mkdir()
    (tmp_path / "desk").mkdir()
    monkeypatch.chdir(tmp_path / "desk")
    return tmp_path / "bundled"


def test_a_model_is_found_by_its_name(bundled_dir: Path, tiny: AnytimeModel) -> None:
    assert registry.bundled_names() == ["little-one"], "a directory without a config is not a model"
    assert load("little-one").hash == tiny.hash
    assert locate("little-one") == bundled_dir / "little-one"


def test_a_directory_with_a_model_comes_first(bundled_dir: Path, tiny: AnytimeModel) -> None:
    Path("little-one").mkdir()
    assert locate("little-one") == bundled_dir / "little-one", "an empty directory of that name is ignored"
    copy.deepcopy(tiny).save("little-one")
    assert locate("little-one") == Path("little-one")


@pytest.mark.parametrize("name", ["little-on", "nothing", "notes", "../bundled/none", ""])
def test_a_wrong_name_shows_the_list(name: str, bundled_dir: Path) -> None:
    with pytest.raises(UserError) as error:
        load(name)
    text = str(error.value)
    assert ("Known: little-one" if name == "little-on" else "known: little-one") in text
    assert "\n" not in text
    assert ("did you mean 'little-one'?" in text) == (name == "little-on")


def test_empty_registry_error(bundled_dir: Path) -> None:
    shutil.rmtree(bundled_dir / "little-one")
    assert registry.bundled_names() == []
    with pytest.raises(
        UserError, match="not a run directory, a saved model or a bundled model; train one with `anytime train digits`"
    ):
        load("mnist")


# bundled models


def test_bundled_models_are_small() -> None:
    assert registry.total_bytes(registry.BUNDLED_DIR) <= registry.MAX_BYTES == 20_000_000


def test_a_card_says_how_many_images_each_fid_compares() -> None:
    evaluation = read_json(registry.BUNDLED_DIR / "cifar10" / model_card.EVALUATION)
    table, how = model_card.figures(evaluation)
    assert "| FID, 50,000 images |" in table
    assert "| reconstruction FID, 10,000 images |" in table
    assert model_card.COUNTS_DIFFER in how
    alike = [{**row, "samples": 10_000} if "samples" in row else row for row in evaluation["rows"]]
    assert model_card.COUNTS_DIFFER not in model_card.figures({**evaluation, "rows": alike})[1]


def test_model_cards_are_made_from_their_files(tmp_path: Path) -> None:
    for name in registry.bundled_names():
        folder = Path(shutil.copytree(registry.BUNDLED_DIR / name, tmp_path / name))
        (folder / model_card.FILE).unlink()
        text = model_card.write_card(folder).read_text(encoding="utf-8")
        assert text == (registry.BUNDLED_DIR / name / model_card.FILE).read_text(encoding="utf-8")


def test_bundled_models_get_no_worse_with_more_codes() -> None:
    """FID never rises by more than a point from any length to a longer one; the README shows the same numbers."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in registry.bundled_names():
        model = load(name, "cpu")
        assert model.quality_table is not None
        found = [row.fid for row in model.quality_table.rows if row.fid is not None]
        assert len(found) == 5
        assert all(later - earlier <= 1 for earlier, later in combinations(found, 2)), name
        cells = [model.length, f"{model.config.temperature:g}", *(f"{fid:.1f}" for fid in found)]
        assert f"| {' | '.join(map(str, cells))} |" in readme, name


def test_bundled_models_are_complete() -> None:
    """Each loads and has a model card with results and a full-scale quality table."""
    for name in registry.bundled_names():
        model = load(name, "cpu")
        assert model.quality_table is not None and model.quality_table.scale == "full", name
        text = (registry.BUNDLED_DIR / name / model_card.FILE).read_text(encoding="utf-8")
        assert model.hash in text and model_card.UNMEASURED not in text and "smoke" not in text, name


def test_wheel_and_sdist_contain_the_models(tmp_path: Path) -> None:
    """Even if a .gitignore excludes weights."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    files = ["__init__.py", "models/one/config.json", "models/one/model.safetensors", "models/one/README.md"]
    for name in files:
        path = tmp_path / "src" / "anytime" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / ".gitignore").write_text("*.safetensors\nmodels/\n")
    (wheel,) = WheelBuilder(str(tmp_path)).build(directory=str(tmp_path / "dist"), versions=["standard"])
    (sdist,) = SdistBuilder(str(tmp_path)).build(directory=str(tmp_path / "dist"), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        assert {f"anytime/{name}" for name in files} <= set(archive.namelist())
    with tarfile.open(sdist) as archive:
        bundled_names = {name.partition("/")[2] for name in archive.getnames()}
        assert {f"src/anytime/{name}" for name in files} <= bundled_names
