"""Docstrings of this project as Markdown."""

from __future__ import annotations

from pathlib import Path

import griffe

import site_docstrings

SOURCE = '''
from dataclasses import dataclass

@dataclass
class Point:
    """A point.

    >>> Point(1).x
    1

    That is all.
    """

    x: int  # to the right
    y: int = 0
    """Upwards."""
    z: int = 0

def f() -> str:
    """Add.

    >>> for x in (1, 2):
    ...     print(x)
    1
    2
    """
'''


def test_doctests_are_code_and_comments_document_fields(tmp_path: Path) -> None:
    (tmp_path / "points.py").write_text(SOURCE)
    extensions = griffe.load_extensions(site_docstrings.ReadableDocstrings)
    module = griffe.load("points", search_paths=[tmp_path], extensions=extensions, allow_inspection=False)
    point = module["Point"]
    assert point.docstring.value == "A point.\n\n```pycon\n>>> Point(1).x\n1\n```\n\nThat is all."
    assert point["x"].docstring.value == "To the right." and point["y"].docstring.value == "Upwards."
    assert point["z"].docstring is None
    assert module["f"].docstring.value.endswith("```pycon\n>>> for x in (1, 2):\n...     print(x)\n1\n2\n```\n")
