"""Training the ordered autoencoder: Eq. 6 at a sampled `keep`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Int16, UInt8
from torch import Tensor, nn

from anytime.autoencoders.losses import vq_losses
from anytime.autoencoders.quantizer import codebook_usage
from anytime.autoencoders.truncation import keep_mask
from anytime.autoencoders.vqvae import VQVAE
from anytime.core import distributed, random
from anytime.data.image_shards import ImageShards
from anytime.data.loader import to_float, valid_mask
from anytime.data.recordings import Recordings
from anytime.metrics.stft_distance import stft_distance
from anytime.training.schedules import decayed_lr
from anytime.training.stages import AutoencoderStage
from anytime.training.tasks.task import KeepSampler, Metrics, Task, global_rows, validation_keeps

NOISE_FLOOR = 1e-2
"""Magnitudes that the spectral loss treats as silence: the hiss of good recordings, 70 dB below the loudest audio."""


Examples = Tensor | Recordings | ImageShards
"""Training examples: in memory, or decoded from shards."""


class AutoencoderOutput(NamedTuple):
    """Losses of a batch, and what the codebook's EMA needs."""

    losses: Tensor  # total, reconstruction, quantization, and spectral where the stage has it
    latents: Tensor
    codes: Tensor


class AutoencoderObjective(nn.Module):
    """Eq. 6 averaged over the batch, plus the weighted STFT distance where the stage has one."""

    def __init__(self, model: VQVAE, stage: AutoencoderStage) -> None:
        super().__init__()
        self.model, self.stage = model, stage

    def forward(
        self,
        x: UInt8[Tensor, "batch channel height width"] | Int16[Tensor, "batch channel time"],
        keep: Int[Tensor, " batch"],
    ) -> AutoencoderOutput:
        """Return the mean losses of a batch."""
        values, stage = to_float(x), self.stage
        out = self.model(values, keep)
        mask = valid_mask(x) if stage.padding == "masked" else None
        terms = vq_losses(values, out.x, out.quantized, keep, stage.reduction, mask, stage.reconstruction_weight)
        losses = [terms.total.mean(), terms.reconstruction.mean(), terms.quantization.mean()]
        if stage.spectral_weight:
            losses.append(spectral_loss(values, out.x, mask))
            losses[0] = losses[0] + stage.spectral_weight * losses[3]
        return AutoencoderOutput(torch.stack(losses), out.latents.detach(), out.quantized.codes)


# Not compiled: the compiler has no code for complex numbers. Eager kernels fit into a CUDA graph.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def spectral_loss(
    x: Float[Tensor, "batch channel time"], x_hat: Float[Tensor, "batch channel time"], mask: Tensor | None
) -> Float[Tensor, ""]:
    """Return the mean multi-resolution STFT distance, in float32: bfloat16's rounding would count as noise."""
    with torch.autocast(x.device.type, enabled=False):
        return stft_distance(x, x_hat, torch.ones_like(x) if mask is None else mask, NOISE_FLOOR).mean()


class AutoencoderTask(Task):
    """The stages "pretrain" and "ordered", which differ in the distribution of `keep`."""

    module: VQVAE

    def __init__(
        self, name: str, stage: AutoencoderStage, model: VQVAE, train: Examples, validation: Tensor, seed: int
    ) -> None:
        super().__init__(stage.epochs, stage.batch, train, seed, model.quantizer.codebook.device, stage.speed_perturb)
        self.name, self.stage, self.module, self.validation = name, stage, model, validation
        self.loss_names = ("loss", "reconstruction", "quantization", *(["spectral"] if stage.spectral_weight else []))
        self.objective = AutoencoderObjective(model, stage)
        self.keeps = KeepSampler(stage.truncation, model.length, self.steps_per_epoch, seed, self.device)
        self._last: AutoencoderOutput | None = None

    def lr(self, step: int) -> float:
        """Return the learning rate of a step."""
        return decayed_lr(self.stage.lr, self.stage.lr_schedule, step, self.epochs * self.steps_per_epoch)

    def inputs(self, step: int) -> tuple[Tensor, ...]:
        """Return this rank's examples and their `keep`."""
        x = self.loader.batch_at(step).to(self.device)
        if self.stage.hflip:
            flip = random.uniform(random.derive(self.seed, "hflip"), step, global_rows(len(x), self.device)) < 0.5
            x = torch.where(flip[:, None, None, None], x.flip(-1), x)
        return x, self.keeps.at(step, len(x))

    def losses(self, objective: nn.Module, *inputs: Tensor) -> Float[Tensor, " losses"]:
        """Return the losses of Eq. 6, the total first."""
        out: AutoencoderOutput = objective(*inputs)
        self._last = out._replace(losses=out.losses.detach())  # holding the autograd graph would bind its CUDA stream
        return out.losses

    def after_step(self, step: int) -> None:
        """Update an EMA codebook with the codes that were kept."""
        assert self._last is not None
        if self.module.quantizer.config.codebook == "ema":
            mask = keep_mask(self.keeps.at(step, len(self._last.codes)), self.module.length)
            self.module.quantizer.update(self._last.latents, self._last.codes, mask, self.seed, step)

    def validate(self) -> Metrics:
        """Return the losses at fixed `keep` and the codebook's usage over the whole validation set."""
        keeps = validation_keeps(self.stage.truncation, self.module.length, len(self.validation)).to(self.device)
        counts = torch.zeros(self.module.codebook_size, dtype=torch.float64, device=self.device)

        def losses(rows: slice) -> Tensor:
            out: AutoencoderOutput = self.objective(self.validation[rows].to(self.device), keeps[rows])
            counts.add_(torch.bincount(out.codes.flatten(), minlength=len(counts)))
            return out.losses

        metrics = self.mean_losses(len(self.validation), losses)
        usage = codebook_usage(distributed.all_reduce_sum(counts))
        if self.stage.select_by == "reconstruction":  # the first metric selects the epoch
            metrics = {"reconstruction": metrics["reconstruction"]} | metrics
        return metrics | {"codes_used": usage.used, "codes_dead": usage.dead, "perplexity": usage.perplexity}
