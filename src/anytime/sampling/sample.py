"""The result of a sampling request."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from anytime.core.errors import UserError
from anytime.sampling.gumbel import SamplingSettings

if TYPE_CHECKING:
    from anytime.sampling.session import Session


@dataclass(frozen=True, slots=True)
class Sample:
    """A complete sample, whatever its number of codes.

    A plain value: it can be pickled and copied. A copy has no session, so refining it recomputes the state from its codes.
    """

    data: Tensor  # float32 in the data's range, [n, ...], on the model's device
    codes: Tensor  # [n, codes sampled], int64, on the model's device
    seconds: float  # from the call to the finished, decoded tensor
    seed: int
    rows: Tensor  # [n] row numbers: a row's codes depend on its number, not on the other rows
    settings: SamplingSettings
    model: str  # hash of the model that generated it
    session: Session | None = field(default=None, repr=False, compare=False)  # for refining without recomputing the state

    def __reduce__(self) -> tuple[type[Sample], tuple[object, ...]]:
        """Pickle and copy everything but the session, which belongs to the process."""
        return Sample, (self.data, self.codes, self.seconds, self.seed, self.rows, self.settings, self.model)

    def uint8(self) -> Tensor:
        """Return images as bytes."""
        return (self.data * 255).round().clamp(0, 255).to(torch.uint8)

    def pick(self, rows: list[int]) -> Sample:
        """Return the samples with these row numbers, which they keep."""
        indices = {int(row): index for index, row in enumerate(self.rows)}
        for row in rows:
            if row not in indices:
                raise UserError(f"`pick` {row} is not among the {len(indices)} rows of the sample ({_format_rows(self.rows)})")
        chosen = torch.tensor([indices[row] for row in rows], dtype=torch.long)
        data, codes = (tensor[chosen.to(tensor.device)] for tensor in (self.data, self.codes))
        return replace(self, data=data, codes=codes, rows=self.rows[chosen], session=None)


def _format_rows(rows: Int[Tensor, " n"]) -> str:
    numbers = rows.tolist()
    contiguous = numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]} to {numbers[-1]}" if contiguous else ", ".join(map(str, numbers[:20]))
