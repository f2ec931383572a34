"""What clients may ask for: the fields of each request, their limits, and their check against a model."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

from anytime.core.config import from_dict, parse_json
from anytime.core.errors import UserError, did_you_mean
from anytime.server.messages import ModelInfo, Submit

MAX_BODY = 64 * 1024
"""Bytes of a request."""
MAX_ROWS = 256
MAX_ROW, MAX_SEED = 1 << 31, 1 << 63
MAX_DEADLINE_MS = 600_000.0
DEFAULT_DEADLINE_MS = 30_000.0
"""A request without a deadline is answered by then, with fewer codes if it must be."""
MAX_SHOWN = 64
"""Characters of a name that an error repeats."""
RANDOM_SEEDS = 1 << 53
"""Seeds that the server chooses: a number that JavaScript can hold."""

Body = TypeVar("Body")
Rows = tuple[tuple[int, ...], ...]


class ProblemError(Exception):
    """An answer that is an error: its status, a short title, one sentence, and headers and fields of its own."""

    def __init__(self, status: int, title: str, detail: str, headers: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.status, self.title, self.detail, self.headers, self.more = status, title, detail, headers or {}, more


@dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """Body of `POST /v1/samples`."""

    model: str | None = None
    """A model's name; by default the first one served."""
    n: int = 1
    """Number of samples."""
    rows: tuple[int, ...] | None = None
    """Their row numbers; by default 0 to n - 1. With the seed they determine the codes."""
    codes: int | None = None
    """Codes of each sample; by default all."""
    deadline_ms: float | None = None
    """Milliseconds until the answer must be ready. Under load it has fewer codes rather than being late."""
    quality: float | None = None
    """The fewest codes of this quality, above 0 and at most 1, by the model's quality table; instead of `codes`."""
    seed: int | None = None
    """The same seed gives the same samples; by default a random one, which the answer names."""
    prefix: Rows | None = None
    """First codes of every sample: one list for all, or one for each."""
    temperature: float | None = None
    """Sampling temperature; by default the model's."""
    top_p: float | None = None
    """Sample among the most likely codes that together hold this probability."""
    every: int = 1
    """Codes between two refinements of a stream."""
    format: Literal["png", "wav", "npz"] | None = None
    """Files inside the events of a stream; by default PNG images or WAV audio."""


@dataclass(frozen=True, kw_only=True)
class RefineRequest:
    """Body of `POST /v1/refine`. The same is possible with /v1/samples: give seed, rows, and the codes so far as prefix."""

    id: str
    """Of the answer to continue."""
    pick: tuple[int, ...] | None = None
    """Row numbers to continue; by default all."""
    codes: int | None = None
    """Codes of each sample; by default all."""
    deadline_ms: float | None = None
    """Milliseconds until the answer must be ready."""
    quality: float | None = None
    """The fewest codes of this quality; instead of `codes`."""
    every: int = 1
    """Codes between two refinements of a stream."""
    format: Literal["png", "wav", "npz"] | None = None
    """Files inside the events of a stream."""


def parse(body: bytes, into: type[Body]) -> Body:
    """Read a JSON body; raise `ProblemError` for anything that is not one."""
    try:
        data = parse_json(body or b"{}", parse_constant=_refuse_constant, parse_float=_parse_float)
        return from_dict(into, data, "the request")
    except UserError as error:
        raise ProblemError(422, "Invalid request", str(error)) from None
    except (ValueError, RecursionError, OverflowError) as error:
        raise ProblemError(400, "Malformed JSON", f"the body is not JSON: {_first_line(error)}") from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _parse_float(text: str) -> int | float:
    """Read a number; 8.0 is a whole number, as in JSON Schema."""
    value = float(text)
    return int(value) if value.is_integer() else value


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200] or type(error).__name__


def find_model(models: Sequence[ModelInfo], name: str | None) -> ModelInfo:
    """Return the model of that name, by default the first."""
    if name is None:
        return models[0]
    for info in models:
        if info.name == name:
            return info
    shown = name if len(name) <= MAX_SHOWN else f"{name[:MAX_SHOWN]}…"
    raise ProblemError(404, "Unknown model", f"there is no model {shown!r}; {did_you_mean(shown, [i.name for i in models])}")


def to_submit(request: SampleRequest, info: ModelInfo, number: int, arrived: float) -> Submit:
    """Check a request against its model; return what the engine gets."""
    n, most = request.n, min(MAX_ROWS, info.slots)
    check(1 <= n <= most, f"n must be between 1 and {most}, not {n}")
    rows = tuple(range(n)) if request.rows is None else request.rows
    check(len(rows) == n, f"rows must have n = {n} numbers, not {len(rows)}")
    check(all(0 <= row < MAX_ROW for row in rows), "rows must be between 0 and 2^31 - 1")
    prefix = request.prefix or ((),)
    prefix = prefix * n if len(prefix) == 1 else prefix
    given = len(prefix[0])
    check(len(prefix) == n and all(len(row) == given for row in prefix), f"prefix must have 1 row or {n} rows of equal length")
    allowed, codes = range(info.codebook_size), code_count(request.codes, request.quality, info)
    check(all(code in allowed for row in prefix for code in row), f"prefix must have codes of {info.name}: 0 to {allowed[-1]}")
    check(given <= codes, f"prefix has {given} codes, more than the {codes} requested")
    within = DEFAULT_DEADLINE_MS if request.deadline_ms is None else request.deadline_ms
    check(0 < within <= MAX_DEADLINE_MS, f"deadline_ms must be above 0 and at most {MAX_DEADLINE_MS:.0f}, not {within:g}")
    seed = secrets.randbelow(RANDOM_SEEDS) if request.seed is None else request.seed
    check(0 <= seed < MAX_SEED, f"seed must be between 0 and 2^63 - 1, not {seed}")
    temperature, top_p, every = request.temperature, request.top_p, request.every
    check(temperature is None or 1e-3 <= temperature <= 100, f"temperature must be between 0.001 and 100, not {temperature}")
    check(top_p is None or 0 < top_p <= 1, f"top_p must be above 0 and at most 1, not {top_p}")
    check(1 <= every <= info.length, f"every must be between 1 and {info.length}, not {every}")
    deadline = arrived + within / 1000
    return Submit(number, info.name, rows, seed, prefix, codes, deadline, arrived, temperature, top_p, every)


def to_refine(
    request: RefineRequest, earlier: Submit, codes: Rows, info: ModelInfo, number: int, arrived: float
) -> Submit:  # fmt: skip
    """Check a request to continue an earlier answer, whose codes are given; return what the engine gets."""
    place = {row: index for index, row in enumerate(earlier.rows)}
    rows = earlier.rows if request.pick is None else request.pick
    unknown = [row for row in rows if row not in place]
    check(not unknown, f"pick names rows that the answer does not have: {unknown[:5]}")
    sample = SampleRequest(
        n=len(rows), rows=rows, prefix=tuple(codes[place[row]] for row in rows), codes=request.codes, quality=request.quality,
        deadline_ms=request.deadline_ms, seed=earlier.seed, temperature=earlier.temperature, top_p=earlier.top_p,
        every=request.every, format=request.format,
    )  # fmt: skip
    submit = to_submit(sample, info, number, arrived)
    return replace(submit, continues=earlier.number if rows == earlier.rows else None)


def code_count(codes: int | None, quality: float | None, info: ModelInfo) -> int:
    """Return the number of codes requested: all, `codes`, or the fewest of that quality."""
    if quality is None:
        check(codes is None or 1 <= codes <= info.length, f"codes must be between 1 and {info.length}, not {codes}")
        return info.length if codes is None else codes
    check(codes is None, "codes and quality both set the length; give one of them")
    check(0 < quality <= 1, f"quality must be above 0 and at most 1, not {quality}")
    check(bool(info.quality), f"{info.name} has no quality table; give codes instead")
    if quality == 1:
        return info.length
    return next((k for k, q in enumerate(info.quality, start=1) if q is not None and q >= quality - 1e-9), info.length)


def check(condition: bool, otherwise: str) -> None:
    """Raise `ProblemError` with one sentence unless the condition holds."""
    if not condition:
        raise ProblemError(422, "Invalid request", otherwise)


def field_docs(cls: type) -> dict[str, str]:
    """Return the docstring of every field of a request, for its description.

    >>> field_docs(SampleRequest)["n"]
    'Number of samples.'
    """
    import ast
    import inspect
    import textwrap

    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found, names = dict[str, str](), {field.name for field in fields(cls)}
    for before, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            name = ast.unparse(before.target)
            if name in names:
                found[name] = " ".join(str(after.value.value).split())
    return found
