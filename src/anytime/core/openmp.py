"""How the threads of a parallel product wait for each other: OpenMP's settings, which torch reads when it is imported."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

WAITING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "5000"}
"""A thread spins for about a tenth of a millisecond, then sleeps.

Spinning for long takes cores from other programs. Without any spinning, every product waits for a thread to wake up: two
threads then take two to three times as long for few rows. GNU's OpenMP reads the second variable, others only the first.
"""


def set_waiting(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set how threads wait, unless the user has chosen it.

    >>> chosen = {"OMP_WAIT_POLICY": "active"}
    >>> set_waiting(chosen)
    >>> chosen
    {'OMP_WAIT_POLICY': 'active'}
    """
    if not WAITING.keys() & environment.keys():
        environment.update(WAITING)
