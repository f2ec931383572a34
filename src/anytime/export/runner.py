"""Sample from the exported model beside this file with numpy and onnxruntime alone (after `--to aoti`, with numpy and torch).

python runner.py -n 4 --seed 0 --codes 8 --within 50ms --prefix 3,17 --out samples.npz
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
DECODE_ROWS = 64  # at once: feature maps that fit into the processor's cache
NUMBER, OR_NONE = (int, float), type(None)
FIELDS: dict[str, Any] = {"codes": Array, "rows": Array, "seed": int, "model": str, "settings": dict}
SETTINGS: dict[str, Any] = {"temperature": NUMBER, "top_k": (int, OR_NONE), "top_p": (*NUMBER, OR_NONE)}


@dataclass(frozen=True)
class Sample:
    """Complete data, whatever the number of codes. The .npz files of `anytime sample` have the same fields."""

    data: Array  # float32 [n, *shape]
    codes: Array  # int64 [n, count]
    rows: Array  # int64 [n], row numbers: a row's codes depend on its number, not on the other rows
    seed: int
    settings: dict[str, Any]  # temperature, top_k, top_p
    seconds: float  # from the call to the decoded data
    model: str  # hash of the weights

    def save(self, path: str | Path) -> None:
        """Write an .npz file."""
        with Path(path).open("wb") as file:  # by its path, numpy would add a suffix
            np.savez(file, **{**vars(self), "seed": np.uint64(self.seed), "settings": json.dumps(self.settings)})


def load_sample(path: str | Path) -> Sample:
    """Read an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            fields = {name: file[name].item() if file[name].ndim == 0 else file[name] for name in file.files}
        fields["settings"] = json.loads(fields["settings"])
        for values, kinds in ((fields, FIELDS), (fields["settings"], SETTINGS)):
            for name, kind in kinds.items():
                if not isinstance(values[name], kind):
                    raise ValueError(f"{name} is of the wrong type")
        return Sample(**fields)
    except Exception as error:  # whatever numpy, zipfile and json raise
        raise ValueError(f"{path} is not an .npz file of samples ({error})") from error


def mix(x: Array) -> Array:
    """Mix the bits of each uint32 (lowbias32)."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return np.asarray(x ^ (x >> np.uint32(16)))


def uniform(seed: int, rows: Array, position: int, categories: int) -> Array:
    """Return float32 numbers in (0, 1), [rows, categories]: a hash of seed, row, position and category."""
    low, high, at = np.array([seed & 0xFFFFFFFF, seed >> 32, position], np.uint32)[:, None, None]
    golden = np.uint32(0x9E3779B9)
    words = [mix((low ^ high) + golden), mix((low ^ np.uint32(0x5851F42D) ^ mix(high)) + golden)]
    for counter in (rows.astype(np.uint32)[:, None], at):
        words = [mix((word ^ counter) + golden) for word in words]
    bits = mix(mix(np.arange(categories, dtype=np.uint32) * golden + words[0]) ^ words[1])
    return np.asarray(((bits >> np.uint32(9)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23))


def gumbel(x: Array) -> Array:
    """Turn uniform numbers into Gumbel noise. Logarithms in float64, then rounded: the same on every machine."""
    for _ in range(2):
        x = -np.log(x.astype(np.float64)).astype(np.float32)
    return x


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


def load_network(path: Path, runtime: str, threads: int | None) -> Callable[..., Any]:
    """Return a network as a function of arrays, in the order of its inputs."""
    if runtime == "aoti":
        import torch

        torch.set_num_threads(threads or torch.get_num_threads())
        package = torch._inductor.aoti_load_package(str(path))
        return lambda *arrays: [tensor.numpy() for tensor in package(*map(torch.from_numpy, arrays))]
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a type for every cause
        raise ValueError(f"{path} cannot be loaded; export the model again ({str(error).splitlines()[0]})") from error
    names = [one.name for one in session.get_inputs()]
    return lambda *arrays: session.run(None, dict(zip(names, arrays, strict=True)))


class Runner:
    """The exported model of a directory."""

    def __init__(self, folder: str | Path = Path(__file__).parent, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        description = Path(folder) / "model.json"
        try:
            self.facts = facts = json.loads(description.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{description} cannot be read; export the model again ({error})") from error
        self.length, self.codebook_size, self.start = facts["length"], facts["codebook_size"], facts["start"]
        paths = [Path(folder) / facts["files"][network]["name"] for network in ("prior", "decoder")]
        self._prior, self._decoder = (load_network(path, facts["runtime"], threads) for path in paths)
        self._seconds: dict[int, tuple[deque[float], deque[float]]] = {}  # of the last steps and decodes, by number of rows

    def sample(
        self, n: int = 1, *, seed: int = 0, prefix: Array | None = None, first: int = 0, temperature: float | None = None,
        top_k: int | None = None, top_p: float | None = None, codes: int | None = None, within: float | None = None,
        stop: Any = None,
    ) -> Sample:  # fmt: skip
        """Generate `n` rows, numbered from `first`: all codes or `codes`, in at most `within` seconds, or until `stop` is set.

        At least one code is sampled. The state takes memory in proportion to `n`: generate thousands of rows in parts.
        """
        settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        settings = {name: self.facts["settings"][name] if value is None else value for name, value in settings.items()}
        if n < 1:
            raise ValueError(f"n must be at least 1, not {n}")
        given = np.atleast_2d(np.zeros((1, 0), np.int64) if prefix is None else prefix)
        if len(given) not in (1, n):
            raise ValueError(f"prefix must have 1 row or {n} rows, not {len(given)}")
        given, rows = np.broadcast_to(given, (n, given.shape[1])), np.arange(first, first + n)
        empty = Sample(np.empty(0), given, rows, seed, settings, 0.0, self.facts["model"])
        return self.refine(empty, codes=codes, within=within, stop=stop)

    def refine(self, sample: Sample, *, codes: int | None = None, within: float | None = None, stop: Any = None) -> Sample:
        """Continue a sample; the codes are those of one uninterrupted run."""
        self._check(sample, target := self.length if codes is None else codes, within)
        n, count = sample.codes.shape
        if within is not None and n not in self._seconds:
            self._warm_up(sample)
        began = time.perf_counter()
        steps, decodes = self._seconds.setdefault(n, (deque(maxlen=16), deque(maxlen=16)))
        tokens, cache, fed = np.full((n, target + 1), self.start), self._cache(n, target), 0
        tokens[:, 1 : count + 1] = sample.codes  # after the start symbol
        while count < target:
            now = time.perf_counter()
            late = within is not None and now - began + max(steps) + max(decodes) > within
            if count and (late or (stop is not None and stop.is_set())):
                break
            logits = self._feed(tokens[:, fed : count + 1], fed, cache)[:, -1]
            noise = gumbel(uniform(sample.seed, sample.rows, count, self.codebook_size))
            tokens[:, count + 1] = (filter_logits(logits, **sample.settings) + noise).argmax(-1)
            if fed == count:  # not a prefix, which takes longer
                steps.append(time.perf_counter() - now)
            fed = count = count + 1
        now, made = time.perf_counter(), tokens[:, 1 : count + 1]
        data = self.decode(made)
        decodes.append(time.perf_counter() - now)
        return replace(sample, data=data, codes=made, seconds=time.perf_counter() - began)

    def decode(self, codes: Array) -> Array:
        """Return complete data of any number of codes, [n, 0 … length]; latents of missing codes are zero."""
        parts = np.split(self._checked(codes), range(DECODE_ROWS, len(codes), DECODE_ROWS))
        return np.concatenate([self._decoder(np.ascontiguousarray(part))[0] for part in parts])

    def logits(self, codes: Array) -> Array:
        """Return the logits of every code given those before it, [n, count, codebook_size], in one parallel pass."""
        tokens = np.insert(self._checked(codes)[:, :-1], 0, self.start, axis=1)
        return self._feed(tokens, 0, self._cache(*tokens.shape))

    def _cache(self, n: int, capacity: int) -> Array:
        return np.zeros((2 * self.facts["layers"], n, self.facts["heads"], capacity, self.facts["head_dim"]), np.float32)

    def _feed(self, tokens: Array, position: int, cache: Array) -> Array:
        """Feed tokens [n, count] from a position on, write their keys and values into the cache, return the logits."""
        logits, new = self._prior(np.ascontiguousarray(tokens), np.array([position]), *cache)
        cache[:, :, :, position : position + tokens.shape[1]] = new
        return np.asarray(logits)

    def _warm_up(self, sample: Sample) -> None:
        """Measure steps and a decode before the deadline's clock begins; the first ones take longer and do not count."""
        for _ in range(2):
            self._seconds.pop(len(sample.rows), None)
            self.refine(replace(sample, codes=sample.codes[:, :0]), codes=min(2, self.length))

    def _check(self, sample: Sample, target: int, within: float | None) -> None:
        if sample.model != self.facts["model"]:
            raise ValueError(f"the sample is of another model ({sample.model[:12]}…)")
        n, count = self._checked(sample.codes).shape
        temperature, top_k, top_p = (sample.settings[name] for name in ("temperature", "top_k", "top_p"))
        for holds, sentence in (
            (max(1, count) <= target <= self.length, f"codes must be in {max(1, count)} … {self.length}, not {target}"),
            (within is None or within > 0, f"within must be above 0 seconds, not {within}"),
            (1e-3 <= temperature <= 100, f"temperature must be in 0.001 … 100, not {temperature}"),
            (top_k is None or top_k >= 1, f"top_k must be at least 1, not {top_k}"),
            (top_p is None or 0 < top_p <= 1, f"top_p must be above 0 and at most 1, not {top_p}"),
            (0 <= sample.seed < 2**63, f"seed must be in 0 … 2^63 - 1, not {sample.seed}"),
            (sample.rows.shape == (n,) and n > 0, f"rows must be {n} numbers, at least one, not {list(sample.rows.shape)}"),
            (sample.rows.dtype.kind in "iu", f"rows must be integers, not {sample.rows.dtype}"),
        ):
            if not holds:
                raise ValueError(sentence)

    def _checked(self, codes: Array) -> Array:
        if codes.dtype.kind not in "iu" or codes.ndim != 2 or codes.shape[1] > self.length:
            raise ValueError(f"codes must be integers [n, up to {self.length}], not {codes.dtype} {list(codes.shape)}")
        if codes.size and not 0 <= codes.min() <= codes.max() < self.codebook_size:
            raise ValueError(f"codes must be between 0 and {self.codebook_size - 1}")
        return codes.astype(np.int64)


def seconds(text: str) -> float:
    """Read a time such as 50ms, 2s or 0.5."""
    return float(text[:-2]) / 1e3 if text.endswith("ms") else float(text.removesuffix("s"))


def codes(text: str) -> Array:
    """Read codes such as 3,17."""
    return np.array([[int(code) for code in text.split(",")]])


def main() -> None:
    """Sample or refine from the command line."""
    parser = argparse.ArgumentParser(description="Sample from the exported model beside this file.", usage=argparse.SUPPRESS)
    parser.add_argument("-n", type=int, help="number of rows, 1 by default")
    parser.add_argument("--within", type=seconds, help="deadline, such as 50ms or 2s")
    parser.add_argument("--prefix", type=codes, help="first codes of every row, such as 3,17")
    parser.add_argument("--refine", help="an .npz file of samples to continue")
    for flag in ("seed", "codes", "top-k", "threads"):
        parser.add_argument(f"--{flag}", type=int)
    for flag in ("temperature", "top-p"):
        parser.add_argument(f"--{flag}", type=float)
    parser.add_argument("--out", default="samples.npz")
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    out, refine = Path(given.pop("out")), given.pop("refine", None)
    try:
        if not out.absolute().parent.is_dir():
            raise ValueError(f"{out} cannot be written: there is no directory {out.parent}; make it first")
        if out.is_dir():
            raise ValueError(f"{out} is a directory; name a file, such as {out / 'samples.npz'}")
        runner = Runner(threads=given.pop("threads", None))
        if refine is None:
            sample = runner.sample(**given)
        else:
            if superfluous := given.keys() - {"codes", "within"}:
                raise ValueError(f"{min(superfluous)} is that of the samples to refine; leave it out")
            sample = runner.refine(load_sample(refine), **given)
        sample.save(out)
    except (MemoryError, OverflowError):
        parser.error("there is not enough memory for that many rows; generate them in parts")
    except (ValueError, OSError, ImportError) as error:
        parser.error(str(error))
    print(f"{out}: {len(sample.codes)} x {sample.codes.shape[1]} codes of {runner.length}, {1e3 * sample.seconds:.1f} ms")


if __name__ == "__main__":
    main()
