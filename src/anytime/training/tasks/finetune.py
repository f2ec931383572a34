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

from anytime.autoencoders.layout import to_features
from anytime.autoencoders.losses import squared_error
from anytime.autoencoders.truncation import truncate
from anytime.autoencoders.vqvae import VQVAE
from anytime.core import distributed, random
from anytime.data.loader import Loader, mask_of, to_float
from anytime.training.discriminators import Verdict
from anytime.training.ema import Follower
from anytime.training.stages import TuneStage, falling_rate
from anytime.training.tasks.autoencoder import (
    Keeps,
    Numbers,
    for_device,
    global_rows,
    spectral_distance,
    swapped,
    validation_batches,
    validation_keeps,
)

Change = Callable[[Tensor, Tensor], Tensor]
"""Data and [batch, 8] uniform numbers -> the data as the judge sees them, made and real ones alike; gradients pass."""
_CHANGES, _DRAWN, _DRAWN_CHANGES = 3, 6, 7  # counters of their own: `keep` and swaps are drawn from the same seed
BETAS = (0.5, 0.9)  # little momentum: what was right against the judge of a hundred steps ago is not right today


class Examples(NamedTuple):
    """Data and their codes, row by row."""

    x: Tensor  # [n, …], bytes or 16-bit sound
    codes: Tensor  # [n, length]


class TuneObjective(nn.Module):
    """Both sides of the game in one loss: the judge's and the decoder's, each with no gradient into the other's weights.

    The first rows of `codes` are those of `x`, of which all terms can speak; the rest, drawn from the prior, have a judge only.
    """

    def __init__(self, model: VQVAE, decoder: nn.Module, judge: nn.Module, stage: TuneStage, change: Change) -> None:
        super().__init__()
        self.model, self.decoder, self.judge, self.stage, self.change = model, decoder, judge, stage, change
        self.frozen = frozen_twin(judge)

    def forward(
        self,
        x: UInt8[Tensor, "batch ..."] | Int16[Tensor, "batch ..."],
        codes: Int[Tensor, "all length"],
        keep: Int[Tensor, " all"],
        numbers: Float[Tensor, "all 8"],
        pressure: Float[Tensor, ""],
    ) -> Float[Tensor, " losses"]:
        real, stage, rows = to_float(x), self.stage, len(x)
        every = self._decoded(truncate(self.model.quantizer.lookup(codes), keep))
        made, mask = every[:rows], mask_of(x) if stage.padding == "masked" else None
        error = mean_error(real, made, mask)
        if mask is not None:  # the real one is silent where it is padded
            every = torch.cat([made * mask, every[rows:]])
        number = torch.arange(len(codes), device=codes.device)
        told = torch.stack([keep / self.model.length, (number >= rows).float()], 1) if stage.told else None
        # Beside each that is made the judge sees a real one, changed alike and said to be of the same kind.
        seen, seen_made = (self._shown(each, numbers, told) for each in (real[number % rows], every))
        of_real, of_made, to_please = self.judge(seen), self.judge(seen_made.detach()), self.frozen(seen_made)
        judged = hinge(of_real, of_made)
        pleased = -mean_score(to_please)
        matched = feature_distance(to_please, of_real, rows)
        total = judged + stage.error * error + stage.matching * matched + pressure * stage.adversarial * pleased
        parts = [judged, pleased, matched, error]
        if stage.spectral:
            parts.append(spectral_distance(real, made, mask))
            total = total + stage.spectral * parts[-1]
        return torch.stack([total, *parts])

    def train(self, mode: bool = True) -> TuneObjective:
        """The decoder is used as it will be: with the norms of its earlier training, whatever else is in the batch."""
        super().train(mode)
        self.decoder.eval()
        return self

    def _shown(self, x: Tensor, numbers: Float[Tensor, "rows 8"], told: Float[Tensor, "rows 2"] | None) -> Tensor:
        """What the judge sees; what it is told is on further planes of the picture."""
        seen = self.change(x, numbers)
        if told is None:
            return seen
        return torch.cat([seen, told.to(seen.dtype)[:, :, None, None].expand(-1, -1, *seen.shape[2:])], 1)

    def _decoded(self, latents: Float[Tensor, "all length dim"]) -> Float[Tensor, "all ..."]:
        config = self.model.config
        x: Tensor = self.decoder(to_features(latents, config.layout, config.places))
        return x.float()


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


def feature_distance(made: Verdict, real: Verdict, rows: int) -> Float[Tensor, ""]:
    """Mean over the judge's layers of Σ|f(made) − f(real)| / Σ|f(real)|, of the first rows, which have an original."""
    terms = []
    for one, other in zip(made.features, real.features, strict=True):
        wanted = other[:rows].detach().float()
        terms.append((one[:rows].float() - wanted).abs().mean() / wanted.abs().mean().clamp(min=1e-6))
    return torch.stack(terms).mean()


def mean_error(real: Tensor, made: Tensor, mask: Tensor | None) -> Float[Tensor, ""]:
    size = real[0].numel() if mask is None else mask.flatten(1).sum(1).clamp(min=1)
    return (squared_error(real, made, mask) / size).mean()


class TuneTask:
    """The stage `tune`. `change` is what is done to all that the judge sees; `bank` are codes that the prior has drawn."""

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
        bank: Int[Tensor, "bank length"] | None = None,
    ) -> None:
        self.stage, self.model, self.validation, self.seed, self.bank = stage, model, validation, seed, bank
        self.device = model.quantizer.codebook.device
        for part in (model.encoder, model.quantizer):
            part.requires_grad_(False)
        self.module, self.follower = model.decoder, Follower(model.decoder, stage.average)
        judge.to(self.device)
        if self.device.type == "cuda":
            judge.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        live = self.follower.live
        self.others = nn.ModuleDict({"judge": judge, **({"decoder": live} if self.follower.apart else {})})
        self.objective = TuneObjective(model, live, judge, stage, change)
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
        self.loader = Loader(rows, stage.batch, seed, distributed.rank(), distributed.ranks())
        self.epochs, self.steps_per_epoch = stage.epochs, self.loader.steps_per_epoch
        drawn, steps = stage.drawn_truncation or stage.truncation, self.steps_per_epoch
        self.keeps = Keeps(stage.truncation, model.length, steps, seed, self.device)
        self.drawn_keeps = Keeps(drawn, model.length, steps, random.derive(seed, "drawn"), self.device)

    def optimizer(self) -> torch.optim.Optimizer:
        decoder, judge = (list(part.parameters()) for part in (self.objective.decoder, self.objective.judge))
        # A rate each: where it is a tensor, one that both shared would hold the judge's alone.
        ahead = {"params": judge, "times": self.stage.lead, **for_device(judge[0], self.stage.rate)}
        return torch.optim.Adam([{"params": decoder}, ahead], betas=BETAS, **for_device(decoder[0], self.stage.rate))

    def rate(self, step: int) -> float:
        return falling_rate(self.stage.rate, "cosine", step, self.epochs * self.steps_per_epoch)

    def inputs(self, step: int) -> tuple[Tensor, ...]:
        rows = self.loader.batch_at(step)
        places = global_rows(len(rows), self.device)
        x, codes = (part[rows.to(part.device)].to(self.device) for part in self.train)
        codes = swapped(codes.long(), self.stage.swapped, self.seed, step)
        mine: tuple[Tensor, ...] = codes, self.keeps.at(step, len(rows)), self._numbers(_CHANGES, step, places)
        if self.bank is not None:
            mine = tuple(torch.cat(parts) for parts in zip(mine, self._drawn(self.bank, step), strict=True))
        pressure = torch.tensor(min(1.0, (step + 1) / self.steps_per_epoch))
        return x, *mine, pressure.to(self.device, non_blocking=True)

    def _drawn(self, bank: Int[Tensor, "bank length"], step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Codes, `keep` and numbers of this rank's part of the prior's samples for a step."""
        places = global_rows(self.stage.drawn // distributed.ranks(), self.device)
        which = (random.uniform(self.seed, _DRAWN, step, places) * len(bank)).long()
        return bank[which].long(), self.drawn_keeps.at(step, len(places)), self._numbers(_DRAWN_CHANGES, step, places)

    def _numbers(self, counter: int, step: int, places: Int[Tensor, " rows"]) -> Float[Tensor, "rows 8"]:
        return random.uniform(self.seed, counter, step, places[:, None], torch.arange(8, device=self.device))

    def losses(self, objective: nn.Module, *inputs: Tensor) -> Float[Tensor, " losses"]:
        losses: Tensor = objective(*inputs)
        return losses

    def after_step(self, step: int) -> None:
        self.follower.follow(step)

    @torch.no_grad()
    def validate(self) -> Numbers:
        """The same losses on held-out data, unchanged and with their own codes, of the decoder that plays."""
        x, codes = self.validation
        keeps = validation_keeps(self.stage.truncation, self.model.length, len(x)).to(self.device)
        sums = torch.zeros(len(self.loss_names), dtype=torch.float64, device=self.device)
        middle = torch.full((1, 8), 0.5, device=self.device)
        for rows in validation_batches(len(x)):
            given = x[rows].to(self.device), codes[rows].to(self.device).long(), keeps[rows]
            sums += self.objective(*given, middle.expand(len(given[0]), -1), middle.new_ones(())).double() * len(given[0])
        return dict(zip(self.loss_names, (distributed.total(sums) / len(x)).tolist(), strict=True))
