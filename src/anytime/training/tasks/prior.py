"""Training the prior on the codes of the encoded data (Eq. 2)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime.priors import PriorNetwork
from anytime.training.ema import EMA
from anytime.training.schedules import warmup_lr
from anytime.training.stages import PriorStage
from anytime.training.tasks.task import Metrics, Task, optimizer_options


class PriorObjective(nn.Module):
    """Eq. 2: mean negative log-likelihood in nats per code."""

    def __init__(self, prior: nn.Module) -> None:
        super().__init__()
        self.prior = prior

    def forward(self, codes: Int[Tensor, "batch length"]) -> Float[Tensor, " one"]:
        """Return the loss as a tensor of one element."""
        logits = self.prior(codes)
        return F.cross_entropy(logits.flatten(0, 1).float(), codes.flatten())[None]


class PriorTask(Task):
    """The stage "prior"; codes are `[n, length]` integers."""

    name = "prior"
    loss_names = ("loss",)

    def __init__(self, stage: PriorStage, prior: PriorNetwork, train: Tensor, validation: Tensor, seed: int) -> None:
        super().__init__(stage.epochs, stage.batch, train, seed, validation.device)
        self.stage, self.module, self.validation = stage, prior, validation
        self.ema = EMA(prior, stage.ema_decay)
        self.auxiliary = self.ema.live if self.ema.enabled else None
        self.objective, self.validation_objective = PriorObjective(self.ema.live), PriorObjective(prior)

    def optimizer(self) -> torch.optim.Optimizer:
        """Return AdamW."""
        return adamw(self.ema.live, self.stage, self.lr(0))

    def lr(self, step: int) -> float:
        """Return the learning rate of a step."""
        return prior_lr(self.stage, step, self.epochs * self.steps_per_epoch)

    def inputs(self, step: int) -> tuple[Tensor, ...]:
        """Return this rank's codes."""
        return (self.loader.batch_at(step).long(),)

    def after_step(self, step: int) -> None:
        """Update the EMA of the weights."""
        self.ema.update(step)

    def validate(self) -> Metrics:
        """Return the held-out nats per code."""
        self.validation_objective.eval()
        return self.mean_losses(len(self.validation), lambda rows: self.validation_objective(self.validation[rows].long()))


def prior_lr(stage: PriorStage, step: int, steps: int) -> float:
    """Return the learning rate of a step of a prior stage."""
    return warmup_lr(stage.lr, stage.lr_schedule, stage.warmup, step, steps)


def adamw(module: nn.Module, stage: PriorStage, lr: float) -> torch.optim.Optimizer:
    """Return the optimizer of a prior; without weight decay it is Adam."""
    trained, decay = list(module.parameters()), stage.weight_decay
    return torch.optim.AdamW(trained, betas=(0.9, 0.98), eps=1e-6, weight_decay=decay, **optimizer_options(trained[0], lr))
