"""Damaged files in every format that is read, made by hypothesis: each is read, or refused in one sentence.

The short form runs in the default suite; the long form, marked `slow`, reads more than 100,000 files and records its
counts, times and findings.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import tarfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from anytime.data import audio_io, download, image_io
from anytime.data.audio_datasets import _listed_speakers
from anytime.data.celeba import _read_partition
from anytime.data.cifar import BATCHES, read_batch, read_cifar10
from anytime.data.dataset import ReadOptions
from anytime.data.files import find_files, local_file, stamped_file
from anytime.data.image_io import SUFFIXES, decode, header
from anytime.data.image_shards import decode_rows
from anytime.data.mnist import read_idx, to_idx
from anytime.data.tar_shards import index_shards

from .limits import Limits

SHORT = 100  # inputs for each parser in the default suite
NUMBERS = [0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
Reader = Callable[[Path], object]


@dataclass(frozen=True)
class Parser:
    """A reader, whole files to damage, and how many damaged ones the long form tries."""

    name: str
    read: Reader
    seeds: Callable[[], list[bytes]]
    long: int
    file: str
    wrap: Callable[[bytes], bytes] = bytes
    """applied after the damage: damage to compressed bytes seldom comes further than their checksum"""
    found: str = "nothing"
    """what fuzzing found and was mended"""


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def image_seeds() -> list[bytes]:
    """Small images of every format and many modes."""
    random = np.random.default_rng(0)
    colour = Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    grey, deep = colour.convert("L"), Image.fromarray(random.integers(0, 5000, (9, 12), dtype=np.uint16))
    floats = Image.fromarray(random.normal(size=(9, 12)).astype(np.float32))
    clear = colour.convert("RGBA")
    clear.putalpha(grey)
    exif = Image.Exif()
    exif[0x0112] = 6
    tiffs = [(colour, how) for how in (None, "tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits")] + [
        (deep, None),
        (floats, None),
    ]
    return [
        *(saved(image, "PNG") for image in (colour, grey, deep, clear, colour.convert("P"), colour.convert("1"))),
        saved(colour, "JPEG", exif=exif),
        saved(grey, "JPEG", progressive=True),
        saved(colour.convert("CMYK"), "JPEG"),
        saved(colour, "WEBP", lossless=True),
        saved(clear, "WEBP", save_all=True, append_images=[clear.rotate(90)]),
        *(saved(image, "BMP") for image in (colour, grey, colour.convert("1"), colour.convert("P"))),
        saved(grey, "GIF", save_all=True, append_images=[grey.rotate(180)]),
        *(saved(image, "TIFF", compression=how) for image, how in tiffs),
    ]


def read_image(path: Path) -> None:
    header(local_file(path))
    decode(local_file(path), 8, 1 if path.stat().st_size % 2 else 3)


def audio_seeds() -> list[bytes]:
    """Short files of every format that libsndfile writes."""
    tone = 0.3 * np.sin(np.arange(300) / 5)[:, None].repeat(2, 1)
    kinds = [
        ("WAV", "PCM_16"),
        ("WAV", "FLOAT"),
        ("WAV", "IMA_ADPCM"),
        ("WAVEX", "PCM_24"),
        ("RF64", "PCM_16"),
        ("W64", "PCM_16"),
    ]
    kinds += [("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")]
    kinds += [("AIFF", "PCM_16"), ("AU", "ULAW"), ("CAF", "ALAC_16"), ("CAF", "PCM_16")]
    files = []
    for kind, subtype in kinds:
        stream = io.BytesIO()
        soundfile.write(stream, tone, 48_000, format=kind, subtype=subtype)
        files.append(stream.getvalue())
    return files


def read_audio(path: Path) -> None:
    file = local_file(path)
    for _ in audio_io.read_blocks(file, audio_io.measure_loudness(file).gain):
        pass


def idx_seeds() -> list[bytes]:
    return [to_idx(np.arange(24, dtype=np.uint8).reshape(2, 3, 4)), to_idx(np.zeros((1, 1, 1), np.uint8))]


def batch_seeds() -> list[bytes]:
    data = {b"data": np.zeros((1, 3072), np.uint8), b"labels": [3], b"filenames": [b"a.png"], b"batch_label": "one"}
    return [pickle.dumps(data, protocol) for protocol in range(6)]


def zip_of(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return stream.getvalue()


def zip_seeds() -> list[bytes]:
    image = saved(Image.new("L", (9, 9)), "PNG")
    members = {"a.png": image, "b/ä.png": image, "c/": b"", "notes.txt": b"no image"}
    return [
        zip_of(members, method) for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    ]


def read_zip(path: Path) -> None:
    for file in find_files(path, SUFFIXES):
        file.head(12)
        decode(file, 8, 3)


def tar_seeds() -> list[bytes]:
    files = []
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
            for name in BATCHES:
                info = tarfile.TarInfo(f"cifar-10-batches-py/{'x' * 120 if form else ''}/{name}")
                info.size = len(batch_seeds()[2])
                archive.addfile(info, io.BytesIO(batch_seeds()[2]))
        files.append(stream.getvalue())
    return files


def shard_seeds() -> list[bytes]:
    image, files = saved(Image.new("RGB", (9, 9)), "PNG"), []
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
            for name in ("a.png", "a.cls", f"{'long/' * 30 if form else ''}b.png"):
                info = tarfile.TarInfo(name)
                info.size = len(image)
                archive.addfile(info, io.BytesIO(image))
        files.append(stream.getvalue())
    return files


def read_shard(path: Path) -> None:
    index = index_shards([stamped_file(path)], 8, path)  # a file in the place of the cache: nothing is written
    decode_rows(index, torch.arange(len(index)), 8, 3)


def read_cifar(path: Path) -> None:
    read_cifar10(ReadOptions("cifar10", path.parent, 32, path.parent))


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npy_seeds() -> list[bytes]:
    arrays = (np.zeros((3, 32, 32, 3), np.uint8), np.zeros((2, 2)), np.zeros(2, "U3,i4"), np.array([{}, None], object))
    return [npy(array) for array in arrays]


def as_npz(content: bytes) -> bytes:
    return zip_of({"x_train.npy": content, "x_test.npy": content}, zipfile.ZIP_STORED)


def cached_seeds() -> list[bytes]:
    return [npy(np.zeros((2, 1, 8, 8), np.uint8)), npy(np.array([[3, 0], [4, 1]])), as_npz(b"")]


def read_cached(path: Path) -> None:
    image_io._load_cached(path, 2, 8)
    audio_io._load_cached(path.with_suffix(".int16"), 2)


PARSERS = [
    Parser(
        "image",
        read_image,
        image_seeds,
        30_000,
        "a.png",
        found="1.01 s for an animation of 67 million pixels: the limit is 50 million now",
    ),
    Parser(
        "audio",
        read_audio,
        audio_seeds,
        15_000,
        "a.wav",
        found="samples repeated up to the length in a false header (21 minutes from 1.2 kB); failed seeks printed tracebacks",
    ),
    Parser("idx", lambda path: read_idx(path, 3), idx_seeds, 8_000, "a"),
    Parser("idx-gzip", lambda path: read_idx(path, 3), lambda: [gzip.compress(seed) for seed in idx_seeds()], 5_000, "a.gz"),
    Parser("batch", lambda path: read_batch(path.read_bytes(), path), batch_seeds, 12_000, "data_batch_1"),
    Parser("tar", read_cifar, tar_seeds, 8_000, "cifar-10-python.tar.gz", lambda tar: gzip.compress(tar, 1)),
    Parser("shard", read_shard, shard_seeds, 6_000, "a.tar", found="a member of negative size was accepted"),
    Parser("npz", read_cifar, lambda: [as_npz(seed) for seed in npy_seeds()], 6_000, "cifar10.npz"),
    Parser("npy", read_cifar, npy_seeds, 6_000, "cifar10.npz", as_npz),
    Parser("zip", read_zip, zip_seeds, 10_000, "a.zip", found="IndexError for a member without a name"),
    Parser("partition", _read_partition, lambda: [b"000001.jpg 0\r\n000002.jpg 1\r\n"], 3_000, "list_eval_partition.txt"),
    Parser(
        "speakers", lambda path: _listed_speakers(path.parent), lambda: [b"ID AGE\n225 23\np226 x\n"], 2_000, "speaker-info.txt"
    ),
    Parser("cached", read_cached, cached_seeds, 5_000, "a.npy"),
    Parser(
        "verified", lambda path: download._read_verified(path.parent), lambda: [b'{"a": ["b", 1, 2]}'], 2_000, "verified.json"
    ),
]


@st.composite
def damaged(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A whole file after one to four kinds of damage, or bytes of any kind."""
    content = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        # Half of the damage is near the start, where headers are.
        at = min(draw(st.integers(0, 64) | st.integers(0, max(1, len(content)))), len(content))
        match draw(st.sampled_from(["byte", "number", "cut", "insert", "remove", "repeat", "replace"])):
            case "byte" if at < len(content):
                content[at] = draw(st.integers(0, 255))
            case "number":
                number, size = draw(st.sampled_from(NUMBERS)), draw(st.sampled_from([1, 2, 4, 8]))
                order = draw(st.sampled_from(["little", "big"]))
                content[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, order)  # type: ignore[arg-type]
            case "cut":
                del content[at:]
            case "insert":
                content[at:at] = draw(st.binary(max_size=20))
            case "remove":
                del content[at : at + draw(st.integers(1, 40))]
            case "repeat":
                content[at:at] = content[at : at + draw(st.integers(1, 40))] * draw(st.sampled_from([1, 2, 50]))
            case "replace":
                content[at : at + 8] = draw(st.binary(max_size=8))
    return bytes(content)


@contextmanager
def only(folder: Path, name: str) -> Iterator[Path]:
    """Yield the path of an input in a folder of its own; check that nothing else was written, there or where we are."""
    (folder / "in").mkdir()
    (folder / "here").mkdir()
    before = Path.cwd()
    os.chdir(folder / "here")
    try:
        yield folder / "in" / name
    finally:
        os.chdir(before)
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*")} <= {"in", "here", f"in/{name}"}


def fuzz(parser: Parser, folder: Path, count: int) -> Limits:
    """Read that many damaged files."""
    limits = Limits()
    with only(folder, parser.file) as path:

        @settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
        @given(damaged(parser.seeds()))
        def read(content: bytes) -> None:
            path.write_bytes(parser.wrap(content))
            limits.run(lambda: parser.read(path))

        for seed in parser.seeds():  # the undamaged ones too
            read.hypothesis.inner_test(seed)
        read()
    limits.check_memory()
    return limits


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_damaged_files_are_read_or_refused(parser: Parser, tmp_path: Path) -> None:
    limits = fuzz(parser, tmp_path, SHORT)
    assert limits.inputs >= SHORT
    assert limits.accepted > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_many_damaged_files_are_read_or_refused(
    parser: Parser, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """As users run it: warnings of Pillow and numpy are not errors."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        limits = fuzz(parser, tmp_path, parser.long)
    record_property("inputs", limits.inputs)
    record_property("accepted", limits.accepted)
    record_property("fuzzing_seconds", round(time.perf_counter() - start, 1))
    record_property("slowest_input_ms", round(1000 * limits.slowest, 1))
    record_property("memory_mib", limits.memory >> 20)
    record_property("found_and_mended", parser.found)
    assert limits.inputs >= parser.long


def test_the_long_form_reads_a_hundred_thousand_files() -> None:
    assert sum(parser.long for parser in PARSERS) >= 100_000
