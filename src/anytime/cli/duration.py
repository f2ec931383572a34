"""Times as people write them."""

from __future__ import annotations

import re

from anytime.core.errors import UserError

UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}


def seconds(text: str, flag: str) -> float:
    """`50ms`, `2s` or plain seconds.

    >>> seconds("50ms", "--within"), seconds("1.5s", "--within"), seconds("0.5", "--within")
    (0.05, 1.5, 0.5)
    """
    match = re.fullmatch(r"\s*([+-]?[0-9.]+(?:e[+-]?[0-9]+)?|nan|inf)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in UNITS:
        raise UserError(f"{flag} {text!r} is no time; write 50ms, 2s or plain seconds")
    try:
        return float(match[1]) * UNITS[match[2]]
    except ValueError:
        raise UserError(f"{flag} {text!r} is no time; write 50ms, 2s or plain seconds") from None
