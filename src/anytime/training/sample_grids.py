"""Image grids by number of codes, and the data as codes, while a model trains."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Int, Int16, UInt8
from torch import Tensor

from anytime.autoencoders.vqvae import VQVAE
from anytime.data.image_grid import labelled_rows, write_png
from anytime.data.loader import to_float
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

GRID_FRACTIONS = (0.25, 0.5, 0.75, 1.0)
ENCODE_BATCH = 500  # fixed, so that the codes of an example never depend on the caller


@torch.no_grad()
def encode_dataset(
    autoencoder: VQVAE, examples: UInt8[Tensor, "n channel height width"] | Int16[Tensor, "n channel time"]
) -> Int[Tensor, "rows length"]:
    """Encode a whole dataset in float32, as the prior sees it."""
    autoencoder.eval()
    device = autoencoder.quantizer.codebook.device
    parts = [autoencoder.encode(to_float(part.to(device))) for part in torch.split(examples, ENCODE_BATCH)]
    return torch.cat(parts).to(torch.int32)


def code_rows(model: AnytimeModel, codes: Int[Tensor, "n length"]) -> list[tuple[str, Tensor]]:
    """Decode a quarter, a half, three quarters and all of the codes, with labels."""
    counts = [code_count(model.length, fraction=f) for f in GRID_FRACTIONS]
    return [(f"{k} of {model.length} codes", model.decode(codes[:, :k]).cpu()) for k in counts]


def write_grid(path: Path, model: AnytimeModel, x: UInt8[Tensor, "n ..."] | Int16[Tensor, "n ..."] | None, n: int = 16) -> None:
    """Write reconstructions of x by number of codes, or samples if x is None."""
    if x is None:
        rows = code_rows(model, model.sample(n, seed=0).codes)
    else:
        pixels = to_float(x)
        rows = [("data", pixels.cpu()), *code_rows(model, model.encode(pixels))]
    write_png(path, labelled_rows(rows))
