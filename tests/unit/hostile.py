"""Damage to JSON documents and arrays that keeps the file whole: wrong types, sizes, signs and names, missing keys."""

from __future__ import annotations

import copy
import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

DEEP: list[Any] = []
for _ in range(100):
    DEEP = [DEEP]
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 7, 2**31, 2**63, -(2**63) - 1, 10**30, 10**400, 0.0, -0.5, 1e-320, 1e308,
    float("inf"), float("-inf"), float("nan"), "", "a", "0", "\x1b[31m\n", "\ud800", "x" * 5000,
    "../../etc/passwd", "/dev/zero",
    [], {}, [[]], [{}], {"": 0}, [1, 2], [0] * 3000, ["a"], DEEP, {"kind": []}, {"kind": "lstm"}, {"kind": "pixelcnn"},
]  # fmt: skip
"""What is put in the place of a value."""
DTYPES = ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", ">i8", "f2", "f4", "f8", ">f4", "c8", "U3", "S3", "M8[s]", "O"]


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a JSON document with each of its keys."""
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in list(keys):
        yield tree, key
        yield from places(tree[key])


@st.composite
def damaged_document(draw: st.DrawFn, document: dict[str, Any]) -> dict[str, Any]:
    """A JSON document after one to three changes: values replaced, keys removed, renamed or added."""
    tree = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        found = list(places(tree))
        if not found:
            break
        holder, key = found[draw(st.integers(0, len(found) - 1))]
        match draw(st.sampled_from(["value", "value", "value", "remove", "rename", "copy"])):
            case "value":
                holder[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
            case "remove":
                del holder[key]
            case "rename" if isinstance(holder, dict):
                holder[draw(st.sampled_from(["", "kind", "x\x1b", "format", "length", "y" * 3000]))] = holder.pop(key)
            case "copy":
                other, place = found[draw(st.integers(0, len(found) - 1))]
                holder[key] = copy.deepcopy(other[place]) if place in range(len(other)) or isinstance(other, dict) else None
    return tree


def encoded(tree: Any) -> bytes:
    """The bytes of a JSON document, whose numbers may be beyond what JSON allows."""
    return json.dumps(tree).encode(errors="replace")


@st.composite
def damaged_arrays(draw: st.DrawFn, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays after one to three changes of type, shape, sign or name."""
    found = dict(arrays)
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(arrays)))
        array = found.get(name, arrays[name])
        match draw(st.sampled_from(["type", "shape", "value", "remove", "rename", "empty", "wider"])):
            case "type":
                kind = draw(st.sampled_from(DTYPES))
                found[name] = np.zeros(array.shape, kind) if array.dtype.kind in "UO" else array.astype(kind)
            case "shape":
                found[name] = array.reshape(draw(st.sampled_from([(-1,), (1, -1), (-1, 1, 1), (1,) * 20 + (-1,)])))
            case "value" if array.dtype.kind in "iuf" and array.size:
                found[name] = np.full_like(array, draw(st.sampled_from([0, 1, 15, 16, 100])))
                found[name].flat[0] = draw(st.sampled_from([0, 1, 120]))
                if array.dtype.kind != "u":
                    found[name] = found[name] * draw(st.sampled_from([1, -1]))
            case "value":
                found[name] = np.array(draw(st.sampled_from(["", "{}", "[]", "\x1b[0m", '{"temperature": NaN}', "[" * 20000])))
            case "remove":
                found.pop(name, None)
            case "rename":
                found["../" + name] = found.pop(name, array)
            case "empty":
                found[name] = array.reshape(-1)[:0]
            case "wider":
                found[name] = np.stack([array, array])
    return found


def npz(arrays: dict[str, np.ndarray], method: int = zipfile.ZIP_STORED) -> bytes:
    """The bytes of an .npz file; arrays of objects are pickled."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=True)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue(), method)
    return stream.getvalue()
