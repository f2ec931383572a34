"""What the routes share, with an engine in our hands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request

from anytime.server.messages import EngineSettings, ModelInfo, Ready, Refused, Submit
from anytime.server.protocol import ProblemError
from anytime.server.service import REFUSAL_SECONDS, Service
from anytime.server.supervisor import Supervisor, Ticket

INFO = ModelInfo("tiny", "mnist", "abc", 8, 16, (1, 5, 6), None, 1.0, (), 1.0, 1.0, 32)


def submit(within: float, n: int = 8, given: int = 0, **more: Any) -> Submit:
    now = time.monotonic()
    return Submit(1, "tiny", tuple(range(n)), 0, ((0,) * given,) * n, 8, now + within, now, **more)


def with_service(check: Callable[[Service, list[Submit]], Any]) -> Any:
    """Check a service whose engine only notes what it gets."""

    async def run() -> Any:
        supervisor, asked = Supervisor(EngineSettings(models=("tiny",)), say=lambda text: None), list[Submit]()

        def note(submit: Submit) -> Ticket:
            asked.append(submit)
            return Ticket(submit)

        supervisor.submit = note  # type: ignore[method-assign]
        service = Service(supervisor, Ready((INFO,), "", "", "", ()))
        try:
            found = check(service, asked)
            return await found if asyncio.iscoroutine(found) else found
        finally:
            service._watching.cancel()

    return asyncio.run(run())


def refuse(service: Service, refused: Submit, possible_after: float) -> ProblemError:
    with pytest.raises(ProblemError) as problem:
        service._checked(refused, Refused(1, possible_after))
    return problem.value


def test_a_refusal_answers_the_next_requests_that_are_no_easier_without_asking_the_engine() -> None:
    def check(service: Service, asked: list[Submit]) -> None:
        assert refuse(service, submit(0.1), possible_after=0.3).more == {"possible_after_ms": 300}
        for same in (submit(0.1), submit(0.25, n=16), submit(0.1, given=3)):
            with pytest.raises(ProblemError) as problem:
                service.reserve(same)
            assert problem.value.status == 429 and 200 < problem.value.more["possible_after_ms"] <= 301
        assert asked == []
        for easier in (submit(0.4), submit(0.1, n=4), submit(0.1, continues=7), replace(submit(0.1), model="other")):
            service.reserve(easier)
        assert len(asked) == 4
        time.sleep(REFUSAL_SECONDS)
        service.reserve(submit(0.1))
        assert len(asked) == 5, "the load may have dropped since"

    with_service(check)


def test_time_that_a_request_has_waited_counts() -> None:
    def check(service: Service, asked: list[Submit]) -> None:
        waited = replace(submit(0.1), deadline=time.monotonic() - 0.01)
        with pytest.raises(ProblemError, match="the deadline cannot be kept"):
            service.reserve(waited)
        assert asked == []

    with_service(check)


def test_when_a_request_arrived_is_what_its_connection_knows() -> None:
    def check(service: Service, asked: list[Submit]) -> None:
        known, unknown = ({"type": "http", "state": state} for state in ({"arrived": 12.5}, {}))
        assert service.arrival(Request(known)) == 12.5
        service.delays.add_unread(3.0)
        assert time.monotonic() - service.arrival(Request(unknown)) == pytest.approx(3.0, abs=0.5)

    with_service(check)
