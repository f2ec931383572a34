"""The images part of OpenAI's interface, so that its client gets images and partial images from our models.

Our models take no text: `prompt` is required by the interface and ignored. `deadline_ms`, `seed` and `codes` are ours; OpenAI's
client sends them with `extra_body`.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from anytime.server.encode import Result, each_file
from anytime.server.messages import Answer, ModelInfo
from anytime.server.protocol import ProblemError, SampleRequest, check, find_model, parse, to_submit
from anytime.server.service import Service
from anytime.server.supervisor import Ticket
from anytime.server.web import event, event_stream, read_body

MAX_IMAGES, MAX_PARTIAL = 10, 3
"""OpenAI's limits."""


@dataclass(frozen=True, kw_only=True)
class ImagesRequest:
    """Body of `POST /v1/images/generations`."""

    prompt: str
    """Required and ignored: our models take no text."""
    model: str | None = None
    """A model's name; by default the first one served that makes images."""
    n: int | None = None
    """Number of images, at most 10; 1 in a stream."""
    size: str | None = None
    """auto, or the model's own size, such as 32x32."""
    quality: str | None = None
    """Accepted and ignored."""
    response_format: Literal["b64_json", "url"] | None = None
    """Images come as b64_json."""
    output_format: Literal["png"] | None = None
    """png"""
    background: Literal["auto", "opaque"] | None = None
    """Images are opaque."""
    moderation: str | None = None
    """Accepted and ignored."""
    style: str | None = None
    """Accepted and ignored."""
    user: str | None = None
    """Accepted and ignored."""
    stream: bool | None = None
    """Whether partial images are sent while the image is made."""
    partial_images: int | None = None
    """Number of partial images in a stream, at most 3."""
    deadline_ms: float | None = None
    """Ours: milliseconds until the answer must be ready."""
    seed: int | None = None
    """Ours: the same seed gives the same images."""
    codes: int | None = None
    """Ours: codes of each image."""


class ImagesApi:
    """The route and its stream."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def generations(self, request: Request) -> Response:
        """POST /v1/images/generations; errors have OpenAI's envelope."""
        try:
            return await self._generate(request)
        except ProblemError as problem:
            return error_response(problem)

    async def _generate(self, request: Request) -> Response:
        arrived = self.service.arrival(request)
        body = parse(await read_body(request), ImagesRequest)
        info = self._model(body.model)
        n = 1 if body.n is None else body.n
        partial = body.partial_images or 0
        own_size = f"{info.shape[-1]}x{info.shape[-2]}"
        check(1 <= n <= MAX_IMAGES, f"n must be between 1 and {MAX_IMAGES}, not {n}")
        check(0 <= partial <= MAX_PARTIAL, f"partial_images must be between 0 and {MAX_PARTIAL}, not {partial}")
        check(body.size in (None, "auto", own_size), f"size must be auto or {own_size}, the size of {info.name}")
        check(body.response_format != "url", "response_format must be b64_json: images are not kept")
        check(not body.stream or n == 1, "a stream has one image; leave out n")
        sample = SampleRequest(n=n, codes=body.codes, deadline_ms=body.deadline_ms, seed=body.seed)
        submit = to_submit(sample, info, self.service.supervisor.new_number(), arrived)
        every = math.ceil(submit.codes / (partial + 1)) if body.stream and partial else None
        ticket = self.service.reserve(replace(submit, every=every, as_bytes=True))
        answer = await self.service.first_answer(ticket, request)
        if body.stream:
            return event_stream(self._events(info, ticket, answer, partial))
        result = self.service.result(info, ticket, answer)
        images = [{"b64_json": image} for image in each_file(result)]
        self.service.delays.add_returned(answer.sent_at)
        return JSONResponse({"created": int(time.time()), "data": images, **_facts(result), "usage": usage(result)})

    def _model(self, name: str | None) -> ModelInfo:
        images = [info for info in self.service.models if info.sample_rate is None]
        check(bool(images), "none of the models served makes images")
        return find_model(images, name)

    async def _events(self, info: ModelInfo, ticket: Ticket, first: Answer, partial: int) -> AsyncIterator[bytes]:
        sent = 0
        try:
            async with aclosing(self.service.answers(ticket, first)) as answers:
                async for answer in answers:
                    result = self.service.result(info, ticket, answer)
                    kind = "image_generation.completed" if answer.final else "image_generation.partial_image"
                    more: dict[str, Any] = {"usage": usage(result)} if answer.final else {"partial_image_index": sent}
                    if answer.final or sent < partial:
                        sent += 1
                        image = {"type": kind, "b64_json": each_file(result)[0], "created_at": int(time.time())}
                        yield event(kind, {**image, "quality": "auto", **_facts(result), **more})
        except ProblemError as problem:
            yield event("error", {"error": envelope(problem)})


def _facts(result: Result) -> dict[str, Any]:
    size = f"{result.info.shape[-1]}x{result.info.shape[-2]}"
    return {"size": size, "output_format": "png", "background": "opaque", "anytime": result.facts}


def usage(result: Result) -> dict[str, Any]:
    """Return the codes in OpenAI's form of token counts."""
    tokens = result.count * len(result.data)
    details = {"text_tokens": 0, "image_tokens": 0}
    return {"input_tokens": 0, "input_tokens_details": details, "output_tokens": tokens, "total_tokens": tokens}


def envelope(problem: ProblemError) -> dict[str, Any]:
    """Return an error in OpenAI's form."""
    kind = "invalid_request_error" if problem.status < 429 else "server_error" if problem.status >= 500 else "requests"
    return {"message": problem.detail, "type": kind, "param": None, "code": problem.title.lower().replace(" ", "_")}


def error_response(problem: ProblemError) -> Response:
    """Return an error in OpenAI's envelope, whose invalid requests have the status 400."""
    status = 400 if problem.status == 422 else problem.status
    return JSONResponse({"error": envelope(problem)}, status, {"Cache-Control": "no-store", **problem.headers})
