"""Tuning the decoder against a judge: hinge loss, the judge's features, and the error that it was trained with before.

The encoder and the codebook stand still, so that codes keep their meaning: whatever was encoded, and whatever prior was trained
on it, stays valid. The data come with their codes. Which judge is passed in is all that depends on the kind of data.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int16, UInt8
from torch import Tensor, nn

from anytime import collective, randomness
from anytime.autoencoders.losses import squared_error
from anytime.autoencoders.truncation import truncate
from anytime.autoencoders.vqvae import VQVAE
from anytime.data.loader import Loader, mask_of, to_float
from anytime.training.judges import Verdict
from anytime.training.stages import TuneStage, falling_rate
from anytime.training.tasks import Keeps, Numbers, for_device, spectral_distance, validation_batches, validation_keeps

Change = Callable[[Tensor, Tensor], Tensor]
"""Data and [batch, 8] uniform numbers -> the data as the judge sees them, made and real ones alike; gradients pass."""
_CHANGES, _SHARES, _SWAPS = 3, 4, 5  # counters of their own: `keep` is drawn from the same seed
BETAS = (0.5, 0.9)  # little momentum: what was right against the judge of a hundred steps ago is not right today


class Examples(NamedTuple):
    """Data and their codes, row by row."""

    x: Tensor  # [n, …], bytes or 16-bit sound
    codes: Tensor  # [n, length]


class TuneObjective(nn.Module):
    """Both sides of the game in one loss: the judge's and the decoder's, each with no gradient into the other's weights."""

    def __init__(self, model: VQVAE, judge: nn.Module, stage: TuneStage, change: Change) -> None:
        super().__init__()
        self.model, self.judge, self.stage, self.change = model, judge, stage, change
        self.frozen = frozen_twin(judge)

    # As it is: compiling three passes of a judge takes longer than what is gained in the few epochs of this stage.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(
        self,
        x: UInt8[Tensor, "batch ..."] | Int16[Tensor, "batch ..."],
        codes: Int[Tensor, "batch length"],
        keep: Int[Tensor, " batch"],
        numbers: Float[Tensor, "batch 8"],
    ) -> Float[Tensor, " losses"]:
        real, stage = to_float(x), self.stage
        made = self.model.decode_latents(truncate(self.model.quantizer.lookup(codes), keep))
        mask = mask_of(x) if stage.padding == "masked" else None
        error = mean_error(real, made, mask)
        shown = made if mask is None else made * mask  # the real one is silent where it is padded
        seen, seen_made = self.change(real, numbers), self.change(shown, numbers)
        of_real, of_made, to_please = self.judge(seen), self.judge(seen_made.detach()), self.frozen(seen_made)
        judged = hinge(of_real, of_made)
        pleased = -mean_score(to_please)
        matched = feature_distance(to_please, of_real)
        total = judged + stage.error * error + stage.matching * matched + stage.adversarial * pleased
        parts = [judged, pleased, matched, error]
        if stage.spectral:
            parts.append(spectral_distance(real, made, mask))
            total = total + stage.spectral * parts[-1]
        return torch.stack([total, *parts])


def frozen_twin(network: nn.Module) -> nn.Module:
    """The same network on the same weights, through which gradients pass but into which none go."""
    twin = copy.deepcopy(network)
    for own, other in zip(twin.parameters(), network.parameters(), strict=True):
        own.data = other.data  # shared: what an optimiser does to the one shows in the other
        own.requires_grad_(False)
    return twin


def hinge(real: Verdict, made: Verdict) -> Float[Tensor, ""]:
    """The judge's loss: real things should score above 1, made ones below −1."""
    terms = [F.relu(1 - r).mean() + F.relu(1 + m).mean() for r, m in zip(real.scores, made.scores, strict=True)]
    return torch.stack(terms).mean()


def mean_score(verdict: Verdict) -> Float[Tensor, ""]:
    return torch.stack([score.mean() for score in verdict.scores]).mean()


def feature_distance(made: Verdict, real: Verdict) -> Float[Tensor, ""]:
    """Mean over the judge's layers of Σ|f(made) − f(real)| / Σ|f(real)|."""
    terms = []
    for one, other in zip(made.features, real.features, strict=True):
        wanted = other.detach().float()
        terms.append((one.float() - wanted).abs().mean() / wanted.abs().mean().clamp(min=1e-6))
    return torch.stack(terms).mean()


def mean_error(real: Tensor, made: Tensor, mask: Tensor | None) -> Float[Tensor, ""]:
    size = real[0].numel() if mask is None else mask.flatten(1).sum(1).clamp(min=1)
    return (squared_error(real, made, mask) / size).mean()


class TuneTask:
    """The stage `tune`. `change` is what is done to all that the judge sees."""

    name = "tune"
    keeps_last = True  # the judge's loss does not say how good the decoder is, and the error is not what is wanted

    def __init__(
        self,
        stage: TuneStage,
        model: VQVAE,
        judge: nn.Module,
        change: Change,
        train: Examples,
        validation: Examples,
        seed: int,
    ) -> None:
        self.stage, self.model, self.validation, self.seed = stage, model, validation, seed
        self.device = model.quantizer.codebook.device
        for part in (model.encoder, model.quantizer):
            part.requires_grad_(False)
        self.module, self.others = model.decoder, judge.to(self.device)
        if self.device.type == "cuda":
            judge.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.objective = TuneObjective(model, self.others, stage, change)
        self.loss_names = (
            "loss",
            "judge",
            "adversarial",
            "matching",
            "reconstruction",
            *(["spectral"] if stage.spectral else []),
        )
        self.train = train
        rows = torch.arange(len(train.x), device=self.device)
        self.loader = Loader(rows, stage.batch, seed, collective.rank(), collective.ranks())
        self.epochs, self.steps_per_epoch = stage.epochs, self.loader.steps_per_epoch
        self.keeps = Keeps(stage.truncation, model.length, self.steps_per_epoch, seed, self.device)

    def optimizer(self) -> torch.optim.Optimizer:
        trained = [*self.module.parameters(), *self.others.parameters()]
        return torch.optim.Adam(trained, betas=BETAS, **for_device(trained[0], self.stage.rate))

    def rate(self, step: int) -> float:
        return falling_rate(self.stage.rate, "cosine", step, self.epochs * self.steps_per_epoch)

    def inputs(self, step: int) -> tuple[Tensor, ...]:
        rows = self.loader.batch_at(step)
        x, codes = (part[rows.to(part.device)].to(self.device) for part in self.train)
        places = torch.arange(len(rows), device=self.device) + len(rows) * collective.rank()
        numbers = randomness.uniform(self.seed, _CHANGES, step, places[:, None], torch.arange(8, device=self.device))
        return x, self._swapped(codes.long(), step, places), self.keeps.at(step, len(rows)), numbers

    def _swapped(
        self, codes: Int[Tensor, "batch length"], step: int, places: Int[Tensor, " batch"]
    ) -> Int[Tensor, "batch length"]:
        """Some codes replaced by those of the next example: of each row another share, between none and twice the mean."""
        if not self.stage.swapped or len(codes) < 2:
            return codes
        position = torch.arange(codes.shape[1], device=self.device)
        share = 2 * self.stage.swapped * randomness.uniform(self.seed, _SHARES, step, places)[:, None]
        wrong = randomness.uniform(self.seed, _SWAPS, step, places[:, None], position) < share
        return torch.where(wrong, codes.roll(1, 0), codes)

    def losses(self, objective: nn.Module, *inputs: Tensor) -> Float[Tensor, " losses"]:
        losses: Tensor = objective(*inputs)
        return losses

    def after_step(self, step: int) -> None:
        return

    @torch.no_grad()
    def validate(self) -> Numbers:
        """The same losses on held-out data, unchanged and with their own codes."""
        x, codes = self.validation
        keeps = validation_keeps(self.stage.truncation, self.model.length, len(x)).to(self.device)
        sums = torch.zeros(len(self.loss_names), dtype=torch.float64, device=self.device)
        middle = torch.full((1, 8), 0.5, device=self.device)
        for rows in validation_batches(len(x)):
            given = x[rows].to(self.device), codes[rows].to(self.device).long(), keeps[rows]
            sums += self.objective(*given, middle.expand(len(given[0]), -1)).double() * len(given[0])
        return dict(zip(self.loss_names, (collective.total(sums) / len(x)).tolist(), strict=True))
