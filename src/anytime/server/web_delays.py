"""How much of a deadline the web process itself needs: from the engine to the answer, and before it reads a request.

The engine plans with its own times only. Under load the web process takes longer: requests wait in their sockets while others
are read, answers wait to be encoded. Both waits are measured. The first counts from the arrival of each request, where the
system tells it; the second is taken off the deadlines of new requests. So is a reserve far beyond the capacity.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from anytime.server.messages import MARGIN

TICK_SECONDS = 0.005
"""Between two looks at the event loop."""
WINDOW_SECONDS, MAX_WAITS = 1.0, 128
"""How long, and how many, measured waits count."""
OVERLOADED_SECONDS = 0.5
"""Wait to be read above which new requests are refused unread: reading them all would only make the wait longer."""
FEW_REFUSED, MANY_REFUSED, REQUEST_WEIGHT = 0.25, 0.5, 0.02
"""Shares of refusals from which there is a reserve, and from which it is full; and the weight of one request in that share."""
MAX_RESERVE = 0.25
"""The full reserve, as a share of the time until a deadline."""
QUANTILE = 0.9
"""Of the waits, the one that is allowed for: with the longest, one pause would refuse every short deadline after it."""


class RecentWaits:
    """The waits of the last second.

    >>> now = 0.0
    >>> waits = RecentWaits(clock=lambda: now)
    >>> for wait in range(10):
    ...     waits.add(wait / 10)
    >>> waits.usual
    0.9
    >>> now = 1.5
    >>> waits.usual
    0.0
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waits: deque[tuple[float, float]] = deque(maxlen=MAX_WAITS)  # when it ended, its seconds

    @property
    def usual(self) -> float:
        """A wait that few are longer than."""
        since = self._clock() - WINDOW_SECONDS
        while self._waits and self._waits[0][0] < since:
            self._waits.popleft()
        ordered = sorted(seconds for _, seconds in self._waits)
        return ordered[int(QUANTILE * len(ordered))] if ordered else 0.0

    def add(self, seconds: float) -> None:
        """Add a wait that ended just now."""
        self._waits.append((self._clock(), max(0.0, seconds)))


class Reserve:
    """The share of its time that a request is to be ready before its deadline, while many are refused.

    Far beyond the capacity the queue is as long as deadlines allow: a slight delay makes many answers late. A reserve makes it
    shorter and costs nothing, since as many requests are served. Below, it would refuse what can be answered.

    >>> reserve = Reserve()
    >>> for _ in range(10):
    ...     reserve.add(is_refused=True)
    >>> reserve.share
    0.0
    >>> for _ in range(30):
    ...     reserve.add(is_refused=True)
    >>> reserve.share
    0.25
    """

    def __init__(self) -> None:
        self._refused = 0.0  # share of recent requests

    def add(self, *, is_refused: bool) -> None:
        """Add a request that was refused or answered."""
        self._refused += REQUEST_WEIGHT * (is_refused - self._refused)

    @property
    def share(self) -> float:
        """The reserve at this moment."""
        return MAX_RESERVE * min(1.0, max(0.0, (self._refused - FEW_REFUSED) / (MANY_REFUSED - FEW_REFUSED)))


class WebDelays:
    """The waits of the web process, and the reserve against late answers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._unread, self._returning, self.reserve = RecentWaits(clock), RecentWaits(clock), Reserve()

    async def watch(self) -> None:
        """Measure how late the event loop is: a request that arrives then is read as late. Runs until cancelled."""
        while True:
            due = self._clock() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self.add_unread(self._clock() - due)

    def add_unread(self, seconds: float) -> None:
        """Add the time that a request could have waited to be read."""
        self._unread.add(seconds)

    def add_returned(self, sent_at: float) -> None:
        """Add an answer that the engine sent at this time and that is ready now."""
        self._returning.add(self._clock() - sent_at)

    @property
    def unread(self) -> float:
        """Seconds that requests usually wait to be read."""
        return self._unread.usual

    def allowance(self, within: float) -> float:
        """Return the seconds to take off a deadline that is `within` away, beyond the scheduler's margin.

        The engine's messages wait to be read as long as requests do, even if there were no answers of late.
        """
        return max(self.reserve.share * within, self.unread - MARGIN, self._returning.usual - MARGIN)

    @property
    def is_overloaded(self) -> bool:
        """Whether requests arrive faster than they can be read."""
        return self.unread > OVERLOADED_SECONDS
