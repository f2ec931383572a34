"""CelebA: the aligned faces with their published split, or a plain folder or zip file of faces without one."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import torch

from anytime.core.errors import UserError
from anytime.data.dataset import Dataset, ReadOptions
from anytime.data.folder import describe_crop, split_by_name
from anytime.data.image_files import ImageFiles, decode_images, find_images

FACES, PARTITION = "img_align_celeba", "list_eval_partition.txt"


def read_celeba(options: ReadOptions) -> Dataset:
    """Faces at 64 x 64; the centre square of the aligned 178 x 218 pictures leaves out 20 rows at either end."""
    root, partition = _find(options.root)
    files = find_images(root)
    if not files.stamps:
        raise UserError(f"{root} lacks {FACES}/ or {FACES}.zip, and {PARTITION}: point --data at the folder that holds them")
    if partition is None:
        return split_by_name(options, files, channels=3)
    parts = _parts(files, partition)
    pixels = decode_images(files.select(name for part in parts for name in part), options.size, options.cache, channels=3)
    train, validation, test = torch.split(pixels, [len(part) for part in parts])
    source = f"CelebA, {len(pixels):,} aligned faces, {describe_crop(options.size)}; the published split"
    return Dataset(options.name, train, validation, test, source)


def _find(root: Path) -> tuple[Path, Path | None]:
    """The pictures and the list of their parts; a set in its published layout must have the list."""
    partition_paths = [path for path in (root / PARTITION, root.parent / PARTITION) if path.is_file()]
    published = [path for path in (root / FACES, root / f"{FACES}.zip") if path.exists()]
    if published and not (root / PARTITION).is_file():
        raise UserError(f"{root} lacks {PARTITION}: put it beside {published[0].name}, or point --data at {published[0]}")
    return published[0] if published else root, partition_paths[0] if partition_paths else None


def _parts(files: ImageFiles, partition: Path) -> list[list[str]]:
    """The names for training, validation and test, matched without their endings so that converted copies fit too."""
    listed = _read_partition(partition)
    stems = {name: PurePosixPath(name).stem for name in files.names}
    unlisted = [name for name, stem in stems.items() if stem not in listed]
    if unlisted:
        raise UserError(
            f"{partition} lacks {len(unlisted):,} pictures, first {unlisted[0]}: replace it with the published list"
        )
    parts: list[list[str]] = [[], [], []]
    for name, stem in stems.items():
        parts[listed[stem]].append(name)
    if not all(parts):
        raise UserError(f"{files.root} has no pictures of one part of {partition}: complete it, or move {PARTITION} away")
    return parts


def _read_partition(path: Path) -> dict[str, int]:
    """Lines of `000001.jpg 0`: 0 training, 1 validation, 2 test."""
    words = path.read_text(errors="replace").split()
    listed = {PurePosixPath(name).stem: part for name, part in zip(words[::2], words[1::2], strict=False)}
    if 2 * len(listed) != len(words) or not {"0", "1", "2"}.issuperset(listed.values()):
        raise UserError(f"{path} is not a list of names and parts 0, 1, 2: replace it with the published one")
    return {stem: int(part) for stem, part in listed.items()}
