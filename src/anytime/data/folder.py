"""Any folder (or zip file) of pictures as a dataset."""

from __future__ import annotations

from pathlib import Path

from anytime.data.album import SUFFIXES, Album, decoded, find_pictures
from anytime.data.dataset import Dataset, Request
from anytime.errors import UserError

SMALLEST, LARGEST, DEFAULT = 8, 1024, 32
FEWEST = 10  # pictures: a tenth of fewer leaves nothing for validation


def read_folder(request: Request) -> Dataset:
    """All pictures under a folder at `request.size`, grey or in colour by their files' modes."""
    if not SMALLEST <= request.size <= LARGEST:
        raise UserError(f"--size {request.size} is outside {SMALLEST}..{LARGEST}: choose a size between them")
    return by_name(request, find_pictures(request.where))


def by_name(request: Request, album: Album, channels: int | None = None) -> Dataset:
    """A dataset without a published split: the last tenth of the sorted names for validation, no test part."""
    count = len(album.stamps)
    _check_count(count, album.where)
    pixels = decoded(album, request.size, request.cache, channels)
    tail = count - count // 10
    source = (
        f"{count:,} pictures from {album.where.name}, {square(request.size)}; "
        f"the last {count - tail:,} by name for validation, no test part"
    )
    return Dataset(request.name, pixels[:tail], pixels[tail:], None, source)


def _check_count(count: int, where: Path) -> None:
    if count == 0:
        endings = ", ".join(sorted(suffix[1:] for suffix in SUFFIXES))
        raise UserError(f"{where} holds no pictures ({endings}): point --data at a folder that does")
    if count < FEWEST:
        raise UserError(f"{where} holds {count} pictures and at least {FEWEST} are needed: add some or correct --data")


def square(size: int) -> str:
    """The crop, in words for `source`."""
    return f"centre square at {size} x {size} (Lanczos where the picture is larger)"
