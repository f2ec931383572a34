"""Roofline of sampling: the least time that memory bandwidth and arithmetic allow, from measured hardware speeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from anytime.metrics.latency import time_call
from anytime.priors.transformer import TransformerConfig

TRIES = 5


@dataclass(frozen=True, slots=True)
class Hardware:
    """Measured speeds of a device."""

    bandwidth: float  # bytes per second, reading and writing together
    flops: float  # multiplications and additions per second in large matrix products


def measure_hardware(device: torch.device, dtype: torch.dtype) -> Hardware:
    """Measure a device: the best of a few large copies and matrix products."""
    size = 1 << (30 if device.type == "cuda" else 27)
    side = 8192 if device.type == "cuda" else 1536
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return Hardware(2 * size / _best(lambda: target.copy_(source), device), 2 * side**3 / _best(lambda: left @ right, device))


def _best(work: Callable[[], object], device: torch.device) -> float:
    return min([time_call(work, device) for _ in range(TRIES + 1)][1:])


def step_cost(config: TransformerConfig, batch: int, position: int, itemsize: int) -> tuple[int, int]:
    """Return the bytes moved and operations needed to sample the code at `position` in every row.

    The weights are read once. The KV cache is read up to the position and written there. Activations stay on the chip.
    """
    products = config.layers * (4 * config.width**2 + 2 * config.width * config.hidden) + config.width * config.codebook_size
    cache = 2 * config.layers * config.width * batch * (position + 1)
    attention = 2 * config.layers * config.width * batch * (position + 1)
    return itemsize * (products + cache), 2 * (products * batch + attention)


def roofline_seconds(config: TransformerConfig, batch: int, codes: int, itemsize: int, hardware: Hardware) -> float:
    """Return the least time for `codes` steps, with transfer and arithmetic in parallel; the decoder is left out."""
    costs = (step_cost(config, batch, position, itemsize) for position in range(codes))
    return sum(max(moved / hardware.bandwidth, done / hardware.flops) for moved, done in costs)
