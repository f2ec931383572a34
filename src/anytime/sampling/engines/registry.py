"""Choosing an engine for a device and a prior."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import Any

from anytime.autoencoders.vqvae import VQVAE
from anytime.core.errors import UserError, did_you_mean
from anytime.priors.prior import Prior
from anytime.priors.transformer import Transformer
from anytime.sampling.engines.base import DTYPES, Engine
from anytime.sampling.engines.eager import EagerEngine, decode_in_blocks

ENGINES = ("eager", "compiled", "cuda")


def build_engine(name: str | None, precision: str | None, prior: Prior[Any], autoencoder: VQVAE) -> Engine:
    """Build the engine of that name, or the fastest for the device and the prior that needs no compiler on a CPU."""
    device, has_triton = autoencoder.device, importlib.util.find_spec("triton") is not None
    if name is None:
        name = "cuda" if device.type == "cuda" and isinstance(prior, Transformer) and has_triton else "eager"
    if name not in ENGINES:
        raise UserError(f"`engine` {name!r} is unknown; {did_you_mean(name, ENGINES)}")
    if precision is not None and precision not in DTYPES:
        raise UserError(f"`precision` {precision!r} is unknown; use fp32 or bf16")
    if name == "eager":
        if precision == "bf16":
            raise UserError("`engine` eager computes in fp32; for bf16 use `engine` compiled (CPU) or cuda")
        return EagerEngine(prior, partial(decode_in_blocks, autoencoder), device)
    if not isinstance(prior, Transformer):
        raise UserError(f"`engine` {name} needs a Transformer prior; use `engine` eager")
    if name == "compiled":
        from anytime.sampling.engines.compiled import CompiledEngine, has_bf16

        if device.type != "cpu":
            raise UserError("`engine` compiled is for CPUs; use `engine` cuda, or `device` cpu")
        return CompiledEngine(prior, autoencoder, precision or ("bf16" if has_bf16() else "fp32"))
    if device.type != "cuda":
        raise UserError("`engine` cuda needs an NVIDIA GPU and a CUDA build of torch; use `engine` eager")
    if not has_triton:
        raise UserError("`engine` cuda needs the package triton; install it, or use `engine` eager")
    from anytime.sampling.engines.cuda import CudaEngine

    return CudaEngine(prior, autoencoder, device, precision or "bf16")
