"""The error for a user's mistake, and warnings that point at the caller's line."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake that the user can correct. Its message is one sentence that says what is wrong and what to do.

    The library names arguments in backticks, such as `codes`; the command line prints them as flags, such as --codes, and
    exits with status 2. Any other exception is a bug and keeps its traceback.
    """


def warn(text: str, category: type[Warning]) -> None:
    """Warn at the innermost line outside the package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and f"{frame.f_globals.get('__name__')}.".startswith("anytime."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error of Python, of torch on a CPU or of a GPU says that memory is exhausted."""
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error) or "out of memory" in str(error)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that resembles `name` most, if one does.

    >>> nearest("mnits", ["mnist", "cifar10"]), nearest("x", ["mnist"])
    ('mnist', None)
    """
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the nearest known name, and all known names.

    >>> did_you_mean("mnits", ["mnist", "cifar10"])
    "did you mean 'mnist'? Known: cifar10, mnist"
    """
    known = sorted(known)
    close = nearest(name, known)
    return (f"did you mean {close!r}? Known: " if close else "known: ") + ", ".join(known)
