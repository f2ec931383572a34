"""The onnx engine: prior and decoder as ONNX graphs that ONNX Runtime computes, in fp32.

ONNX Runtime needs less time between two operations than torch, which counts for small models and few rows. For larger ones the
packed engine is faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.autoencoders.vqvae import VQVAE
from anytime.priors.transformer import KVCache, Transformer
from anytime.sampling.engines.base import CPU_DECODE_BATCH
from anytime.sampling.engines.cached_transformer import CachedTransformer
from anytime.sampling.engines.windowed import WindowedEngine
from anytime.sampling.onnx.decoder import decoder_graph
from anytime.sampling.onnx.graph import Graph
from anytime.sampling.onnx.prior import prior_graph

MAX_SESSIONS = 2
"""Sessions of a graph, each for a number of threads and with all weights. A deadline makes requests use one thread or all."""
SPIN_MICROSECONDS = 50
"""How long a thread waits for work before it sleeps. Without a limit it takes cores from other programs."""


def has_onnxruntime() -> bool:
    """Return whether the packages that this engine needs are installed."""
    return all(find_spec(package) is not None for package in ("onnx", "onnxruntime"))


class Network:
    """An ONNX graph, computed with as many threads as torch uses at the time."""

    def __init__(self, graph: Graph) -> None:
        self._names = [value.name for value in graph.inputs]
        self._content = graph.serialize(check=False)
        self._sessions: dict[int, Any] = {}  # by number of threads

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        """Return the outputs; inputs are contiguous tensors in the graph's order."""
        threads = torch.get_num_threads()
        session = self._sessions.get(threads) or self._load(threads)
        feeds = {name: tensor.numpy() for name, tensor in zip(self._names, inputs, strict=True)}
        return [torch.from_numpy(array) for array in session.run(None, feeds)]

    def _load(self, threads: int) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3  # errors only
        options.add_session_config_entry("session.intra_op.spin_duration_us", str(SPIN_MICROSECONDS))
        session = onnxruntime.InferenceSession(self._content, options, providers=["CPUExecutionProvider"])
        for other in list(self._sessions)[: 1 - MAX_SESSIONS]:
            self._sessions.pop(other, None)  # another thread may have removed it
        self._sessions[threads] = session
        return session


class OnnxTransformer(CachedTransformer):
    """The prior's graph. It reads the KV cache where it is, and its new entries are copied into it."""

    def __init__(self, prior: Transformer) -> None:
        self._network = Network(prior_graph(prior, _weights("prior", prior)))
        super().__init__(prior)

    def logits(self, tokens: Int[Tensor, "batch window"], state: KVCache) -> Float[Tensor, "batch window codebook_size"]:
        """Return the logits of the codes after each of these, and write their keys and values to the cache."""
        position = torch.tensor([state.max_position], device="cpu") if state.is_uniform else state.position
        cache = [part for layer in zip(state.keys, state.values, strict=True) for part in layer]
        logits, new = self._network(tokens.contiguous(), position, *cache)
        for table, entries in ((state.keys, new[::2]), (state.values, new[1::2])):
            if state.is_uniform:
                table[:, :, :, state.max_position : state.max_position + tokens.shape[1]] = entries
            else:
                rows = torch.arange(len(position), device="cpu")
                table.transpose(0, 1)[rows, :, :, position] = entries[:, :, :, 0].transpose(0, 1)
        return logits


class OnnxEngine(WindowedEngine):
    """Both networks by ONNX Runtime."""

    name = "onnx"
    windows: ClassVar[Mapping[int, int]] = {1: 4}

    def __init__(self, prior: Transformer, autoencoder: VQVAE) -> None:
        self._decoder = Network(decoder_graph(autoencoder, _weights("autoencoder", autoencoder)))
        super().__init__(OnnxTransformer(prior), self._decode)

    def _decode(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch ..."]:
        return torch.cat([self._decoder(part.contiguous())[0] for part in codes.split(CPU_DECODE_BATCH)])


def _weights(name: str, module: torch.nn.Module) -> dict[str, Tensor]:
    return {f"{name}.{key}": tensor for key, tensor in module.state_dict().items()}
