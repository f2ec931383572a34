from __future__ import annotations

import base64
import io
import json
import timeit
import wave
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from anytime.sampling.sample_file import read_npz
from anytime.server.encode import Result, encode, grid, savez
from anytime.server.messages import ModelInfo, Submit

INFO = ModelInfo(
    name="digits", dataset="mnist", hash="abc", length=8, codebook_size=16, shape=(1, 5, 6), sample_rate=None, temperature=0.9,
    quality=(), step_ms=1.0, decode_ms=1.0, slots=32,
)  # fmt: skip


def result(data: np.ndarray, info: ModelInfo = INFO) -> Result:
    n = len(data)
    submit = Submit(1, info.name, tuple(range(n)), 9, ((),) * n, 8, 10.0, 0.0, top_p=0.5)
    return Result(info, submit, np.arange(3 * n, dtype=np.int32).reshape(n, 3), data, 0.25, "an id")


@pytest.mark.parametrize("channels", [1, 3])
def test_one_image_is_itself_and_several_are_a_grid(channels: int) -> None:
    data = np.random.default_rng(0).random((5, channels, 5, 6), dtype=np.float32)
    one = np.asarray(Image.open(io.BytesIO(encode(result(data[:1]), "png")))).reshape(5, 6, channels)
    assert np.array_equal(one, np.rint(data[0] * 255).astype(np.uint8).transpose(1, 2, 0))
    sheet = grid(data)
    assert sheet.shape == (channels, 2 * 7 + 2, 3 * 8 + 2)
    assert np.array_equal(sheet[:, 9:14, 10:16], data[4])
    assert (sheet[:, :2] == 1).all()


def test_audio_is_a_wav_file() -> None:
    info = replace(INFO, shape=(1, 100), sample_rate=16_000)
    data = np.linspace(-1.5, 1.5, 100, dtype=np.float32)[None, None]
    with wave.open(io.BytesIO(encode(result(data, info), "wav"))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (16_000, 1, 100)
        samples = np.frombuffer(file.readframes(100), "<i2")
    assert samples[0] == -32767 and samples[-1] == 32767


def test_an_npz_file_is_a_sample_of_the_library() -> None:
    data = np.random.default_rng(0).random((2, 1, 5, 6), dtype=np.float32)
    sample = read_npz(io.BytesIO(encode(result(data), "npz")), "it")
    assert np.array_equal(sample.data.numpy(), data)
    assert sample.codes.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (sample.seed, sample.model, sample.seconds) == (9, "abc", 0.25)
    assert (sample.settings.temperature, sample.settings.top_p) == (0.9, 0.5)


def test_arrays_of_any_kind_are_written_as_numpy_does_it() -> None:
    data = np.random.default_rng(0).random((3, 1, 4, 6), dtype=np.float32)[..., ::-1]
    some = {"data": data, "none": np.zeros((2, 0), np.int64), "seed": np.array(2**63 - 1, np.uint64)}
    arrays = {**some, "text": np.array("é {}"), "empty": np.array("")}
    content, buffer = savez(**arrays), io.BytesIO()
    np.savez(buffer, **arrays)
    with zipfile.ZipFile(io.BytesIO(content)) as file, zipfile.ZipFile(buffer) as expected:
        assert file.testzip() is None and file.namelist() == expected.namelist()
        assert all(file.read(name) == expected.read(name) for name in file.namelist())


@pytest.mark.timing
def test_arrays_are_written_faster_than_by_numpy() -> None:
    arrays, buffer = {"data": np.zeros((3, 1, 4, 6), np.float32), "text": np.array("é {}")}, io.BytesIO()
    own, numpys = (
        min(timeit.repeat(write, number=20)) for write in (lambda: savez(**arrays), lambda: np.savez(buffer, **arrays))
    )
    assert own < 0.5 * numpys


def test_json_says_what_was_asked_and_what_was_done() -> None:
    data = np.zeros((2, 1, 5, 6), np.float32)
    document = json.loads(encode(result(data), "json"))
    assert document["codes"] == 3 and document["requested"] == 8 and document["shortened"] is True
    assert document["code_rows"] == [[0, 1, 2], [3, 4, 5]]
    assert [Image.open(io.BytesIO(base64.b64decode(file))).size for file in document["samples"]] == [(6, 5)] * 2
