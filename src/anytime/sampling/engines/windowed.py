"""Engines that compute several codes a pass, losslessly.

With one row or two, reading the weights takes most of a step. So a pass computes a window of positions at once, from guesses
of the codes there. The noise at a position is fixed, so a code is final as soon as all codes before it are: after each pass the
first code of the window is final, and so is every further one whose predecessors were guessed right. The others are the next
guesses. The codes are those of single steps, up to rounding ties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import ClassVar

import torch
from torch import Tensor

from anytime.sampling.engines.base import ActiveBatch
from anytime.sampling.engines.cached_transformer import CachedTransformer, advanced
from anytime.sampling.engines.eager import EagerEngine
from anytime.sampling.gumbel import gumbel_argmax


class WindowedEngine(EagerEngine):
    """The eager engine's loop over a Transformer with an implementation of its own, on a CPU."""

    windows: ClassVar[Mapping[int, int]]
    """Positions of a pass by number of rows. Other batches take single steps, as their products cost more than the weights."""

    def __init__(self, prior: CachedTransformer, decoder: Callable[[Tensor], Tensor]) -> None:
        super().__init__(prior, decoder, torch.device("cpu"))
        self.transformer = prior

    def _step_once(self, batch: ActiveBatch) -> None:
        window = min(self.windows.get(len(batch.request.rows), 1), self.prior.length - batch.steps_done)
        if batch.ahead:
            batch.ahead -= 1
            batch.steps_done += 1
        elif window <= 1 or batch.steps_done == 0:
            super()._step_once(batch)
        else:
            self._pass(batch, window)

    def _pass(self, batch: ActiveBatch, window: int) -> None:
        """Compute a window of codes at once; those that are final count as ahead."""
        state, first = batch.state, batch.steps_done
        guessed: Tensor = state.codes[:, first : first + window]
        logits = self.transformer.logits(state.codes[:, first - 1 : first + window - 1], state.prior)
        noise = state.noise.window(first, window).transpose(0, 1)
        codes = gumbel_argmax(logits.flatten(0, 1), batch.request.settings, noise.flatten(0, 1)).view_as(guessed)
        given = max(0, batch.prefix_length - first)
        codes[:, :given] = guessed[:, :given]
        # A code is final if all codes before it in the window were guessed right.
        right = (codes == guessed)[:, :-1].all(0).tolist()
        final = 1 + sum(1 for _ in takewhile(bool, right))
        state.codes[:, first : first + window] = codes
        state.prior = advanced(state.prior, final)
        batch.steps_done, batch.ahead = first + 1, final - 1
