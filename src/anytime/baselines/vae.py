"""The VAE of Appendix C.1, ordered or standard: the VQ-VAE's networks with a Gaussian in place of the codebook, no prior.

One channel of the feature map is one group of dimensions. A prefix of groups is truncated as a prefix of codes is. The
latents are continuous: there are no `codes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from anytime.autoencoders.layout import to_features, to_latents
from anytime.autoencoders.losses import squared_error
from anytime.autoencoders.networks import conv_image
from anytime.autoencoders.truncation import Truncation, keep_mask, truncate
from anytime.baselines.base import BaselineModel, load_baseline
from anytime.core import random
from anytime.core.errors import UserError
from anytime.data.image_grid import labelled_rows, write_png
from anytime.data.loader import to_float
from anytime.sampling.budget import code_count
from anytime.training.config import BaseRunConfig, Shape
from anytime.training.run_spec import RunSpec
from anytime.training.sample_grids import GRID_FRACTIONS
from anytime.training.stages import check_schedule
from anytime.training.tasks.task import KeepSampler, Metrics, Task, global_rows, validation_keeps


@dataclass(frozen=True, kw_only=True)
class VAEConfig:
    """Shapes of the networks, and the variance of the decoder."""

    name: str
    """The dataset."""
    shape: tuple[int, int, int]
    """Channels, height and width of an image."""
    length: int
    """Number of groups of dimensions, the channels of the feature map."""
    widths: tuple[int, ...]
    """Channels between the convolutions."""
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    variance: float = 0.01
    """Variance of the decoder's Gaussian for each value of x in [0, 1]; weighs the error against the KL term."""

    def __post_init__(self) -> None:
        if not len(self.widths) + 1 == len(self.kernels) == len(self.strides):
            raise UserError("`kernels` and `strides` of a VAE need one entry per convolution, `widths` one fewer")
        if self.length < 1 or not self.variance > 0:
            raise UserError(f"`length` and `variance` of a VAE must be above zero, not {self.length} and {self.variance}")
        if min(*self.shape, *self.widths, *self.kernels, *self.strides) < 1:
            raise UserError("`shape`, `widths`, `kernels` and `strides` of a VAE must all be at least 1")
        if self.decoded_size != self.shape[1:]:
            raise UserError(f"the `strides` of this VAE turn {self.shape[1:]} into {self.decoded_size}; use a multiple of them")

    @property
    def spatial_shape(self) -> tuple[int, int]:
        """Height and width of the feature map."""
        height, width = (conv_image.map_size(size, self.kernels, self.strides) for size in self.shape[1:])
        return height, width

    @property
    def decoded_size(self) -> tuple[int, int]:
        """Height and width of the decoder's output."""
        height, width = (conv_image.image_size(size, self.kernels, self.strides) for size in self.spatial_shape)
        return height, width

    @property
    def dim(self) -> int:
        """Dimensions of one group: the area of the feature map."""
        return math.prod(self.spatial_shape)


@dataclass(frozen=True, slots=True)
class Posterior:
    """q(z | x): a Gaussian with independent dimensions."""

    mean: Tensor  # [batch, length, dim]
    log_variance: Tensor  # [batch, length, dim]

    def rsample(self, noise: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch length dim"]:
        """Return z = mean + σ · noise, with standard normal noise."""
        return self.mean + torch.exp(0.5 * self.log_variance) * noise

    def kl(self) -> Float[Tensor, "batch length"]:
        """Return KL(q(z_i | x) ‖ N(0, 1)) of each group in nats, unreduced so that truncation can mask it."""
        return 0.5 * (self.mean.square() + self.log_variance.exp() - self.log_variance - 1).sum(-1)


@dataclass(frozen=True, slots=True)
class VAELosses:
    """Losses per example, [batch], in nats per value of x."""

    total: Tensor  # the negative evidence bound of the prefix
    reconstruction: Tensor  # −log p(x | z_{<=keep})
    kl: Tensor  # KL of the first `keep` groups
    error: Tensor  # mean squared error per value of x


class VAE(BaselineModel):
    """A convolutional VAE whose latents can be truncated."""

    kind = "vae"
    config: VAEConfig

    def __init__(self, config: VAEConfig) -> None:
        super().__init__()
        self.config = config
        between = [config.shape[0], *config.widths]
        self.encoder = conv_image.encoder([*between, 2 * config.length], config.kernels, config.strides)
        self.decoder = conv_image.decoder([*between, config.length], config.kernels, config.strides)

    @property
    def length(self) -> int:
        """Number of groups."""
        return self.config.length

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device

    def posterior(self, x: Float[Tensor, "batch channel height width"]) -> Posterior:
        """Return q(z | x)."""
        mean, log_variance = to_latents(self.encoder(x), "channel").float().chunk(2, dim=1)
        return Posterior(mean, log_variance.clamp(-20, 20))  # exp overflows if the first steps diverge

    def latents(self, x: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch length dim"]:
        """Return the mean latents, on which Δ(i) is measured."""
        return self.posterior(x).mean

    def decode_latents(self, latents: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch channel height width"]:
        """Return the mean of p(x | z)."""
        x: Tensor = self.decoder(to_features(latents, "channel", self.config.spatial_shape))
        return x.float()

    @torch.no_grad()
    def decode(self, latents: Float[Tensor, "batch prefix dim"]) -> Float[Tensor, "batch channel height width"]:
        """Decode any prefix of groups; missing groups are zero, the mean of their prior."""
        missing = self.length - latents.shape[1]
        return self.decode_latents(nn.functional.pad(latents, (0, 0, 0, missing)))

    def forward(
        self,
        x: Float[Tensor, "batch channel height width"],
        keep: Int[Tensor, " batch"],
        noise: Float[Tensor, "batch length dim"],
    ) -> VAELosses:
        """Return −log p(x | z_{<=keep}) + KL over the first `keep` groups, the bracket of Appendix C.1's objective."""
        posterior, size, variance = self.posterior(x), x[0].numel(), self.config.variance
        error = squared_error(x, self.decode_latents(truncate(posterior.rsample(noise), keep))) / size
        reconstruction = 0.5 * (error / variance + math.log(2 * math.pi * variance))
        kl = (posterior.kl() * keep_mask(keep, self.length)).sum(1) / size
        return VAELosses(reconstruction + kl, reconstruction, kl, error)


def load_vae(directory: str | Path, device: str | torch.device = "cpu") -> VAE:
    """Load a saved VAE or that of a finished run."""
    return load_baseline(directory, VAE, VAEConfig, device)


@dataclass(frozen=True, kw_only=True)
class VAEStage:
    """One stage of a VAE, on the evidence bound."""

    epochs: int
    truncation: Truncation
    """Distribution of `keep`, sampled per example."""
    batch: int = 128
    """Examples per step, over all ranks."""
    lr: float = 1e-3

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch, self.lr)


@dataclass(frozen=True, kw_only=True)
class VAERunConfig(BaseRunConfig[VAE]):
    """A run that trains a VAE; its `config.json`."""

    recipe: Literal["vae"] = "vae"
    model: VAEConfig
    pretrain: VAEStage
    ordered: VAEStage

    @property
    def shape(self) -> Shape:
        """Shape of one example."""
        return self.model.shape


class VAEObjective(nn.Module):
    """The evidence bound at a sampled `keep`, averaged over the batch."""

    def __init__(self, model: VAE) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        x: UInt8[Tensor, "batch channel height width"],
        keep: Int[Tensor, " batch"],
        noise: Float[Tensor, "batch length dim"],
    ) -> Float[Tensor, " losses"]:
        """Return the mean losses of a batch."""
        terms = self.model(to_float(x), keep, noise)
        return torch.stack([t.mean() for t in (terms.total, terms.reconstruction, terms.kl, terms.error)])


class VAETask(Task):
    """Both stages of a VAE, which differ in the distribution of `keep`. Noise is a function of seed, step and row."""

    module: VAE
    loss_names = ("loss", "reconstruction", "kl", "error")

    def __init__(self, name: str, stage: VAEStage, model: VAE, train: Tensor, validation: Tensor, seed: int) -> None:
        super().__init__(stage.epochs, stage.batch, train, seed, model.device)
        self.name, self.stage, self.module, self.validation = name, stage, model, validation
        self.objective = VAEObjective(model)
        self.keeps = KeepSampler(stage.truncation, model.length, self.steps_per_epoch, seed, self.device)

    def lr(self, step: int) -> float:
        """Return the constant learning rate."""
        return self.stage.lr

    def inputs(self, step: int) -> tuple[Tensor, ...]:
        """Return this rank's examples, their `keep` and their noise."""
        x = self.loader.batch_at(step).to(self.device)
        return x, self.keeps.at(step, len(x)), self._noise("noise", step, global_rows(len(x), self.device))

    def _noise(self, purpose: str, step: int, rows: Int[Tensor, " rows"]) -> Float[Tensor, "rows length dim"]:
        length, dim = self.module.length, self.module.config.dim
        element = torch.arange(length * dim, dtype=torch.int32, device=self.device)
        noise = random.normal(random.derive(self.seed, purpose), step, rows[:, None], element)
        return noise.reshape(len(rows), length, dim)

    def validate(self) -> Metrics:
        """Return the losses at fixed `keep` and fixed noise."""
        keeps = validation_keeps(self.stage.truncation, self.module.length, len(self.validation)).to(self.device)

        def losses(rows: slice) -> Tensor:
            row_ids = torch.arange(rows.start, rows.stop, dtype=torch.int32, device=self.device)
            noise = self._noise("validation", 0, row_ids)
            out: Tensor = self.objective(self.validation[rows].to(self.device), keeps[rows], noise)
            return out

        return self.mean_losses(len(self.validation), losses)


class VAERunSpec(RunSpec[VAE], config=VAERunConfig):
    """The stages of a VAE."""

    stages: tuple[str, ...] = ("pretrain", "ordered")

    def __init__(
        self, config: VAERunConfig, train: UInt8[Tensor, "n ..."], validation: UInt8[Tensor, "m ..."], device: torch.device
    ) -> None:
        self.config, self.train, self.validation, self.device = config, train, validation, device
        self.model = VAE(config.model).to(device)

    def task(self, index: int, seed: int, say: Callable[[str], None]) -> Task:
        """Return the task of a stage."""
        stage = (self.config.pretrain, self.config.ordered)[index]
        return VAETask(self.stages[index], stage, self.model, self.train, self.validation, seed)

    @torch.no_grad()
    def save_grid(self, path: Path, stage: str) -> None:
        """Write reconstructions from the mean latents, by number of groups."""
        self.model.eval()
        x = to_float(self.validation[:16]).to(self.device)
        latents, length = self.model.latents(x), self.model.length
        counts = [code_count(length, fraction=f) for f in GRID_FRACTIONS]
        rows = [(f"{k} of {length} groups", self.model.decode(latents[:, :k]).cpu()) for k in counts]
        write_png(path, labelled_rows([("data", x.cpu()), *rows]))

    def load(self, directory: Path) -> VAE:
        """Load the finished VAE."""
        return load_vae(directory, self.device)
