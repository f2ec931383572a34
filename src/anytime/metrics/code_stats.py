"""What each position of the codes carries: Δ(i), its entropy, the prior's bits; an alarm where it is nothing.

Measured where it is decided, at the end of the stages ordered, prior and tune, and of a model that is cut once more when it is;
written into the run's order.json.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int, Int16, UInt8
from torch import Tensor

from anytime.autoencoders.losses import squared_error
from anytime.core import storage
from anytime.core.config import read_json
from anytime.data.loader import to_float, valid_mask
from anytime.model import AnytimeModel
from anytime.priors.prior import Prior
from anytime.training.sample_grids import encode_dataset

FILE = "code_stats.json"
FINISHED = "finished"
"""What a model that has lost its last codes says of the others, in place of a stage."""
BATCH = 500
ERROR_EXAMPLES = 500  # of the validation part, behind the error of every length: two digits, a second on a GPU
MIN_RELATIVE_GAIN = 0.01  # of the error that is left with all codes: a tail that lowers it by less brings nothing
MIN_ENTROPY_BITS = 0.05  # bits: a position of less entropy says the same of nearly every example
MIN_TAIL_FRACTION = 0.1  # of the codes: a shorter tail is how any good order ends

ProgressCallback = Callable[[int], None]
"""Called with the number of examples done."""


@torch.no_grad()
def error_by_codes(
    model: AnytimeModel,
    x: UInt8[Tensor, "n channel height width"] | Int16[Tensor, "n channel time"],
    counts: Sequence[int],
    progress: ProgressCallback | None = None,
) -> list[float]:
    """Mean squared error per value of x, pictures in [0, 1] and sound in [-1, 1], from the first `count` codes, for each count.

    The padding of short sounds is no value of x.
    """
    sums, values = torch.zeros(len(counts), dtype=torch.float64), 0
    for start, part in zip(range(0, len(x), BATCH), torch.split(x, BATCH), strict=True):
        pixels, mask = to_float(part).to(model.device), valid_mask(part.to(model.device))
        values += part.numel() if mask is None else int(mask.sum(dtype=torch.float64))
        codes = model.encode(pixels)
        for index, count in enumerate(counts):
            sums[index] += squared_error(pixels, model.decode(codes[:, :count]), mask).double().sum().cpu()
        if progress is not None:
            progress(start + len(part))
    return (sums / max(1, values)).tolist()


def gains(errors: Sequence[float]) -> list[float]:
    """Δ(i) = error after i − 1 codes less error after i codes, for errors at 0, 1, …, length codes.

    >>> gains([1.0, 0.5, 0.25])
    [0.5, 0.25]
    """
    return [before - after for before, after in pairwise(errors)]


@torch.no_grad()
def bits_by_position(prior: Prior[Any], codes: Int[Tensor, "n length"]) -> list[float]:
    """−log₂ p(code_i | codes before it), averaged over the examples, for every position i.

    Their sum is the bits that a whole example takes; log₂ codebook_size is what a prior that knows nothing needs for each.
    """
    sums = torch.zeros(codes.shape[1], dtype=torch.float64, device=codes.device)
    for part in codes.long().split(BATCH):
        nats = F.cross_entropy(prior(part).float().transpose(1, 2), part, reduction="none")
        sums += nats.double().sum(0)
    return (sums / len(codes) / math.log(2)).tolist()


def entropy_by_position(codes: Int[Tensor, "n length"], codebook_size: int) -> list[float]:
    """Bits of each position on its own, whatever the others are: 0 where it never changes, at most log₂ codebook_size.

    Frequencies of n examples read low by about (entries seen − 1) / 2n nats, which is added (Miller and Madow).
    """
    n, length = codes.shape
    positions = codes.long() + codebook_size * torch.arange(length, device=codes.device)
    counts = torch.bincount(positions.flatten(), minlength=length * codebook_size).view(length, codebook_size)
    frequencies = counts.double() / n
    nats = -torch.special.xlogy(frequencies, frequencies).sum(1) + ((counts > 0).sum(1) - 1) / (2 * n)
    bits: list[float] = (nats / math.log(2)).clamp(0, math.log2(codebook_size)).tolist()
    return bits


def empty_tail(errors: Sequence[float]) -> int | None:
    """The first of the last codes that bring no gain together, from errors at 0, 1, …, length codes.

    They begin behind the shortest prefix whose error is within a hundredth of the full one's. None where they are fewer than a
    tenth of all codes: gains fall towards the end of any good order.

    >>> empty_tail([1.0, 0.5, 0.3, 0.2999, 0.2998]), empty_tail([1.0, 0.5, 0.3, 0.2, 0.1])
    (3, None)
    """
    length = len(errors) - 1
    enough = next(count for count, error in enumerate(errors) if error <= (1 + MIN_RELATIVE_GAIN) * errors[-1])
    return enough + 1 if length - enough >= max(2, math.ceil(MIN_TAIL_FRACTION * length)) else None


def code_warnings(errors: Sequence[float], entropy: Sequence[float]) -> list[str]:
    """What is wrong with an order, in sentences; none where nothing is."""
    warnings, length = list[str](), len(entropy)
    if (first := empty_tail(errors)) is not None:
        before = errors[first - 1]
        warnings.append(f"codes {first}-{length} bring no gain: error {before:.5f} without them, {errors[-1]:.5f} with them")
    constant = [position for position, bits in enumerate(entropy, start=1) if bits < MIN_ENTROPY_BITS]
    if constant:
        which = (
            f"codes {_ranges(constant)} hardly ever change" if len(constant) > 1 else f"code {constant[0]} hardly ever changes"
        )
        warnings.append(f"{which}: below {MIN_ENTROPY_BITS} bits")
    return warnings


def _ranges(positions: Sequence[int]) -> str:
    """Numbers in order, neighbours joined.

    >>> _ranges([1, 2, 3, 7, 9, 10])
    '1-3, 7, 9-10'
    """
    parts: list[list[int]] = []
    for position in positions:
        if parts and position == parts[-1][-1] + 1:
            parts[-1].append(position)
        else:
            parts.append([position])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def diagnose(
    stage: str, model: AnytimeModel, x: UInt8[Tensor, "n channel height width"] | Int16[Tensor, "n channel time"]
) -> dict[str, Any] | None:
    """What the end of a stage has decided about the order, on validation examples; None where it decides nothing.

    Another decoder makes other errors of the same codes: behind `tune` they are measured again. Costs about as much as the
    validation of one epoch.
    """
    if stage not in ("ordered", "prior", "finetune", FINISHED):
        return None
    model.eval()
    codes = encode_dataset(model.autoencoder, x)
    bits: dict[str, Any] = {}
    if stage in ("prior", FINISHED):
        bits = {"examples": len(codes), "bits": bits_by_position(model.prior, codes)}
    if stage == "prior":
        return bits
    some = x[:ERROR_EXAMPLES]
    errors = error_by_codes(model, some, range(model.length + 1))
    entropy = entropy_by_position(codes, model.codebook_size)
    return bits | {
        "error_examples": len(some),
        "error": errors,
        "gain": gains(errors),
        "examples": len(codes),
        "entropy": entropy,
        "warnings": code_warnings(errors, entropy),
    }


def write_code_stats(run_dir: Path, stage: str, found: dict[str, Any]) -> None:
    """Keep what a stage has decided, beside what the stages before it have."""
    storage.write_json(run_dir / FILE, {**_stages(run_dir), stage: found})


def copy_code_stats(run_dir: Path, other: Path, stages: Collection[str]) -> None:
    """Keep what another run's stages have decided, which this run shares."""
    for stage, found in _stages(other).items():
        if stage in stages:
            write_code_stats(run_dir, stage, found)


def read_code_stats(run_dir: Path) -> dict[str, Any]:
    """What a run wrote of the order of its codes, all stages together, the last word counts; empty where it wrote nothing."""
    return {key: value for found in _stages(run_dir).values() for key, value in found.items()}


def _stages(run_dir: Path) -> dict[str, dict[str, Any]]:
    return read_json(run_dir / FILE) if (run_dir / FILE).is_file() else {}
