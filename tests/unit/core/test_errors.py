"""Errors of the library name arguments; only the command line names flags."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import anytime

SOURCE = Path(anytime.__file__).parent
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent.name != "cli")
FLAG = re.compile(r"(?<![\w-])--[a-z]")
COMMAND = re.compile(r"`[^`]*`|--no-deps")  # a whole command may be quoted, with its flags


def flags_in_errors(path: Path) -> list[str]:
    """The texts of `raise UserError(...)` that name a flag."""
    raised = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Raise))
    errors = (node.exc for node in raised if isinstance(node.exc, ast.Call) and "Error" in ast.unparse(node.exc.func))
    texts = (COMMAND.sub("", ast.unparse(error)) for error in errors)
    return [text for text in texts if FLAG.search(text)]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_errors_of_the_library_name_no_flag(path: Path) -> None:
    assert flags_in_errors(path) == []


def test_flags_are_found_in_errors_and_not_in_quoted_commands(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text('raise UserError(f"{x} is wrong; use --out")\nraise UserError("run `anytime train mnist --data DIR`")\n')
    assert len(flags_in_errors(source)) == 1
