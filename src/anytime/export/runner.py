"""Sample from the exported model beside this file, with numpy and onnxruntime alone."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array


@dataclass(frozen=True)
class Sample:
    """Complete data, whatever the number of codes."""

    data: Array  # float32 [n, *shape]
    codes: Array  # int64 [n, count]
    rows: Array  # int64 [n], row numbers: a row's codes depend on its number, not on the other rows
    seed: int
    settings: dict[str, Any]  # temperature, top_k, top_p
    seconds: float  # from the call to the decoded data
    model: str  # hash of the weights


def mix(x: Array) -> Array:
    """Mix the bits of each uint32 (lowbias32)."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return np.asarray(x ^ (x >> np.uint32(16)))


def gumbel(seed: int, rows: Array, position: int, categories: int) -> Array:
    """Return Gumbel noise, float32 [rows, categories], of a hash of seed, row, position and category."""
    low, high, at = np.array([seed & 0xFFFFFFFF, seed >> 32, position], np.uint32)[:, None, None]
    golden = np.uint32(0x9E3779B9)
    words = [mix((low ^ high) + golden), mix((low ^ np.uint32(0x5851F42D) ^ mix(high)) + golden)]
    for counter in (rows.astype(np.uint32)[:, None], at):
        words = [mix((word ^ counter) + golden) for word in words]
    bits = mix(mix(np.arange(categories, dtype=np.uint32) * golden + words[0]) ^ words[1])
    x = ((bits >> np.uint32(9)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)  # uniform in (0, 1)
    for _ in range(2):  # logarithms in float64, then rounded: the same on every machine
        x = -np.log(x.astype(np.float64)).astype(np.float32)
    return np.asarray(x)


def filter_logits(logits: Array, temperature: float, top_k: int | None, top_p: float | None) -> Array:
    """Divide by the temperature; −inf outside of the top k, then of the top p."""
    logits = logits / np.float32(temperature)
    if top_k is None and (top_p is None or top_p >= 1):
        return logits
    index = np.argsort(-logits, axis=-1, kind="stable")
    ordered = np.take_along_axis(logits, index, -1)
    outside = ordered < ordered[:, min(top_k or logits.shape[1], logits.shape[1]) - 1, None]
    weight = np.where(outside, np.float32(0), np.exp(ordered - ordered[:, :1]))
    probability = weight / weight.sum(-1, keepdims=True)
    if top_p is not None and top_p < 1:
        outside |= probability.cumsum(-1, dtype=np.float64).astype(np.float32) - probability >= np.float32(top_p)
    np.put_along_axis(logits, index, np.where(outside, np.float32(-np.inf), ordered), -1)
    return logits


class Runner:
    """The exported model of a directory."""

    def __init__(self, folder: str | Path = Path(__file__).parent, threads: int | None = None) -> None:
        self.facts = facts = json.loads((Path(folder) / "model.json").read_text(encoding="utf-8"))
        self.length, self.codebook_size, self.start = facts["length"], facts["codebook_size"], facts["start"]
        paths = [Path(folder) / facts["files"][network]["name"] for network in ("prior", "decoder")]
        self._prior, self._decoder = (self.load_network(path, threads) for path in paths)
        self._seconds: dict[int, tuple[deque[float], deque[float]]] = {}  # of the last steps and decodes, by number of rows

    def load_network(self, path: Path, threads: int | None) -> Callable[..., Any]:
        """Return an ONNX file as a function of arrays, in the order of its inputs."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_inputs()]
        return lambda *arrays: session.run(None, dict(zip(names, arrays, strict=True)))

    def sample(self, n: int = 1, *, seed: int = 0, prefix: Array | None = None, first: int = 0, codes: int | None = None,
               within: float | None = None, stop: Any = None, **settings: int | float | None) -> Sample:  # fmt: skip
        """Generate `n` rows, numbered from `first`; `settings` are temperature, top_k and top_p, by default the model's."""
        given = np.zeros((n, 0), np.int64) if prefix is None else np.broadcast_to(prefix, (n, np.shape(prefix)[-1]))
        settings = self.facts["settings"] | {name: value for name, value in settings.items() if value is not None}
        empty = Sample(np.empty(0), given, np.arange(first, first + n), seed, settings, 0.0, self.facts["model"])
        return self.refine(empty, codes=codes, within=within, stop=stop)

    def refine(self, sample: Sample, *, codes: int | None = None, within: float | None = None, stop: Any = None) -> Sample:
        """Continue to all codes or `codes`, in at most `within` seconds, or until `stop` is set, but at least to one code."""
        if sample.model != self.facts["model"]:
            raise ValueError(f"the sample is of another model ({sample.model[:12]}…)")
        made, target, n = self._checked(sample.codes), self.length if codes is None else codes, len(sample.codes)
        if within is not None and n not in self._seconds:  # measure before the clock begins; the first time takes longer
            for _ in range(2):
                self._seconds.pop(n, None)
                self.refine(replace(sample, codes=made[:, :0]), codes=min(2, self.length))
        began = time.perf_counter()
        steps, decodes = self._seconds.setdefault(n, (deque(maxlen=16), deque(maxlen=16)))
        tokens, cache, fed = np.insert(made, 0, self.start, axis=1), self._cache(n, target), 0
        while (count := made.shape[1]) < target:
            now = time.perf_counter()
            late = within is not None and now - began + max(steps) + max(decodes) > within
            if count and (late or (stop is not None and stop.is_set())):
                break
            logits, new = self._prior(tokens, np.array([fed]), *cache)
            cache[:, :, :, fed : count + 1] = new
            noise = gumbel(sample.seed, sample.rows, count, self.codebook_size)
            tokens = (filter_logits(logits[:, -1], **sample.settings) + noise).argmax(-1)[:, None]
            made = np.append(made, tokens, axis=1)
            if fed == count:  # not a prefix, which takes longer
                steps.append(time.perf_counter() - now)
            fed = count + 1
        now = time.perf_counter()
        data = self.decode(made)
        decodes.append(time.perf_counter() - now)
        return replace(sample, data=data, codes=made, seconds=time.perf_counter() - began)

    def decode(self, codes: Array) -> Array:
        """Return complete data of any number of codes, [n, 0 … length]; latents of missing codes are zero."""
        parts = np.split(self._checked(codes), range(64, len(codes), 64))  # feature maps that fit into the processor's cache
        return np.concatenate([self._decoder(part)[0] for part in parts])

    def logits(self, codes: Array) -> Array:
        """Return the logits of every code given those before it, [n, count, codebook_size], in one parallel pass."""
        tokens = np.insert(self._checked(codes)[:, :-1], 0, self.start, axis=1)
        return np.asarray(self._prior(tokens, np.array([0]), *self._cache(*tokens.shape))[0])

    def _cache(self, n: int, capacity: int) -> Array:
        return np.zeros((2 * self.facts["layers"], n, self.facts["heads"], capacity, self.facts["head_dim"]), np.float32)

    def _checked(self, codes: Array) -> Array:
        if codes.dtype.kind not in "iu" or codes.ndim != 2 or codes.shape[1] > self.length:
            raise ValueError(f"codes must be integers [n, up to {self.length}], not {codes.dtype} {list(codes.shape)}")
        if codes.size and not 0 <= codes.min() <= codes.max() < self.codebook_size:
            raise ValueError(f"codes must be between 0 and {self.codebook_size - 1}")
        return codes.astype(np.int64, order="C")


if __name__ == "__main__":  # the command line is in sample.py
    __import__("sample").main()
