"""Samples as files: PNG, WAV, NPZ and JSON, from NumPy arrays alone."""

from __future__ import annotations

import base64
import io
import json
import math
import struct
import wave
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from PIL import Image

from anytime.server.messages import ModelInfo, Submit

Format = Literal["png", "wav", "npz", "json"]
MEDIA_TYPES: dict[str, Format] = {
    "image/png": "png",
    "audio/wav": "wav",
    "application/x-npz": "npz",
    "application/json": "json",
}
GAP = 2  # pixels between the images of a grid
FAST = 1  # level of compression: images are small, and time is short
ZIP_MEMBER, ZIP_ENTRY, ZIP_END = (struct.Struct(form) for form in ("<4s3H4I2H", "<4s4H4I5H2I", "<4s4H2IH"))
"""Headers of a ZIP file: of a member, of its entry in the directory, and of the directory's end."""
ZIP_VERSION, ZIP_DATE = 20, 0x00210000  # 1 January 1980, the first date that ZIP knows


@dataclass(frozen=True, slots=True)
class Result:
    """A sample and what it answers."""

    info: ModelInfo
    submit: Submit
    codes: np.ndarray  # [n, count]
    data: np.ndarray  # [n, ...], images as floats or bytes
    seconds: float
    id: str

    @property
    def count(self) -> int:
        """Number of codes."""
        return int(self.codes.shape[1])

    @property
    def shortened(self) -> bool:
        """Whether it has fewer codes than requested."""
        return self.count < self.submit.codes

    @property
    def facts(self) -> dict[str, Any]:
        """What is said about it besides the data."""
        return {
            "id": self.id,
            "model": self.info.name,
            "codes": self.count,
            "requested": self.submit.codes,
            "length": self.info.length,
            "shortened": self.shortened,
            "seconds": round(self.seconds, 6),
            "seed": self.submit.seed,
        }


def encode(result: Result, to: Format) -> bytes:
    """Return the sample as a file; several images as a grid."""
    match to:
        case "png":
            return png(grid(result.data) if len(result.data) > 1 else result.data[0])
        case "wav":
            return wav(result.data[0], result.info.sample_rate or 0)
        case "npz":
            return npz(result)
        case "json":
            return json.dumps(document(result)).encode()


def document(result: Result) -> dict[str, Any]:
    """Return the sample as a JSON value: facts, codes, and one base64 file for each row."""
    rows = {"rows": list(result.submit.rows), "code_rows": result.codes.tolist()}
    return {**result.facts, **rows, "media_type": media_type(result.info), "samples": each_file(result)}


def media_type(info: ModelInfo) -> str:
    """Return the media type of a single sample."""
    return "image/png" if info.sample_rate is None else "audio/wav"


def each_file(result: Result) -> list[str]:
    """Return one base64 file for each row."""
    rate = result.info.sample_rate
    files = (png(x) if rate is None else wav(x, rate) for x in result.data)
    return [base64.b64encode(file).decode() for file in files]


def grid(images: np.ndarray) -> np.ndarray:
    """Arrange images [n, channel, height, width] in a square on white."""
    n, channels, height, width = images.shape
    columns = math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    white = 255 if images.dtype == np.uint8 else 1
    sheet = np.full((channels, rows * (height + GAP) + GAP, columns * (width + GAP) + GAP), white, images.dtype)
    for index, image in enumerate(images):
        top, left = (GAP + at * (side + GAP) for at, side in zip(divmod(index, columns), (height, width), strict=True))
        sheet[:, top : top + height, left : left + width] = image
    return sheet


def png(image: np.ndarray) -> bytes:
    """Encode an image [channel, height, width], floats in [0, 1] or bytes."""
    pixels = image if image.dtype == np.uint8 else np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    pixels = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=FAST)
    return buffer.getvalue()


def wav(x: np.ndarray, rate: int) -> bytes:
    """Encode audio [1, time] in [-1, 1], 16 bits."""
    samples = np.rint(np.clip(x[0], -1, 1) * 32767).astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, rate, len(samples), "NONE", "not compressed"))
        file.writeframes(samples.tobytes())
    return buffer.getvalue()


def npz(result: Result) -> bytes:
    """Encode a file with the keys of `anytime sample --out FILE.npz`."""
    submit = result.submit
    temperature = result.info.temperature if submit.temperature is None else submit.temperature
    settings = {"temperature": temperature, "top_k": None, "top_p": submit.top_p}
    return savez(
        data=result.data,
        codes=result.codes.astype(np.int64),
        rows=np.array(submit.rows, np.int64),
        seconds=np.array(result.seconds),
        seed=np.array(submit.seed, np.uint64),
        settings=np.array(json.dumps(settings)),
        model=np.array(result.info.hash),
    )


def savez(**arrays: np.ndarray) -> bytes:
    """Return what `np.savez` writes, in a fraction of its time: most of an answer's time went into it.

    >>> file = np.load(io.BytesIO(savez(a=np.arange(3), b=np.array("text"))))
    >>> file["a"], file["b"]
    (array([0, 1, 2]), array('text', dtype='<U4'))
    """
    parts, directory, at = list[bytes | memoryview](), list[bytes](), 0
    for key, array in arrays.items():
        name = f"{key}.npy".encode()
        header, content = _npy_header(array.dtype.str, array.shape), np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        size = len(header) + len(content)
        facts = (0, 0, ZIP_DATE, zlib.crc32(content, zlib.crc32(header)), size, size, len(name), 0)
        parts += [ZIP_MEMBER.pack(b"PK\x03\x04", ZIP_VERSION, *facts), name, header, content]
        directory += [ZIP_ENTRY.pack(b"PK\x01\x02", ZIP_VERSION, ZIP_VERSION, *facts, 0, 0, 0, 0, at), name]
        at += ZIP_MEMBER.size + len(name) + size
    length = sum(map(len, directory))
    end = ZIP_END.pack(b"PK\x05\x06", 0, 0, len(arrays), len(arrays), length, at, 0)
    return b"".join([*parts, *directory, end])


@lru_cache(4096)
def _npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return what precedes the values of an array in an NPY file."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": dtype, "fortran_order": False, "shape": shape})
    return buffer.getvalue()
