"""What a stage computes: its loss on a batch, its validation, its optimiser. The loop knows nothing else about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Int16, UInt8
from torch import Tensor, nn

from anytime.autoencoders.losses import Reduction, vq_losses
from anytime.autoencoders.quantizer import codebook_usage
from anytime.autoencoders.truncation import Truncation, keep_mask, sample_keep
from anytime.autoencoders.vqvae import VQVAE
from anytime.core import distributed, random
from anytime.data.loader import Loader, to_float, valid_mask
from anytime.data.recordings import Recordings
from anytime.metrics.stft_distance import stft_distance
from anytime.priors import PriorNetwork
from anytime.training.ema import EMA
from anytime.training.stages import AutoencoderStage, Padding, PriorStage, decayed_lr, warmup_lr

VALIDATION_BATCH = 500
_CORRUPTION_RATES, _CORRUPTIONS = 4, 5  # counters of their own: `keep` is drawn from the same seed
NOISE_FLOOR = 1e-2
"""Magnitudes that the spectral loss does not tell from silence: the hiss of good recordings, 70 dB below the loudest sounds."""

Metrics = dict[str, float]
"""Named figures for the log; the first one is what `best` means."""


@runtime_checkable
class Task(Protocol):
    """One stage's business."""

    @property
    def name(self) -> str: ...

    @property
    def module(self) -> nn.Module:
        """What is trained and kept at its best."""

    @property
    def objective(self) -> nn.Module:
        """What is called in training; holds `module`."""

    @property
    def loss_names(self) -> tuple[str, ...]: ...

    @property
    def auxiliary(self) -> nn.Module | None:
        """What is trained beside `module` and is of no use behind the stage: kept in checkpoints alone."""

    @property
    def keeps_last(self) -> bool:
        """Whether the last epoch's weights are kept, whatever their validation loss: where no loss says what is best."""

    @property
    def epochs(self) -> int: ...

    @property
    def steps_per_epoch(self) -> int: ...

    def optimizer(self) -> torch.optim.Optimizer: ...

    def lr(self, step: int) -> float: ...

    def inputs(self, step: int) -> tuple[Tensor, ...]:
        """This rank's part of the step's batch, and what else the losses need; of the same shapes at every step."""

    def losses(self, objective: nn.Module, *inputs: Tensor) -> Float[Tensor, " losses"]:
        """Mean losses; the first is minimised."""

    def after_step(self, step: int) -> None: ...

    def validate(self) -> Metrics: ...


class AutoencoderOutput(NamedTuple):
    losses: Tensor  # total, reconstruction, quantization; of a stage with spectral loss, that too
    latents: Tensor
    codes: Tensor


class AutoencoderObjective(nn.Module):
    """Eq. 6 at a drawn `keep`, averaged over the batch; with a spectral weight, the distance of the spectra besides."""

    def __init__(
        self,
        model: VQVAE,
        reduction: Reduction,
        padding: Padding = "masked",
        reconstruction_weight: float = 1.0,
        spectral_weight: float = 0.0,
    ) -> None:
        super().__init__()
        self.model = model
        self.reduction: Reduction = reduction
        self.padding: Padding = padding
        self.reconstruction_weight, self.spectral_weight = reconstruction_weight, spectral_weight

    def forward(
        self,
        x: UInt8[Tensor, "batch channel height width"] | Int16[Tensor, "batch channel time"],
        keep: Int[Tensor, " batch"],
    ) -> AutoencoderOutput:
        values = to_float(x)
        out = self.model(values, keep)
        mask = valid_mask(x) if self.padding == "masked" else None
        terms = vq_losses(values, out.x, out.quantized, keep, self.reduction, mask, self.reconstruction_weight)
        losses = [terms.total.mean(), terms.reconstruction.mean(), terms.quantization.mean()]
        if self.spectral_weight:
            losses.append(spectral_loss(values, out.x, mask))
            losses[0] = losses[0] + self.spectral_weight * losses[3]
        return AutoencoderOutput(torch.stack(losses), out.latents.detach(), out.quantized.codes)


# The compiler writes no code for complex numbers; as they are, their kernels fit into a graph.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def spectral_loss(
    x: Float[Tensor, "batch channel time"], x_hat: Float[Tensor, "batch channel time"], mask: Tensor | None
) -> Float[Tensor, ""]:
    """The multi-resolution STFT distance, averaged over the batch, in float32: bf16 would hear its own rounding as noise."""
    with torch.autocast(x.device.type, enabled=False):
        return stft_distance(x, x_hat, torch.ones_like(x) if mask is None else mask, NOISE_FLOOR).mean()


class KeepSampler:
    """`keep` of every step, addressed by (seed, epoch, step, row)."""

    def __init__(self, distribution: Truncation, length: int, steps_per_epoch: int, seed: int, device: torch.device) -> None:
        self.distribution, self.length, self.steps_per_epoch, self.seed, self.device = (
            distribution,
            length,
            steps_per_epoch,
            seed,
            device,
        )
        self._epoch: tuple[int, Tensor] | None = None  # its number, and [steps, rows]

    def at(self, step: int, rows: int) -> Int[Tensor, " rows"]:
        """`keep` of this rank's rows, numbered over the global batch: it does not matter how many ranks share it."""
        epoch, within = divmod(step, self.steps_per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:  # an epoch at a time: a hash per step would cost more than the step
            steps = torch.arange(self.steps_per_epoch, dtype=torch.int32, device=self.device)[:, None]
            uniforms = random.uniform(self.seed, epoch, steps, global_rows(rows, self.device))
            self._epoch = epoch, sample_keep(self.distribution, self.length, uniforms)
        return self._epoch[1][within]


class AutoencoderTask:
    """Pretraining and ordered training; they differ in the law of `keep` only."""

    auxiliary, keeps_last = None, False

    def __init__(
        self, name: str, stage: AutoencoderStage, model: VQVAE, train: Tensor | Recordings, validation: Tensor, seed: int
    ) -> None:
        self.name, self.stage, self.module, self.seed = name, stage, model, seed
        self.loss_names = ("loss", "reconstruction", "quantization", *(["spectral"] if stage.spectral_weight else []))
        self.objective = AutoencoderObjective(
            model, stage.reduction, stage.padding, stage.reconstruction_weight, stage.spectral_weight
        )
        self.loader = Loader(train, stage.batch, seed, distributed.rank(), distributed.world_size(), stage.speed_perturb)
        self.validation, self.device = validation, model.quantizer.codebook.device
        self.epochs, self.steps_per_epoch = stage.epochs, self.loader.steps_per_epoch
        self.keeps = KeepSampler(stage.truncation, model.length, self.steps_per_epoch, seed, self.device)
        self._last: AutoencoderOutput | None = None

    def optimizer(self) -> torch.optim.Optimizer:
        trained = [p for p in self.module.parameters() if p.requires_grad]
        return torch.optim.Adam(trained, **optimizer_options(trained[0], self.stage.lr))

    def lr(self, step: int) -> float:
        return decayed_lr(self.stage.lr, self.stage.lr_schedule, step, self.epochs * self.steps_per_epoch)

    def inputs(self, step: int) -> tuple[Tensor, ...]:
        x = self.loader.batch_at(step).to(self.device)
        if self.stage.hflip:
            x = torch.where(self._hflip(step, len(x))[:, None, None, None], x.flip(-1), x)
        return x, self.keeps.at(step, len(x))

    def _hflip(self, step: int, rows: int) -> Bool[Tensor, " rows"]:
        return random.uniform(random.derive(self.seed, "mirrored"), step, global_rows(rows, self.device)) < 0.5

    def losses(self, objective: nn.Module, *inputs: Tensor) -> Float[Tensor, " losses"]:
        out: AutoencoderOutput = objective(*inputs)
        self._last = out._replace(losses=out.losses.detach())  # whoever held on to the gradients' graph would bind its stream
        return out.losses

    def after_step(self, step: int) -> None:
        assert self._last is not None
        if self.module.quantizer.config.codebook == "ema":
            mask = keep_mask(self.keeps.at(step, len(self._last.codes)), self.module.length)
            self.module.quantizer.update(self._last.latents, self._last.codes, mask, self.seed, step)

    @torch.no_grad()
    def validate(self) -> Metrics:
        """Losses over a fixed grid of `keep`, and the use of the codebook over the whole validation set."""
        keeps = validation_keeps(self.stage.truncation, self.module.length, len(self.validation)).to(self.device)
        sums = torch.zeros(len(self.loss_names), dtype=torch.float64, device=self.device)
        counts = torch.zeros(self.module.codebook_size, dtype=torch.float64, device=self.device)
        for rows in validation_batches(len(self.validation)):
            x, keep = self.validation[rows].to(self.device), keeps[rows]
            out: AutoencoderOutput = self.objective(x, keep)
            sums += out.losses.double() * len(x)
            counts += torch.bincount(out.codes.flatten(), minlength=len(counts))
        sums, counts = distributed.all_reduce_sum(sums) / len(self.validation), distributed.all_reduce_sum(counts)
        use = codebook_usage(counts)
        metrics = dict(zip(self.loss_names, sums.tolist(), strict=True))
        if self.stage.select_by == "reconstruction":  # the first one selects
            metrics = {"reconstruction": metrics["reconstruction"]} | metrics
        return metrics | {"codes_used": use.used, "codes_dead": use.dead, "perplexity": use.perplexity}


class PriorObjective(nn.Module):
    """Eq. 2 on codes: mean negative log-likelihood, in nats a code."""

    def __init__(self, prior: nn.Module) -> None:
        super().__init__()
        self.prior = prior

    def forward(self, codes: Int[Tensor, "batch length"]) -> Float[Tensor, " one"]:
        logits = self.prior(codes)
        return F.cross_entropy(logits.flatten(0, 1).float(), codes.flatten())[None]


class PriorTask:
    name = "prior"
    loss_names = ("loss",)
    keeps_last = False

    def __init__(self, stage: PriorStage, prior: PriorNetwork, train: Tensor, validation: Tensor, seed: int) -> None:
        self.stage, self.module = stage, prior
        self.ema = EMA(prior, stage.ema_decay)
        self.auxiliary = self.ema.live if self.ema.enabled else None
        self.objective, self.validation_objective = PriorObjective(self.ema.live), PriorObjective(prior)
        self.loader = Loader(train, stage.batch, seed, distributed.rank(), distributed.world_size())
        self.validation = validation
        self.epochs, self.steps_per_epoch = stage.epochs, self.loader.steps_per_epoch

    def optimizer(self) -> torch.optim.Optimizer:
        return adamw(self.ema.live, self.stage, self.lr(0))

    def lr(self, step: int) -> float:
        return warmup_lr(self.stage, step, self.epochs * self.steps_per_epoch)

    def inputs(self, step: int) -> tuple[Tensor, ...]:
        return (self.loader.batch_at(step).long(),)

    def losses(self, objective: nn.Module, *inputs: Tensor) -> Float[Tensor, " losses"]:
        losses: Tensor = objective(*inputs)
        return losses

    def after_step(self, step: int) -> None:
        self.ema.update(step)

    @torch.no_grad()
    def validate(self) -> Metrics:
        """Held-out nats a code."""
        self.validation_objective.eval()
        total = torch.zeros(1, dtype=torch.float64, device=self.validation.device)
        for rows in validation_batches(len(self.validation)):
            codes = self.validation[rows].long()
            total += self.validation_objective(codes).double() * len(codes)
        return {"loss": float(distributed.all_reduce_sum(total)) / len(self.validation)}


def adamw(module: nn.Module, stage: PriorStage, lr: float) -> torch.optim.Optimizer:
    """The prior's optimiser; without weight decay it is Adam."""
    trained, decay = list(module.parameters()), stage.weight_decay
    return torch.optim.AdamW(trained, betas=(0.9, 0.98), eps=1e-6, weight_decay=decay, **optimizer_options(trained[0], lr))


def optimizer_options(parameter: Tensor, lr: float) -> dict[str, Any]:
    """Options of an optimiser: on a GPU one fused kernel that reads its rate from a tensor, so that a graph can hold it."""
    if not parameter.is_cuda:
        return {"lr": lr}
    return {"lr": torch.tensor(lr, device=parameter.device), "fused": True, "capturable": True}


def global_rows(rows: int, device: torch.device) -> Int[Tensor, " rows"]:
    """The numbers of this rank's rows in the global batch."""
    return torch.arange(rows, dtype=torch.int32, device=device) + rows * distributed.rank()


def code_corruption(codes: Int[Tensor, "batch length"], mean: float, seed: int, step: int) -> Int[Tensor, "batch length"]:
    """Some codes replaced by those of the next example: of each row another share, between none and twice the mean."""
    if not mean or len(codes) < 2:
        return codes
    rows, position = global_rows(len(codes), codes.device), torch.arange(codes.shape[1], device=codes.device)
    corruption_rate = 2 * mean * random.uniform(seed, _CORRUPTION_RATES, step, rows)[:, None]
    corrupted = random.uniform(seed, _CORRUPTIONS, step, rows[:, None], position) < corruption_rate
    return torch.where(corrupted, codes.roll(1, 0), codes)


def validation_keeps(distribution: Truncation, length: int, count: int) -> Int[Tensor, " count"]:
    """A fixed `keep` for each validation example, spread over the law's quantiles."""
    # Multiples of the golden ratio fill (0, 1) evenly and do not follow the order of the examples.
    golden = (torch.arange(count, dtype=torch.float64) * 0.6180339887498949) % 1
    return sample_keep(distribution, length, golden)


def validation_batches(count: int) -> Iterator[slice]:
    """This rank's share of the validation set."""
    starts = range(0, count, VALIDATION_BATCH)
    for start in starts[distributed.rank() :: distributed.world_size()]:
        yield slice(start, min(start + VALIDATION_BATCH, count))
