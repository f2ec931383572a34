"""The dataset registry: what each dataset is, where its files are, and loading it by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from anytime.core.errors import UserError, did_you_mean, printable
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
    """Return the files at a base address, from their names, SHA-256 checksums and sizes."""
    return tuple(RemoteFile(name, base + name, f"sha256:{sha256}", size) for name, sha256, size in files)


def _google_drive(name: str, key: str, sha256: str, size: int) -> RemoteFile:
    url = f"https://drive.usercontent.google.com/download?id={key}&export=download&confirm=t"
    return RemoteFile(name, url, f"sha256:{sha256}", size)


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
        ("train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9_912_422),
        ("train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28_881),
        ("t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1_648_877),
        ("t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4_542),
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
            "https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
            ("train-images-idx3-ubyte.gz", "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26_421_880),
            ("train-labels-idx1-ubyte.gz", "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29_515),
            ("t10k-images-idx3-ubyte.gz", "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4_422_102),
            ("t10k-labels-idx1-ubyte.gz", "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5_148),
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
            "https://www.cs.toronto.edu/~kriz/",
            ("cifar-10-python.tar.gz", "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce", 170_498_071),
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
                "img_align_celeba.zip",
                "0B7EVK8r0v71pZjFTYXZWM3FlRnM",
                "46fb89443c578308acf364d7d379fe1b9efb793042c0af734b6112e4fd3a8c74",
                1_443_490_838,
            ),
            _google_drive(
                "list_eval_partition.txt",
                "0B7EVK8r0v71pY0NSMzRuSXJEVkk",
                "fc955bcb3ef8fbdf7d5640d9a8693a8431b5f2ee291a5c1449a1549e7e073fe7",
                2_836_386,
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


def find(name: str, subject: str = "`name`") -> DatasetInfo:
    """Return the entry of that name, or suggest the nearest; an error calls the name `subject`."""
    if name not in DATASETS:
        raise UserError(f"{subject} {name!r} is not a dataset; {did_you_mean(name, DATASETS)}")
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


def load(
    name: str, *, data: Path | None = None, size: int | None = None, cache: Path | None = None, skip_bad: bool = False
) -> Dataset:
    """Load a dataset by name: from `data` if given, else embedded or from the cache. Nothing is downloaded (see `get`).

    `skip_bad` leaves out the files of a folder that cannot be read.
    """
    info = find(name)
    if skip_bad and info.reader is not read_folder:
        raise UserError(f"`skip_bad` is for folders of your own files, not for {name}: leave it out")
    if size is not None and info.shape is not None:
        kind = "images" if len(info.shape) == 3 else "crops"
        raise UserError(f"`size` does not apply to {name}, whose {kind} are {_format_shape(info.shape)}: leave it out")
    cache = cache or cache_dir()
    side = info.shape[-1] if info.shape else DEFAULT_SIZE if size is None else size
    dataset = info.reader(ReadOptions(name, _locate(info, data, cache), side, cache, skip_bad))
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
        if not _exists(data):
            what = "a folder of images or audio files" if info.shape is None else f"the folder that holds {info.name}"
            raise UserError(f"`data` {printable(str(data))} does not exist: give {what}")
        return data
    if not info.files:
        raise UserError(f"{info.name} {_no_download(info)}: pass the folder with `data`")
    if state(info, cache) == "not downloaded":
        raise UserError(f"{info.name} is not downloaded: run `anytime data get {info.name}` or pass a copy with `data`")
    for file in info.files:
        verify(cache / info.name / file.name, file.hash, info.name)
    return cache / info.name


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long, or a folder that may not be entered
        return False


def _no_download(info: DatasetInfo) -> str:
    """Say why a dataset has nothing to download."""
    return "reads your own files" if info.shape is None else f"is not downloaded by this program ({info.homepage})"
