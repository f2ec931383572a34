"""CelebA: the aligned faces with their published split, or any folder or zip file of faces without one."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import torch

from anytime.core.errors import UserError
from anytime.core.files import read_limited
from anytime.data.dataset import Dataset, ReadOptions
from anytime.data.files import DataFile, find_files
from anytime.data.folder import describe_crop, split_by_name
from anytime.data.image_io import SUFFIXES, read_images

FACES, PARTITION = "img_align_celeba", "list_eval_partition.txt"
_MAX_LIST = 1 << 24  # bytes: the published list has 2.8 million


def read_celeba(options: ReadOptions) -> Dataset:
    """Read the faces at 64 x 64; the centre square of an aligned 178 x 218 image omits 20 rows at either end."""
    root, partition = _find(options.root)
    files = find_files(root, SUFFIXES)
    if not files:
        raise UserError(f"{root} lacks {FACES}/ or {FACES}.zip, and {PARTITION}: point `data` at the folder that holds them")
    if partition is None:
        return split_by_name(options, files, channels=3)
    parts = _split(files, partition)
    pixels = read_images([file for part in parts for file in part], options.size, options.cache, channels=3)
    train, validation, test = torch.split(pixels, [len(part) for part in parts])
    source = f"CelebA, {len(pixels):,} aligned faces, {describe_crop(options.size)}; the published split"
    return Dataset(options.name, train, validation, test, source)


def _find(root: Path) -> tuple[Path, Path | None]:
    """Return the images' folder or zip file and the partition list, which the published layout must have."""
    partitions = [path for path in (root / PARTITION, root.parent / PARTITION) if path.is_file()]
    published = [path for path in (root / FACES, root / f"{FACES}.zip") if path.exists()]
    if published and not (root / PARTITION).is_file():
        raise UserError(f"{root} lacks {PARTITION}: put it beside {published[0].name}, or point `data` at {published[0]}")
    return published[0] if published else root, partitions[0] if partitions else None


def _split(files: list[DataFile], partition: Path) -> list[list[DataFile]]:
    """Split into training, validation and test files, by name without suffix, so that converted copies match too."""
    listed = _read_partition(partition)
    stems = {file: PurePosixPath(file.name).stem for file in files}
    unlisted = [file.name for file, stem in stems.items() if stem not in listed]
    if unlisted:
        raise UserError(f"{partition} lacks {len(unlisted):,} images, first {unlisted[0]}: replace it with the published list")
    parts = [[file for file, stem in stems.items() if listed[stem] == part] for part in range(3)]
    if not all(parts):
        raise UserError(f"{files[0].root} has no images of one part of {partition}: complete it, or move {PARTITION} away")
    return parts


def _read_partition(path: Path) -> dict[str, int]:
    """Read lines such as `000001.jpg 0`: 0 is training, 1 validation, 2 test."""
    words = read_limited(path, _MAX_LIST).decode(errors="replace").split()
    listed = {PurePosixPath(name).stem: part for name, part in zip(words[::2], words[1::2], strict=False)}
    if 2 * len(listed) != len(words) or not {"0", "1", "2"}.issuperset(listed.values()):
        raise UserError(f"{path} is not a list of names and parts 0, 1, 2: replace it with the published one")
    return {stem: int(part) for stem, part in listed.items()}
