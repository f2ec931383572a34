"""Code statistics: what each position of the codes contributes. Δ(i), entropy, bits under the prior, and warnings.

Measured on validation examples at the end of the stages ordered, prior and finetune, and written into the run's
code_stats.json.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from anytime.autoencoders.vqvae import VQVAE
from anytime.core import storage
from anytime.core.config import from_dict, read_json
from anytime.core.errors import UserError
from anytime.data.dataset import Examples
from anytime.data.loader import to_float
from anytime.metrics.reconstruction import error_by_codes, gains
from anytime.model import AnytimeModel
from anytime.priors.prior import Prior

FILE = "code_stats.json"
FINISHED = "finished"
"""Stands for a stage: a truncated model, measured again."""
BATCH = 500  # fixed, so that the codes of an example never depend on the caller
ERROR_EXAMPLES = 500  # validation examples for the error of every code count: two digits, a second on a GPU
MIN_RELATIVE_GAIN = 0.01  # relative to the error of all codes: a tail that lowers it by less brings no gain
MIN_ENTROPY_BITS = 0.05  # a position of lower entropy is nearly constant
MIN_TAIL_FRACTION = 0.1  # of the codes: gains fall towards the end of any good order, so that a shorter tail is normal


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeStats:
    """Statistics by position of the codes; None where a stage does not measure them."""

    examples: int
    bits: list[float] | None = None  # under the prior
    entropy: list[float] | None = None
    error_examples: int | None = None
    error: list[float] | None = None  # at 0, 1, …, length codes
    gain: list[float] | None = None  # Δ(i)
    warnings: list[str] | None = None

    def __post_init__(self) -> None:
        values = {len(found) for found in (self.bits, self.entropy, self.gain) if found is not None}
        values |= {len(self.error) - 1} if self.error is not None else set()
        if len(values) > 1 or not all(values) or min(self.error or [0.0]) < 0:
            raise UserError("code statistics need a value for every position, and errors of at least 0 from no code on")

    def to_dict(self) -> dict[str, Any]:
        """Return what was measured, for a JSON file."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@torch.no_grad()
def encode_dataset(autoencoder: VQVAE, examples: Examples) -> Int[Tensor, "rows length"]:
    """Return the codes of a dataset, computed in float32."""
    autoencoder.eval()
    device = autoencoder.quantizer.codebook.device
    parts = [autoencoder.encode(to_float(part.to(device))) for part in torch.split(examples, BATCH)]
    return torch.cat(parts).to(torch.int32)


@torch.no_grad()
def bits_by_position(prior: Prior[Any], codes: Int[Tensor, "n length"]) -> list[float]:
    """Return −log₂ p(code_i | codes before it), averaged over the examples, for every position i.

    The sum is the bits of a whole example. A uniform prior needs log₂ codebook_size at each position.
    """
    sums = torch.zeros(codes.shape[1], dtype=torch.float64, device=codes.device)
    for part in codes.long().split(BATCH):
        nats = F.cross_entropy(prior(part).float().transpose(1, 2), part, reduction="none")
        sums += nats.double().sum(0)
    return (sums / len(codes) / math.log(2)).tolist()


def entropy_by_position(codes: Int[Tensor, "n length"], codebook_size: int) -> list[float]:
    """Return the entropy of each position by itself, in bits: 0 if it never changes, at most log₂ codebook_size.

    The entropy of n observed frequencies is too low by about (entries seen − 1) / 2n nats, which is added (Miller–Madow).
    """
    n, length = codes.shape
    positions = codes.long() + codebook_size * torch.arange(length, device=codes.device)
    counts = torch.bincount(positions.flatten(), minlength=length * codebook_size).view(length, codebook_size)
    frequencies = counts.double() / n
    nats = -torch.special.xlogy(frequencies, frequencies).sum(1) + ((counts > 0).sum(1) - 1) / (2 * n)
    bits: list[float] = (nats / math.log(2)).clamp(0, math.log2(codebook_size)).tolist()
    return bits


def empty_tail(errors: Sequence[float]) -> int | None:
    """Return the first of the last codes that together bring no gain, from errors at 0, 1, …, length codes.

    The tail begins after the shortest prefix whose error is within 1 % of that of all codes. None if the tail is shorter
    than a tenth of the codes.

    >>> empty_tail([1.0, 0.5, 0.3, 0.2999, 0.2998]), empty_tail([1.0, 0.5, 0.3, 0.2, 0.1])
    (3, None)
    """
    length = len(errors) - 1
    enough = next(count for count, error in enumerate(errors) if error <= (1 + MIN_RELATIVE_GAIN) * errors[-1])
    return enough + 1 if length - enough >= max(2, math.ceil(MIN_TAIL_FRACTION * length)) else None


def code_warnings(errors: Sequence[float], entropy: Sequence[float]) -> list[str]:
    """Return a sentence for each problem of the codes: a tail without gain, positions that are nearly constant."""
    warnings, length = list[str](), len(entropy)
    if (first := empty_tail(errors)) is not None:
        before = errors[first - 1]
        warnings.append(f"codes {first}-{length} bring no gain: error {before:.5f} without them, {errors[-1]:.5f} with them")
    constant = [position for position, bits in enumerate(entropy, start=1) if bits < MIN_ENTROPY_BITS]
    if constant:
        which = f"codes {_ranges(constant)} hardly ever change" if constant[1:] else f"code {constant[0]} hardly ever changes"
        warnings.append(f"{which}: below {MIN_ENTROPY_BITS} bits")
    return warnings


def _ranges(positions: Sequence[int]) -> str:
    """Join ascending numbers, neighbours as ranges.

    >>> _ranges([1, 2, 3, 7, 9, 10])
    '1-3, 7, 9-10'
    """
    runs = groupby(enumerate(positions), lambda pair: pair[1] - pair[0])
    parts = [[position for _, position in run] for _, run in runs]
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def diagnose(stage: str, model: AnytimeModel, x: Examples) -> CodeStats | None:
    """Return the statistics that a stage determines, on validation examples; None if it determines none.

    Fine-tuning changes the decoder, so that its errors are measured again. Costs about as much as validating one epoch.
    """
    if stage not in ("ordered", "prior", "finetune", FINISHED):
        return None
    model.eval()
    codes = encode_dataset(model.autoencoder, x)
    bits = bits_by_position(model.prior, codes) if stage in ("prior", FINISHED) else None
    if stage == "prior":
        return CodeStats(examples=len(codes), bits=bits)
    some = x[:ERROR_EXAMPLES]
    errors = error_by_codes(model, some, range(model.length + 1))
    entropy = entropy_by_position(codes, model.codebook_size)
    return CodeStats(
        examples=len(codes),
        bits=bits,
        entropy=entropy,
        error_examples=len(some),
        error=errors,
        gain=gains(errors),
        warnings=code_warnings(errors, entropy),
    )


def write_code_stats(run_dir: Path, stage: str, stats: CodeStats) -> None:
    """Write the statistics of a stage beside those of the stages before it."""
    storage.write_json(run_dir / FILE, {**_stages(run_dir), stage: stats.to_dict()})


def copy_code_stats(run_dir: Path, other: Path, stages: Collection[str]) -> None:
    """Copy the statistics of another run's stages, which this run reuses."""
    for stage, found in _stages(other).items():
        if stage in stages:
            write_code_stats(run_dir, stage, from_dict(CodeStats, found, str(other / FILE)))


def read_code_stats(run_dir: Path) -> CodeStats | None:
    """Return a run's statistics of all stages together, the latest of each; None if it wrote none."""
    found = {key: value for stage in _stages(run_dir).values() for key, value in stage.items()}
    return from_dict(CodeStats, found, str(run_dir / FILE)) if found else None


def _stages(run_dir: Path) -> dict[str, dict[str, Any]]:
    stages = read_json(run_dir / FILE) if (run_dir / FILE).is_file() else {}
    if not all(isinstance(found, dict) for found in stages.values()):
        raise UserError(f"{run_dir / FILE} does not hold the statistics of stages; restore it or remove it")
    return stages
