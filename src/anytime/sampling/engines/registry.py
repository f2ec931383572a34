"""Choosing an engine for a device and a prior."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import Any

import torch

from anytime.autoencoders.vqvae import VQVAE
from anytime.core.errors import UserError, did_you_mean
from anytime.priors.prior import Prior
from anytime.priors.transformer import Transformer
from anytime.sampling.engines.base import DTYPES, Engine
from anytime.sampling.engines.eager import EagerEngine, decode_in_blocks
from anytime.sampling.engines.onnx import OnnxEngine, has_onnxruntime
from anytime.sampling.engines.packed import PackedEngine
from anytime.sampling.engines.packed_linear import has_bf16

ENGINES = ("eager", "packed", "onnx", "cuda", "megakernel")
ON_GPUS = ("cuda", "megakernel")
"""Engines that need an NVIDIA GPU. `megakernel` is experimental and is never the default."""


def choose_engine(name: str | None, precision: str | None, prior: Prior[Any], device: torch.device) -> tuple[str, str]:
    """Return the engine of that name and its precision, by default the fastest for the device and the prior in its default
    precision; refuse what does not fit.
    """
    if name is None:
        name = _fastest(device) if isinstance(prior, Transformer) else "eager"
    if name not in ENGINES:
        raise UserError(f"`engine` {name!r} is unknown; {did_you_mean(name, ENGINES)}")
    if precision is not None and precision not in DTYPES:
        raise UserError(f"`precision` {precision!r} is unknown; use fp32 or bf16")
    if name != "eager" and not isinstance(prior, Transformer):
        raise UserError(f"`engine` {name} needs a Transformer prior; use `engine` eager")
    if name in ON_GPUS:
        _check_gpu(name, device)
    else:
        {"eager": _check_eager, "packed": _check_packed, "onnx": _check_onnx}[name](device, precision)
    return name, precision or default_precision(name)


def default_precision(name: str) -> str:
    """Return the precision of an engine if none is asked for."""
    return "bf16" if name in ON_GPUS else "fp32"


def _fastest(device: torch.device) -> str:
    if device.type == "cuda":
        return "cuda" if _has_triton() else "eager"
    if device.type == "cpu":
        return "packed"
    return "eager"


def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def _check_eager(device: torch.device, precision: str | None) -> None:
    if precision == "bf16":
        raise UserError("`engine` eager computes in fp32; for bf16 use `engine` packed (CPU) or cuda")


def _check_packed(device: torch.device, precision: str | None) -> None:
    if device.type != "cpu":
        raise UserError("`engine` packed is for CPUs; use `engine` cuda, or `device` cpu")
    if precision == "bf16" and not has_bf16():
        raise UserError("`precision` bf16 needs a processor and a torch that multiply bf16; use fp32")


def _check_onnx(device: torch.device, precision: str | None) -> None:
    if device.type != "cpu":
        raise UserError("`engine` onnx is for CPUs; use `engine` cuda, or `device` cpu")
    if precision == "bf16":
        raise UserError("`engine` onnx computes in fp32; for bf16 use `engine` packed")
    if not has_onnxruntime():
        raise UserError("`engine` onnx needs the packages onnx and onnxruntime; run `pip install onnx onnxruntime`")


def _check_gpu(name: str, device: torch.device) -> None:
    if device.type != "cuda":
        raise UserError(f"`engine` {name} needs an NVIDIA GPU and a CUDA build of torch; use `engine` packed or eager")
    if not _has_triton():
        raise UserError(f"`engine` {name} needs the package triton; install it, or use `engine` eager")


def build_engine(name: str | None, precision: str | None, prior: Prior[Any], autoencoder: VQVAE) -> Engine:
    """Build the engine that `choose_engine` returns."""
    device = autoencoder.device
    name, precision = choose_engine(name, precision, prior, device)
    if name == "eager" or not isinstance(prior, Transformer):
        return EagerEngine(prior, partial(decode_in_blocks, autoencoder), device)
    if name == "packed":
        return PackedEngine(prior, autoencoder, precision)
    if name == "onnx":
        return OnnxEngine(prior, autoencoder)
    from anytime.sampling.engines.cuda import CudaEngine
    from anytime.sampling.engines.cuda_megakernel import MegakernelEngine

    return (MegakernelEngine if name == "megakernel" else CudaEngine)(prior, autoencoder, device, precision)
