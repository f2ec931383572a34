"""The cuda engine's kernels without a GPU: Triton's interpreter runs them on the CPU, if Triton is installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import anytime
from anytime.sampling.engines.cuda_step import SMALL_BATCH, split_k, tile_shape

SHARED = 227 * 1024  # bytes of shared memory per program on an H200
CHECKED = """
from jaxtyping import install_import_hook
checked = ["anytime.sampling.kernels.fused_decoder", "anytime.sampling.engines.cuda_step"]  # not the kernels
install_import_hook(checked, "beartype.beartype")
"""
PROGRAM = """
import torch
from anytime.priors.transformer import Transformer, TransformerConfig
from anytime.sampling.engines import cuda_step
from anytime.sampling.engines.base import Request
from anytime.sampling.gumbel import SamplingSettings, gumbel, gumbel_argmax

cuda_step.PDL = False  # the interpreter has no dependent launches
torch.manual_seed(0)
config = TransformerConfig(length=10, codebook_size=20, layers=2, width=48, hidden=64, heads=3)  # no power of two anywhere
prior = Transformer(config).eval()
for parameter in prior.parameters():
    parameter.data += 0.1 * torch.randn_like(parameter)
cast = cuda_step.cast_prior(prior, torch.float32)
with torch.no_grad():
    for cuda_step.SMALL_BATCH in (0, 100):  # cuBLAS products, then our own
        for batch, given, top_k in ((3, 0, None), (5, 4, None), (4, 2, 5)):
            rows, settings = torch.arange(batch) + 7, SamplingSettings(temperature=0.7, top_k=top_k)
            buffers = cuda_step.StepBuffers.empty(cast, batch, torch.device("cpu"))
            request = Request(torch.arange(given).expand(batch, -1), rows, 5, settings, "")
            buffers.write(slice(0, batch), request, 20)
            state, before, codes = prior.start(batch), None, []
            for position in range(10):
                cuda_step.CudaStep(cast)(buffers, settings.filters)
                logits, state = prior.step(before, state)
                sampled = gumbel_argmax(logits, settings, gumbel(5, rows, position, 20))
                before = sampled if position >= given else torch.full((batch,), position)
                codes.append(before)
            assert torch.equal(torch.stack(codes, 1), buffers.codes.long()), (cuda_step.SMALL_BATCH, batch)
            torch.testing.assert_close(buffers.keys, state.keys, atol=1e-5, rtol=0)
            torch.testing.assert_close(buffers.values, state.values, atol=1e-5, rtol=0)
            assert buffers.position.tolist() == [10] * batch
    # Rows of two requests, each at its own position; a step of one leaves the other as it is.
    cuda_step.SMALL_BATCH = 100
    buffers = cuda_step.StepBuffers.empty(cast, 6, torch.device("cpu"))
    requests = [
        Request(torch.tensor([[3, 1]] * 2), torch.tensor([4, 9]), 11, SamplingSettings(temperature=0.5), ""),
        Request(torch.zeros(3, 0, dtype=torch.long), torch.tensor([2, 0, 7]), 5, SamplingSettings(top_k=4), ""),
    ]
    slots = [torch.tensor([0, 3]), torch.tensor([1, 2, 4])]
    for where, request in zip(slots, requests):
        buffers.write(where, request, 20)
    buffers.top_k[slots[0]], buffers.top_p[slots[0]] = 20, 2.0
    for stepped in ([0], [0, 1], [1], [0, 1], [1], [0, 1], [0], [0, 1]):
        buffers.request[:, 4] = 0
        for number in stepped:
            buffers.request[slots[number], 4] = 1
        before = buffers.codes.clone(), buffers.position.clone()
        cuda_step.CudaStep(cast)(buffers.front(5), True)
        still = buffers.request[:, 4] == 0
        assert torch.equal(buffers.codes[still], before[0][still]) and torch.equal(buffers.position[still], before[1][still])
    assert buffers.position.tolist() == [6, 6, 6, 6, 6, 0]
    for where, request in zip(slots, requests):
        state, codes = prior.start(len(where)), None
        for position in range(6):
            logits, state = prior.step(codes, state)
            codes = gumbel_argmax(logits, request.settings, gumbel(request.seed, request.rows, position, 20))
            codes = request.codes[:, position] if position < request.codes.shape[1] else codes
            assert torch.equal(codes, buffers.codes[where, position].long()), position
print("all equal")
"""


DECODER = """
from dataclasses import replace
import torch
from anytime.autoencoders.layout import to_features
from anytime.autoencoders.vqvae import VQVAE
from anytime.sampling.kernels import fused_decoder
from anytime.sampling.engines.fused_batch_norm import fuse_batch_norm
from anytime.recipes.presets import preset

fused_decoder.PDL = False
torch.manual_seed(0)
shapes = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
networks = ("cifar10", "best", (8, 24, 40)), ("mnist", "best", (24, 100)), ("cifar10", "paper", (8, 16, 32))
with torch.no_grad():
    for name, which, widths in networks:
        config = replace(preset(name, which, shapes[name]).model.autoencoder, widths=widths)
        autoencoder = VQVAE(config).eval()
        for weights in autoencoder.decoder.parameters():
            weights.normal_(std=0.2)
        torch.nn.init.normal_(autoencoder.quantizer.codebook)
        codes = torch.randint(len(autoencoder.quantizer.codebook), (3, autoencoder.length))
        codebook = autoencoder.quantizer.codebook
        features = to_features(codebook[codes], config.layout, config.spatial_shape).permute(0, 2, 3, 1).contiguous()
        assert torch.equal(fused_decoder.features(codes, codebook, config.spatial_shape[0]), features)
        convs = fused_decoder.fuse_decoder(fuse_batch_norm(autoencoder.decoder))
        for fused_decoder.MIN_PROGRAMS in (10**9, 1):  # small tiles, then large ones
            out = torch.full((3, *config.shape), float("nan"))
            fused_decoder.run(convs, features, out)
            torch.testing.assert_close(out, autoencoder.decode(codes), atol=1e-4, rtol=0)
print("all equal")
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton comes with PyTorch for GPUs")
@pytest.mark.parametrize("program", [PROGRAM, DECODER], ids=["prior", "decoder"])
def test_kernels_equal_torch(program: str) -> None:
    source = os.pathsep.join([str(Path(anytime.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": source, "CUDA_VISIBLE_DEVICES": ""}
    program = CHECKED + program
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=280)
    assert done.stdout.strip() == "all equal", done.stderr[-2000:]


@pytest.mark.parametrize("width", range(64, 2049, 64))
def test_a_tile_fits_a_processor_at_every_width(width: int) -> None:
    """In bf16. Several passes over k need three tiles: one in use and two being read."""
    for rows in range(1, SMALL_BATCH + 1):
        for k, split in ((width, 1), (width, split_k(rows, width)), (4 * width, split_k(rows, 4 * width))):
            tile = tile_shape(rows, k, split, exact=False)
            held = 3 if k // split > tile["BLOCK_K"] or k // split % tile["BLOCK_K"] else 1
            assert 2 * held * (tile["BLOCK_M"] + tile["BLOCK_N"]) * tile["BLOCK_K"] <= SHARED, (rows, k, split, tile)
