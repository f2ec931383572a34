"""The Transformer prior as one ONNX graph, which serves as a cached step, for a prefix and as a parallel pass."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from torch import Tensor

from anytime.priors.transformer import Transformer, TransformerConfig
from anytime.sampling.onnx.graph import FLOAT, INT64, Graph, Shape


def prior_graph(prior: Transformer, tensors: Mapping[str, Tensor]) -> Graph:
    """Return the graph: tokens, their position and the KV cache to logits and the new entries of the cache."""
    return _Prior(prior.config, prior.embedding_norm.eps, Graph("prior", tensors)).build()


class _Prior:
    """Activations are [batch · count, width] between attentions, so that every linear layer is one `Gemm`."""

    def __init__(self, config: TransformerConfig, eps: float, graph: Graph) -> None:
        self.config, self.eps, self.graph = config, eps, graph
        self.head_dim = config.width // config.heads

    def build(self) -> Graph:
        c, g = self.config, self.graph
        tokens = g.input("tokens", INT64, ["batch", "count"])
        position = g.input("position", INT64, ["positions"])  # one for all rows, or one for each
        shape: Shape = ["batch", c.heads, "capacity", self.head_dim]
        cache = [g.input(f"cache_{index}", FLOAT, shape) for index in range(2 * c.layers)]
        count, capacity = g.add("Shape", tokens, start=1), g.add("Shape", cache[0], start=2, end=3)
        position = g.add("Unsqueeze", position, g.constant([1]))
        self.mask = self._mask(position, count, capacity)
        self.sizes = g.add("Concat", capacity, count, axis=0)
        self.qkv_shape = g.add("Concat", g.add("Shape", tokens), g.constant([3 * c.heads, self.head_dim]), axis=0)
        h, new = self._embed(tokens, position, count), list[str]()
        for layer in range(c.layers):
            h, entries = self._block(h, layer, *cache[2 * layer : 2 * layer + 2])
            new += entries
        rows = g.add("Slice", g.weight("prior.tokens.weight"), g.constant([0]), g.constant([c.codebook_size]))
        logits = g.add("Gemm", h, rows, transB=1)  # tied embeddings, without the start symbol
        shape_of_logits = g.add("Concat", g.add("Shape", tokens), g.constant([c.codebook_size]), axis=0)
        logits = g.add("Reshape", logits, shape_of_logits)
        g.output("logits", logits, FLOAT, ["batch", "count", c.codebook_size])
        entry = [g.add("Unsqueeze", value, g.constant([0])) for value in new]
        g.output("new", g.add("Concat", *entry, axis=0), FLOAT, [len(new), "batch", c.heads, "count", self.head_dim])
        return g

    def _mask(self, position: str, count: str, capacity: str) -> str:
        """Return [positions, 1, count, capacity + count]: 0 for what a token may attend to, −inf for the rest."""
        length, g = self.config.length, self.graph
        entries = g.add("Slice", g.constant(np.arange(length)), g.constant([0]), capacity)
        is_filled = g.add("Unsqueeze", g.add("Less", entries, position), g.constant([1, 2]))
        visible, hidden = (g.constant(np.array(value, np.float32)) for value in (0, -np.inf))
        cached = g.add("Where", is_filled, visible, hidden)
        causal = g.constant(np.triu(np.full((length, length), -np.inf, np.float32), 1))
        own = g.add("Slice", causal, g.constant([0, 0]), g.add("Concat", count, count, axis=0))
        rows = g.add("Concat", g.add("Shape", position, end=1), g.constant([1]), count, axis=0)
        masks = (
            g.add("Expand", mask, g.add("Concat", rows, size, axis=0)) for mask, size in ((cached, capacity), (own, count))
        )
        return g.add("Concat", *masks, axis=-1)

    def _embed(self, tokens: str, position: str, count: str) -> str:
        g, length = self.graph, self.config.length
        after = g.add("Slice", g.constant(np.arange(length)), g.constant([0]), count)
        positions = g.add("Gather", g.weight("prior.positions.weight"), g.add("Add", position, after))
        h = g.add("Add", g.add("Gather", g.weight("prior.tokens.weight"), tokens), positions)
        return self._flat(self._norm(h, "prior.embedding_norm"))

    def _block(self, h: str, layer: int, keys: str, values: str) -> tuple[str, list[str]]:
        """Return the block's output and the keys and values of its tokens."""
        g, name = self.graph, f"prior.blocks.{layer}"
        qkv = g.add("Reshape", self._linear(h, f"{name}.qkv"), self.qkv_shape)
        qkv = g.add("Transpose", qkv, perm=[0, 2, 1, 3])
        query, key, value = g.split("Split", qkv, outputs=3, axis=1, num_outputs=3)
        query = g.add("Mul", query, g.constant(np.array(1 / math.sqrt(self.head_dim), np.float32)))
        scores = [g.add("MatMul", query, g.add("Transpose", k, perm=[0, 1, 3, 2])) for k in (keys, key)]
        weights = g.add("Softmax", g.add("Add", g.add("Concat", *scores, axis=-1), self.mask), axis=-1)
        cached, new = g.split("Split", weights, self.sizes, outputs=2, axis=-1)  # the cache itself is never copied
        attended = g.add("Add", g.add("MatMul", cached, values), g.add("MatMul", new, value))
        attended = self._flat(g.add("Transpose", attended, perm=[0, 2, 1, 3]))
        h = self._norm(g.add("Add", h, self._linear(attended, f"{name}.out")), f"{name}.attention_norm")
        hidden = g.add("Relu", self._linear(h, f"{name}.up"))
        return self._norm(g.add("Add", h, self._linear(hidden, f"{name}.down")), f"{name}.norm"), [key, value]

    def _linear(self, x: str, name: str) -> str:
        g = self.graph
        return g.add("Gemm", x, g.weight(f"{name}.weight"), g.weight(f"{name}.bias"), transB=1)

    def _norm(self, x: str, name: str) -> str:
        g = self.graph
        return g.add("LayerNormalization", x, g.weight(f"{name}.weight"), g.weight(f"{name}.bias"), epsilon=self.eps)

    def _flat(self, x: str) -> str:
        return self.graph.add("Reshape", x, self.graph.constant([-1, self.config.width]))
