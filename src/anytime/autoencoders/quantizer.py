"""Vector quantization: each latent vector becomes its nearest codebook entry (Section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor, nn

from anytime.core import distributed, random
from anytime.core.errors import UserError


@dataclass(frozen=True, kw_only=True)
class QuantizerConfig:
    """The codebook and how it learns."""

    codebook_size: int
    """C, entries of the codebook."""
    commitment: float = 1.0
    """β, weight of the commitment term; the paper uses 0.1 to 2."""
    codebook: Literal["gradient", "ema"] = "gradient"
    """How entries are updated: by the gradient of the codebook term (the paper), or as an EMA of their latents."""
    ema_decay: float = 0.99
    """Decay of the EMA per step; used with `codebook = "ema"` only."""
    init: Literal["uniform", "latents"] = "uniform"
    """Initial entries: uniform in ±1/C (the authors' code), or latents of the first batch."""
    revive_dead_codes: bool = False
    """Move unused entries onto latents of the current batch; needs `codebook = "ema"`, off in the paper."""

    def __post_init__(self) -> None:
        if self.codebook_size < 2:
            raise UserError(f"`quantizer.codebook_size` must be at least 2, not {self.codebook_size}")
        if not 0.1 <= self.commitment <= 2.0:
            raise UserError(f"`quantizer.commitment` must be between 0.1 and 2.0, not {self.commitment}")
        if not 0 < self.ema_decay < 1:
            raise UserError(f"`quantizer.ema_decay` must be between 0 and 1, not {self.ema_decay}")
        if self.revive_dead_codes and self.codebook != "ema":
            raise UserError(
                '`quantizer.revive_dead_codes` needs `quantizer.codebook` "ema", which counts how often an entry is used'
            )


@dataclass(frozen=True, slots=True)
class Quantized:
    """The quantizer's output."""

    latents: Tensor  # straight-through, [batch, length, dim]
    codes: Tensor  # [batch, length]
    loss: Tensor  # codebook + commitment, [batch, length], unreduced so that truncation can mask it


class Quantizer(nn.Module):
    """q(z)_j = argmin_i ‖e_i − z_j‖, with the straight-through gradient."""

    DEAD_THRESHOLD = 0.03
    """Uses per step below which an entry is dead. Low: a batch may have fewer codes than the codebook has entries."""

    count: Tensor  # EMA of the uses of each entry, [codebook_size]
    mean_sum: Tensor  # EMA of the sums of their latents, [codebook_size, dim]

    def __init__(self, config: QuantizerConfig, dim: int) -> None:
        super().__init__()
        self.config = config
        size = config.codebook_size
        init = torch.empty(size, dim).uniform_(-1 / size, 1 / size)
        self.codebook = nn.Parameter(init, requires_grad=config.codebook == "gradient")
        if config.codebook == "ema":
            self.register_buffer("count", torch.ones(size))
            self.register_buffer("mean_sum", init.clone())

    def forward(self, latents: Float[Tensor, "batch length dim"]) -> Quantized:
        """Quantize; the gradient passes straight through to the latents."""
        with torch.autocast(latents.device.type, enabled=False):
            latents = latents.float()
            codes = self.nearest(latents.detach())
            entries = self.lookup(codes)
            commitment = (latents - entries.detach()).square().sum(-1)
            codebook = (latents.detach() - entries).square().sum(-1) if self.config.codebook == "gradient" else 0.0
            straight_through = latents + (entries - latents).detach()
        return Quantized(straight_through, codes, codebook + self.config.commitment * commitment)

    def nearest(self, latents: Float[Tensor, "batch length dim"]) -> Int[Tensor, "batch length"]:
        """Return the code of each latent vector: its nearest entry."""
        # ‖e − z‖² = ‖e‖² − 2 e·z + ‖z‖², and ‖z‖² is the same for every entry.
        with torch.autocast(latents.device.type, enabled=False):  # bf16 distances would pick wrong entries
            squares = self.codebook.square().sum(-1)
            distances = torch.addmm(squares, latents.flatten(0, 1), self.codebook.T, alpha=-2)
        return distances.argmin(-1).view(latents.shape[:2])

    @torch.no_grad()
    def init_from_latents(self, latents: Float[Tensor, "batch length dim"], seed: int) -> None:
        """Set the entries to latents chosen by the seed; with fewer latents than entries, they repeat."""
        flat = latents.flatten(0, 1).float()
        indices = random.permutation(len(flat), seed)[torch.arange(len(self.codebook)) % len(flat)]
        self.codebook.copy_(flat[indices.to(flat.device)])
        if self.config.codebook == "ema":
            self.mean_sum.copy_(self.codebook)

    def lookup(self, codes: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length dim"]:
        """Return the codebook entries of `codes`."""
        return nn.functional.embedding(codes, self.codebook)

    @torch.no_grad()
    def update(
        self,
        latents: Float[Tensor, "batch length dim"],
        codes: Int[Tensor, "batch length"],
        keep_mask: Bool[Tensor, "batch length"],
        seed: int,
        step: int,
    ) -> None:
        """Update an EMA codebook with the latents that were kept, summed over all ranks."""
        if self.config.codebook != "ema":
            return
        weight = keep_mask.flatten().float()
        flat, index = latents.flatten(0, 1).float(), codes.flatten()
        size, ema_decay = self.config.codebook_size, self.config.ema_decay
        count = distributed.all_reduce_sum(flat.new_zeros(size).index_add_(0, index, weight))
        summed = distributed.all_reduce_sum(torch.zeros_like(self.codebook).index_add_(0, index, flat * weight[:, None]))
        self.count.mul_(ema_decay).add_(count, alpha=1 - ema_decay)
        self.mean_sum.mul_(ema_decay).add_(summed, alpha=1 - ema_decay)
        if self.config.revive_dead_codes:
            self._revive_dead_codes(flat, weight > 0, seed, step)
        # An entry at count 0 has a sum near 0 too; the lower bound keeps their ratio finite.
        self.codebook.copy_(self.mean_sum / self.count.clamp_min(1e-5)[:, None])

    def _revive_dead_codes(self, flat: Float[Tensor, "n dim"], keep_mask: Bool[Tensor, " n"], seed: int, step: int) -> None:
        """Move each dead entry onto a different kept latent of this batch, as far as there are enough."""
        # Rows are numbered over the global batch, so that the result does not depend on the number of ranks.
        rows, first = len(flat), len(flat) * distributed.rank()
        is_kept = torch.zeros(rows * distributed.world_size(), dtype=torch.int32, device=flat.device)
        is_kept[first : first + rows] = keep_mask.to(torch.int32)
        is_kept = distributed.all_reduce_sum(is_kept)
        order = random.permutation(len(is_kept), seed, step).to(flat.device)
        order = order[torch.argsort(is_kept[order], descending=True, stable=True)]  # kept latents first, in random order
        dead = self.count < self.DEAD_THRESHOLD
        index = dead.cumsum(0) - 1  # of each dead entry among the dead ones
        source_rows = order[index.clamp(0, len(order) - 1)] - first
        own = (source_rows >= 0) & (source_rows < rows)
        chosen = distributed.all_reduce_sum(torch.where(own[:, None], flat[source_rows.clamp(0, rows - 1)], 0))
        revived = dead & (index < is_kept.sum())
        self.mean_sum.copy_(torch.where(revived[:, None], chosen, self.mean_sum))
        self.count.copy_(torch.where(revived, torch.ones_like(self.count), self.count))


@dataclass(frozen=True, slots=True)
class CodebookUsage:
    """How much of the codebook is used."""

    used: int  # entries that occur
    dead: int  # entries that do not
    perplexity: float  # exp of the entropy of the entries' frequencies; codebook_size if all are equally frequent


def codebook_usage(counts: Num[Tensor, " codebook_size"]) -> CodebookUsage:
    """Return the codebook usage, given how often each entry occurs."""
    frequency = counts.double() / counts.sum().clamp_min(1)
    entropy = -torch.special.xlogy(frequency, frequency).sum()
    used = int((counts > 0).sum())
    return CodebookUsage(used, len(counts) - used, float(entropy.exp()))
