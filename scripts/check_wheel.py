"""Build the wheel and the sdist, check their contents, and use the wheel in a fresh environment outside the clone.

    python scripts/check_wheel.py [--keep DIR] [--python FILE ...] [--record FILE] [--no-install]

The fresh environment borrows torch and what torch requires from this one, by links, because torch is large. pip installs
everything else from the wheel's metadata. There the README's first commands and its Python example run in an empty folder.
Other Pythons (`--python`, by default any python3.12 to python3.14 on the PATH or of pyenv) compile the wheel's files and run
`anytime --help`, without torch or any other package.
"""

from __future__ import annotations

import argparse
import contextlib
import email
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import hatchling.build
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 30e6  # bytes of the wheel and of the sdist
REQUIRED = (
    "anytime/py.typed",
    "anytime/data/embedded/digits.xz",
    "anytime/models/mnist/model.safetensors",
    "anytime/models/cifar10/model.safetensors",
    "anytime/server/static/index.html",
)
LICENCES = {"LICENSE": "MIT License", "LICENSE-CC-BY-SA-3.0": "Attribution-ShareAlike 3.0 Unported"}
NOT_SHIPPED = {"tests", "results", "runs", "benchmarks", "docs", "__pycache__"}
PYTHONS = ("python3.12", "python3.13", "python3.14")


def build(folder: Path) -> tuple[Path, Path]:
    """Build the wheel and the sdist of this tree into `folder`."""
    with contextlib.chdir(ROOT):
        return folder / hatchling.build.build_wheel(str(folder)), folder / hatchling.build.build_sdist(str(folder))


def variables() -> dict[str, str]:
    """Return the environment variables without those of this Python and of a git hook."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "GIT_"))}


def package_files() -> set[str]:
    """Return the files of the package that git tracks, or would track, as the wheel names them."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "src/anytime"]
    listed = subprocess.run(command, env=variables(), capture_output=True, text=True, check=True).stdout.splitlines()
    return {name.removeprefix("src/") for name in listed if (ROOT / name).is_file()}


def wheel_problems(wheel: Path) -> Iterator[str]:
    """Say what is missing from the wheel, and what should not be in it."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        yield from _size_problems(wheel)
        yield from (f"{name} is missing" for name in REQUIRED if name not in names)
        packed = {name for name in names if ".dist-info/" not in name}
        yield from (f"{name} is missing" for name in sorted(package_files() - packed))
        yield from (f"{name} is not a file of the package" for name in sorted(packed - package_files()))
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        yield from _metadata_problems(email.message_from_bytes(archive.read(metadata)))
        for name, text in LICENCES.items():
            path = metadata.replace("METADATA", f"licenses/{name}")
            if path not in names or text not in archive.read(path).decode():
                yield f"{path} is missing or does not hold the text of its licence"


def _size_problems(file: Path) -> Iterator[str]:
    if file.stat().st_size > LARGEST:
        yield f"{file.name} has {file.stat().st_size / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f} MB"


def _metadata_problems(metadata: email.message.Message) -> Iterator[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    expected = {
        "Name": project["name"],
        "Version": project["version"],
        "License-Expression": project["license"],
        "Requires-Python": project["requires-python"],
    }
    for name, value in expected.items():
        if metadata[name] != value:
            yield f"METADATA has {name} {metadata[name]!r} instead of {value!r}"


def sdist_problems(sdist: Path, wheel: Path, folder: Path) -> Iterator[str]:
    """Say what should not be in the sdist, and whether it builds another wheel than the tree."""
    yield from _size_problems(sdist)
    with tarfile.open(sdist) as archive:
        names = [Path(name).parts[1:] for name in archive.getnames()]
        yield from (f"the sdist holds {'/'.join(parts)}" for parts in names if parts[0] in NOT_SHIPPED)
        archive.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    with contextlib.chdir(tree):
        again = tree / hatchling.build.build_wheel(str(tree))
    if again.read_bytes() != wheel.read_bytes():
        yield "the wheel built from the sdist differs from the wheel built from the tree"


def closure(name: str) -> dict[str, Distribution]:
    """Return an installed distribution and those it requires, directly or not."""
    found: dict[str, Distribution] = {}
    waiting = [name]
    while waiting:
        name = waiting.pop()
        with contextlib.suppress(PackageNotFoundError):  # required on another platform only
            if name not in found:
                found[name] = distribution(name)
                needed = map(Requirement, found[name].requires or ())
                waiting += [r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


def make_environment(folder: Path) -> Path:
    """Make an environment with only torch and what torch requires, linked from this one; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    borrowed = folder / "borrowed"
    borrowed.mkdir()
    for installed in closure("torch").values():
        tops = {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}
        for top in tops:
            with contextlib.suppress(FileExistsError):  # a folder that two distributions share
                (borrowed / top).symlink_to(Path(str(installed.locate_file(top))))
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(f"{borrowed}\n")
    return folder / "bin" / "python"


def run(*words: str | Path, cwd: Path) -> float:
    """Run a command without a trace of the clone in its variables; return its CPU seconds. Exit if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=variables(), capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{shlex.join(map(str, words))} failed with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 3)


def readme_commands() -> list[list[str]]:
    """Return the commands of the README's first block that samples."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    block = next(block for block in blocks if "anytime sample" in block)
    return [shlex.split(line, comments=True) for line in block.splitlines() if line.startswith("anytime ")]


def readme_example() -> str:
    """Return the README's Python example."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    return str(block)


def use(wheel: Path, folder: Path) -> dict[str, float]:
    """Install the wheel into a fresh environment and use it from an empty folder; return CPU seconds by command."""
    python, empty = make_environment(folder / "environment"), folder / "empty"
    empty.mkdir()
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    run(*pip, "install", "--quiet", "-c", ROOT / "constraints.txt", wheel, cwd=empty)
    run(*pip, "check", cwd=empty)
    if list(python.parents[1].glob("lib/python*/site-packages/torch")):
        sys.exit("pip installed another torch beside the one that is there; look at the wheel's requirements")
    program = python.with_name("anytime")
    where = "import anytime, pathlib, sys; assert pathlib.Path(anytime.__file__).is_relative_to(sys.prefix), anytime.__file__"
    run(python, "-c", where, cwd=empty)
    first: dict[str, list[str | Path]] = {
        'python -c "import anytime"': [python, "-c", "import anytime"],
        "anytime --help": [program, "--help"],
        "anytime sample --help": [program, "sample", "--help"],
        "anytime sample mnist": [program, "sample", "mnist"],
    }
    seconds = {name: run(*words, cwd=empty) for name, words in first.items()}
    for _, *words in readme_commands():
        seconds[shlex.join(["anytime", *words])] = run(program, *words, cwd=empty)
    seconds["the README's Python example"] = run(python, "-c", readme_example(), cwd=empty)
    return seconds


def compile_with(python: str, wheel: Path, folder: Path) -> None:
    """Compile the wheel's files and run what needs no other package, with another Python."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    run(python, "-W", "error", "-m", "compileall", "-q", folder, cwd=folder)
    run(python, "-m", "anytime", "--help", cwd=folder)
    run(python, "-c", "import anytime; assert 'load' in dir(anytime)", cwd=folder)


def other_pythons() -> list[str]:
    """Return the other Pythons on the PATH, or else of pyenv, that start."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = list[str]()
    for name in PYTHONS:
        known = [shutil.which(name), *map(str, sorted(pyenv.glob(f"versions/*/bin/{name}")))]
        found += [path for path in known if path and _starts(path)][:1]
    return found


def _starts(python: str) -> bool:
    """Return whether a Python starts; a shim of pyenv may stand for none."""
    return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="copy the wheel and the sdist there if all is well")
    parser.add_argument("--python", action="append", metavar="FILE", help="another Python that compiles the files")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write sizes and seconds as JSON")
    parser.add_argument("--no-install", action="store_true", help="look at the files only")
    return parser.parse_args(argv)


def check(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Do all checks in `folder`; return sizes and seconds. Exit with a sentence at the first check that fails."""
    for name in ("built", "sdist", "use"):
        (folder / name).mkdir()
    wheel, sdist = build(folder / "built")
    for problems in (wheel_problems(wheel), sdist_problems(sdist, wheel, folder / "sdist")):
        if sentences := list(problems):
            sys.exit("\n".join(sentences))
    for file in (wheel, sdist):
        print(f"{file.name}: {file.stat().st_size / 1e6:.2f} MB", flush=True)
    pythons = arguments.python or other_pythons()
    for number, python in enumerate(pythons):
        compile_with(python, wheel, folder / f"python-{number}")
        print(f"{python}: compiles, and answers --help", flush=True)
    seconds = {} if arguments.no_install else use(wheel, folder / "use")
    for name, value in seconds.items():
        print(f"{value:6.2f} CPU s  {name}")
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        for file in (wheel, sdist):
            shutil.copy(file, arguments.keep)
    return {"bytes": {file.name: file.stat().st_size for file in (wheel, sdist)}, "cpu_seconds": seconds}


def main(argv: Sequence[str] | None = None) -> None:
    """Check the wheel and the sdist of this tree."""
    arguments, started = parse(argv), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="anytime-wheel-") as folder:
        found = check(arguments, Path(folder))
    print(f"the wheel and the sdist are well ({time.monotonic() - started:.0f} s)")
    if arguments.record:
        write_record(arguments.record, found, shlex.join(["python", "scripts/check_wheel.py", *(argv or sys.argv[1:])]))


def write_record(path: Path, found: dict[str, Any], command: str) -> None:
    """Write sizes and seconds with the command, the hardware and the commit."""
    import torch

    from anytime.core.environment import environment
    from anytime.core.storage import write_json

    write_json(path, {"format": 1, "environment": environment(torch.device("cpu")), "command": command, **found})


if __name__ == "__main__":
    main()
