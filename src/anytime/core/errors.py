"""The error for a user's mistake, and warnings that point at the caller's line."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable

_MAX_MESSAGE = 1500  # letters of an error
_MAX_NAME = 200  # letters of a name that is compared with others: a comparison takes time in proportion to it


class UserError(ValueError):
    """A mistake that the user can correct. Its message is one sentence that says what is wrong and what to do.

    The library names arguments in backticks, such as `codes`; the command line prints them as flags, such as --codes, and
    exits with status 2. Any other exception is a bug and keeps its traceback. Names of files and their contents may be part
    of the message, so control characters in it are escaped.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message, _MAX_MESSAGE))


def printable(text: str, most: int = 1000) -> str:
    """Return `text` with line breaks, terminal escape sequences and undecodable bytes written as escapes.

    The middle of a text longer than `most` letters is left out.

    >>> printable("a\\x1b[31m.png")
    'a\\\\x1b[31m.png'
    """
    short = text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 :]}"
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in short)


def reason(error: BaseException) -> str:
    """Return what is wrong in a few words that may stand inside a sentence."""
    text = printable(str(getattr(error, "strerror", None) or error).splitlines()[0]) if str(error) else type(error).__name__
    return text[:200].rstrip(".")


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
    if len(name) > _MAX_NAME:
        return None
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the nearest known name, and all known names.

    >>> did_you_mean("mnits", ["mnist", "cifar10"])
    "did you mean 'mnist'? Known: cifar10, mnist"
    """
    known = sorted(known)
    close = nearest(name, known)
    return (f"did you mean {close!r}? Known: " if close else "known: ") + ", ".join(known)
