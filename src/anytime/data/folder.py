"""Any folder or zip file of images, or of audio, as a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from anytime.core.errors import UserError
from anytime.data import audio_io, image_io
from anytime.data.audio_datasets import read_audio_folder
from anytime.data.dataset import Dataset, ReadOptions
from anytime.data.files import DataFile, find_files

MIN_SIZE, MAX_SIZE, DEFAULT_SIZE = 8, 1024, 32
MIN_IMAGES = 10  # a tenth of fewer leaves no image for validation


def read_folder(options: ReadOptions) -> Dataset:
    """Read all images under a folder at `options.size`, grey if every file is grey; or all audio files."""
    images, audio = split_by_type(find_files(options.root, image_io.SUFFIXES | audio_io.SUFFIXES))
    if images and audio:
        raise UserError(
            f"{options.root} holds both images and audio, such as {images[0].name} and {audio[0].name}: keep one kind there"
        )
    if audio:
        return read_audio_folder(options, audio)
    check_size(options.size)
    return split_by_name(options, images)


def check_size(size: int) -> None:
    """Refuse a `size` that images cannot have."""
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise UserError(f"`size` must be between {MIN_SIZE} and {MAX_SIZE}, not {size}")


def split_by_type(files: Sequence[DataFile]) -> tuple[list[DataFile], list[DataFile]]:
    """Return the image files and the audio files: by their first bytes, or else by their suffixes."""
    images, audio = list[DataFile](), list[DataFile]()
    for file in files:
        head = file.head(12)
        has_audio_suffix = PurePosixPath(file.name).suffix.lower() in audio_io.SUFFIXES
        (audio if audio_io.is_audio(head) or (has_audio_suffix and not image_io.is_image(head)) else images).append(file)
    return images, audio


def split_by_name(options: ReadOptions, files: Sequence[DataFile], channels: int | None = None) -> Dataset:
    """Read images without a published split: the last tenth of the sorted names is for validation, none for test."""
    if not files:
        endings = ", ".join(sorted(suffix[1:] for suffix in image_io.SUFFIXES))
        raise UserError(f"{options.root} holds no images ({endings}): point `data` at a folder that does")
    if len(files) < MIN_IMAGES:
        needed = f"at least {MIN_IMAGES} are needed"
        raise UserError(f"{options.root} holds {len(files)} images and {needed}: add some or correct `data`")
    pixels = image_io.read_images(files, options.size, options.cache, channels)
    tail = len(files) - len(files) // 10
    source = (
        f"{len(files):,} images from {options.root.name}, {describe_crop(options.size)}; "
        f"the last {len(files) - tail:,} by name for validation, no test set"
    )
    return Dataset(options.name, pixels[:tail], pixels[tail:], None, source)


def describe_crop(size: int) -> str:
    """Describe the preprocessing, for `Dataset.source`."""
    return f"centre square at {size} x {size} (Lanczos if the image is larger)"
