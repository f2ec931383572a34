"""The result of a sampling request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from anytime.core.errors import UserError
from anytime.sampling.gumbel import SamplingSettings
from anytime.sampling.integers import Integers, row_numbers

if TYPE_CHECKING:
    from anytime.sampling.session import Session


@dataclass(frozen=True, slots=True, repr=False)
class Sample:
    """A complete sample, whatever its number of codes.

    A plain value: it can be pickled and copied. A copy has no session, so refining it recomputes the state from its codes.
    Its length is the number of rows. An index, a slice or a loop gives samples of fewer rows, which keep their row numbers.
    Samples with the same contents are equal, whatever their `seconds` and device. Jupyter shows images or audio players.
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

    @property
    def is_audio(self) -> bool:
        """Whether the data are waveforms rather than images."""
        return self.data.ndim == 3

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> Sample:
        """Return the rows at these positions, which keep their row numbers; `pick` takes row numbers instead."""
        positions = torch.arange(len(self), device="cpu")[index.cpu() if isinstance(index, Tensor) else index].reshape(-1)
        return self._at(positions)

    def __iter__(self) -> Iterator[Sample]:
        """Yield samples of one row each."""
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Return whether another sample has the same contents."""
        if not isinstance(other, Sample):
            return NotImplemented
        if (self.seed, self.settings, self.model) != (other.seed, other.settings, other.model):
            return False
        tensors = ((self.rows, other.rows), (self.codes, other.codes), (self.data, other.data))
        return all(torch.equal(ours.cpu(), theirs.cpu()) for ours, theirs in tensors)

    def __hash__(self) -> int:
        """Return the same number for equal samples."""
        return hash((self.seed, self.settings, self.model, *self.rows.tolist()))

    def __repr__(self) -> str:
        """Return one short line."""
        from anytime.sampling.sample_view import describe

        return f"Sample({describe(self)}, model {self.model[:12]})"

    def _repr_html_(self) -> str:
        from anytime.sampling.sample_view import sample_html

        return sample_html(self)

    def _repr_png_(self) -> bytes | None:
        from anytime.data.image_grid import png_bytes
        from anytime.sampling.sample_view import pixels

        return png_bytes(pixels(self)) if len(self) else None

    def save(self, path: str | Path) -> Path:
        """Write a file and return its path: .png a grid, .npz all fields, .wav audio, a directory one file per sample."""
        from anytime.sampling.sample_view import save_sample

        return save_sample(self, path)

    def show(self) -> None:
        """Show the samples in Jupyter, or else in the image viewer of the desktop; audio as spectrograms there."""
        from anytime.sampling.sample_view import show_sample

        show_sample(self)

    def uint8(self) -> Tensor:
        """Return images as bytes."""
        return (self.data * 255).round().clamp(0, 255).to(torch.uint8)

    def pick(self, rows: Integers | int) -> Sample:
        """Return the samples with these row numbers, which they keep: a list, a NumPy array, a tensor or one number."""
        numbers = row_numbers(rows, "`pick`")
        indices = {int(row): index for index, row in enumerate(self.rows)}
        for row in numbers:
            if row not in indices:
                raise UserError(f"`pick` {row} is not among the {len(indices)} rows of the sample ({_format_rows(self.rows)})")
        return self._at(torch.tensor([indices[row] for row in numbers], dtype=torch.long, device="cpu"))

    def _at(self, positions: Int[Tensor, " k"]) -> Sample:
        data, codes, rows = (tensor[positions.to(tensor.device)] for tensor in (self.data, self.codes, self.rows))
        return replace(self, data=data, codes=codes, rows=rows, session=None)


def _format_rows(rows: Int[Tensor, " n"]) -> str:
    numbers = rows.tolist()
    contiguous = numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]} to {numbers[-1]}" if contiguous else ", ".join(map(str, numbers[:20]))
