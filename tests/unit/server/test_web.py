"""The guard in front of all routes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anytime.server.protocol import ProblemError
from anytime.server.web import Guard

OVERLOAD = ProblemError(429, "Too many requests", "more requests arrive than can be read; try later", {"Retry-After": "1"})


@pytest.mark.parametrize(("path", "status"), [("/v1/samples", 429), ("/livez", 200)])
def test_under_overload_work_is_refused_unread(path: str, status: int) -> None:
    sent, calls = list[dict[str, Any]](), list[str]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        calls.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> Any:
        raise AssertionError("the body is not read")

    async def send(message: Any) -> None:
        sent.append(message)

    def shed(path: str) -> ProblemError | None:
        return OVERLOAD if path == "/v1/samples" else None

    guard = Guard(app, token=None, hosts=None, open_paths=frozenset(), shed=shed)
    asyncio.run(guard({"type": "http", "path": path, "headers": []}, receive, send))
    assert sent[0]["status"] == status
    assert calls == ([] if status == 429 else [path])
    assert ((b"retry-after", b"1") in sent[0]["headers"]) == (status == 429)
