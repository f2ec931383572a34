"""The directory of a bulk request: shards, and a manifest with the request and the SHA-256 of each finished shard.

The SHA-256 of a shard is written first, to a small hidden file. Then the shard is written to a temporary name, flushed and
renamed. The main process adds the hidden files of finished shards to the manifest and removes them. A shard without a recorded
SHA-256 is not trusted: it is made again.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anytime.bulk.request import BulkRequest, first_difference
from anytime.core import storage
from anytime.core.config import FORMAT, from_dict, read_json, to_dict
from anytime.core.errors import UserError, reason
from anytime.core.files import open_regular

MANIFEST = "manifest.json"
MAX_MANIFEST = 1 << 25
"""Bytes of a manifest or of records that are read: 32 MiB, more than `MAX_SHARDS` shards need."""
SHARD = re.compile(r"shard-\d{5}\.(npz|tar)")
RECORDS = ".shard-*.json"
"""Records of shards that are not in the manifest yet, named by their first shard."""
MANIFEST_SECONDS = 2.0
"""Least time between two manifests."""
AGAIN = "then run the same command again to continue"


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """A finished shard, as the manifest lists it."""

    file: str
    first: int
    rows: int
    sha256: str


class ShardFolder:
    """The files of one request. Each rank has its own object; the main one writes the manifest."""

    def __init__(self, path: Path, request: BulkRequest, *, is_main: bool = True) -> None:
        self.path, self.request, self.is_main = path, request, is_main
        self.records: dict[int, ShardRecord] = {}  # by shard, of this and earlier runs
        self.done: set[int] = set()  # written or checked by this run
        self.present: set[int] = set()  # found with a record when the directory was opened
        self._written_at = 0.0

    @property
    def manifest(self) -> Path:
        """The path of the manifest."""
        return self.path / MANIFEST

    def open(self, wait: float = 300.0) -> None:
        """Create the manifest, or check that it is that of this request; other ranks wait for the main one to create it."""
        if self.is_main:
            storage.remove_partials(self.path)
            if not self.manifest.exists():
                self._create()
        end = time.monotonic() + wait
        while not self.manifest.exists():
            if time.monotonic() > end:
                raise UserError(f"rank 0 has not written {self.manifest} in {wait:.0f} s; all ranks must see the same `out`")
            time.sleep(0.05)
        self._read()
        names = {self.request.name(index): index for index in range(self.request.count)}
        here = {names[file.name] for file in self.path.iterdir() if file.name in names}
        self.present = here & self.records.keys()

    def _create(self) -> None:
        if self.path.is_dir() and any(SHARD.fullmatch(file.name) for file in self.path.iterdir()):
            raise UserError(f"`out` {self.path} has shards but no {MANIFEST}; restore it or choose another `out`")
        with self._saying_what_to_do(self.manifest):
            created = storage.write_new(self.manifest, self._manifest_bytes())
        if not created and not self.manifest.exists():  # otherwise another process was faster
            raise UserError(f"{self.manifest} is a broken link; remove it or choose another `out`")

    def _read(self) -> None:
        """Read the records; refuse the manifest of another request."""
        # Before the manifest: they are added to it, then removed.
        records = [record for path in self.path.glob(RECORDS) for record in self._read_records(path)]
        self.records = dict(self._read_manifest())
        self.records |= {record.first // self.request.rows_per_shard: record for record in records}

    def _read_manifest(self) -> Iterator[tuple[int, ShardRecord]]:
        data = read_json(self.manifest, MAX_MANIFEST)
        files, ours = data.pop("files", None), to_dict(self.request)
        if difference := first_difference(ours, data):
            key, mine, theirs = difference
            raise UserError(
                f"`out` {self.path} has samples of another request: `{key}` is {theirs!r} there and {mine!r} here; "
                "repeat that request or choose another `out`"
            )
        yield from self._parse(files, self.manifest)

    def _parse(self, files: Any, path: Path) -> Iterator[tuple[int, ShardRecord]]:
        for position, item in enumerate(files if isinstance(files, list) else [files]):
            record = from_dict(ShardRecord, item, f"{path}: files[{position}]")
            index = record.first // self.request.rows_per_shard
            if not 0 <= index < self.request.count or record != self.record(index, record.sha256):
                raise UserError(f"{path}: files[{position}] is not a shard of this request; restore the file")
            yield index, record

    def _read_records(self, path: Path) -> list[ShardRecord]:
        with suppress(UserError):  # removed in the meantime, or not ours: without a record a shard is made again
            return [record for _, record in self._parse(read_json(path, MAX_MANIFEST).get("files"), path)]
        return []

    def _is_there(self, record: ShardRecord) -> bool:
        return (self.path / record.file).exists()

    def record(self, index: int, sha256: str) -> ShardRecord:
        """Return the record of a shard."""
        rows = self.request.rows(index)
        return ShardRecord(file=self.request.name(index), first=rows.start, rows=len(rows), sha256=sha256)

    def check(self, indices: Iterable[int]) -> list[int]:
        """Hash the shards that are there; remove those that are damaged or have no record, and return them."""
        found, wrong, missing = list[ShardRecord](), list[int](), list[int]()
        for index in indices:
            path = self.path / self.request.name(index)
            try:
                with open_regular(path) as file:
                    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            except FileNotFoundError:
                missing.append(index)
                continue
            except OSError as error:
                raise UserError(f"{path} cannot be read ({reason(error)}); mend or remove it, {AGAIN}") from None
            record = self.record(index, sha256)
            if self.records.get(index) != record:
                self._read()  # another command may have made it since the directory was opened
            if self.records.get(index) == record:
                found.append(record)
            else:
                wrong.append(index)
                with self._saying_what_to_do(path):  # so that its new record is not taken for one of this file
                    path.unlink(missing_ok=True)
        if found and not self.is_main:
            self._announce(found)
        self._add(found)
        for index in missing:  # not in the manifest until they are made
            self.records.pop(index, None)
        return wrong

    def write(self, index: int, content: bytes) -> None:
        """Write a shard, after its record."""
        record = self.record(index, hashlib.sha256(content).hexdigest())
        announced = self._announce([record])
        try:
            self._write(record.file, content)
        except UserError:  # a full disk, for example: nothing of the shard stays
            with suppress(OSError):
                announced.unlink()
            raise
        self._add([record])

    def _add(self, records: list[ShardRecord]) -> None:
        """Remember finished shards."""
        found = {record.first // self.request.rows_per_shard: record for record in records}
        self.records |= found
        self.done |= found.keys()

    def _announce(self, records: list[ShardRecord]) -> Path:
        """Leave records in a file for the main process, and for a run after a kill; return its path."""
        # A name of its own: the main process may be about to remove one that it has read.
        name = f".{records[0].file}.{secrets.token_hex(4)}.json"
        self._write(name, _json_bytes({"files": [asdict(record) for record in records]}))
        return self.path / name

    def collect(self, *, now: bool = False) -> None:
        """Add what other ranks have finished and write the manifest, unless it was written a moment ago."""
        if not now and time.monotonic() - self._written_at < MANIFEST_SECONDS:
            return
        read = {path: self._read_records(path) for path in self.path.glob(RECORDS)}
        finished = {path: found for path, found in read.items() if all(self._is_there(record) for record in found)}
        for found in finished.values():
            self._add(found)
        self._write(MANIFEST, self._manifest_bytes())
        for path in finished:
            with suppress(OSError):  # one that stays is read again
                path.unlink()
        self._written_at = time.monotonic()

    def _manifest_bytes(self) -> bytes:
        files = [asdict(self.records[index]) for index in sorted(self.records)]
        return _json_bytes({**to_dict(self.request), "files": files})

    def _write(self, name: str, content: bytes) -> None:
        """Write a file, but not into a directory that was removed or unmounted."""
        if not self.manifest.exists():
            raise UserError(f"{self.manifest} has vanished; restore the directory, {AGAIN}")
        path = self.path / name
        with self._saying_what_to_do(path), storage.atomic_path(path, make_parents=False) as partial:
            partial.write_bytes(content)

    @staticmethod
    @contextmanager
    def _saying_what_to_do(path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"{path} cannot be written ({reason(error)}); make room or make it writable, {AGAIN}") from None


def _json_bytes(data: dict[str, Any]) -> bytes:
    return (json.dumps({"format": FORMAT, **data}, indent=2) + "\n").encode()
