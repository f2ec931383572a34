"""The known sets: what they are, where they live, and loading them by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from anytime.core.errors import UserError, did_you_mean
from anytime.data import digits
from anytime.data.audio_datasets import read_audiomnist, read_vctk
from anytime.data.cache import cache_dir, verify
from anytime.data.celeba import read_celeba
from anytime.data.cifar import read_cifar10
from anytime.data.dataset import Dataset, ReadOptions
from anytime.data.folder import DEFAULT_SIZE, read_folder
from anytime.data.mnist import read_mnist
from anytime.data.recordings import CROP


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A published file; without its checksum it is not used."""

    name: str
    url: str
    hash: str  # md5:... or sha256:..., as its publishers give it
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """What is known of a set before a single pixel is read."""

    name: str
    description: str
    shape: tuple[int, ...] | None  # None: decided by --size and the files
    licence: str
    homepage: str
    reader: str  # key of READERS
    files: tuple[RemoteFile, ...] = ()
    embedded: bool = False
    redistributable: bool = True
    """Whether its own pictures may stand in results that are passed on."""


READERS: dict[str, Callable[[ReadOptions], Dataset]] = {
    "digits": digits.read_digits,
    "idx": read_mnist,
    "cifar10": read_cifar10,
    "celeba": read_celeba,
    "vctk": read_vctk,
    "audiomnist": read_audiomnist,
    "folder": read_folder,
}

_IDX = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")


def _idx_files(base: str, hashes: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[RemoteFile, ...]:
    return tuple(RemoteFile(n, base + n, f"md5:{h}", s) for n, h, s in zip(_IDX, hashes, sizes, strict=True))


def _google_drive(name: str, key: str, md5: str, size: int) -> RemoteFile:
    url = f"https://drive.usercontent.google.com/download?id={key}&export=download&confirm=t"
    return RemoteFile(name, url, f"md5:{md5}", size)


_ENTRIES = (
    DatasetInfo(
        name="digits",
        description="10,000 MNIST digits, 1,000 of each, that come with the package",
        shape=(1, 28, 28),
        licence="CC BY-SA 3.0",
        homepage="http://yann.lecun.com/exdb/mnist/",
        reader="digits",
        embedded=True,
    ),
    DatasetInfo(
        name="mnist",
        description="handwritten digits, 60,000 for training and 10,000 for test",
        shape=(1, 28, 28),
        licence="CC BY-SA 3.0",
        homepage="http://yann.lecun.com/exdb/mnist/",
        reader="idx",
        files=_idx_files(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            (
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
            (9_912_422, 28_881, 1_648_877, 4_542),
        ),
    ),
    DatasetInfo(
        name="fashion-mnist",
        description="pieces of clothing in MNIST's format, 60,000 for training and 10,000 for test",
        shape=(1, 28, 28),
        licence="MIT",
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        reader="idx",
        files=_idx_files(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            (
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "25c81989df183df01b3e8a0aad5dffbe",
                "bef4ecab320f06d8554ea6380940ec79",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
            (26_421_880, 29_515, 4_422_102, 5_148),
        ),
    ),
    DatasetInfo(
        name="cifar10",
        description="small photographs of ten kinds of things, 50,000 for training and 10,000 for test",
        shape=(3, 32, 32),
        licence="none stated; research use is customary",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        reader="cifar10",
        files=(
            RemoteFile(
                "cifar-10-python.tar.gz",
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                "md5:c58f30108f718f92721af3b95e74349a",
                170_498_071,
            ),
        ),
    ),
    DatasetInfo(
        name="celeba",
        description="202,599 faces, aligned, centre square at 64 x 64",
        shape=(3, 64, 64),
        licence="non-commercial research only",
        redistributable=False,
        homepage="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        reader="celeba",
        files=(
            _google_drive(
                "img_align_celeba.zip", "0B7EVK8r0v71pZjFTYXZWM3FlRnM", "00d2c5bc6d35e252742224ab0c1e8fcb", 1_443_490_838
            ),
            _google_drive(
                "list_eval_partition.txt", "0B7EVK8r0v71pY0NSMzRuSXJEVkk", "d32c9cbf5e040fd4025c592c306e6668", 2_836_386
            ),
        ),
    ),
    DatasetInfo(
        name="vctk",
        description="English sentences read by 110 voices, as crops of 0.96 s at 16 kHz, from --data DIR",
        shape=(1, CROP),
        licence="CC BY 4.0",
        homepage="https://datashare.ed.ac.uk/handle/10283/3443",
        reader="vctk",
    ),
    DatasetInfo(
        name="audiomnist",
        description="30,000 spoken digits of 60 voices, at 16 kHz, from --data DIR",
        shape=(1, CROP),
        licence="MIT",
        homepage="https://github.com/soerenab/AudioMNIST",
        reader="audiomnist",
    ),
    DatasetInfo(
        name="folder",
        description="your own pictures, from --data DIR, at --size N; or your own sounds",
        shape=None,
        licence="yours",
        homepage="",
        reader="folder",
    ),
)
DATASETS: dict[str, DatasetInfo] = {entry.name: entry for entry in _ENTRIES}


def find(name: str) -> DatasetInfo:
    """The entry of that name, or an error that suggests the nearest."""
    if name not in DATASETS:
        raise UserError(f"unknown dataset {name!r}: {did_you_mean(name, DATASETS)}")
    return DATASETS[name]


def state(entry: DatasetInfo, cache: Path | None = None) -> str:
    """Where the set stands on this machine: embedded, in the cache, not downloaded, or needs --data."""
    if entry.embedded:
        return "embedded"
    if not entry.files:
        return "needs --data"
    folder = (cache or cache_dir()) / entry.name
    return "in the cache" if all((folder / file.name).is_file() for file in entry.files) else "not downloaded"


def load(name: str, *, data: Path | None = None, size: int | None = None, cache: Path | None = None) -> Dataset:
    """A set by name: from `data` where given, else embedded or from the cache. Nothing is downloaded (see `get`)."""
    entry = find(name)
    if size is not None and entry.shape is not None:
        kind = "pictures" if len(entry.shape) == 3 else "sounds"
        raise UserError(f"--size does not apply to {name}, whose {kind} are {_format_shape(entry.shape)}: leave it out")
    cache = cache or cache_dir()
    side = entry.shape[-1] if entry.shape else DEFAULT_SIZE if size is None else size
    dataset = READERS[entry.reader](ReadOptions(name, locate(entry, data, cache), side, cache))
    if size is not None and dataset.is_audio:
        raise UserError(f"--size {size} does not apply to {data}, which holds sounds: leave it out")
    if entry.shape is not None and dataset.shape != entry.shape:
        shapes = f"{_format_shape(dataset.shape)}, not {_format_shape(entry.shape)}"
        raise UserError(f"the pictures in {data} are {shapes} as {name}'s: correct --data")
    return dataset


def _format_shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def locate(entry: DatasetInfo, data: Path | None, cache: Path) -> Path:
    """The folder or file that holds the set: `data` where given, else embedded or in the cache, its checksums found right."""
    if data is not None:
        return _check_data_path(entry, data)
    if entry.embedded:
        return digits.FOLDER
    if state(entry, cache) == "needs --data":
        raise UserError(f"{entry.name} {no_download_reason(entry)}: pass the folder with --data DIR")
    if state(entry, cache) == "not downloaded":
        raise UserError(f"{entry.name} is not downloaded: run `anytime data get {entry.name}` or pass a copy with --data DIR")
    for file in entry.files:
        verify(cache / entry.name / file.name, file.hash, entry.name)
    return cache / entry.name


def no_download_reason(entry: DatasetInfo) -> str:
    """Why there is nothing to download, in words."""
    return "reads your own pictures or sounds" if entry.shape is None else f"is not fetched by this program ({entry.homepage})"


def _check_data_path(entry: DatasetInfo, data: Path) -> Path:
    if entry.embedded:
        raise UserError(f"{entry.name} comes with the package: leave --data out")
    data = Path(data).expanduser()
    if not data.exists():
        raise UserError(f"--data {data} does not exist: give the folder that holds {entry.name}")
    return data
