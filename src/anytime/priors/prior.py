"""The interface of all priors."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

State = TypeVar("State")


@runtime_checkable
class Prior(Protocol[State]):
    """An autoregressive model p(codes) = Π p(code_i | codes_{<i}); the start symbol is internal.

    `step` may reuse the buffers of the state it is given, which must not be used again.
    """

    @property
    def length(self) -> int:
        """Full number of codes."""

    @property
    def codebook_size(self) -> int:
        """Number of values of a code."""

    def __call__(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch prefix codebook_size"]:
        """Return the logits of every code given those before it."""

    def start(self, batch: int) -> State:
        """Return the state before the first code."""

    def step(self, codes: Int[Tensor, " batch"] | None, state: State) -> tuple[Float[Tensor, "batch codebook_size"], State]:
        """Return the logits of the next code, given the previous one (None before the first)."""
