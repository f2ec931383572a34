"""Check the basic properties of a finished model, for `anytime info --check`; `tests/laws` tests the code itself."""

from __future__ import annotations

from typing import Any

import torch

from anytime.model import AnytimeModel
from anytime.priors.prior import Prior


@torch.no_grad()
def check_model(model: AnytimeModel, n: int = 4) -> dict[str, bool]:
    """Check four properties on a few samples; return whether each holds."""
    full = model.sample(n, seed=1)
    half = model.sample(n, seed=1, fraction=0.5)
    shape = (n, *model.config.autoencoder.shape)
    decoded = [model.decode(full.codes[:, :k]) for k in range(model.length + 1)]
    prior: Prior[Any] = model.prior
    logits = prior(full.codes.to(model.device))
    state = prior.start(n)
    steps = []
    for position in range(model.length):
        codes = full.codes[:, position - 1].to(model.device) if position else None
        step, state = prior.step(codes, state)
        steps.append(step)
    return {
        "every prefix decodes to a complete sample": all(x.shape == shape and bool(x.isfinite().all()) for x in decoded),
        "the budget changes only where it stops": bool((full.codes[:, : half.codes.shape[1]] == half.codes).all()),
        "one step equals the full pass": bool(torch.allclose(torch.stack(steps, 1), logits, atol=1e-4, rtol=1e-4)),
        "all weights are finite": all(bool(p.isfinite().all()) for p in model.parameters()),
    }
