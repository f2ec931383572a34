"""Sample from the exported model beside this file: the command line, its files, and checks of what it is given.

python sample.py -n 4 --seed 0 --codes 8 --within 50ms --prefix 3,17 --out samples.npz
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array

from anytime.export.runner import Runner, Sample

NUMBER, OR_NONE = (int, float), type(None)
FIELDS: dict[str, Any] = {"codes": Array, "rows": Array, "seed": int, "model": str, "settings": dict}
SETTINGS: dict[str, Any] = {"temperature": NUMBER, "top_k": (int, OR_NONE), "top_p": (*NUMBER, OR_NONE)}


def save_sample(sample: Sample, path: str | Path) -> None:
    """Write an .npz file, with the fields of those of `anytime sample`."""
    with Path(path).open("wb") as file:  # by its path, numpy would add a suffix
        np.savez(file, **{**vars(sample), "seed": np.uint64(sample.seed), "settings": json.dumps(sample.settings)})


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


def load_compiled(path: Path, threads: int | None) -> Callable[..., Any]:
    """Return a network of `--to aoti` as a function of arrays."""
    import torch

    torch.set_num_threads(threads or torch.get_num_threads())
    package = torch._inductor.aoti_load_package(str(path))
    return lambda *arrays: [tensor.numpy() for tensor in package(*map(torch.from_numpy, arrays))]


class CheckedRunner(Runner):
    """A runner for both formats that refuses a damaged export and wrong arguments, each with one sentence."""

    def __init__(self, folder: str | Path = Path(__file__).parent, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        try:
            super().__init__(folder, threads)
        except (OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{Path(folder) / 'model.json'} cannot be read; export the model again ({error})") from error

    def load_network(self, path: Path, threads: int | None) -> Callable[..., Any]:
        """Return a network as a function of arrays."""
        try:
            return load_compiled(path, threads) if path.suffix == ".pt2" else super().load_network(path, threads)
        except ImportError:
            raise
        except Exception as error:  # onnxruntime has a type for every cause
            raise ValueError(f"{path} cannot be loaded; export the model again ({str(error).splitlines()[0]})") from error

    def sample(self, n: int = 1, *, prefix: Array | None = None, **options: Any) -> Sample:
        """Generate `n` rows, as `Runner.sample` does."""
        if n < 1:
            raise ValueError(f"n must be at least 1, not {n}")
        if prefix is not None and (count := len(np.atleast_2d(prefix))) not in (1, n):
            raise ValueError(f"prefix must have 1 row or {n} rows, not {count}")
        return super().sample(n, prefix=prefix, **options)

    def refine(self, sample: Sample, *, codes: int | None = None, within: float | None = None, stop: Any = None) -> Sample:
        """Continue a sample, as `Runner.refine` does."""
        if sample.model == self.facts["model"]:  # `Runner` refuses another one
            self._check(sample, self.length if codes is None else codes, within)
        return super().refine(sample, codes=codes, within=within, stop=stop)

    def _check(self, sample: Sample, target: int, within: float | None) -> None:
        n, count = self._checked(sample.codes).shape
        temperature, top_k, top_p = (sample.settings[name] for name in SETTINGS)
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
        runner = CheckedRunner(threads=given.pop("threads", None))
        if refine is None:
            sample = runner.sample(**given)
        else:
            if superfluous := given.keys() - {"codes", "within"}:
                raise ValueError(f"{min(superfluous)} is that of the samples to refine; leave it out")
            sample = runner.refine(load_sample(refine), **given)
        save_sample(sample, out)
    except (MemoryError, OverflowError):
        parser.error("there is not enough memory for that many rows; generate them in parts")
    except (ValueError, OSError, ImportError) as error:
        parser.error(str(error))
    print(f"{out}: {len(sample.codes)} x {sample.codes.shape[1]} codes of {runner.length}, {1e3 * sample.seconds:.1f} ms")


if __name__ == "__main__":
    main()
