"""Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, without a newline at its end.

    >>> print(table(["fraction", "FID"], [["0.2", "57.3"]]))
    | fraction | FID |
    |---|---|
    | 0.2 | 57.3 |
    """
    lines = [list(header), *map(list, rows)]
    text = [f"| {' | '.join(map(cell, line))} |" for line in lines]
    return "\n".join([text[0], "|---" * len(header) + "|", *text[1:]])


def cell(text: str) -> str:
    r"""Escape what would end a cell.

    >>> cell("p(x | z)")
    'p(x \\| z)'
    """
    return " ".join(text.replace("|", "\\|").split())
