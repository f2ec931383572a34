"""Atomic files: written to a temporary name, flushed, then renamed. Tensors are stored with a digest, never pickled."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from anytime.core.config import FORMAT, parse_json
from anytime.core.errors import UserError, reason
from anytime.core.files import open_regular

PARTIAL = re.compile(r"\..+\.[0-9a-f]{8}\.partial")
"""Names of the temporary files of `atomic_path`."""
NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of file systems without hard links."""
MAX_HEADER = 1 << 22
"""Bytes of the header of a file of tensors: 4 MiB, about 40,000 tensors."""
UNREADABLE = (SafetensorError, ValueError, OSError, RuntimeError, TypeError, OverflowError, MemoryError)
"""What safetensors, json and torch raise for damaged files. RuntimeError: one that became shorter while it was read, or nested
too deep. MemoryError: one that declares a size beyond all memory."""
DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64,
    "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
}  # fmt: skip
"""Types of the tensors in our files, by their names in a header."""


class DamagedFileError(UserError):
    """A file that is truncated or altered."""


@contextmanager
def atomic_path(path: Path, *, make_parents: bool = True) -> Iterator[Path]:
    """Yield a temporary name beside `path`. On success the file is flushed and renamed to `path`, otherwise removed."""
    if make_parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    partial = _partial_name(path)
    with partial.open("xb") as own:
        _lock(own.fileno())  # until the end, so that `remove_partials` of another process leaves it alone
        try:
            yield partial
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def _partial_name(path: Path) -> Path:
    """Return a name with a random part: several processes may write the same file at the same time."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")


def remove_partials(folder: Path, *, recursive: bool = False) -> None:
    """Remove the temporary files that a killed process left in a directory; one that is being written is locked and stays."""
    for path in folder.rglob(".*.partial") if recursive else folder.glob(".*.partial"):
        if PARTIAL.fullmatch(path.name):
            with suppress(OSError):  # another process has removed it, or it is not ours to remove
                _remove_unlocked(path)


def _remove_unlocked(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if stat.S_ISREG(os.fstat(file).st_mode) and _lock(file):
            path.unlink()
    finally:
        os.close(file)


def _lock(file: int) -> bool:
    """Lock an open file until it is closed; return False if another process holds its lock or files cannot be locked."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):  # Windows has no fcntl, some network file systems have no locks
        return False
    return True


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file; a crash leaves the old one or the new one, never a part."""
    try:
        with atomic_path(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror or error}); make room or choose another place") from None


def write_new(path: Path, content: bytes) -> bool:
    """Write a file unless there is one; return whether it was written. Of several processes, one writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = _partial_name(path)
    with partial.open("xb") as own:
        _lock(own.fileno())
        try:
            own.write(content)
            own.flush()
            os.fsync(own.fileno())
            return _rename_new(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def _rename_new(partial: Path, path: Path) -> bool:
    """Rename a file unless the new name exists: `rename` would replace it, a link does not."""
    try:
        path.hardlink_to(partial)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS or path.exists():
            raise
        partial.replace(path)
    return True


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file. A file name in it that is not UTF-8 is escaped, as \\udcff, which JSON reads back."""
    write_atomic(path, text.encode(errors="backslashreplace"))


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON file with its format number."""
    write_text(path, json.dumps({"format": FORMAT, **data}, indent=2, ensure_ascii=False) + "\n")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_utf8(path: Path) -> bool:
    """Return whether the absolute path is valid UTF-8; safetensors reads no others.

    >>> is_utf8(Path("run")), is_utf8(Path("run\\udcff"))
    (True, False)
    """
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        return False
    return True


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Return a hash of names, types, shapes and bytes; it is the same on every device."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        content: Any = tensor.flatten().view(torch.uint8).numpy()
        sha.update(content)  # without a copy
    return sha.hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any] | None = None) -> str:
    """Save tensors with JSON metadata in the header; return their digest."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    found, metadata = digest(whole), metadata or {}
    # "facts" is the metadata, "seal" the checksum; the bundled files have these keys.
    # One entry: safetensors writes several in random order, but equal contents must give equal bytes.
    header = {"format": FORMAT, "facts": metadata, "seal": _checksum(found, metadata)}
    write_atomic(path, save(whole, {"anytime": json.dumps(header)}))
    return found


def _checksum(found: str, metadata: Mapping[str, Any]) -> str:
    """Return a hash of the digest of the tensors and of the metadata."""
    return hashlib.sha256(f"{found} {json.dumps(metadata)}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Header:
    """What a file of tensors declares."""

    tensors: dict[str, TensorInfo]
    metadata: dict[str, Any]
    checksum: Any


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """The shape and type of a tensor in a file; the type is None if torch does not have it."""

    shape: tuple[int, ...]
    dtype: torch.dtype | None


HeaderCheck = Callable[[Header], None]


def read_tensors(path: Path, check: HeaderCheck | None = None) -> tuple[dict[str, Tensor], dict[str, Any], str]:
    """Read the tensors, metadata and digest of a file; raise `DamagedFileError` if it is truncated or altered.

    `check` may refuse a file by its header, before memory is allocated for the tensors.
    """
    if not path.is_file():
        raise UserError(f"{path} is missing or not a regular file; restore it from where it came from")
    if not is_utf8(path):
        raise UserError(f"{path.absolute()} is not a UTF-8 path, which tensors need; rename it or its directory")
    try:
        _check_header_size(path)
        with safe_open(path, framework="pt") as file:
            header = _read_header(file)
            if check is not None:
                check(header)
            tensors = {name: file.get_tensor(name) for name in header.tensors}
        found = digest(tensors)
    except UserError:
        raise
    except UNREADABLE as error:
        raise DamagedFileError(
            f"{path} is truncated or not a safetensors file ({reason(error)}); restore it from where it came from"
        ) from None
    if _checksum(found, header.metadata) != header.checksum:
        raise DamagedFileError(f"{path} was altered: its contents do not match its digest; restore it from where it came from")
    return tensors, header.metadata, found


def _check_header_size(path: Path) -> None:
    """Refuse a header that takes long to parse; the file begins with its length."""
    with open_regular(path) as stream:
        size = int.from_bytes(stream.read(8), "little")
    if size > MAX_HEADER:
        raise ValueError(f"its header has more than {MAX_HEADER >> 20} MiB")


def _read_header(file: Any) -> Header:
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (safe_open is not a mapping)
    tensors = {name: TensorInfo(tuple(part.get_shape()), DTYPES.get(part.get_dtype())) for name, part in slices.items()}
    ours = parse_json((file.metadata() or {}).get("anytime", "{}"))
    metadata = ours.get("facts", {}) if isinstance(ours, dict) else None
    if not isinstance(metadata, dict):
        raise ValueError("its metadata is not a JSON object")
    return Header(tensors, metadata, ours.get("seal"))
