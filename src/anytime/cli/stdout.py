"""Lines on stdout, safe to show on a terminal."""

from __future__ import annotations

from anytime.core.errors import printable

MAX_LINE = 10_000
"""Letters of a line: more than the longest path has."""


def say(text: str) -> None:
    """Print a line. Names of files and contents of models may be in it, so control characters are escaped."""
    print(printable(text, MAX_LINE))
