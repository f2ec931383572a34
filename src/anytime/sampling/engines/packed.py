"""The packed engine: the Transformer's products with weights packed for the processor, in fp32 or bf16.

Nothing is compiled, so it starts in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.autoencoders.vqvae import VQVAE
from anytime.priors.transformer import Transformer
from anytime.sampling.engines.base import CPU_DECODE_BATCH, DTYPES
from anytime.sampling.engines.packed_decoder import PackedDecoder
from anytime.sampling.engines.packed_transformer import PackedTransformer
from anytime.sampling.engines.windowed import WindowedEngine


class PackedEngine(WindowedEngine):
    """A packed Transformer and a packed decoder with fused batch norms."""

    name = "packed"
    windows: ClassVar[Mapping[int, int]] = {1: 6, 2: 4}

    def __init__(self, prior: Transformer, autoencoder: VQVAE, precision: str) -> None:
        dtype = DTYPES[precision]
        super().__init__(PackedTransformer(prior, dtype), partial(_decode, PackedDecoder(autoencoder, dtype)))
        self.precision = precision


def _decode(decoder: PackedDecoder, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch ..."]:
    return torch.cat([decoder(part) for part in codes.split(CPU_DECODE_BATCH)])
