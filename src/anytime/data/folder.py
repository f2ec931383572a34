"""Any folder (or zip file) of pictures, or of sounds, as a dataset."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from anytime.core.errors import UserError
from anytime.data.audio_datasets import read_audio_folder
from anytime.data.audio_files import SUFFIXES as AUDIO_SUFFIXES
from anytime.data.audio_files import AudioFile, is_audio
from anytime.data.dataset import Dataset, ReadOptions
from anytime.data.image_files import SUFFIXES, ImageFiles, decode_images, find_files

MIN_SIZE, MAX_SIZE, DEFAULT_SIZE = 8, 1024, 32
MIN_IMAGES = 10  # pictures: a tenth of fewer leaves nothing for validation
_MAGIC_NUMBERS = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")


def read_folder(options: ReadOptions) -> Dataset:
    """All pictures under a folder at `request.size`, grey or in colour by their files' modes; or all sounds."""
    files = find_files(options.root, SUFFIXES | AUDIO_SUFFIXES)
    images, audio_files = split_by_type(files)
    if images and audio_files:
        raise UserError(
            f"{options.root} holds pictures and sounds, such as {images[0]} and {audio_files[0].name}: keep one kind there"
        )
    if audio_files:
        return read_audio_folder(options, audio_files)
    if not MIN_SIZE <= options.size <= MAX_SIZE:
        raise UserError(f"--size {options.size} is outside {MIN_SIZE}..{MAX_SIZE}: choose a size between them")
    return split_by_name(options, files.select(images))


def split_by_type(files: ImageFiles) -> tuple[list[str], list[AudioFile]]:
    """The names of the pictures and the sounds of a folder: by what the files begin with, else by their endings."""
    heads = {name: files.head(name, 12) for name in files.names}
    audio_names = {name for name in heads if is_audio(heads[name])}
    audio_names |= {n for n in heads if PurePosixPath(n).suffix.lower() in AUDIO_SUFFIXES and not is_image(heads[n])}
    return [name for name in heads if name not in audio_names], [
        AudioFile(files, name) for name in heads if name in audio_names
    ]


def is_image(head: bytes) -> bool:
    """Whether a file that begins with these 12 bytes is a picture, whatever its name says."""
    return head.startswith(_MAGIC_NUMBERS) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")


def split_by_name(options: ReadOptions, files: ImageFiles, channels: int | None = None) -> Dataset:
    """A dataset without a published split: the last tenth of the sorted names for validation, no test part."""
    count = len(files.stamps)
    _check_count(count, files.root)
    pixels = decode_images(files, options.size, options.cache, channels)
    tail = count - count // 10
    source = (
        f"{count:,} pictures from {files.root.name}, {describe_crop(options.size)}; "
        f"the last {count - tail:,} by name for validation, no test part"
    )
    return Dataset(options.name, pixels[:tail], pixels[tail:], None, source)


def _check_count(count: int, root: Path) -> None:
    if count == 0:
        endings = ", ".join(sorted(suffix[1:] for suffix in SUFFIXES))
        raise UserError(f"{root} holds no pictures ({endings}): point --data at a folder that does")
    if count < MIN_IMAGES:
        raise UserError(f"{root} holds {count} pictures and at least {MIN_IMAGES} are needed: add some or correct --data")


def describe_crop(size: int) -> str:
    """The crop, in words for `source`."""
    return f"centre square at {size} x {size} (Lanczos where the picture is larger)"
