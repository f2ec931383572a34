"""What every autoregressive model of the codes offers."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

State = TypeVar("State")


@runtime_checkable
class Prior(Protocol[State]):
    """p(codes) = Π p(code_i | codes_{<i}). The start symbol is the prior's own business.

    `step` may reuse the buffers of the state it is given: after a step the old state is dead.
    """

    @property
    def length(self) -> int:
        """Full number of codes."""

    @property
    def codebook_size(self) -> int:
        """How many values a code may take."""

    def __call__(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch prefix codebook_size"]:
        """Logits of every code given those before it."""

    def start(self, batch: int) -> State:
        """The state before the first code."""

    def step(self, codes: Int[Tensor, " batch"] | None, state: State) -> tuple[Float[Tensor, "batch codebook_size"], State]:
        """Logits of the next code, given the one just drawn (None before the first)."""
