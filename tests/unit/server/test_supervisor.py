"""Requests in flight, as the supervisor keeps them."""

from __future__ import annotations

import asyncio

import numpy as np

from anytime.server.messages import Answer, Submit
from anytime.server.supervisor import MAX_PENDING_BYTES, Ticket


def answer(codes: int, size: int, final: bool = False) -> Answer:
    return Answer(1, np.zeros((1, codes), np.int32), np.zeros(size, np.uint8), final, 0.0)


async def taken(ticket: Ticket, *, final: int) -> list[int]:
    """The numbers of codes of all replies that wait, up to the final one."""
    found = list[int]()
    while not found or found[-1] != final:
        reply = await ticket.next()
        assert isinstance(reply, Answer)
        found.append(reply.codes.shape[1])
    return found


def test_a_reader_that_comes_late_gets_all_refinements_that_fit() -> None:
    ticket = Ticket(Submit(1, "mnist", (0,), 0, ((),), 4, 0.0, 0.0))
    for codes in range(1, 5):
        ticket.put(answer(codes, 1000, codes == 4))
    assert asyncio.run(taken(ticket, final=4)) == [1, 2, 3, 4]


def test_of_large_refinements_the_oldest_give_way() -> None:
    ticket = Ticket(Submit(1, "mnist", (0,), 0, ((),), 6, 0.0, 0.0))
    for codes in range(1, 6):
        ticket.put(answer(codes, MAX_PENDING_BYTES // 2))
    ticket.put(answer(6, 2 * MAX_PENDING_BYTES, final=True))
    assert asyncio.run(taken(ticket, final=6)) == [6], "the last one is always kept, whatever its size"
