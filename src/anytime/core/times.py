"""Times as numbers of seconds or as text: 20ms, 2s, 1min."""

from __future__ import annotations

import re
from typing import SupportsFloat

from anytime.core.errors import UserError

UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}
_TIME = re.compile(r"\s*([+-]?[0-9.]+(?:e[+-]?[0-9]+)?|nan|inf)\s*([a-z]*)\s*")


def parse_seconds(text: str, name: str) -> float:
    """Return a time written as `50ms`, `2s` or plain seconds; `name` is the flag or argument in errors.

    >>> parse_seconds("50ms", "--within"), parse_seconds("1.5s", "--within"), parse_seconds("0.5", "--within")
    (0.05, 1.5, 0.5)
    """
    match = _TIME.fullmatch(text.lower())
    try:
        if match is not None:
            return float(match[1]) * UNITS[match[2]]
    except (KeyError, ValueError):
        pass
    raise UserError(f"{name} {text!r} is not a time; write 50ms, 2s or plain seconds")


def to_seconds(value: SupportsFloat | str | None, name: str) -> float | None:
    """Return a time given as text or as a number of Python, NumPy or torch; None stays None.

    >>> to_seconds("20ms", "`within`"), to_seconds(2, "`within`"), to_seconds(None, "`within`")
    (0.02, 2.0, None)
    """
    if value is None:
        return None
    if isinstance(value, str):
        return parse_seconds(value, name)
    try:
        if isinstance(value, bool | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f'{name} must be seconds or a time such as "20ms", not {value!r}') from None
