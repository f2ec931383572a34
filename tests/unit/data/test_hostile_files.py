"""Files that were made to do harm: each is refused in one sentence, within a second and a gigabyte."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from anytime.core.errors import UserError
from anytime.data import load
from anytime.data.audio_io import _SafeStream, measure_loudness, read_blocks
from anytime.data.cifar import BATCHES, read_batch
from anytime.data.files import DataFile, find_files, local_file
from anytime.data.image_io import SUFFIXES, decode, header
from anytime.data.mnist import read_idx, to_idx

from .limits import Limits

GIGABYTE = 1 << 30


@pytest.fixture
def limits() -> Iterator[Limits]:
    limits = Limits()
    yield limits
    limits.check_memory()


@pytest.fixture
def zeros(tmp_path: Path) -> Callable[[str, bytes, int], Path]:
    """A gzip file of a header and a gigabyte or more of zeros, made in a moment: gzip files may be joined."""

    def write(name: str, head: bytes, count: int) -> Path:
        part = gzip.compress(bytes(1 << 26))
        (tmp_path / name).write_bytes(gzip.compress(head) + part * (count >> 26))
        return tmp_path / name

    return write


def png(width: int, height: int, data: bytes = b"", colour: int = 2) -> bytes:
    """A PNG file with these dimensions, whatever its data."""
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)), (b"IDAT", data), (b"IEND", b""))
    parts = (struct.pack(">I", len(d)) + name + d + struct.pack(">I", zlib.crc32(name + d)) for name, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize("side", [7072, 12_000, 60_000, 2**31 - 1])
@pytest.mark.filterwarnings("ignore")  # of Pillow, of some sizes; errors would hide what users see
def test_an_image_of_huge_dimensions_is_refused_before_it_is_decoded(side: int, tmp_path: Path, limits: Limits) -> None:
    (tmp_path / "a.png").write_bytes(png(side, side, zlib.compress(bytes(1 << 20))))
    for read in (header, lambda file: decode(file, 8, 3)):
        refusal = limits.run(lambda read=read: read(local_file(tmp_path / "a.png")))
        assert refusal == f"{tmp_path}/a.png has more than 50,000,000 pixels: shrink it or remove it"


@pytest.mark.slow
def test_the_largest_image_is_decoded_below_a_gigabyte(tmp_path: Path, limits: Limits) -> None:
    row = zlib.compress(bytes(1 + 4 * 7071) * 7071, 1)
    (tmp_path / "a.png").write_bytes(png(7071, 7071, row, colour=6))
    assert decode(local_file(tmp_path / "a.png"), 64, 3).side == 7071


@pytest.mark.parametrize("content", [b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"SIMPLE  =  T" + b" " * 2868])
def test_formats_that_are_not_wanted_are_not_opened(content: bytes, tmp_path: Path) -> None:
    """Pillow runs Ghostscript on PostScript, whatever the name of the file."""
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(UserError, match="unknown image format"):
        decode(local_file(tmp_path / "a.png"), 8, 3)


def zip_file(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_a_zip_bomb_is_refused(tmp_path: Path, limits: Limits) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive, archive.open("a.png", "w") as member:
        for _ in range(5):
            member.write(bytes(1 << 26))
    (file,) = find_files(path, SUFFIXES)
    refusal = limits.run(file.open)
    assert refusal is not None and refusal.startswith(f"{path}/a.png cannot be read (it has more than 256 MiB)")
    assert limits.slowest < 0.1, "refused by its declared size, before anything is unpacked"
    assert file.head(12) == bytes(12)


def test_members_with_paths_of_their_own_are_read_from_the_archive_alone(tmp_path: Path, cache: Path) -> None:
    stream = io.BytesIO()
    Image.new("L", (32, 32), 7).save(stream, "PNG")
    names = ["/etc/passwd.png", "../../outside.png", "a/../../b.png", "C:\\x.png", *(f"{n}.png" for n in range(8))]
    path = zip_file(tmp_path / "a.zip", dict.fromkeys(names, stream.getvalue()))
    dataset = load("folder", data=path, cache=cache)
    assert int(dataset.train.sum()) == 7 * dataset.train.numel()
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.zip", "cache"}
    assert {file.path for file in find_files(path, SUFFIXES)} >= {f"{path}/etc/passwd.png"}


def test_links_and_folders_in_a_zip_file_are_not_followed(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link.png")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
        archive.writestr("folder.png/", b"")
    (file,) = find_files(tmp_path / "a.zip", SUFFIXES)
    with pytest.raises(UserError, match=r"link\.png is not a readable image"):
        decode(file, 8, 3)


def test_damaged_and_strange_archives_are_refused(tmp_path: Path, limits: Limits) -> None:
    whole = zip_file(tmp_path / "a.zip", {"ä.png": b"x" * 100}).read_bytes()
    (tmp_path / "a.zip").write_bytes(whole.replace("ä".encode(), b"\xff\xff"))  # not UTF-8, though marked as such
    assert "neither a folder nor a whole zip file" in str(limits.run(lambda: find_files(tmp_path / "a.zip", SUFFIXES)))
    for method in (1, 12, 14, 99):  # shrunk, bzip2, LZMA and AES: not what the data is
        at = [i for i in range(len(whole)) if whole[i : i + 4] in (b"PK\3\4", b"PK\1\2")]
        content = bytearray(whole)
        for start, offset in zip(at, (8, 10), strict=True):
            content[start + offset] = method
        (tmp_path / "a.zip").write_bytes(content)
        (file,) = find_files(tmp_path / "a.zip", SUFFIXES)
        assert "cannot be read" in str(limits.run(file.open))


def test_a_gzip_bomb_in_an_idx_file_is_refused(zeros: Callable[[str, bytes, int], Path], limits: Limits) -> None:
    head = to_idx(np.zeros((2, 3, 4), np.uint8))
    refusal = limits.run(lambda: read_idx(zeros("a.gz", head, 64 * GIGABYTE), 3))
    assert refusal is not None and "bytes follow its last element" in refusal
    huge = bytes((0, 0, 8, 3)) + struct.pack(">3I", 2**20, 2**10, 2**10)
    assert "elements, more than" in str(limits.run(lambda: read_idx(zeros("a.gz", huge, 64 * GIGABYTE), 3)))


@pytest.mark.parametrize("shape", [(2**32 - 1, 0, 1), (0, 28, 28), (2**32 - 1,) * 3, (1, 28, 28)])
def test_idx_files_of_strange_shapes_are_refused(shape: tuple[int, int, int], mnist: Path, limits: Limits) -> None:
    for path in mnist.glob("*images*"):
        path.write_bytes(gzip.compress(bytes((0, 0, 8, 3)) + struct.pack(">3I", *shape) + bytes(784)))
    assert limits.run(lambda: load("mnist", data=mnist)) is not None


def cifar_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    path.mkdir(exist_ok=True)
    with tarfile.open(path / "cifar-10-python.tar.gz", "w:gz", compresslevel=1) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return path


def member(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def test_links_paths_and_devices_in_a_tar_file_are_not_followed(tmp_path: Path, limits: Limits) -> None:
    strange = [member(name, type=tarfile.SYMTYPE, linkname="/etc/passwd") for name in BATCHES[:2]]
    strange += [member(BATCHES[2], type=tarfile.LNKTYPE, linkname="nothing"), member(BATCHES[3], type=tarfile.FIFOTYPE)]
    strange += [member(f"../../{BATCHES[4]}", b"x"), member(f"/{BATCHES[5]}", b"x"), member("../../outside", b"x")]
    folder = cifar_tar(tmp_path / "a", *strange)
    refusal = limits.run(lambda: load("cifar10", data=folder))
    assert refusal is not None and refusal.endswith(f"lacks {', '.join(BATCHES[:4])}: download it again")
    assert [entry.name for entry in tmp_path.rglob("*")] == ["a", "cifar-10-python.tar.gz"]


def test_a_tar_bomb_is_refused(tmp_path: Path, limits: Limits) -> None:
    folder = cifar_tar(tmp_path / "a", member("junk", bytes(300 << 20)))
    assert "more than 256 MiB" in str(limits.run(lambda: load("cifar10", data=folder)))
    folder = cifar_tar(tmp_path / "a", member(BATCHES[0], bytes((1 << 25) + 1)))
    assert "more than 32 MiB" in str(limits.run(lambda: load("cifar10", data=folder)))


def test_a_tar_file_that_leads_back_to_its_start_ends(tmp_path: Path, limits: Limits) -> None:
    """A member of negative size makes Python 3.11 read the same header for ever."""
    header = bytearray(member("junk")[0].tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 10 + b"\xfc\x00"  # -1024 in base 256
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(gzip.compress(bytes(header) * 4 + bytes(1024)))
    assert limits.run(lambda: load("cifar10", data=tmp_path)) is not None


class Malicious:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("owned",)


def test_object_arrays_and_bombs_in_an_npz_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "cifar10.npz", x_train=np.array([Malicious()]), x_test=np.zeros(1))
    assert "x_train and x_test" in str(limits.run(lambda: load("cifar10", data=tmp_path)))
    assert not (tmp_path / "owned").exists()
    zip_file(tmp_path / "cifar10.npz", {"x_train.npy": bytes((160 << 20) + 1)})
    assert "more than 160 MiB" in str(limits.run(lambda: load("cifar10", data=tmp_path)))
    text = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d,)}\n"
    for shape in (2**34, 2**62, 10**30, -5):
        npy = text % shape
        content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(npy)) + npy
        zip_file(tmp_path / "cifar10.npz", {"x_train.npy": content, "x_test.npy": content})
        assert limits.run(lambda: load("cifar10", data=tmp_path)) is not None
    nested = b"{'descr': " + b"(" * 900 + b")" * 900 + b", 'fortran_order': False, 'shape': (1,)}\n"
    zip_file(tmp_path / "cifar10.npz", {"x_train.npy": b"\x93NUMPY\x01\x00" + struct.pack("<H", len(nested)) + nested})
    assert limits.run(lambda: load("cifar10", data=tmp_path)) is not None


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02}()q\0" + b"h\0h\0h\0\x87q\0" * 60 + b"K\x01u.",  # the hash of its key takes 3^60 steps
        b"\x80\x02}r\xff\xff\xff\x0f.",  # a memo of a quarter of a billion entries
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b".",  # a terabyte of bytes
        b"\x80\x02" + b"(" * 10_000 + b".",
        b"\x80\x02" + b"]" * 10_000 + b"a" * 9_999 + b".",
        b"\x80\x02" + b"K\0" * 1_000_000 + b".",
        b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\n(tRs.",
        b"L" + b"9" * 1_000_000 + b"L\n.",
    ],
)
def test_pickles_that_ask_for_time_or_memory_are_refused(content: bytes, limits: Limits) -> None:
    assert limits.run(lambda: read_batch(content, Path("data_batch_1"))) is not None


def test_a_pickled_array_of_objects_is_not_rebuilt() -> None:
    content = pickle.dumps({b"data": np.array([[Malicious()] * 3072])})
    with pytest.raises(UserError, match="asks to run"):
        read_batch(content, Path("data_batch_1"))
    with pytest.raises(UserError, match="no uint8 array"):
        read_batch(pickle.dumps({b"data": np.zeros((2, 3072), object)}), Path("data_batch_1"))


@pytest.mark.parametrize("rate", [1, 999, 768_001, 2**31 - 1])
def test_audio_of_a_strange_rate_is_refused(rate: int, tmp_path: Path, limits: Limits) -> None:
    """At 1 Hz a file would grow by a factor of 16,000."""
    soundfile.write(tmp_path / "a.wav", np.zeros(1000), 8000)
    content = bytearray((tmp_path / "a.wav").read_bytes())
    content[24:28] = struct.pack("<I", rate)
    (tmp_path / "a.wav").write_bytes(content)
    assert f"sample rate of {rate:,} Hz" in str(limits.run(lambda: measure_loudness(local_file(tmp_path / "a.wav"))))


def test_audio_of_days_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soundfile.write(tmp_path / "a.flac", np.zeros(16_000 * 40), 16_000)
    monkeypatch.setattr("anytime.data.audio_io.MAX_HOURS", 30 / 3600)
    with pytest.raises(UserError, match=r"a\.flac is longer than .* hours"):
        measure_loudness(local_file(tmp_path / "a.flac"))


def test_an_audio_file_shorter_than_its_header_says_is_not_continued(tmp_path: Path, limits: Limits) -> None:
    """The count of frames in an MP3 file's Xing header; soundfile would repeat the samples up to that length."""
    tone = 0.3 * np.sin(np.arange(300) / 5)
    soundfile.write(tmp_path / "a.mp3", tone, 48_000)
    content = bytearray((tmp_path / "a.mp3").read_bytes())
    at = max(content.find(b"Xing"), content.find(b"Info"))
    content[at + 8 : at + 12] = struct.pack(">I", 50_000)
    (tmp_path / "a.mp3").write_bytes(content)
    file = local_file(tmp_path / "a.mp3")
    assert limits.run(lambda: measure_loudness(file)) is None
    assert sum(len(block) for block in read_blocks(file, 1.0)) < 2000


def test_audio_with_an_impossible_offset_is_refused_quietly(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """libsndfile calls back to seek: an exception there would be printed and ignored."""
    stream = _SafeStream(io.BytesIO(b"12345"))
    assert [stream.seek(3), stream.seek(-1), stream.seek(-9, io.SEEK_CUR), stream.tell()] == [3, 3, 0, 0]
    soundfile.write(tmp_path / "a.caf", np.zeros(300), 48_000, format="CAF", subtype="ALAC_16")
    whole = (tmp_path / "a.caf").read_bytes()
    for at in range(0, len(whole) - 8, 4):
        (tmp_path / "a.caf").write_bytes(whole[:at] + b"\x80" + b"\0" * 7 + whole[at + 8 :])
        with suppress(UserError):
            measure_loudness(local_file(tmp_path / "a.caf"))
    assert "Traceback" not in capfd.readouterr().err


def test_a_member_without_a_name_is_not_read(tmp_path: Path) -> None:
    path = zip_file(tmp_path / "a.zip", {"aa.png": b"x", "b.png": b"y"})
    path.write_bytes(path.read_bytes().replace(b"aa.png", b"\0a.png"))  # a name ends at its first zero
    assert [file.name for file in find_files(path, SUFFIXES)] == ["b.png"]


def test_audio_of_many_channels_and_huge_samples(tmp_path: Path, limits: Limits) -> None:
    soundfile.write(tmp_path / "many.wav", np.full((600, 1000), 0.1), 16_000)
    file = local_file(tmp_path / "many.wav")
    assert limits.run(lambda: list(read_blocks(file, measure_loudness(file).gain))) is None
    soundfile.write(tmp_path / "huge.wav", np.full((100, 2), 3e38), 16_000, subtype="FLOAT")
    assert "not numbers" in str(limits.run(lambda: measure_loudness(local_file(tmp_path / "huge.wav"))))


def special(path: Path, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to({"device": "/dev/zero", "loop": path.name, "dangling": "nowhere"}[kind])


@pytest.mark.parametrize("kind", ["fifo", "device", "directory", "loop", "dangling"])
@pytest.mark.parametrize("name", ["mnist", "cifar10", "celeba", "vctk", "audiomnist", "folder"])
def test_special_files_are_refused(kind: str, name: str, tmp_path: Path, cache: Path, limits: Limits) -> None:
    """As the data itself, and as every file that a reader looks for."""
    special(tmp_path / "data", kind)
    assert limits.run(lambda: load(name, data=tmp_path / "data", cache=cache)) is not None
    folder = tmp_path / "folder"
    folder.mkdir()
    places = ["train-images-idx3-ubyte", "t10k-images-idx3-ubyte.gz", "cifar-10-python.tar.gz", "cifar10.npz", "a.png", "a.wav"]
    places += ["cifar-10-batches-py", "img_align_celeba.zip", "list_eval_partition.txt", "speaker-info.txt", "audiomnist.zip"]
    for place in places:
        special(folder / place, kind)
        assert limits.run(lambda: load(name, data=folder, cache=cache)) is not None
    for read in (lambda file: decode(file, 8, 3), measure_loudness, lambda file: file.head(12)):
        assert limits.run(lambda read=read: read(local_file(tmp_path / "data"))) is not None


@pytest.mark.parametrize("name", [b"\xff\xfe.png", b"a\nb.png", b"\x1b[31mred.png", "\u202egnp.exe.png".encode(), b"-rf.png"])
def test_odd_names_are_read_and_printed_safely(name: bytes, image_dir: Path, cache: Path, limits: Limits) -> None:
    odd = Path(os.fsdecode(os.fsencode(image_dir) + b"/" + name))
    Image.new("RGB", (40, 40)).save(odd, "PNG")
    assert limits.run(lambda: load("folder", data=image_dir, cache=cache)) is None
    odd.write_bytes(b"not an image")
    refusal = limits.run(lambda: load("folder", data=image_dir, cache=cache))
    assert refusal is not None and "is not a readable image" in refusal


@pytest.mark.parametrize("name", ["a" * 5000, "a\0b", "\ud800", "x" * 300 + "/y"])
def test_paths_that_cannot_exist_are_refused(name: str, tmp_path: Path, limits: Limits) -> None:
    assert "does not exist" in str(limits.run(lambda: load("folder", data=tmp_path / name)))
    assert "cannot be read" in str(limits.run(DataFile(tmp_path, name, "").open))
