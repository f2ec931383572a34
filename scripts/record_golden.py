"""Record what fixed seeds produce, or check that they still produce it: codes, trained weights and published numbers.

    python scripts/record_golden.py            record everything in tests/golden/golden.json
    python scripts/record_golden.py --check    compare with it: one line per item, exit 1 on a difference

Only `anytime.load` and the command line are used, and tensors are compared without their names, so modules may be renamed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import anytime
from anytime.core.results import results_files

Item = dict[str, Any]

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden" / "golden.json"
SECTIONS = ("codes", "results", "training")
TRAININGS = (
    "digits --recipe best", "mnist --recipe paper", "mnist --recipe best", "mnist --recipe original",
    "mnist --recipe vae", "mnist --recipe pca", "mnist --recipe pixels", "mnist --recipe paper --truncation full",
    "mnist --recipe paper --prior lstm", "mnist --recipe paper --prior pixelcnn",
    "cifar10 --recipe paper", "cifar10 --recipe best", "cifar10 --recipe paper --layout spatial",
    "audiomnist --recipe paper", "audiomnist --recipe best",
)  # fmt: skip
WITHOUT_CODES = ("vae", "pca", "pixels")  # recipes whose models have no codes to sample


def sampled_codes(name: str, seed: int) -> Item:
    """Sample all codes of a bundled model, 1 row and 64 rows."""
    one, many = (_sample(name, rows, seed) for rows in (1, 64))
    first = {"first_row": one[0].tolist(), "first_rows_agree": torch.equal(one[0], many[0])}
    return {"batch_1": _digest(one), "batch_64": _digest(many), **first}


def trained(words: str) -> Item:
    """Train at smoke scale on synthetic data, in a new process; return digests of the weights and of 4 samples' codes."""
    with tempfile.TemporaryDirectory() as folder:
        run, source = Path(folder, "run"), str(Path(anytime.__file__).parents[1])
        # The cache is a new folder: real data found there would replace the synthetic.
        changes = {"ANYTIME_CACHE": str(Path(folder, "cache")), "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
        flags = ["--scale", "smoke", "--device", "cpu", "--out", str(run)]
        command = [sys.executable, "-m", "anytime", "train", *words.split(), *flags]
        done = subprocess.run(command, env=os.environ | changes, capture_output=True, text=True)
        if done.returncode:
            return {"error": done.stderr.strip()[-500:]}
        item: Item = {"weights": weights_digest(run / "model" / "model.safetensors")}
        if not set(words.split()) & set(WITHOUT_CODES):
            item["codes"] = _digest(_sample(run, 4, seed=0))
        return item


def weights_digest(path: Path) -> str:
    """Digest of the sorted shapes, types and bytes of all tensors in a file, without their names."""
    facts = sorted((list(tensor.shape), str(tensor.dtype), _digest(tensor)) for tensor in load_file(path).values())
    return _sha256(json.dumps(facts).encode())


def published(path: Path) -> Item:
    """Count and digest the numbers in the rows of a results file, in document order."""
    numbers = [repr(number) for number in _numbers(json.loads(path.read_text())["rows"])]
    return {"numbers": len(numbers), "sha256": _sha256("\n".join(numbers).encode())}


def environment() -> Item:
    """What may change how floats are rounded."""
    capability, system = torch.backends.cpu.get_cpu_capability(), f"{platform.system()} {platform.machine()}"
    return {"torch": torch.__version__, "capability": capability, "platform": system}


def items(section: str) -> dict[str, Callable[[], Item]]:
    """Names of a section's items, each with the function that computes it."""
    if section == "codes":
        return {f"{name} seed {seed}": partial(sampled_codes, name, seed) for name in ("mnist", "cifar10") for seed in range(4)}
    if section == "training":
        return {words: partial(trained, words) for words in TRAININGS}
    return {f"{path.parent.name}/{path.stem}": partial(published, path) for path in results_files(ROOT / "results")}


def _sample(name: str | Path, rows: int, seed: int) -> torch.Tensor:
    torch.set_num_threads(1)
    return anytime.load(name, device="cpu", engine="eager").sample(rows, seed=seed).codes.to(torch.int64)


def _numbers(value: object) -> Iterator[int | float]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numbers(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _digest(tensor: torch.Tensor) -> str:
    return _sha256(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _text(golden: dict[str, Item]) -> str:
    """JSON with sorted keys and one line per item."""
    sections = []
    for section, found in sorted(golden.items()):
        lines = (f"  {json.dumps(name)}: {json.dumps(item, sort_keys=True)}" for name, item in sorted(found.items()))
        sections.append(f' "{section}": {{\n' + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SECTIONS, help="one section; by default all")
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    parser.add_argument("--out", type=Path, default=GOLDEN, metavar="FILE", help="file to write or compare with")
    arguments = parser.parse_args()
    golden = json.loads(arguments.out.read_text()) if arguments.check or arguments.out.exists() else {}
    if arguments.check and golden["environment"] != environment():
        print(f"recorded with {golden['environment']}, now {environment()}: trained weights may differ")
    wrong = 0
    for section in (arguments.only,) if arguments.only else SECTIONS:
        found, recorded, golden[section] = items(section), golden.get(section, {}) if arguments.check else {}, {}
        for name in sorted(found.keys() | recorded.keys()):
            item = golden[section][name] = found[name]() if name in found else {"error": "no longer there"}
            good = item == recorded.get(name) if arguments.check else "error" not in item
            verdict = ("equal" if arguments.check else "recorded") if good else "DIFFERENT"
            print(f"{verdict:<9} {section}: {name} {item.get('error', '')}".rstrip(), flush=True)
            wrong += not good
    if not arguments.check and not wrong:
        arguments.out.write_text(_text(golden | {"environment": environment()}))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
