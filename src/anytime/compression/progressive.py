"""Progressive files: the ordered codes of an image, range-coded with the prior's own probabilities.

A file cut at any byte after its header decodes to a complete, coarser image: from the codes that the remaining bytes determine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from anytime.compression import file_format
from anytime.compression.exact_transformer import ExactTransformer
from anytime.compression.range_coder import PrefixDecoder, check_codebook, encode_payload
from anytime.core.errors import UserError
from anytime.model import AnytimeModel
from anytime.priors.transformer import Transformer

BATCH = 64
"""Files coded at a time; the result does not depend on it."""


@dataclass(frozen=True, slots=True)
class Decompressed:
    """A complete image, whatever its number of codes."""

    data: Tensor  # float32, [1, channel, height, width] in [0, 1]
    codes: Tensor  # [1, codes that the file determines], int64
    model: str  # hash of the model

    def uint8(self) -> Tensor:
        """Return the image as bytes."""
        return (self.data * 255).round().clamp(0, 255).to(torch.uint8)


def compress(model: AnytimeModel, x: Num[Tensor, "1 channel *spatial"]) -> bytes:
    """Return one image as a file, which may be cut at any byte after its header.

    The bytes are the same in every process, at any number of threads and on every machine, as far as `encode` returns the same
    codes there.
    """
    (data,) = Compressor(model).compress(x)
    return data


def decompress(model: AnytimeModel, data: bytes, codes: int | None = None) -> Decompressed:
    """Return the image of a file or of any prefix of it, from at most `codes` codes."""
    (decompressed,) = Compressor(model).decompress([data], codes)
    return decompressed


class Compressor:
    """Compresses and decompresses many images with one model."""

    def __init__(self, model: AnytimeModel) -> None:
        if not isinstance(model.prior, Transformer):
            raise UserError("compressed files need a model with a Transformer prior; choose or train such a model")
        check_codebook(model.codebook_size)
        self.model, self.prior = model, ExactTransformer(model.prior)

    def compress(self, x: Num[Tensor, "batch channel *spatial"]) -> list[bytes]:
        """Return one file for each image."""
        # One image at a time: convolutions round differently in batches of different sizes.
        codes = [self.model.encode(image[None]) for image in x]
        return self.compress_codes(torch.cat(codes)) if codes else []

    def compress_codes(self, codes: Int[Tensor, "batch length"]) -> list[bytes]:
        """Return one file for each row of codes."""
        return [file_format.pack(self.model.hash, payload) for payload in self._payloads(codes.cpu().numpy())]

    def _payloads(self, codes: Int[np.ndarray, "batch length"]) -> Iterator[bytes]:
        for start in range(0, len(codes), BATCH):
            part = codes[start : start + BATCH]
            tables = self.tables(part)
            yield from (encode_payload(row, table) for row, table in zip(part, tables, strict=True))

    def tables(self, codes: Int[np.ndarray, "batch length"]) -> Int[np.ndarray, "batch length codebook_size"]:
        """Return the frequencies of every code given those before it."""
        state, before, tables = self.prior.start(len(codes)), None, []
        for position in range(codes.shape[1]):
            tables.append(self.prior.step(before, state))
            before = codes[:, position]
        return np.stack(tables, 1)

    def decompress(self, files: Sequence[bytes], codes: int | None = None) -> list[Decompressed]:
        """Return one image for each file or prefix of a file, from at most `codes` codes."""
        count = self.model.code_count(codes)
        unpacked = [file_format.unpack(data) for data in files]
        for file in unpacked:
            file_format.check_model(file, self.model.hash)
        payloads = [file.payload for file in unpacked]
        found = [row for at in range(0, len(files), BATCH) for row in self.decode_payloads(payloads[at : at + BATCH], count)]
        return [self._decompressed(row) for row in found]

    def _decompressed(self, codes: list[int]) -> Decompressed:
        row = torch.tensor([codes], dtype=torch.long, device=self.model.device)
        data: Float[Tensor, "1 channel *spatial"] = self.model.decode(row)
        return Decompressed(data, row, self.model.hash)

    def decode_payloads(self, payloads: Sequence[bytes], count: int) -> list[list[int]]:
        """Return the codes that each payload determines, at most `count`."""
        decoders = [PrefixDecoder(payload, self.model.length) for payload in payloads]
        state, before, found = self.prior.start(len(payloads)), None, [list[int]() for _ in payloads]
        for _ in range(count):
            tables = self.prior.step(before, state)
            codes = [decoder.next(table) for decoder, table in zip(decoders, tables, strict=True)]
            for row, code in zip(found, codes, strict=True):
                row.extend([] if code is None else [code])
            if all(code is None for code in codes):
                break
            before = np.array([code or 0 for code in codes])  # rows that have ended go on with any code
        return found
