"""Any folder (or zip file) of pictures, or of sounds, as a dataset."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from anytime.core.errors import UserError
from anytime.data.audio_datasets import read_sound_folder
from anytime.data.audio_files import SUFFIXES as SOUNDS
from anytime.data.audio_files import Sound, is_sound
from anytime.data.dataset import Dataset, Request
from anytime.data.image_files import SUFFIXES, Album, decoded, find_files

SMALLEST, LARGEST, DEFAULT = 8, 1024, 32
FEWEST = 10  # pictures: a tenth of fewer leaves nothing for validation
_HEADS = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")


def read_folder(request: Request) -> Dataset:
    """All pictures under a folder at `request.size`, grey or in colour by their files' modes; or all sounds."""
    album = find_files(request.where, SUFFIXES | SOUNDS)
    pictures, sounds = told_apart(album)
    if pictures and sounds:
        raise UserError(
            f"{request.where} holds pictures and sounds, such as {pictures[0]} and {sounds[0].name}: keep one kind there"
        )
    if sounds:
        return read_sound_folder(request, sounds)
    if not SMALLEST <= request.size <= LARGEST:
        raise UserError(f"--size {request.size} is outside {SMALLEST}..{LARGEST}: choose a size between them")
    return by_name(request, album.only(pictures))


def told_apart(album: Album) -> tuple[list[str], list[Sound]]:
    """The names of the pictures and the sounds of a folder: by what the files begin with, else by their endings."""
    heads = {name: album.head(name, 12) for name in album.names}
    heard = {name for name in heads if is_sound(heads[name])}
    heard |= {n for n in heads if PurePosixPath(n).suffix.lower() in SOUNDS and not is_picture(heads[n])}
    return [name for name in heads if name not in heard], [Sound(album, name) for name in heads if name in heard]


def is_picture(head: bytes) -> bool:
    """Whether a file that begins with these 12 bytes is a picture, whatever its name says."""
    return head.startswith(_HEADS) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")


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
