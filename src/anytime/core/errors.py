"""The one error a user can cause, and warnings that point at the line that asked."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake that the user can mend. Its message is one sentence that names the flag or file and says what to do.

    The command line prints the sentence and exits with status 2; any other exception is a bug and keeps its traceback.
    """


def warn(text: str, category: type[Warning]) -> None:
    """Warn at the line outside the package that asked for this, however deep inside it was found out."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and f"{frame.f_globals.get('__name__')}.".startswith("anytime."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def out_of_memory(error: BaseException) -> bool:
    """Whether it says that memory was asked for that is not there: Python's own, torch's on a CPU, or a GPU's."""
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error) or "out of memory" in str(error)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A closing half-sentence for an unknown name: the nearest match if there is one, and all that is known.

    >>> did_you_mean("mnits", ["mnist", "cifar10"])
    "did you mean 'mnist'? Known: cifar10, mnist"
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return (f"did you mean {close[0]!r}? Known: " if close else "known: ") + ", ".join(known)
