"""Learning rate schedules."""

from __future__ import annotations

import math
from typing import Literal

LRSchedule = Literal["constant", "cosine"]
WarmupSchedule = Literal["sqrt", "constant", "cosine"]
INITIAL_LR = 1e-7


def decayed_lr(lr: float, schedule: LRSchedule, step: int, steps: int) -> float:
    """Return `lr`, or with the cosine schedule lr (1 + cos π step / steps) / 2.

    >>> decayed_lr(1e-3, "constant", 5, 10), decayed_lr(1e-3, "cosine", 0, 10), decayed_lr(1e-3, "cosine", 5, 10)
    (0.001, 0.001, 0.0005)
    """
    return lr if schedule == "constant" else lr * (1 + math.cos(math.pi * step / steps)) / 2


def warmup_lr(lr: float, schedule: WarmupSchedule, warmup: int, step: int, steps: int) -> float:
    """Rise linearly to `lr` over `warmup` steps, then follow the schedule; "sqrt" is lr · sqrt(warmup / step).

    The warm-up is at most a quarter of all steps, so that short schedules reach `lr`.
    """
    warmup = max(1, min(warmup, steps // 4))
    if step < warmup:
        return INITIAL_LR + (lr - INITIAL_LR) * step / warmup
    if schedule == "sqrt":
        return float(lr * (warmup / step) ** 0.5)
    return decayed_lr(lr, schedule, step - warmup, steps - warmup)
