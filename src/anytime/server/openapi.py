"""The OpenAPI description of the server, made from the request classes."""

from __future__ import annotations

import dataclasses
import typing
from functools import cache
from types import NoneType, UnionType
from typing import Any

from anytime import __version__
from anytime.server.openai import MAX_IMAGES, MAX_PARTIAL, ImagesRequest
from anytime.server.protocol import MAX_DEADLINE_MS, MAX_ROW, MAX_ROWS, MAX_SEED, RefineRequest, SampleRequest, field_docs

LIMITS: dict[str, dict[str, Any]] = {
    "n": {"minimum": 1, "maximum": MAX_ROWS},
    "rows": {"minItems": 1, "maxItems": MAX_ROWS, "items": {"type": "integer", "minimum": 0, "maximum": MAX_ROW - 1}},
    "pick": {"minItems": 1, "maxItems": MAX_ROWS, "items": {"type": "integer", "minimum": 0, "maximum": MAX_ROW - 1}},
    "prefix": {"minItems": 1, "maxItems": MAX_ROWS},
    "codes": {"minimum": 1},
    "deadline_ms": {"exclusiveMinimum": 0, "maximum": MAX_DEADLINE_MS},
    "seed": {"minimum": 0, "maximum": MAX_SEED - 1},
    "temperature": {"minimum": 0.001, "maximum": 100},
    "top_p": {"exclusiveMinimum": 0, "maximum": 1},
    "every": {"minimum": 1},
}
IMAGES_LIMITS = {
    "n": {"minimum": 1, "maximum": MAX_IMAGES},
    "partial_images": {"minimum": 0, "maximum": MAX_PARTIAL},
    "quality": {},
}
JSON_TYPES: dict[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean"}
PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "One sentence."},
        "id": {"type": "string"},
        "possible_after_ms": {"type": "integer", "description": "When an answer could be ready."},
    },
}
OPENAI_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "object", "required": ["message", "type", "param", "code"]}},
}
SAMPLE = {
    "type": "object",
    "required": ["id", "model", "codes", "requested", "length", "shortened", "seconds", "seed", "samples"],
    "properties": {
        "id": {"type": "string"},
        "model": {"type": "string"},
        "codes": {"type": "integer", "description": "Codes of each sample."},
        "requested": {"type": "integer"},
        "length": {"type": "integer"},
        "shortened": {"type": "boolean", "description": "Whether there are fewer codes than requested."},
        "seconds": {"type": "number"},
        "seed": {"type": "integer"},
        "rows": {"type": "array", "items": {"type": "integer"}},
        "code_rows": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "media_type": {"type": "string"},
        "samples": {"type": "array", "items": {"type": "string"}, "description": "One base64 file for each row."},
    },
}
BINARY = {"schema": {"type": "string", "format": "binary"}}
PROBLEMS = {
    "400": "The body is not JSON.",
    "404": "There is no such model or answer.",
    "406": "No media type that the client accepts.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is not application/json.",
    "422": "A field is unknown, missing or out of range.",
    "429": "The deadline cannot be kept, or too many requests are waiting.",
    "503": "The server is shutting down, or restarting its engine.",
}


def schema(cls: type, limits: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the JSON schema of a request class: its fields, their types and limits, nothing else."""
    docs, hints = field_docs(cls), typing.get_type_hints(cls)
    missing = dataclasses.MISSING
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [f.name for f in dataclasses.fields(cls) if f.default is missing],
        "properties": {
            name: {**_type(hint), **limits.get(name, {}), "description": docs.get(name, "")} for name, hint in hints.items()
        },
    }


def _type(hint: Any) -> dict[str, Any]:
    """Return the JSON type of an annotation; None means that a field may be left out or null.

    >>> _type(int | None), _type(tuple[int, ...])
    ({'type': ['integer', 'null']}, {'type': 'array', 'items': {'type': 'integer'}})
    """
    if isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union:
        (inner,) = (each for each in typing.get_args(hint) if each is not NoneType)
        found = _type(inner)
        nullable = {"type": [found["type"], "null"]}
        return found | nullable | ({"enum": [*found["enum"], None]} if "enum" in found else {})
    if typing.get_origin(hint) is tuple:
        return {"type": "array", "items": _type(typing.get_args(hint)[0])}
    if typing.get_origin(hint) is typing.Literal:
        return {"type": "string", "enum": list(typing.get_args(hint))}
    return {"type": JSON_TYPES[hint]}


def _post(summary: str, body: dict[str, Any], answers: dict[str, Any], errors: dict[str, Any]) -> dict[str, Any]:
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": {"200": {"description": "The answer.", "content": answers}, **errors},
        }
    }


def _get(summary: str, kind: str = "application/json", down: str = "") -> dict[str, Any]:
    responses = {"200": {"description": summary, "content": {kind: {"schema": {}}}}}
    if down:
        responses["503"] = {"description": down, "content": {"application/json": {"schema": {}}}}
    return {"get": {"summary": summary, "responses": responses}}


@cache
def description() -> dict[str, Any]:
    """Return the whole description."""
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    problems = {status: {"description": text, "content": problem} for status, text in PROBLEMS.items()}
    openai_error = {"application/json": {"schema": {"$ref": "#/components/schemas/OpenAIError"}}}
    openai_statuses = PROBLEMS.keys() - {"406", "422"}
    openai_problems = {status: {"description": PROBLEMS[status], "content": openai_error} for status in sorted(openai_statuses)}
    files: dict[str, Any] = dict.fromkeys(("image/png", "audio/wav", "application/x-npz"), BINARY)
    events = {"text/event-stream": {"schema": {"type": "string"}}}
    document = {"application/json": {"schema": {"$ref": "#/components/schemas/Sample"}}}
    answers = {**document, **files, **events}
    images = {"application/json": {"schema": {"type": "object", "required": ["created", "data"]}}, **events}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "anytime",
            "version": __version__,
            "description": "Generative models that can be stopped at any moment. Every answer is complete and ready by its "
            "deadline; under load it has fewer codes.",
        },
        "paths": {
            "/v1/samples": _post("Generate samples.", schema(SampleRequest, LIMITS), answers, problems),
            "/v1/refine": _post("Continue an answer with more codes.", schema(RefineRequest, LIMITS), answers, problems),
            "/v1/images/generations": _post(
                "Generate images, in OpenAI's form.", schema(ImagesRequest, LIMITS | IMAGES_LIMITS), images, openai_problems
            ),
            "/v1/models": _get("The models served."),
            "/v1/stats": _get("The present load."),
            "/livez": _get("Whether the engine is alive.", down="It is not."),
            "/readyz": _get("Whether requests are taken.", down="They are not."),
            "/metrics": _get("Metrics for Prometheus.", "text/plain"),
        },
        "components": {
            "schemas": {"Problem": PROBLEM, "OpenAIError": OPENAI_ERROR, "Sample": SAMPLE},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }
