"""The web application: its routes. It imports no torch; the engine process does all the work."""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from anytime.server.encode import MEDIA_TYPES, Format, Result, document, encode, media_type
from anytime.server.messages import Answer, ModelInfo, Submit
from anytime.server.openai import ImagesApi
from anytime.server.openapi import description
from anytime.server.protocol import ProblemError, RefineRequest, SampleRequest, find_model, parse, to_refine, to_submit
from anytime.server.service import Service
from anytime.server.supervisor import Ticket
from anytime.server.web import STREAM, Guard, event, event_stream, negotiate, problem_document, problem_response, read_body

STATIC = Path(__file__).parent / "static"
PAGES = {"/": "index.html", **{f"/{name}": name for name in ("page.js", "page.css", "problem.js", "source.js")}}
OPEN_PATHS = frozenset({"/livez", *PAGES})
"""What needs no token: the page asks for it."""
WORK_PATHS = frozenset({"/v1/samples", "/v1/refine"})
"""What is refused unread under overload."""
LARGE = 1 << 15
"""Values from which on a sample is compressed in a thread, so that other requests need not wait."""

Endpoint = Callable[[Request], Awaitable[Response]]


class Api:
    """Our own routes."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def samples(self, request: Request) -> Response:
        """POST /v1/samples"""
        arrived = self.service.arrival(request)
        body = parse(await read_body(request), SampleRequest)
        info = find_model(self.service.models, body.model)
        submit = to_submit(body, info, self.service.supervisor.new_number(), arrived)
        return await self._answer(request, info, submit, body.format)

    async def refine(self, request: Request) -> Response:
        """POST /v1/refine"""
        arrived = self.service.arrival(request)
        body = parse(await read_body(request), RefineRequest)
        earlier = self.service.remembered.get(body.id)
        if earlier is None:
            how = "send its seed, rows and codes (as prefix) to /v1/samples instead"
            raise ProblemError(404, "Unknown answer", f"no answer with the id {body.id[:64]!r} is remembered; {how}")
        info = find_model(self.service.models, earlier.submit.model)
        submit = to_refine(body, earlier.submit, earlier.codes, info, self.service.supervisor.new_number(), arrived)
        return await self._answer(request, info, submit, body.format)

    async def _answer(self, request: Request, info: ModelInfo, submit: Submit, inside: Format | None) -> Response:
        """Answer with a file, or with a stream of refinements."""
        accept = ",".join(request.headers.getlist("accept")) or "*/*"
        wanted, dtype = negotiate(accept, info, len(submit.rows))
        wants_floats = info.sample_rate is not None or ("npz" in (inside, MEDIA_TYPES.get(wanted)) and dtype != "uint8")
        every = submit.every if wanted == STREAM else None
        ticket = self.service.reserve(replace(submit, every=every, as_bytes=not wants_floats))
        answer = await self.service.first_answer(ticket, request)
        if wanted == STREAM:
            return event_stream(self._events(info, ticket, answer, inside))
        result, to = self.service.result(info, ticket, answer), MEDIA_TYPES[wanted]
        is_quick = to == "npz" or result.data.size <= LARGE
        content = encode(result, to) if is_quick else await asyncio.to_thread(encode, result, to)
        self.service.delays.add_returned(answer.sent_at)
        return Response(content, media_type=wanted, headers=_headers(result))

    async def _events(self, info: ModelInfo, ticket: Ticket, first: Answer, inside: Format | None) -> AsyncIterator[bytes]:
        try:
            async with aclosing(self.service.answers(ticket, first)) as answers:
                async for answer in answers:
                    result = self.service.result(info, ticket, answer)
                    data = await asyncio.to_thread(_event_data, result, inside)
                    self.service.delays.add_returned(answer.sent_at)
                    yield event("sample" if answer.final else "refinement", data)
        except ProblemError as problem:
            yield event("error", problem_document(problem, secrets.token_hex(8)))

    async def models(self, request: Request) -> Response:
        """GET /v1/models, in OpenAI's form, with what our models have besides."""
        models = [
            {
                "id": info.name,
                "object": "model",
                "created": 0,
                "owned_by": "anytime",
                "dataset": info.dataset,
                "hash": info.hash,
                "length": info.length,
                "codebook_size": info.codebook_size,
                "shape": info.shape,
                "media_type": media_type(info),
                "sample_rate": info.sample_rate,
                "temperature": info.temperature,
                "quality": info.quality,
                "step_ms": info.step_ms,
                "decode_ms": info.decode_ms,
            }
            for info in self.service.models
        ]
        return JSONResponse({"object": "list", "data": models})

    async def stats(self, request: Request) -> Response:
        """GET /v1/stats"""
        return JSONResponse(self.service.metrics.stats())

    async def livez(self, request: Request) -> Response:
        """GET /livez"""
        alive = self.service.supervisor.is_alive
        return JSONResponse({"alive": alive}, 200 if alive else 503)

    async def readyz(self, request: Request) -> Response:
        """GET /readyz"""
        ready = self.service.supervisor.is_alive and not self.service.is_draining
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def metrics(self, request: Request) -> Response:
        """GET /metrics"""
        return Response(self.service.metrics.text(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        """GET /openapi.json"""
        return JSONResponse(description())


def build_app(service: Service, *, token: str | None = None, hosts: frozenset[str] | None = None) -> Starlette:
    """Return the application. With `hosts`, only requests to these host names are answered."""
    api, images = Api(service), ImagesApi(service)

    def route(method: str, path: str, endpoint: Endpoint) -> Route:
        return Route(path, _counted(service, path, endpoint), methods=[method])

    routes = [
        route("POST", "/v1/samples", api.samples),
        route("POST", "/v1/refine", api.refine),
        route("POST", "/v1/images/generations", images.generations),
        route("GET", "/v1/models", api.models),
        route("GET", "/v1/stats", api.stats),
        route("GET", "/livez", api.livez),
        route("GET", "/readyz", api.readyz),
        route("GET", "/metrics", api.metrics),
        route("GET", "/openapi.json", api.openapi),
        *(Route(path, _page(name), methods=["GET"]) for path, name in PAGES.items()),
    ]

    def shed(path: str) -> ProblemError | None:
        return service.shed() if path in WORK_PATHS else None

    middleware = [Middleware(Guard, token=token, hosts=hosts, open_paths=OPEN_PATHS, shed=shed)]
    app = Starlette(routes=routes, middleware=middleware, exception_handlers={404: _no_route, 405: _no_route})
    app.router.redirect_slashes = False  # paths are as described, and no answer leads elsewhere
    return app


def _page(name: str) -> Endpoint:
    async def page(request: Request) -> Response:
        return FileResponse(STATIC / name, headers={"Cache-Control": "no-cache"})

    return page


def _counted(service: Service, path: str, endpoint: Endpoint) -> Endpoint:
    """Turn problems into answers, and count all answers."""

    async def counted(request: Request) -> Response:
        try:
            response = await endpoint(request)
        except ProblemError as problem:
            response = problem_response(problem)
        except ClientDisconnect:
            response = Response(status_code=499)  # nobody reads it
        service.metrics.requests.labels(path, str(response.status_code)).inc()
        return response

    return counted


async def _no_route(request: Request, error: Exception) -> Response:
    status, headers = getattr(error, "status_code", 404), getattr(error, "headers", None)
    title = "Not found" if status == 404 else "Method not allowed"
    text = f"there is no {request.method} {request.url.path[:100]}; see /openapi.json"
    return problem_response(ProblemError(status, title, text, dict(headers or {})))


def _headers(result: Result) -> dict[str, str]:
    facts = {f"Anytime-{name.title()}": str(value).lower() for name, value in result.facts.items()}
    slack = result.submit.deadline - time.monotonic()
    return {**facts, "Anytime-Slack-Ms": f"{1000 * slack:.1f}", "Cache-Control": "no-store"}


def _event_data(result: Result, inside: Format | None) -> dict[str, Any]:
    """Return the data of an event: a document, with one file for all rows if NPZ is wanted."""
    if inside != "npz":
        return document(result)
    content = base64.b64encode(encode(result, "npz")).decode()
    return {**result.facts, "media_type": "application/x-npz", "samples": [content]}
