"""The committed results: numbers only, verdicts that follow from them, and figures that can be drawn from them."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

import pytest

import anytime
from anytime.core.errors import UserError
from anytime.core.results import read, results_file, results_files
from anytime.experiments import reproduce
from anytime.experiments.registry import find

RESULTS = Path(anytime.__file__).parents[2] / "results"
FILES = results_files(RESULTS)
NAMES = [f"{path.parent.name}/{path.stem}" for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_verdicts_follow_from_the_rows(path: Path) -> None:
    results = read(path)
    assert path == results_file(RESULTS, results.experiment, results.dataset)
    assert results.verdicts == importlib.import_module(find(results.experiment).module).decide(results.rows)
    assert not any("png" in row for row in results.rows)


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_figure_is_drawn_from_numbers_alone(path: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(path, tmp_path))
    if find(path.parent.name).shows_images:
        with pytest.raises(UserError, match="shows images, which the file does not hold; run again: anytime reproduce"):
            reproduce.draw(copy)
        assert path.with_suffix(".png").is_file(), "the committed figure is the image"
    else:
        assert reproduce.draw(copy).read_bytes().startswith(b"\x89PNG")
