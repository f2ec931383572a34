"""How many codes a request may spend."""

from __future__ import annotations

from anytime.errors import UserError


def code_count(length: int, codes: int | None = None, fraction: float | None = None) -> int:
    """The number of codes asked for, all of them by default; `fraction` is max(1, round(fraction · length)).

    >>> code_count(16), code_count(16, codes=4), code_count(16, fraction=0.25)
    (16, 4, 4)
    """
    if codes is not None and fraction is not None:
        raise UserError("--codes and --fraction say the same thing twice; give one of them")
    if fraction is not None:
        if not 0 < fraction <= 1:
            raise UserError(f"--fraction must be above 0 and at most 1, not {fraction}")
        return max(1, round(fraction * length))
    if codes is None:
        return length
    if not 1 <= codes <= length:
        raise UserError(f"--codes must be between 1 and {length}, the model's length, not {codes}")
    return codes
