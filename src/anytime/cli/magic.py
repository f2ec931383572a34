"""The line magic `%anytime VERB …` of notebooks: a verb in the notebook's own process, with progress bars in the cell."""

from __future__ import annotations

import shlex
import sys
from typing import Any

from anytime.cli import main


def register(ipython: Any) -> None:
    """Register the magic; `%load_ext anytime` calls this."""
    ipython.register_magic_function(run_line, "line", "anytime")


def run_line(line: str) -> None:
    """Run one command line. A mistake is one sentence on stderr, not a traceback."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        print(f"anytime: the line cannot be read ({error}); check its quotation marks", file=sys.stderr)
        return
    before, sys.argv = sys.argv, ["anytime", *words]  # files of a run record the command
    try:
        main(words)
    except SystemExit:  # `main` has printed why
        pass
    finally:
        sys.argv = before
