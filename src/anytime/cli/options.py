"""Parsing with tyro, and the options that verbs share."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from dataclasses import dataclass
from typing import Annotated, TypeVar

import tyro

from anytime.core.errors import UserError

Arguments = TypeVar("Arguments")


@dataclass(frozen=True, kw_only=True)
class Common:
    """Options that every verb takes."""

    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON document as the last line of stdout."""
    device: str | None = None
    """cpu or cuda; by default cuda where there is one."""


def typed_command() -> str:
    """The command as it was given, for files that hold its results."""
    return shlex.join(["anytime", *sys.argv[1:]])


def parse(cls: type[Arguments], argv: list[str], program: str, description: str) -> Arguments:
    """`argv` as a value of `cls`; a mistake becomes one sentence."""
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            return tyro.cli(cls, args=argv, prog=program, description=description, config=(tyro.conf.OmitArgPrefixes,))
    except SystemExit as end:
        if end.code in (0, None):
            raise
        raise UserError(f"{_sentence(stderr.getvalue())}; see `{program} --help`") from None


def _sentence(message: str) -> str:
    """The words inside tyro's box, without the frame and the hints that follow."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", message)
    lines = [line.strip("│ ").strip() for line in text.splitlines()]
    words: list[str] = []
    for line in lines:
        if re.fullmatch(r"[╭╰├─╮╯┤\s].*|", line):
            if words and (not line or line[0] in "─├╰"):
                break
            continue
        words.append(line)
    return " ".join(words).rstrip(".") or "the command line cannot be read"
