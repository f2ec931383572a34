"""Read a pickled dict of arrays, as CIFAR-10 is published, without unpickling it.

The opcodes of the pickle are interpreted here. The only values are numbers, texts, bytes, lists, tuples and pairs; a
function that a pickle names is recorded and never looked up or called. Nothing is hashed, copied or followed, so time
and memory are proportional to the size of the file.
"""

from __future__ import annotations

import math
import pickletools
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt8

from anytime.core.errors import UserError

MAX_OPCODES = 200_000
"""The most opcodes of a pickle that is read: a batch with its labels and file names has up to 120 thousand."""
_NUMBERS = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
_BYTES = {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
_TEXTS = {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
_LATIN1 = {"STRING", "BINSTRING", "SHORT_BINSTRING"}  # Python 2's bytes
_PUSH = _NUMBERS | _BYTES | _TEXTS | _LATIN1
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUT, _GET = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}
_IGNORED = {"PROTO", "FRAME", "STOP"}
_ARRAY_FUNCTIONS = {f"numpy.{core}.multiarray _reconstruct" for core in ("core", "_core")}
_BUFFER_FUNCTIONS = {f"numpy.{core}.numeric _frombuffer" for core in ("core", "_core")}
_ENCODE, _DTYPE = "_codecs encode", "numpy dtype"
_KNOWN = _ARRAY_FUNCTIONS | _BUFFER_FUNCTIONS | {_ENCODE, _DTYPE, "numpy ndarray"}


@dataclass(frozen=True, slots=True)
class _Name:
    """The module and name of a function that a pickle refers to."""

    text: str


@dataclass(slots=True)
class _Call:
    """A call that a pickle asks for, and the state that it wants to set on the result. It is never made."""

    function: str
    arguments: tuple[Any, ...]
    state: Any = None


class _Pairs(list[tuple[Any, Any]]):
    """The items of a dict. A dict would hash its keys, and the hash of nested tuples can take for ever."""


def read_pickled_array(content: bytes, key: str) -> UInt8[np.ndarray, "*shape"] | None:
    """Return the uint8 array under `key` of a pickled dict, or None if there is none.

    A `UserError` says that the pickle asks to run a function; any other exception that it is damaged.
    """
    root = _Machine().run(content)
    items = root if isinstance(root, _Pairs) else _Pairs()
    values = [value for name, value in items if isinstance(name, bytes | str) and name in (key, key.encode())]
    return _array(values[-1]) if values and isinstance(values[-1], _Call) else None


def _array(call: _Call) -> UInt8[np.ndarray, "*shape"] | None:
    """Return the array that a call would rebuild, if its elements are bytes in C order."""
    if call.function in _ARRAY_FUNCTIONS and isinstance(call.state, tuple) and len(call.state) == 5:
        _, shape, dtype, fortran, content = call.state
    elif call.function in _BUFFER_FUNCTIONS and len(call.arguments) == 4:
        content, dtype, shape, order = call.arguments
        fortran = order != "C"
    else:
        return None
    is_uint8 = isinstance(dtype, _Call) and dtype.function == _DTYPE and dtype.arguments[:1] in (("u1",), (b"u1",))
    if not is_uint8 or fortran or not isinstance(content, bytes | bytearray) or not isinstance(shape, tuple):
        return None
    if len(shape) > 4 or not all(type(side) is int and 0 <= side <= len(content) for side in shape):
        return None
    if math.prod(shape) != len(content):
        return None
    return np.frombuffer(content, np.uint8).reshape(shape)


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, content: bytes) -> Any:
        """Interpret all opcodes and return the value that is left."""
        argument: Any
        for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
            if number > MAX_OPCODES:
                raise ValueError(f"it has more than {MAX_OPCODES:,} opcodes")
            name = opcode.name
            if name in _PUSH:
                self.stack.append(argument.encode("latin1") if name in _LATIN1 else argument)
            elif name in _PUT:
                self.memo[argument] = self.stack[-1]
            elif name in _GET:
                self.stack.append(self.memo[argument])
            elif name not in _IGNORED:
                self.combine(name, argument)
        return self.stack.pop()

    def combine(self, name: str, argument: Any) -> None:
        """Interpret one opcode of constants, containers and calls."""
        match name:
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                self.stack.append(_CONSTANTS[name])
            case "EMPTY_TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                self.stack.append(self.take(_TUPLES[name]))
            case "MARK":
                self.marks.append(len(self.stack))
            case "MEMOIZE":
                self.memo[len(self.memo)] = self.stack[-1]
            case "EMPTY_LIST":
                self.stack.append([])
            case "EMPTY_DICT":
                self.stack.append(_Pairs())
            case "TUPLE":
                self.stack.append(self.take_marked())
            case "LIST":
                self.stack.append(list(self.take_marked()))
            case "DICT":
                self.stack.append(_pairs(self.take_marked()))
            case "APPEND" | "APPENDS":
                items = self.take(1) if name == "APPEND" else self.take_marked()
                self.top(list).extend(items)
            case "SETITEM" | "SETITEMS":
                items = self.take(2) if name == "SETITEM" else self.take_marked()
                self.top(_Pairs).extend(_pairs(items))
            case "GLOBAL" | "STACK_GLOBAL":
                self.stack.append(_known(argument if name == "GLOBAL" else " ".join(self.take(2))))
            case "REDUCE":
                self.stack.append(_call(*self.take(2)))
            case "BUILD":
                (state,) = self.take(1)
                self.top(_Call).state = state
            case _:
                raise UserError(f"asks for the opcode {name}, which no CIFAR-10 batch does: do not trust it, download it again")

    def top(self, kind: type[Any]) -> Any:
        """Return the value at the top, which must be of this kind."""
        if type(self.stack[-1]) is not kind:
            raise ValueError("values of the wrong kind")
        return self.stack[-1]

    def take(self, count: int) -> tuple[Any, ...]:
        """Remove that many values from the top."""
        if count > len(self.stack):
            raise ValueError("values are missing")
        start = len(self.stack) - count
        taken = tuple(self.stack[start:])
        del self.stack[start:]
        return taken

    def take_marked(self) -> tuple[Any, ...]:
        """Remove the values above the last mark."""
        return self.take(len(self.stack) - self.marks.pop())


def _pairs(items: tuple[Any, ...]) -> _Pairs:
    return _Pairs(zip(items[::2], items[1::2], strict=True))


def _known(name: str) -> _Name:
    """Refuse every function but those that rebuild arrays and bytes."""
    if name not in _KNOWN:
        function = name[:100].replace(" ", ".")
        raise UserError(f"asks to run {function!r}, which no CIFAR-10 batch does: do not trust it, download it again")
    return _Name(name)


def _call(function: Any, arguments: Any) -> bytes | _Call:
    """Return the bytes that a text encodes, or a record of the call."""
    if not isinstance(function, _Name) or not isinstance(arguments, tuple):
        raise ValueError("a call without a function")
    if function.text != _ENCODE:
        return _Call(function.text, arguments)
    text, codec = arguments
    if not isinstance(text, str) or not isinstance(codec, str):
        raise ValueError("bytes that are not text")
    if codec != "latin1":
        raise UserError(f"asks for the codec {codec[:100]!r}, which no CIFAR-10 batch does: do not trust it, download it again")
    return text.encode("latin1")
