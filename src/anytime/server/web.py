"""What all routes share: bodies, media types, events, error answers, and the guard in front of them."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import secrets
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anytime.server.encode import media_type
from anytime.server.messages import ModelInfo
from anytime.server.protocol import MAX_BODY, ProblemError

BODY_SECONDS = 10.0
"""Longest time to send a body."""
STREAM = "text/event-stream"
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def problem_document(problem: ProblemError, number: str) -> dict[str, Any]:
    """Return an error in the form of RFC 9457."""
    return {
        "type": "about:blank", "title": problem.title, "status": problem.status, "detail": problem.detail, "id": number,
        **problem.more,
    }  # fmt: skip


def problem_response(problem: ProblemError) -> Response:
    """Return an error as `application/problem+json`."""
    content = json.dumps(problem_document(problem, secrets.token_hex(8)))
    return Response(content, problem.status, {"Cache-Control": "no-store", **problem.headers}, "application/problem+json")


async def read_body(request: Request) -> bytes:
    """Read a JSON body of limited size, in limited time, whatever its headers say."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ProblemError(415, "Unsupported media type", "send the body as Content-Type: application/json")
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                content += part
                if len(content) > MAX_BODY:
                    raise ProblemError(413, "Body too large", f"a body has at most {MAX_BODY} bytes", {"Connection": "close"})
    except TimeoutError:
        raise ProblemError(408, "Too slow", "the body did not arrive in time", {"Connection": "close"}) from None
    return bytes(content)


async def disconnected(request: Request) -> None:
    """Return when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def negotiate(accept: str, info: ModelInfo, n: int) -> tuple[str, str | None]:
    """Return the media type to answer with and its `dtype`, by the Accept header; raise `ProblemError` if there is none."""
    all_offered = [media_type(info), "application/json", "application/x-npz", STREAM]
    ranges = [_media_range(text) for text in accept.split(",")]
    unwanted = {name for name, weight, _ in ranges if not weight}
    offered = [each for each in all_offered if each not in unwanted]
    for wanted, weight, dtype in sorted(ranges, key=lambda found: -found[1]):
        for each in offered if weight > 0 else []:
            if wanted in (each, "*/*", f"{each.partition('/')[0]}/*"):
                several_clips = each == "audio/wav" and n > 1  # a WAV file holds one
                return "application/json" if several_clips else each, dtype
    raise ProblemError(406, "Not acceptable", f"this model's samples come as {', '.join(all_offered)}")


def _media_range(text: str) -> tuple[str, float, str | None]:
    """Return a media range, its weight and its `dtype`.

    >>> _media_range("image/png"), _media_range("text/html;q=0.5"), _media_range("a/b; dtype=uint8;q=x")
    (('image/png', 1.0, None), ('text/html', 0.5, None), ('a/b', 0.0, 'uint8'))
    """
    name, *parameters = (part.strip().lower() for part in text.split(";"))
    values = dict(parameter.partition("=")[::2] for parameter in parameters)
    try:
        weight = min(1.0, max(0.0, float(values.get("q", "1"))))
    except ValueError:
        weight = 0.0
    return name, weight, values.get("dtype")


def event(name: str, data: dict[str, Any]) -> bytes:
    """Return a server-sent event."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def event_stream(events: AsyncIterator[bytes]) -> Response:
    """Return a stream of events."""
    return StreamingResponse(events, media_type=STREAM, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


class Guard:
    """Middleware: host names, the token, overload, headers for safety, and an answer without details to anything unexpected."""

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        hosts: frozenset[str] | None,
        open_paths: frozenset[str],
        shed: Callable[[str], ProblemError | None],
    ) -> None:
        self.app, self.token, self.hosts, self.open_paths, self.shed = app, token, hosts, open_paths, shed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def send_safely(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                safety = ((name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items())
                message["headers"] = [*message["headers"], *safety]
            await send(message)

        headers = dict(scope["headers"])
        path = scope["path"]
        problem = self._problem(path, headers.get(b"host", b""), headers.get(b"authorization", b"")) or self.shed(path)
        try:
            app: ASGIApp = self.app if problem is None else problem_response(problem)
            await app(scope, receive, send_safely)
        except Exception:
            traceback.print_exc()
            if not started:
                problem = ProblemError(500, "Internal error", "something went wrong; the server goes on")
                await problem_response(problem)(scope, receive, send_safely)

    def _problem(self, path: str, host: bytes, authorization: bytes) -> ProblemError | None:
        """Return why a request is not passed on. A wrong host name is another site's that points at this machine."""
        name = re.sub(r":\d+$", "", host.decode("latin-1").lower())
        if self.hosts is not None and name not in self.hosts:
            return ProblemError(421, "Wrong host", "this server answers requests to this machine only")
        if self.token is None or path in self.open_paths:
            return None
        if hmac.compare_digest(authorization, f"Bearer {self.token}".encode()):
            return None
        headers = {"WWW-Authenticate": "Bearer"}
        return ProblemError(401, "Unauthorized", "send the token as Authorization: Bearer TOKEN", headers)
