"""Results files: images stay out of them."""

from __future__ import annotations

from pathlib import Path

from anytime.core.results import Results, read


def test_images_are_not_written(tmp_path: Path) -> None:
    number, image = {"series": "a", "fid": 3.0}, {"series": "a", "seed": 0, "png": "iVBOR"}
    results = Results("fid", "mnist", "anytime reproduce fid", {}, "", [number, image], [])
    assert read(results.write(tmp_path)).rows == [number]
    assert results.rows == [number, image]
