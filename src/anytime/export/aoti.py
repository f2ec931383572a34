"""AOTInductor export: the prior and the decoder compiled for this machine's processor; running them needs torch alone."""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.export import Dim

from anytime.autoencoders.layout import to_features
from anytime.autoencoders.vqvae import VQVAE
from anytime.core.errors import UserError
from anytime.export.exported import Exported, check_empty, load_exportable, write_exported
from anytime.priors.transformer import Transformer

SUFFIX = ".pt2"
MAX_BATCH = 1 << 16

Module = tuple[nn.Module, tuple[Tensor, ...], Any]
"""A network, example inputs and their dynamic sizes."""


def export_aoti(name: str | Path, folder: Path) -> Exported:
    """Compile a model's networks and write them into a directory, with a runner. It runs on this kind of processor only."""
    check_empty(folder, SUFFIX)
    _require_compiler()
    model, prior = load_exportable(name)
    model.requires_grad_(False)
    modules = {"prior": _prior_module(prior), "decoder": _decoder_module(model.autoencoder)}
    print("compiling two networks, which takes a minute or two", file=sys.stderr, flush=True)
    networks = {network: _compile(*module) for network, module in modules.items()}
    return write_exported(folder, model, networks, SUFFIX, {"runtime": "aoti", "torch": torch.__version__})


def _require_compiler() -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception:  # torch has several types of errors for it
        raise UserError("`to` aoti needs a C++ compiler; install g++, name one in CXX, or use `to` onnx") from None


def _compile(module: nn.Module, example: tuple[Tensor, ...], dynamic_shapes: Any) -> bytes:
    """Return the package of a network as bytes."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # about torch's own calls
        program = torch.export.export(module.eval(), example, dynamic_shapes=dynamic_shapes)
        path = torch._inductor.aoti_compile_and_package(program, package_path=f"{folder}/network{SUFFIX}")
        return Path(path).read_bytes()


def _prior_module(prior: Transformer) -> Module:
    config = prior.config
    batch, count, capacity = _batch(), Dim("count", min=1, max=config.length), Dim("capacity", min=1, max=config.length)
    cache = [torch.zeros(2, config.heads, 2, config.width // config.heads) for _ in range(2 * config.layers)]
    example = (torch.zeros(2, 2, dtype=torch.long), torch.zeros(1, dtype=torch.long), *cache)
    return _Prior(prior), example, ({0: batch, 1: count}, None, tuple({0: batch, 2: capacity} for _ in cache))


def _decoder_module(autoencoder: VQVAE) -> Module:
    count = Dim("count", min=0, max=autoencoder.length)
    return _Decoder(autoencoder), (torch.zeros(2, 2, dtype=torch.long),), ({0: _batch(), 1: count},)


def _batch() -> Any:
    return Dim("batch", min=1, max=MAX_BATCH)


class _Prior(nn.Module):
    """The prior with the inputs and outputs of `prior.onnx` (docs/export.md)."""

    def __init__(self, prior: Transformer) -> None:
        super().__init__()
        self.prior = prior

    def forward(
        self, tokens: Int[Tensor, "batch count"], position: Int[Tensor, " 1"], *cache: Float[Tensor, "batch heads capacity dim"]
    ) -> tuple[Tensor, Tensor]:
        (_, count), capacity = tokens.shape, cache[0].shape[2]
        cached = (torch.arange(capacity) < position).expand(count, capacity)
        mask = torch.cat([cached, torch.ones(count, count, dtype=torch.bool).tril()], 1)
        h, new = self.prior._embed(tokens, position + torch.arange(count)), list[Tensor]()
        for block, old_keys, old_values in zip(self.prior.block_list(), cache[::2], cache[1::2], strict=True):
            query, key, value = block.qkv_heads(h)
            keys, values = torch.cat([old_keys, key], 2), torch.cat([old_values, value], 2)
            h = block.apply_attention(h, F.scaled_dot_product_attention(query, keys, values, attn_mask=mask))
            new += [key, value]
        return self.prior._logits(h), torch.stack(new)


class _Decoder(nn.Module):
    """The decoder with the input and output of `decoder.onnx`."""

    def __init__(self, autoencoder: VQVAE) -> None:
        super().__init__()
        self.config, self.quantizer, self.layers = autoencoder.config, autoencoder.quantizer, autoencoder.decoder

    def forward(self, codes: Int[Tensor, "batch count"]) -> tuple[Tensor]:
        c = self.config
        latents = F.pad(self.quantizer.lookup(codes), (0, 0, 0, c.length - codes.shape[1]))
        return (self.layers(to_features(latents, c.layout, c.spatial_shape)),)
