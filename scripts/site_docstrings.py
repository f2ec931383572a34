"""Griffe extension of the documentation site: examples are code, and comments after a field document it."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^>>>.*\n?(?:^(?!>>>)\S.*\n?)*)+", flags=re.MULTILINE)


class ReadableDocstrings(griffe.Extension):
    """Makes the docstrings of this project readable as Markdown."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put the doctests of a docstring into a code block; take the comment after a field as its docstring."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
        elif obj.is_attribute and (comment := comment_of(obj)):
            obj.docstring = griffe.Docstring(comment, parent=obj)


def fenced(text: str) -> str:
    """Return the text with its doctests in code blocks.

    >>> fenced("Add.\\n\\n>>> 1 + 1\\n2")
    'Add.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```\\n'
    """
    return _EXAMPLE.sub(lambda example: f"```pycon\n{example[0].rstrip()}\n```\n", text)


def comment_of(obj: griffe.Object) -> str:
    """Return the comment on the line of a field as a sentence."""
    if not obj.lineno or not obj.lines:
        return ""
    comment = obj.lines[0].partition("  # ")[2]
    return comment[:1].upper() + comment[1:].rstrip(".") + "." if comment else ""
