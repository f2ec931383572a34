"""Requests from their arrival to their answer: passed to the engine, waited for, counted, and remembered for refining."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import ClientDisconnect, Request

from anytime.server.connection import arrival
from anytime.server.encode import Result
from anytime.server.messages import MARGIN, Answer, Expired, Failed, ModelInfo, Ready, Refused, Submit
from anytime.server.metrics import Metrics
from anytime.server.protocol import ProblemError
from anytime.server.supervisor import Reply, Supervisor, Ticket
from anytime.server.web import disconnected
from anytime.server.web_delays import WebDelays

MAX_REQUESTS = 512
"""Requests in the engine at once; more are answered with 429."""
MAX_REMEMBERED = 1024
"""Answers that can be refined by their id."""
REFUSAL_SECONDS = 0.02
"""How long a refusal by the engine also answers requests that are no easier: far beyond the capacity, asking costs too much."""
GRACE_SECONDS = 5.0
"""Longest wait for the engine after a deadline: it may be restarting."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """An answer that can be refined."""

    submit: Submit
    codes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that the engine refused: when, and when an answer to it could have been ready."""

    submit: Submit
    at: float
    ready_at: float

    def applies(self, submit: Submit, deadline: float) -> bool:
        """Return whether another request, with this much time, would be refused too."""
        is_recent = time.monotonic() - self.at < REFUSAL_SECONDS
        own, other = ((len(each.rows), len(each.prefix[0])) for each in (self.submit, submit))
        is_no_easier = other[0] >= own[0] and other[1] >= own[1] and submit.continues is None
        return is_recent and is_no_easier and submit.model == self.submit.model and deadline < self.ready_at


class Service:
    """What the routes share."""

    def __init__(self, supervisor: Supervisor, ready: Ready, *, max_requests: int = MAX_REQUESTS) -> None:
        self.supervisor, self.models, self.max_requests = supervisor, ready.models, max_requests
        self.metrics = Metrics(supervisor, max(info.length for info in ready.models))
        self.delays = WebDelays()
        self.refusal: Refusal | None = None
        self._watching = asyncio.ensure_future(self.delays.watch())
        self.is_draining = False
        self.remembered: OrderedDict[str, Remembered] = OrderedDict()

    def arrival(self, request: Request) -> float:
        """Return when a request arrived, by the connection it came on or by how late requests are read at present."""
        known = arrival(request.scope)
        return time.monotonic() - self.delays.unread if known is None else known

    def reserve(self, submit: Submit) -> Ticket:
        """Pass a request to the engine, or refuse it if there are too many."""
        if self.is_draining:
            raise ProblemError(503, "Shutting down", "the server is shutting down; try another one", {"Retry-After": "5"})
        if len(self.supervisor.tickets) >= self.max_requests:
            self.metrics.refused.labels("queue").inc()
            text = f"{self.max_requests} requests are waiting already; try again later"
            raise ProblemError(429, "Too many requests", text, {"Retry-After": "1"})
        if not self.supervisor.settings.adaptive:
            return self.supervisor.submit(submit)
        now = time.monotonic()
        allowance = self.delays.allowance(submit.deadline - now)
        deadline = submit.deadline - allowance
        if deadline <= now:
            raise self._refusal(now - submit.arrived + allowance + MARGIN)
        if self.refusal is not None and self.refusal.applies(submit, deadline):
            raise self._refusal(self.refusal.ready_at - submit.arrived + allowance)
        return self.supervisor.submit(replace(submit, allowance=allowance))

    def shed(self) -> ProblemError | None:
        """Return why new work is refused before it is read, if there is too much of it."""
        if not self.supervisor.settings.adaptive or not self.delays.is_overloaded:
            return None
        self.metrics.refused.labels("overload").inc()
        return ProblemError(429, "Too many requests", "more requests arrive than can be read; try later", {"Retry-After": "1"})

    def _refusal(self, possible_after: float) -> ProblemError:
        """Count a request whose deadline cannot be kept; return the answer to it."""
        self.metrics.refused.labels("deadline").inc()
        self.delays.reserve.add(is_refused=True)
        milliseconds = math.ceil(1000 * possible_after)
        text = f"the deadline cannot be kept; an answer could be ready after {milliseconds} ms"
        headers = {"Retry-After": str(max(1, math.ceil(possible_after)))}
        return ProblemError(429, "Deadline too short", text, headers, possible_after_ms=milliseconds)

    async def first_answer(self, ticket: Ticket, request: Request) -> Answer:
        """Wait for the first answer; stop the work if the client goes away."""
        gone = asyncio.ensure_future(disconnected(request))
        try:
            return await self._next_answer(ticket, gone)
        finally:
            gone.cancel()

    async def answers(self, ticket: Ticket, first: Answer) -> AsyncGenerator[Answer, None]:
        """Yield the first answer and all refinements after it, up to the final one."""
        answer = first
        try:
            yield answer
            while not answer.final:
                answer = await self._next_answer(ticket)
                yield answer
        finally:
            if not answer.final:  # the client has gone
                self.metrics.cancelled.inc()
                self.supervisor.release(ticket)

    async def _next_answer(self, ticket: Ticket, gone: asyncio.Future[None] | None = None) -> Answer:
        """Wait for an answer; raise `ProblemError` if there is none."""
        reply = asyncio.ensure_future(ticket.next())
        waited: list[asyncio.Future[Any]] = [reply] if gone is None else [reply, gone]
        timeout = ticket.submit.deadline - time.monotonic() + GRACE_SECONDS
        try:
            await asyncio.wait(waited, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if reply.done():
                return self._checked(ticket.submit, reply.result())
            if gone is not None and gone.done():
                self.metrics.cancelled.inc()
                raise ClientDisconnect
            raise ProblemError(503, "No engine", "the engine is restarting; try again", {"Retry-After": "1"})
        except BaseException:
            reply.cancel()
            self.supervisor.release(ticket)
            raise

    def _checked(self, submit: Submit, reply: Reply) -> Answer:
        match reply:
            case Answer():
                return reply
            case Refused(_, possible_after):
                self.refusal = Refusal(submit, time.monotonic(), submit.arrived + possible_after)
                raise self._refusal(possible_after + submit.allowance)
            case Expired():
                raise ProblemError(504, "Deadline missed", "the answer was not ready by its deadline")
            case Failed():
                raise ProblemError(500, "Sampling failed", "this request failed; others are not affected")

    def result(self, info: ModelInfo, ticket: Ticket, answer: Answer) -> Result:
        """Return an answer with what it answers. A final one is counted, and remembered by its id."""
        submit, number = ticket.submit, secrets.token_hex(8) if answer.final else ""
        result = Result(info, submit, answer.codes, answer.data, time.monotonic() - submit.arrived, number)
        if answer.final:
            self.metrics.answered(result, submit.deadline - time.monotonic())
            self.delays.reserve.add(is_refused=False)
            self.remembered[number] = Remembered(submit, tuple(tuple(row) for row in answer.codes.tolist()))
            while len(self.remembered) > MAX_REMEMBERED:
                self.remembered.popitem(last=False)
        return result
