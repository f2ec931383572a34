"""anytime sample MODEL"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from anytime.cli.arguments import Common
from anytime.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run's folder or a saved model's."""
    n: Annotated[int, tyro.conf.arg(aliases=("-n",))] = 64
    """How many samples."""
    codes: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Draw so many codes of each; all by default."""
    fraction: Annotated[float | None, tyro.conf.arg(metavar="F")] = None
    """Draw this share of the codes, above 0 and at most 1."""
    prefix: Annotated[str | None, tyro.conf.arg(metavar="CODES")] = None
    """Begin every sample with these codes, such as 3,17: more like this."""
    temperature: float = 1.0
    """Below 1 safer, above 1 more varied."""
    top_k: Annotated[int | None, tyro.conf.arg(metavar="K")] = None
    """Draw among the K likeliest codes only."""
    top_p: Annotated[float | None, tyro.conf.arg(metavar="P")] = None
    """Draw among the likeliest codes that hold this share of the probability."""
    seed: int = 0
    """Same seed, same codes."""
    out: Path = Path("samples.png")
    """.png a grid, .gif the samples sharpening code by code, .npz arrays, a folder one file each."""


def run(arguments: Arguments) -> dict[str, Any]:
    from anytime.cli.output import check_writable, write_sample
    from anytime.model import load

    if not 0 <= arguments.seed < 1 << 63:
        raise UserError(f"--seed must be between 0 and 2^63 - 1, not {arguments.seed}")
    check_writable(arguments.out)
    model = load(arguments.model, arguments.device)
    sample = model.sample(
        arguments.n,
        seed=arguments.seed,
        codes=arguments.codes,
        fraction=arguments.fraction,
        prefix=_prefix(arguments.prefix),
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
    )
    write_sample(arguments.out, model, sample)
    count = sample.codes.shape[1]
    print(f"{arguments.n} samples of {count} of {model.length} codes in {sample.seconds:.3f} s: {arguments.out}")
    return {
        "out": str(arguments.out),
        "n": arguments.n,
        "codes": count,
        "length": model.length,
        "seconds": sample.seconds,
        "seed": arguments.seed,
        "model": sample.model,
    }


def _prefix(text: str | None) -> Tensor | None:
    if text is None:
        return None
    import torch

    try:
        return torch.tensor([[int(code) for code in text.split(",")]])
    except ValueError:
        raise UserError(f"--prefix {text!r} must be codes with commas between, such as 3,17") from None
