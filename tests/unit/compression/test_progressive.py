"""Compressed files: the same bytes everywhere, complete images at every cut, and refusals."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import anytime
from anytime import data
from anytime.compression import Compressor, compress, decompress
from anytime.compression.file_format import HEADER_BYTES, pack, unpack
from anytime.core.errors import UserError
from anytime.model import AnytimeModel, ModelConfig, _tiny
from anytime.priors.lstm import LSTMConfig

GOLDEN_CODES = [*range(7, 127, 8), 3]
GOLDEN_FILE = "b1c504b71c88d3c47eecd9b0624c7efa3b3852d8d5783f992d74cc"
GOLDEN_TABLES = "4738672c47be277c76a3d745f45a89b7037ae89a5caaf6b08ce813bf76844bfd"
"""A file of the bundled MNIST model, and the SHA-256 of its frequencies as little-endian int64: a platform on which they differ
cannot read the files of others."""


@pytest.fixture(scope="module")
def mnist() -> AnytimeModel:
    return anytime.load("mnist", "cpu")


@pytest.fixture(scope="module")
def compressor(mnist: AnytimeModel) -> Compressor:
    return Compressor(mnist)


@pytest.fixture(scope="module")
def digits() -> torch.Tensor:
    validation = data.load("digits").validation
    assert isinstance(validation, torch.Tensor)
    return validation[:16]


def test_golden_bytes(compressor: Compressor) -> None:
    codes = np.array([GOLDEN_CODES])
    tables = compressor.tables(codes)
    assert hashlib.sha256(tables.astype("<i8").tobytes()).hexdigest() == GOLDEN_TABLES
    (file,) = compressor.compress_codes(torch.from_numpy(codes))
    assert file.hex() == GOLDEN_FILE
    assert decompress(compressor.model, file).codes.tolist() == [GOLDEN_CODES]


def test_the_exact_pass_is_close_to_the_prior(compressor: Compressor, digits: torch.Tensor) -> None:
    codes = compressor.model.encode(digits)
    tables = torch.from_numpy(compressor.tables(codes.numpy()))
    with torch.no_grad():
        wanted = compressor.model.prior(codes).double().log_softmax(-1)
    exact = (tables.double() / (1 << 24)).log()
    bits = [-table.gather(-1, codes[..., None]).sum() for table in (exact, wanted)]
    assert abs(float(bits[0] / bits[1]) - 1) < 1e-3
    assert float((exact.exp() - wanted.exp()).abs().max()) < 1e-3


def test_tables_do_not_depend_on_the_batch(compressor: Compressor, digits: torch.Tensor) -> None:
    codes = compressor.model.encode(digits).numpy()
    together = compressor.tables(codes)
    assert all((compressor.tables(codes[i : i + 1])[0] == together[i]).all() for i in (0, 7, 15))
    assert (compressor.tables(codes[3:8, :5]) == together[3:8, :5]).all()


PROCESS = """
import json, sys, torch
threads, batch = map(int, sys.argv[1:])
torch.set_num_threads(threads)
import anytime
from anytime import data
from anytime.compression import Compressor
x = data.load("digits").validation[:16]
compressor = Compressor(anytime.load("mnist", "cpu"))
torch.set_num_threads(threads)
print(json.dumps([file.hex() for part in x.split(batch) for file in compressor.compress(part)]))
"""


def test_the_same_bytes_at_any_number_of_threads_and_batch_size(compressor: Compressor, digits: torch.Tensor) -> None:
    """This process has one thread and codes all images in one batch; another one has two and codes them one by one."""
    here = [file.hex() for file in compressor.compress(digits)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "2")
    environment = os.environ | threads | {"PYTHONPATH": str(Path(anytime.__file__).parents[1])}
    words = [sys.executable, "-c", PROCESS, "2", "1"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=240)
    assert json.loads(done.stdout) == here
    assert len(set(here)) > 10, "different images give different files"


def test_every_cut_is_a_complete_image(compressor: Compressor, digits: torch.Tensor) -> None:
    codes, files = compressor.model.encode(digits[:4]), compressor.compress(digits[:4])
    for row, file in zip(codes, files, strict=True):
        cuts = compressor.decompress([file[:size] for size in range(HEADER_BYTES, len(file) + 1)])
        counts = [cut.codes.shape[1] for cut in cuts]
        assert counts == sorted(counts) and counts[0] == 0 and counts[-1] == compressor.model.length
        for cut, count in zip(cuts, counts, strict=True):
            assert cut.codes[0].tolist() == row[:count].tolist()
            assert cut.data.shape == (1, 1, 28, 28) and cut.data.isfinite().all()
        assert (cuts[-1].uint8() == (compressor.model.decode(row[None]) * 255).round().to(torch.uint8)).all()


def test_files_are_smaller_than_plain_codes(compressor: Compressor, digits: torch.Tensor) -> None:
    sizes = [8 * (len(file) - HEADER_BYTES) for file in compressor.compress(digits)]
    assert np.mean(sizes) < compressor.model.length * np.log2(compressor.model.codebook_size)


def test_fewer_codes(mnist: AnytimeModel, digits: torch.Tensor) -> None:
    file = compress(mnist, digits[:1])
    assert decompress(mnist, file, codes=3).codes.tolist() == decompress(mnist, file).codes[:, :3].tolist()
    with pytest.raises(UserError, match="`codes`"):
        decompress(mnist, file, codes=17)


def noisy(file: bytes, first: int, rng: np.random.Generator) -> bytes:
    """Replace some bytes from `first` on, cut the file anywhere after them and append noise."""
    broken = bytearray(file)
    for place in rng.integers(first, len(file), int(rng.integers(1, 5))):
        broken[place] = rng.integers(256)
    return bytes(broken[: rng.integers(first, len(file) + 1)]) + rng.bytes(int(rng.integers(0, 9)))


def test_a_corrupted_payload_is_still_a_complete_image(compressor: Compressor, digits: torch.Tensor) -> None:
    rng, files = np.random.default_rng(0), compressor.compress(digits)
    images = compressor.decompress([noisy(files[number % 16], HEADER_BYTES, rng) for number in range(200)])
    assert all(image.data.shape == (1, 1, 28, 28) and image.data.isfinite().all() for image in images)
    assert len({tuple(image.codes[0].tolist()) for image in images}) > 100


def test_a_corrupted_header_gets_a_sentence_or_an_image(compressor: Compressor, digits: torch.Tensor) -> None:
    rng, files, sentences = np.random.default_rng(1), compressor.compress(digits), []
    for number in range(200):
        try:
            (image,) = compressor.decompress([noisy(files[number % 16], 0, rng)], codes=1)
            assert image.data.shape == (1, 1, 28, 28)
        except UserError as error:
            sentences.append(str(error))
    assert len(sentences) > 100 and not any("\n" in sentence for sentence in sentences)
    for part in ("cut inside its header", "not a file of", "another model", "format version"):
        assert any(part in sentence for sentence in sentences), part


def test_headers(mnist: AnytimeModel) -> None:
    file = pack(mnist.hash, b"payload")
    assert len(file) == HEADER_BYTES + 7 and unpack(file).payload == b"payload"
    for size in range(HEADER_BYTES):
        with pytest.raises(UserError, match=f"header: it has {size} of 4 bytes"):
            unpack(file[:size])
    for later in (file[:1], file):
        with pytest.raises(UserError, match="format version 2"):
            unpack(b"\xb2" + later[1:])
    for place in range(1, HEADER_BYTES):
        other = bytearray(file)
        other[place] ^= 1
        with pytest.raises(UserError, match="another model"):
            decompress(mnist, bytes(other))


FOREIGN = {
    "PNG": "89504e47",
    "JPEG": "ffd8ff",
    "GIF": "47494638",
    "WebP": "52494646",
    "BMP": "424d",
    "TIFF": "49492a00",
    "TIFF, big-endian": "4d4d002a",
    "zip": "504b0304",
    "gzip": "1f8b",
    "text": "e28692",
    "anytime, the header of 7 bytes": "ae5901c504b7c31c88",
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_other_files_are_refused(kind: str) -> None:
    with pytest.raises(UserError, match="not a file of this version of `anytime compress`"):
        unpack(bytes.fromhex(FOREIGN[kind]))


def test_other_priors_are_refused() -> None:
    tiny = _tiny()
    prior = LSTMConfig(length=8, codebook_size=16, layers=1, width=8)
    with pytest.raises(UserError, match="Transformer prior"):
        Compressor(AnytimeModel(ModelConfig(name="tiny", autoencoder=tiny.autoencoder, prior=prior)))


def test_without_constriction(mnist: AnytimeModel, digits: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "constriction", None)
    with pytest.raises(UserError, match="pip install constriction"):
        compress(mnist, digits[:1])
