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
    """How entries move: by the gradient of the codebook term (the paper), or as a running mean of what they stand for."""
    ema_decay: float = 0.99
    """Memory of the running mean, per step; used with `codebook = "ema"` only."""
    init: Literal["uniform", "latents"] = "uniform"
    """Where entries begin: uniform in ±1/C (the paper's code), or at latents of the first batch."""
    revive_dead_codes: bool = False
    """Move entries that nothing uses onto latents of the current batch; needs `codebook = "ema"`, off in the paper."""

    def __post_init__(self) -> None:
        if self.codebook_size < 2:
            raise UserError(f"codebook_size must be at least 2, not {self.codebook_size}")
        if not 0.1 <= self.commitment <= 2.0:
            raise UserError(f"commitment must be between 0.1 and 2.0, not {self.commitment}")
        if not 0 < self.ema_decay < 1:
            raise UserError(f"ema_decay must be between 0 and 1, not {self.ema_decay}")
        if self.revive_dead_codes and self.codebook != "ema":
            raise UserError('revive_dead_codes needs codebook = "ema", which counts how often an entry is used')


@dataclass(frozen=True, slots=True)
class Quantized:
    latents: Tensor  # straight-through, [batch, length, dim]
    codes: Tensor  # [batch, length]
    loss: Tensor  # codebook + commitment, [batch, length], unreduced so that truncation can mask it


class Quantizer(nn.Module):
    """q(z)_j = argmin_i ‖e_i − z_j‖, with the straight-through gradient."""

    # An entry used less than this per step is dead. Low: a batch may hold fewer codes than the book has entries.
    DEAD_THRESHOLD = 0.03

    count: Tensor
    mean_sum: Tensor

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
        with torch.autocast(latents.device.type, enabled=False):  # nearest of 1000: bf16 distances would pick the wrong entry
            latents = latents.float()
            codes = self.nearest(latents.detach())
            entries = self.lookup(codes)
            commitment = (latents - entries.detach()).square().sum(-1)
            codebook = (latents.detach() - entries).square().sum(-1) if self.config.codebook == "gradient" else 0.0
            straight_through = latents + (entries - latents).detach()
        return Quantized(straight_through, codes, codebook + self.config.commitment * commitment)

    def nearest(self, latents: Float[Tensor, "batch length dim"]) -> Int[Tensor, "batch length"]:
        """The code of each latent vector."""
        # ‖e − z‖² = ‖e‖² − 2 e·z + ‖z‖², and ‖z‖² is the same for every entry.
        squares = self.codebook.square().sum(-1)
        return torch.addmm(squares, latents.flatten(0, 1), self.codebook.T, alpha=-2).argmin(-1).view(latents.shape[:2])

    @torch.no_grad()
    def init_from_latents(self, latents: Float[Tensor, "batch length dim"], seed: int) -> None:
        """Put the entries onto latents drawn by the seed."""
        flat = latents.flatten(0, 1).float()
        permutation_order = random.permutation(len(flat), seed)
        indices = permutation_order[
            torch.arange(len(self.codebook)) % len(flat)
        ]  # fewer latents than entries are taken in turn
        self.codebook.copy_(flat[indices.to(flat.device)])
        if self.config.codebook == "ema":
            self.mean_sum.copy_(self.codebook)

    def lookup(self, codes: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length dim"]:
        """The codebook entries that `codes` name."""
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
        """Move a running-mean codebook towards the latents that survived truncation, summed over all ranks."""
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
        # An entry at count 0 has a sum near 0 too; the floor keeps their ratio finite.
        self.codebook.copy_(self.mean_sum / self.count.clamp_min(1e-5)[:, None])

    def _revive_dead_codes(self, flat: Float[Tensor, "n dim"], keep_mask: Bool[Tensor, " n"], seed: int, step: int) -> None:
        """Put dead entries onto latents of this batch, each onto its own; those that find none wait."""
        # Rows are numbered over the global batch, so that it does not matter how many ranks share it.
        rows, first = len(flat), len(flat) * distributed.rank()
        is_kept = torch.zeros(rows * distributed.world_size(), dtype=torch.int32, device=flat.device)
        is_kept[first : first + rows] = keep_mask.to(torch.int32)
        is_kept = distributed.all_reduce_sum(is_kept)
        permutation_order = random.permutation(len(is_kept), seed, step).to(flat.device)
        permutation_order = permutation_order[
            torch.argsort(is_kept[permutation_order], descending=True, stable=True)
        ]  # survivors first, in random order
        dead = self.count < self.DEAD_THRESHOLD
        index = dead.cumsum(0) - 1  # a dead entry's number among the dead
        source_rows = permutation_order[index.clamp(0, len(permutation_order) - 1)] - first
        own = (source_rows >= 0) & (source_rows < rows)
        chosen = distributed.all_reduce_sum(torch.where(own[:, None], flat[source_rows.clamp(0, rows - 1)], 0))
        revived = dead & (index < is_kept.sum())
        self.mean_sum.copy_(torch.where(revived[:, None], chosen, self.mean_sum))
        self.count.copy_(torch.where(revived, torch.ones_like(self.count), self.count))


@dataclass(frozen=True, slots=True)
class CodebookUsage:
    """How much of the codebook a set of codes uses."""

    used: int  # entries that occur
    dead: int  # entries that do not
    perplexity: float  # exp of the entropy of the entries' frequencies: codebook_size when all are equally common


def codebook_usage(counts: Num[Tensor, " codebook_size"]) -> CodebookUsage:
    """Use of the codebook from how often each entry occurs."""
    frequency = counts.double() / counts.sum().clamp_min(1)
    entropy = -torch.special.xlogy(frequency, frequency).sum()
    used = int((counts > 0).sum())
    return CodebookUsage(used, len(counts) - used, float(entropy.exp()))
