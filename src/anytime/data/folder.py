"""Any folder or zip file of images, of audio, or of tar shards of images, as a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import torch

from anytime.core.errors import UserError
from anytime.core.random import permutation
from anytime.data import audio_io, image_io, tar_shards
from anytime.data.audio_datasets import read_audio_folder
from anytime.data.bad_files import read_good_files
from anytime.data.dataset import VALIDATION, Dataset, ReadOptions
from anytime.data.files import DataFile, find_files, stamped_file
from anytime.data.image_shards import ImageShards

MIN_SIZE, MAX_SIZE, DEFAULT_SIZE = 8, 1024, 32
VALIDATION_BYTES = 1 << 28  # of the validation images of shards, which are held in memory
MIN_IMAGES = 10  # a tenth of fewer leaves no image for validation


def read_folder(options: ReadOptions) -> Dataset:
    """Read all images under a folder at `options.size`, grey if every file is grey; or all audio files."""
    if shards := find_shards(options.root):
        return read_shards(options, shards)
    images, audio = split_by_type(find_files(options.root, image_io.SUFFIXES | audio_io.SUFFIXES))
    if images and audio:
        raise UserError(
            f"{options.root} holds both images and audio, such as {images[0].name} and {audio[0].name}: keep one kind there"
        )
    if audio:
        return read_good_files(options, audio, lambda files: read_audio_folder(options, list(files)), _check_audio)
    check_size(options.size)
    return read_good_files(options, images, lambda files: split_by_name(options, files), _check_image)


def _check_image(file: DataFile) -> None:
    image_io.decode(file, MIN_SIZE, channels=3)


def _check_audio(file: DataFile) -> None:
    audio_io.check_audio(file)


def find_shards(root: Path) -> list[DataFile]:
    """Return the tar files under a folder, or the one tar file that `root` is."""
    if not root.is_dir():
        return [stamped_file(root)] if root.suffix.lower() == tar_shards.SUFFIX else []
    shards = find_files(root, {tar_shards.SUFFIX})
    if shards and (others := find_files(root, image_io.SUFFIXES)):
        raise UserError(
            f"{root} holds both tar shards and images, such as {shards[0].name} and {others[0].name}: keep one kind"
        )
    return shards


def read_shards(options: ReadOptions, shards: Sequence[DataFile]) -> Dataset:
    """Index the images of tar shards, which are decoded when they are needed; some are kept in memory for validation."""
    check_size(options.size)
    index = tar_shards.index_shards(shards, options.size, options.cache)
    if len(index) < MIN_IMAGES:
        needed = f"at least {MIN_IMAGES} are needed"
        raise UserError(f"the tar files in {options.root} hold {len(index)} images and {needed}: correct `data`")
    channels = 1 if index.is_grey else 3
    most = max(1, VALIDATION_BYTES // (channels * options.size**2))
    count = min(VALIDATION, most, len(index) // 10)
    is_validation = torch.zeros(len(index), dtype=torch.bool)
    is_validation[permutation(len(index), 0)[:count]] = True
    train, validation = (
        ImageShards(index, part.nonzero()[:, 0], options.size, channels) for part in (~is_validation, is_validation)
    )
    source = (
        f"{len(index):,} images in {len(shards):,} tar shards from {options.root.name}, {describe_crop(options.size)}; "
        f"{count:,} of them, chosen by seed 0, for validation, no test set"
    )
    return Dataset(options.name, train, validation.load(), None, source, random_validation=True)


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
