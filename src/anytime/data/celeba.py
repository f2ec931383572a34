"""CelebA: the aligned faces with their published split, or a plain folder or zip file of faces without one."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import torch

from anytime.core.errors import UserError
from anytime.data.dataset import Dataset, Request
from anytime.data.folder import by_name, square
from anytime.data.image_files import Album, decoded, find_pictures

FACES, PARTITION = "img_align_celeba", "list_eval_partition.txt"


def read_celeba(request: Request) -> Dataset:
    """Faces at 64 x 64; the centre square of the aligned 178 x 218 pictures leaves out 20 rows at either end."""
    where, partition = _find(request.where)
    album = find_pictures(where)
    if not album.stamps:
        raise UserError(f"{where} lacks {FACES}/ or {FACES}.zip, and {PARTITION}: point --data at the folder that holds them")
    if partition is None:
        return by_name(request, album, channels=3)
    parts = _parts(album, partition)
    pixels = decoded(album.only(name for part in parts for name in part), request.size, request.cache, channels=3)
    train, validation, test = torch.split(pixels, [len(part) for part in parts])
    source = f"CelebA, {len(pixels):,} aligned faces, {square(request.size)}; the published split"
    return Dataset(request.name, train, validation, test, source)


def _find(where: Path) -> tuple[Path, Path | None]:
    """The pictures and the list of their parts; a set in its published layout must have the list."""
    beside = [path for path in (where / PARTITION, where.parent / PARTITION) if path.is_file()]
    published = [path for path in (where / FACES, where / f"{FACES}.zip") if path.exists()]
    if published and not (where / PARTITION).is_file():
        raise UserError(f"{where} lacks {PARTITION}: put it beside {published[0].name}, or point --data at {published[0]}")
    return published[0] if published else where, beside[0] if beside else None


def _parts(album: Album, partition: Path) -> list[list[str]]:
    """The names for training, validation and test, matched without their endings so that converted copies fit too."""
    listed = _read_partition(partition)
    stems = {name: PurePosixPath(name).stem for name in album.names}
    unlisted = [name for name, stem in stems.items() if stem not in listed]
    if unlisted:
        raise UserError(
            f"{partition} lacks {len(unlisted):,} pictures, first {unlisted[0]}: replace it with the published list"
        )
    parts: list[list[str]] = [[], [], []]
    for name, stem in stems.items():
        parts[listed[stem]].append(name)
    if not all(parts):
        raise UserError(f"{album.where} has no pictures of one part of {partition}: complete it, or move {PARTITION} away")
    return parts


def _read_partition(path: Path) -> dict[str, int]:
    """Lines of `000001.jpg 0`: 0 training, 1 validation, 2 test."""
    words = path.read_text(errors="replace").split()
    listed = {PurePosixPath(name).stem: part for name, part in zip(words[::2], words[1::2], strict=False)}
    if 2 * len(listed) != len(words) or not {"0", "1", "2"}.issuperset(listed.values()):
        raise UserError(f"{path} is not a list of names and parts 0, 1, 2: replace it with the published one")
    return {stem: int(part) for stem, part in listed.items()}
