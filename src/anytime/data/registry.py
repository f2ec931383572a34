"""The dataset registry: what each dataset is, where its files are, and loading it by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from anytime.core.errors import UserError, did_you_mean
from anytime.data import digits
from anytime.data.audio_datasets import read_audiomnist, read_vctk
from anytime.data.celeba import read_celeba
from anytime.data.cifar import read_cifar10
from anytime.data.dataset import Dataset, Labels, ReadOptions, split_labels
from anytime.data.download import RemoteFile, cache_dir, download, verify
from anytime.data.folder import DEFAULT_SIZE, read_folder
from anytime.data.mnist import read_mnist, read_mnist_labels
from anytime.data.recordings import CROP

LabelReader = Callable[[Path], tuple[UInt8[np.ndarray, " train"], UInt8[np.ndarray, " test"]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """What is known of a dataset before it is read."""

    name: str
    description: str
    shape: tuple[int, ...] | None  # None: decided by `size` and the files
    licence: str
    homepage: str = ""
    reader: Callable[[ReadOptions], Dataset]
    label_reader: LabelReader | None = None
    files: tuple[RemoteFile, ...] = ()
    embedded: bool = False
    redistributable: bool = True
    """whether its own examples may be part of published results"""


def _published(base: str, *files: tuple[str, str, int]) -> tuple[RemoteFile, ...]:
    """Return the files at a base address, from their names, MD5 checksums and sizes."""
    return tuple(RemoteFile(name, base + name, f"md5:{md5}", size) for name, md5, size in files)


def _google_drive(name: str, key: str, md5: str, size: int) -> RemoteFile:
    url = f"https://drive.usercontent.google.com/download?id={key}&export=download&confirm=t"
    return RemoteFile(name, url, f"md5:{md5}", size)


_MNIST = DatasetInfo(
    name="mnist",
    description="handwritten digits, 60,000 for training and 10,000 for test",
    shape=(1, 28, 28),
    licence="CC BY-SA 3.0",
    homepage="http://yann.lecun.com/exdb/mnist/",
    reader=read_mnist,
    label_reader=read_mnist_labels,
    files=_published(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
        ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
        ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
        ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
    ),
)
_ENTRIES = (
    replace(
        _MNIST,
        name="digits",
        description="10,000 MNIST digits, 1,000 of each, included in the package",
        reader=digits.read_digits,
        label_reader=digits.read_digits_labels,
        files=(),
        embedded=True,
    ),
    _MNIST,
    replace(
        _MNIST,
        name="fashion-mnist",
        description="images of clothing in MNIST's format, 60,000 for training and 10,000 for test",
        licence="MIT",
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        files=_published(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
            ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        ),
    ),
    DatasetInfo(
        name="cifar10",
        description="small photographs of ten classes, 50,000 for training and 10,000 for test",
        shape=(3, 32, 32),
        licence="none stated; research use is customary",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        reader=read_cifar10,
        files=_published(
            "https://www.cs.toronto.edu/~kriz/", ("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071)
        ),
    ),
    DatasetInfo(
        name="celeba",
        description="202,599 aligned faces, centre square at 64 x 64",
        shape=(3, 64, 64),
        licence="non-commercial research only",
        redistributable=False,
        homepage="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        reader=read_celeba,
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
        description="English sentences read by 110 speakers, in crops of 0.96 s at 16 kHz",
        shape=(1, CROP),
        licence="CC BY 4.0",
        homepage="https://datashare.ed.ac.uk/handle/10283/3443",
        reader=read_vctk,
    ),
    DatasetInfo(
        name="audiomnist",
        description="30,000 spoken digits of 60 speakers at 16 kHz",
        shape=(1, CROP),
        licence="MIT",
        homepage="https://github.com/soerenab/AudioMNIST",
        reader=read_audiomnist,
    ),
    DatasetInfo(
        name="folder",
        description="your own images at any size, or your own audio",
        shape=None,
        licence="yours",
        reader=read_folder,
    ),
)
DATASETS: dict[str, DatasetInfo] = {entry.name: entry for entry in _ENTRIES}


def find(name: str) -> DatasetInfo:
    """Return the entry of that name, or suggest the nearest."""
    if name not in DATASETS:
        raise UserError(f"unknown dataset {name!r}: {did_you_mean(name, DATASETS)}")
    return DATASETS[name]


def state(info: DatasetInfo, cache: Path | None = None) -> str:
    """Return where the dataset is, as `anytime data list` shows it: embedded, in the cache, not downloaded or needs --data."""
    if info.embedded:
        return "embedded"
    if not info.files:
        return "needs --data"
    folder = (cache or cache_dir()) / info.name
    return "in the cache" if all((folder / file.name).is_file() for file in info.files) else "not downloaded"


def get(name: str, cache: Path | None = None, progress: bool = True) -> Path:
    """Download the files that the cache lacks, verify the others, and return the dataset's folder."""
    info = find(name)
    if info.embedded:
        return digits.FOLDER
    if not info.files:
        raise UserError(f"{name} {_no_download(info)}: pass the folder with `anytime train {name} --data DIR`")
    folder = (cache or cache_dir()) / name
    for file in info.files:
        if (folder / file.name).is_file():
            verify(folder / file.name, file.hash, name)
        else:
            download(file, folder, name, progress)
    return folder


def load(name: str, *, data: Path | None = None, size: int | None = None, cache: Path | None = None) -> Dataset:
    """Load a dataset by name: from `data` if given, else embedded or from the cache. Nothing is downloaded (see `get`)."""
    info = find(name)
    if size is not None and info.shape is not None:
        kind = "images" if len(info.shape) == 3 else "crops"
        raise UserError(f"`size` does not apply to {name}, whose {kind} are {_format_shape(info.shape)}: leave it out")
    cache = cache or cache_dir()
    side = info.shape[-1] if info.shape else DEFAULT_SIZE if size is None else size
    dataset = info.reader(ReadOptions(name, _locate(info, data, cache), side, cache))
    if size is not None and dataset.is_audio:
        raise UserError(f"`size` does not apply to {data}, which holds audio: leave it out")
    if info.shape is not None and dataset.shape != info.shape:
        shapes = f"{_format_shape(dataset.shape)}, not {_format_shape(info.shape)}"
        raise UserError(f"the images in {data} are {shapes} as those of {name}: correct `data`")
    return dataset


def load_labels(name: str, *, data: Path | None = None, cache: Path | None = None) -> Labels:
    """Load the labels of an image dataset from where `load` finds its images."""
    info = find(name)
    if info.label_reader is None:
        known = ", ".join(sorted(info.name for info in DATASETS.values() if info.label_reader is not None))
        raise UserError(f"the labels of {name} are not supported; those of {known} are")
    return split_labels(name, *info.label_reader(_locate(info, data, cache or cache_dir())))


def _format_shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _locate(info: DatasetInfo, data: Path | None, cache: Path) -> Path:
    """Return the folder or file that holds the dataset; cached files are verified."""
    if info.embedded and data is None:
        return digits.FOLDER
    if info.embedded:
        raise UserError(f"{info.name} is included in the package: leave `data` out")
    if data is not None:
        data = Path(data).expanduser()
        if not data.exists():
            raise UserError(f"`data` {data} does not exist: give the folder that holds {info.name}")
        return data
    if not info.files:
        raise UserError(f"{info.name} {_no_download(info)}: pass the folder with `data`")
    if state(info, cache) == "not downloaded":
        raise UserError(f"{info.name} is not downloaded: run `anytime data get {info.name}` or pass a copy with `data`")
    for file in info.files:
        verify(cache / info.name / file.name, file.hash, info.name)
    return cache / info.name


def _no_download(info: DatasetInfo) -> str:
    """Say why a dataset has nothing to download."""
    return "reads your own files" if info.shape is None else f"is not downloaded by this program ({info.homepage})"
