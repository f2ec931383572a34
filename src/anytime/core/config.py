"""Frozen dataclasses <-> JSON, strict on unknown and missing keys.

A config is a tree of frozen `kw_only` dataclasses. Its leaves are numbers, strings, booleans, None and tuples of them.
If a field admits several dataclasses (a union), the JSON object has the key `"kind"`: the name of the class in lower case,
without the suffix "config".
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from anytime.core.errors import UserError, did_you_mean, reason
from anytime.core.files import LimitedReader, open_regular

FORMAT = 1
MAX_JSON = 1 << 22
"""Bytes of a JSON file: 4 MiB."""
MAX_DEPTH = 64
"""Levels of objects and lists inside each other."""
MAX_INTEGER = (1 << 63) - 1
"""Whole numbers beyond 64 bits are refused: torch counts with 64."""
OVERRIDES = "`overrides`"  # the argument that errors of `override` name

Config = TypeVar("Config")


def to_dict(config: Any) -> dict[str, Any]:
    """Return the JSON value of a config; `from_dict` is the inverse."""
    out: dict[str, Any] = {}
    hints = _hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            kind = {"kind": _kind(type(value))} if len(_dataclasses(hints[field.name])) > 1 else {}
            value = {**kind, **to_dict(value)}
        elif isinstance(value, tuple):
            value = list(value)
        out[field.name] = value
    return out


def from_dict(cls: type[Config], data: Any, where: str = "config") -> Config:
    """Build `cls` from a JSON value; raise a `UserError` that names an unknown or missing key."""
    if not isinstance(data, dict):
        raise UserError(f"{where} must be a JSON object, not {type(data).__name__}")
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in data:
        if key not in fields:
            raise UserError(f"{where} has the unknown key {_shown(key)}; {did_you_mean(key, fields)}")
    for name, field in fields.items():
        if name not in data and field.default is field.default_factory is dataclasses.MISSING:
            raise UserError(f"{where} lacks the key {name!r}")
    hints, dot = _hints(cls), " " if where == OVERRIDES else "."
    return cls(**{key: _value(hints[key], value, f"{where}{dot}{key}") for key, value in data.items()})


_hints: Callable[[Any], dict[str, Any]] = lru_cache(maxsize=256)(typing.get_type_hints)
"""Types of the fields of a class; evaluating annotations takes longer than everything else here."""


def _kind(cls: type) -> str:
    return cls.__name__.lower().removesuffix("config")


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    return typing.get_args(hint) if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union else (hint,)


def _dataclasses(hint: Any) -> list[type]:
    return [member for member in _members(hint) if isinstance(member, type) and dataclasses.is_dataclass(member)]


def _value(hint: Any, value: Any, where: str) -> Any:
    members = _members(hint)
    if value is None and types.NoneType in members:
        return None
    classes = _dataclasses(hint)
    if len(classes) == 1 and isinstance(value, dict):
        return from_dict(classes[0], value, where)
    if classes and isinstance(value, dict):
        kinds, kind = {_kind(c): c for c in classes}, value.get("kind")
        if not isinstance(kind, str) or kind not in kinds:
            raise UserError(f"{where} has the kind {_shown(kind)}; {did_you_mean(str(kind), kinds)}")
        return from_dict(kinds[kind], {k: v for k, v in value.items() if k != "kind"}, where)
    for member in members:
        if (built := _leaf(member, value, where)) is not _INVALID:
            return built
    if classes:
        first = "kind" if len(classes) > 1 else dataclasses.fields(classes[0])[0].name
        raise UserError(f"{where} must be a group of settings, such as {where}.{first}, not {_shown(value)}")
    if isinstance(value, int | float) and (type(value) in members or (float in members and type(value) is int)):
        raise UserError(f"{where} must be a finite number of at most 64 bits, not {_shown(value)}")
    raise UserError(f"{where} must be {_type_name(hint)}, not {_shown(value)}")


def _shown(value: Any) -> str:
    """Return a value for an error, a long one without its end."""
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 100 else f"{text[:100]}…"


_INVALID = object()


def _leaf(hint: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin is tuple and isinstance(value, list | tuple):
        item, *rest = typing.get_args(hint)
        if rest != [...] and len(value) != 1 + len(rest):
            return _INVALID
        items = [item] * len(value) if rest == [...] else [item, *rest]
        return tuple(_value(h, v, f"{where}[{i}]") for i, (h, v) in enumerate(zip(items, value, strict=True)))
    if origin is typing.Literal:
        return value if value in typing.get_args(hint) else _INVALID
    if origin is list and isinstance(value, list):
        (item,) = typing.get_args(hint)
        return [_value(item, v, f"{where}[{i}]") for i, v in enumerate(value)]
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if is_finite(value) else _INVALID
    if hint is int and type(value) is int:
        return value if -MAX_INTEGER <= value <= MAX_INTEGER else _INVALID
    return value if hint in (str, bool) and type(value) is hint else _INVALID


def is_finite(value: int | float) -> bool:
    """Return whether a number is finite and fits into a float.

    >>> is_finite(3), is_finite(10**400), is_finite(float("nan"))
    (True, False, False)
    """
    return -sys.float_info.max <= value <= sys.float_info.max


_TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _type_name(hint: Any) -> str:
    """Return a type in words, without the null that an optional value may be.

    >>> _type_name(int | None), _type_name(typing.Literal["png", "wav"] | None)
    ('a whole number', "'png' or 'wav'")
    """
    origin = typing.get_origin(hint)
    if members := [member for member in _members(hint) if member not in (hint, types.NoneType)]:
        return " or ".join(map(_type_name, members))
    if origin is typing.Literal:
        return " or ".join(repr(v) for v in typing.get_args(hint))
    if origin is tuple and typing.get_args(hint)[0] is int:
        return "whole numbers in brackets, such as [32,64]"
    if hint in _TYPE_NAMES:
        return _TYPE_NAMES[hint]
    return str(hint) if typing.get_args(hint) else getattr(hint, "__name__", str(hint))


def read_json(path: Path, limit: int = MAX_JSON) -> dict[str, Any]:
    """Read a JSON object of at most `limit` bytes; check its `format` and remove it."""
    try:
        with open_regular(path) as stream:
            data = parse_json(LimitedReader(stream, limit).read())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as JSON ({reason(error)}); restore it from where it came from") from None
    found = data.pop("format", None) if isinstance(data, dict) else None
    if found != FORMAT:
        message = f"{path} has format {found!r}, this version of anytime reads format {FORMAT}; use the version that wrote it"
        raise UserError(message)
    return cast(dict[str, Any], data)


def parse_json(content: bytes | str, **options: Any) -> Any:
    """Parse JSON of a stranger; raise a `ValueError` or `RecursionError` for deep nesting and a key that comes twice."""
    text = content if isinstance(content, str) else content.decode("utf-8")
    data = json.loads(text, object_pairs_hook=_unique, **options)
    level = [data]
    for _ in range(MAX_DEPTH):
        groups = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list))
        level = [value for group in groups for value in group]
        if not level:
            return data
    raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise ValueError(f"the key {twice[:100]!r} comes twice")
    return found


def override(config: Config, overrides: Sequence[str]) -> Config:
    """Return `config` with `key=value` assignments applied; nested keys are joined by dots, values are JSON or text."""
    data = to_dict(config)
    for assignment in overrides:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise UserError(f"{OVERRIDES} {assignment!r} must look like key=value, such as prior.epochs=20")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        path, target = key.split("."), data
        for depth, part in enumerate(path):
            known = target if isinstance(target, dict) else {}
            if part not in known:
                place = f" in {'.'.join(path[:depth])}" if depth else ""
                hint = _full_key(data, key) or did_you_mean(part, known)
                raise UserError(f"{OVERRIDES} names the unknown key {part!r}{place}; {hint}")
            target = known[part]
        known[path[-1]] = value
    return from_dict(type(config), data, OVERRIDES)


def _full_key(data: dict[str, Any], key: str) -> str:
    """Return a hint at the full key of one that lacks its beginning, such as model.prior.layers for prior.layers."""
    full = [name for name in _keys(data) if name.endswith(f".{key}")]
    return f"did you mean {full[0]!r}?" if len(full) == 1 else ""


def _keys(data: dict[str, Any], prefix: str = "") -> list[str]:
    """Return all keys of a tree, joined by dots."""
    below = [key for name, value in data.items() if isinstance(value, dict) for key in _keys(value, f"{prefix}{name}.")]
    return [*(f"{prefix}{name}" for name in data), *below]
