"""Figures beside their results files."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from anytime.core.errors import UserError
from anytime.core.results import write_figure


def test_a_figure_is_written_atomically(tmp_path: Path) -> None:
    assert write_figure(tmp_path / "x.json", Figure()) == tmp_path / "x.png"
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "y.png").mkdir()
    with pytest.raises(UserError, match=r"y\.png cannot be written"):
        write_figure(tmp_path / "y.json", Figure())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.png", "y.png"]
