"""The waits of the web process, and what they take off a deadline."""

from __future__ import annotations

import asyncio
import time

import pytest

from anytime.server.messages import MARGIN
from anytime.server.web_delays import WINDOW_SECONDS, WebDelays


def test_quiet_it_takes_nothing() -> None:
    delays = WebDelays(clock=lambda: 100.0)
    delays.add_unread(0.0002)
    delays.add_returned(99.9995)
    assert delays.allowance(1.0) == 0.0


def test_the_longer_wait_counts_beyond_the_margin_and_both_are_forgotten() -> None:
    now = 100.0
    delays = WebDelays(clock=lambda: now)
    delays.add_unread(0.030)
    delays.add_returned(now - 0.010)
    assert delays.allowance(1.0) == pytest.approx(0.030 - MARGIN) and delays.unread == 0.030
    delays.add_returned(now - 0.050)
    assert delays.allowance(1.0) == pytest.approx(0.050 - MARGIN) and delays.unread == 0.030
    now += WINDOW_SECONDS / 2
    assert delays.allowance(1.0) == pytest.approx(0.050 - MARGIN)
    now += WINDOW_SECONDS
    assert delays.allowance(1.0) == delays.unread == 0.0


def test_one_long_wait_among_many_short_ones_is_not_allowed_for() -> None:
    delays = WebDelays(clock=lambda: 100.0)
    for wait in [0.001] * 30 + [0.5] + [0.001] * 30:
        delays.add_unread(wait)
    assert delays.allowance(1.0) == 0.0 and not delays.is_overloaded
    for _ in range(10):  # but many are
        delays.add_unread(0.6)
    assert delays.allowance(1.0) > 0.4 and delays.is_overloaded


def test_an_event_loop_that_is_held_up_is_noticed() -> None:
    async def held_up() -> float:
        delays = WebDelays()
        watching = asyncio.ensure_future(delays.watch())
        for _ in range(4):
            await asyncio.sleep(0.01)
            time.sleep(0.08)
        await asyncio.sleep(0.01)
        watching.cancel()
        return delays.allowance(1.0)

    assert asyncio.run(held_up()) > 0.05


def test_while_many_are_refused_a_quarter_of_the_time_is_kept_free() -> None:
    delays = WebDelays(clock=lambda: 100.0)
    for _ in range(10):
        delays.reserve.add(is_refused=True)
    assert delays.allowance(1.0) == 0.0, "few are refused"
    for _ in range(40):
        delays.reserve.add(is_refused=True)
    assert delays.allowance(1.0) == pytest.approx(0.25) and delays.allowance(0.02) == pytest.approx(0.005)
    delays.add_unread(0.5)
    assert delays.allowance(1.0) == pytest.approx(0.5 - MARGIN), "the longer of the two"
    for _ in range(60):
        delays.reserve.add(is_refused=False)
    assert delays.allowance(0.02) == pytest.approx(0.5 - MARGIN), "the load has dropped"
