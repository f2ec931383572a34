"""Measure the code: sizes, annotations, docstrings, and how many files a command's main path runs through.

    python scripts/code_metrics.py [--paths] [--out FILE]

`--paths` also runs `train`, `sample`, `reproduce fid` and `evaluate` at smoke scale. `files` counts the files in
which a function was called. `package_changes` counts changes of package along the functions, in the order of their first call.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "anytime"
METHOD = ("autoencoders", "priors", "baselines", "sampling", "model.py", "training", "recipes")
"""Where the method, what the paper compares it with, and their training live."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def sizes(source: Path) -> dict[str, object]:
    """Files, lines, lengths, annotated and documented shares, lines by package."""
    files = sorted(source.rglob("*.py"))
    trees = {path: ast.parse(path.read_text()) for path in files}
    lines = {path: len(path.read_text().splitlines()) for path in files}
    functions = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, Function)]
    public = [node for tree in trees.values() for node in _public(tree)]
    by_package = Counter[str]()
    for path, count in lines.items():
        by_package[path.relative_to(source).parts[0]] += count
    method = sum(count for name, count in by_package.items() if name in METHOD)
    return {
        "files": len(files),
        "lines": sum(lines.values()),
        "file_lines": _spread(list(lines.values())),
        "function_lines": _spread([(node.end_lineno or 0) - node.lineno + 1 for node in functions]),
        "annotated": round(sum(map(_annotated, functions)) / len(functions), 4),
        "documented": round(sum(ast.get_docstring(node) is not None for node in public) / len(public), 4),
        "method_and_training": round(method / sum(lines.values()), 4),
        "modules_by_package": dict(sorted(Counter(path.relative_to(source).parts[0] for path in files).items())),
        "lines_by_package": dict(sorted(by_package.items())),
    }


def _spread(values: list[int]) -> dict[str, float]:
    return {"median": statistics.median(values), "p90": statistics.quantiles(values, n=10)[-1]}


def _annotated(node: Function) -> bool:
    named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    named = [argument for argument in named if argument.arg not in ("self", "cls")]
    return node.returns is not None and all(argument.annotation is not None for argument in named)


def _public(tree: ast.Module) -> Iterator[ast.Module | ast.ClassDef | Function]:
    """The module, and its public classes, functions and methods; dataclass fields and overloads do not count."""
    yield tree
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from (each for each in node.body if isinstance(each, Function) and not each.name.startswith("_"))


TRACER = """
import os, sys, threading
root, out = sys.argv[1], sys.argv[2]
seen = {}
def profile(frame, event, argument):
    if event == "call":
        code = frame.f_code
        if code not in seen and code.co_filename.startswith(root):
            if code.co_flags & 1 and not code.co_name.startswith(("<", "__")):  # a named function, no class body
                seen[code] = len(seen)
sys.argv = ["anytime", *sys.argv[3:]]
sys.setprofile(profile); threading.setprofile(profile)
try:
    from anytime.cli import main
    main()
finally:
    sys.setprofile(None)
    open(out, "w").write("\\n".join(code.co_filename for code in seen))
"""


def main_path(source: Path, arguments: list[str], folder: Path) -> dict[str, int]:
    """Files and package changes of one command."""
    out = folder / "calls"
    subprocess.run(
        [sys.executable, "-c", TRACER, str(source), str(out), *arguments],
        check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(source.parent), "XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    called = [Path(line).relative_to(source) for line in out.read_text().splitlines()]
    packages = [path.parts[0] for path in called]
    changes = sum(before != after for before, after in pairwise(packages))
    return {"functions": len(called), "files": len(set(called)), "package_changes": changes}


def paths(source: Path) -> dict[str, dict[str, int]]:
    """The main paths of four commands, in a folder of their own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = {
            "train": ["train", "digits", "--scale", "smoke", "--out", "run", "--device", "cpu"],
            "sample": ["sample", "mnist", "-n", "4", "--out", "x.png", "--device", "cpu"],
            "reproduce fid": ["reproduce", "fid", "--scale", "smoke", "--device", "cpu"],
            "evaluate": ["evaluate", "run", "--scale", "smoke", "--device", "cpu"],
        }
        return {name: main_path(source, arguments, folder) for name, arguments in commands.items()}


def main() -> None:
    """Print the numbers as JSON, and write them to --out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paths", action="store_true", help="follow the main paths of four commands (a minute)")
    parser.add_argument("--source", type=Path, default=SOURCE, help="the package to measure")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    source = arguments.source.resolve()
    found = sizes(source) | ({"main_paths": paths(source)} if arguments.paths else {})
    text = json.dumps(found, indent=2)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
