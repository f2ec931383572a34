"""Which engine for which device, and what each of them can do."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from anytime.autoencoders.vqvae import VQVAE
from anytime.core.errors import UserError, did_you_mean
from anytime.priors.prior import Prior
from anytime.priors.transformer import Transformer
from anytime.sampling.engines.base import DTYPES, Engine
from anytime.sampling.engines.eager import EagerEngine

ENGINES = ("eager", "compiled", "cuda")


def build(
    name: str | None,
    precision: str | None,
    prior: Prior[Any],
    autoencoder: VQVAE,
    decoder: Callable[[Tensor], Tensor],
    device: torch.device,
) -> Engine:
    """The engine asked for, or the fastest that the device and the prior allow without compiling anything on a CPU."""
    if name is None:
        graphs = device.type == "cuda" and isinstance(prior, Transformer) and importlib.util.find_spec("triton") is not None
        name = "cuda" if graphs else "eager"
    if name not in ENGINES:
        raise UserError(f"--engine {name!r} is not known; {did_you_mean(name, ENGINES)}")
    if precision is not None and precision not in DTYPES:
        raise UserError(f"--precision {precision!r} is not known; use fp32 or bf16")
    if name == "eager":
        if precision == "bf16":
            raise UserError("--engine eager computes in fp32; for bf16 use --engine compiled (CPU) or --engine cuda")
        return EagerEngine(prior, decoder, device)
    if not isinstance(prior, Transformer):
        raise UserError(f"--engine {name} draws with a Transformer prior only; use --engine eager")
    if name == "compiled":
        from anytime.sampling.engines.compiled import CompiledEngine, has_bf16

        if device.type != "cpu":
            raise UserError("--engine compiled is for CPUs; use --engine cuda, or --device cpu")
        return CompiledEngine(prior, autoencoder, precision or ("bf16" if has_bf16() else "fp32"))
    if device.type != "cuda":
        raise UserError("--engine cuda needs an NVIDIA GPU and a CUDA build of torch; use --engine eager")
    if importlib.util.find_spec("triton") is None:
        raise UserError("--engine cuda needs the package triton; install it, or use --engine eager")
    from anytime.sampling.engines.cuda import CudaEngine

    return CudaEngine(prior, autoencoder, device, precision or "bf16")
