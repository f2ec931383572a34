"""Frozen dataclasses <-> JSON, strict on unknown and missing keys.

A config is a tree of frozen `kw_only` dataclasses. Its leaves are numbers, strings, booleans, None and tuples of them.
If a field admits several dataclasses (a union), the JSON object has the key `"kind"`: the name of the class in lower case,
without the suffix "config".
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from anytime.core.errors import UserError, did_you_mean

FORMAT = 1
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
            raise UserError(f"{where} has the unknown key {key!r}; {did_you_mean(key, fields)}")
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
        if kind not in kinds:
            raise UserError(f"{where} has the kind {kind!r}; {did_you_mean(str(kind), kinds)}")
        return from_dict(kinds[kind], {k: v for k, v in value.items() if k != "kind"}, where)
    for member in members:
        if (built := _leaf(member, value, where)) is not _INVALID:
            return built
    if classes:
        first = "kind" if len(classes) > 1 else dataclasses.fields(classes[0])[0].name
        raise UserError(f"{where} must be a group of settings, such as {where}.{first}, not {value!r}")
    raise UserError(f"{where} must be {_type_name(hint)}, not {value!r}")


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
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return value if hint in (int, str, bool) and type(value) is hint else _INVALID


def _type_name(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return " or ".join(repr(v) for v in typing.get_args(hint))
    if origin is tuple and typing.get_args(hint)[0] is int:
        return "whole numbers in brackets, such as [32,64]"
    return getattr(hint, "__name__", str(hint)) if not typing.get_args(hint) else str(hint)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; check its `format` and remove it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error}); restore it from where it came from") from None
    found = data.pop("format", None) if isinstance(data, dict) else None
    if found != FORMAT:
        message = f"{path} has format {found!r}, this version of anytime reads format {FORMAT}; use the version that wrote it"
        raise UserError(message)
    return cast(dict[str, Any], data)


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
