"""Values that are typed as text: times and lists of whole numbers."""

from __future__ import annotations

import re

from anytime.core.errors import UserError

UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}


def parse_seconds(text: str, flag: str) -> float:
    """Return a time written as `50ms`, `2s` or plain seconds.

    >>> parse_seconds("50ms", "--within"), parse_seconds("1.5s", "--within"), parse_seconds("0.5", "--within")
    (0.05, 1.5, 0.5)
    """
    match = re.fullmatch(r"\s*([+-]?[0-9.]+(?:e[+-]?[0-9]+)?|nan|inf)\s*([a-z]*)\s*", text.lower())
    try:
        if match is not None:
            return float(match[1]) * UNITS[match[2]]
    except (KeyError, ValueError):
        pass
    raise UserError(f"{flag} {text!r} is not a time; write 50ms, 2s or plain seconds")


def parse_ints(text: str, flag: str, example: str, minimum: int = -(1 << 63) + 1) -> list[int]:
    """Return whole numbers written with commas between.

    >>> parse_ints("3,17", "--pick", "3,17")
    [3, 17]
    """
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < minimum or max(numbers) >= 1 << 63:  # a tensor holds no larger number
        at_least = f" of at least {minimum}" if minimum >= 0 else ""
        raise UserError(f"{flag} {text!r} must be whole numbers{at_least} with commas between, such as {example}")
    return numbers
