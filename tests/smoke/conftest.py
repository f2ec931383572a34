"""Commands in their own processes, and directories that all parallel workers share."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import anytime
from anytime.cli import main
from anytime.core.errors import UserError
from anytime.core.storage import read_tensors
from anytime.experiments.registry import EXPERIMENTS

collect_ignore = ["conftest.py", "rank.py"]  # no doctests here, and other directories have modules of the same name
TIMEOUT = 280  # seconds to wait for a process that should answer within a few; a machine may be very busy


@dataclass(frozen=True)
class Launcher:
    """Starts `python -m anytime`, also under torchrun, with its own cache."""

    cache: Path

    @property
    def environment(self) -> dict[str, str]:
        source = str(Path(anytime.__file__).parents[1])
        return os.environ | {"PYTHONPATH": source, "ANYTIME_CACHE": str(self.cache)}

    def run(self, *words: object, limit_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; with `limit_bytes`, no file can grow larger."""
        command = [sys.executable, "-m", "anytime", *map(str, words)]
        if limit_bytes is not None:
            command = ["bash", "-c", f'ulimit -f {limit_bytes // 1024}; exec "$@"', "bash", *command]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=TIMEOUT)

    def start(self, *words: object, stderr_path: Path, ranks: int = 1) -> subprocess.Popen[bytes]:
        """Start a command in its own process group, with stderr in a file."""
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
        command = [sys.executable, *torchrun, "-m", "anytime", *map(str, words)]
        with stderr_path.open("wb") as stderr:
            return subprocess.Popen(
                command, env=self.environment, stdout=subprocess.DEVNULL, stderr=stderr, start_new_session=True
            )

    def kill_when(self, condition: Callable[[], bool], *words: object, stderr_path: Path, ranks: int = 1) -> bool:
        """Start a command and kill it, with all its ranks, when `condition` holds; return False if it ended before."""
        process = self.start(*words, stderr_path=stderr_path, ranks=ranks)
        deadline = time.monotonic() + TIMEOUT
        try:
            while process.poll() is None and not condition():
                assert time.monotonic() < deadline, stderr_path.read_text()[-2000:]
                time.sleep(0.002)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.returncode in (0, -signal.SIGKILL), stderr_path.read_text()[-2000:]
        return process.returncode != 0

    @staticmethod
    def steps(run: Path) -> int:
        """Return the number of steps of all stages in the newest checkpoint."""
        return int(newest(run).get("total_steps", 0))

    def kill_inside(
        self, stage: str, run: Path, *words: object, stderr_path: Path, after: int = 3, ranks: int = 1
    ) -> dict[str, Any]:
        """Kill a command inside a stage, `after` some steps of it; return the metadata of its newest checkpoint."""
        assert self.kill_when(lambda: _inside(newest(run), stage, after), *words, stderr_path=stderr_path, ranks=ranks)
        return newest(run)


def _inside(facts: dict[str, Any], stage: str, after: int) -> bool:
    return facts.get("stage") == stage and facts["step"] >= after


def newest(run: Path) -> dict[str, Any]:
    """Return the metadata of the newest checkpoint of a run; empty before the first."""
    for path in sorted((run / "checkpoints").glob("step-*.safetensors"), reverse=True):
        try:
            return read_tensors(path)[1]
        except (UserError, OSError):  # removed in the meantime: there is a newer one
            continue
    return {}


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return Launcher(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """`once(name, make)`: a directory that `make` fills once, in whichever parallel worker comes first."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def build(name: str, make: Callable[[Path], None]) -> Path:
        folder, done = shared / name, shared / f"{name}.done"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                make(folder)
                done.touch()
        return folder

    return build


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The last line on stderr, which must be the one sentence of a mistake."""
        last = self.err.splitlines()[-1]
        assert self.status == 2
        assert last.startswith("anytime: ")
        assert "Traceback" not in self.err
        assert self.err.count("anytime: ") == 1
        return last


@pytest.fixture
def run_cli(capsys: pytest.CaptureFixture[str], launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """`run_cli("train", …)`: a command in this process, which is faster than starting one."""
    monkeypatch.setenv("ANYTIME_CACHE", str(launcher.cache))

    def give(*words: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        stderr_path = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Outcome(end.value.code, stderr_path.out, stderr_path.err)

    return give


DECAY = "model.autoencoder.quantizer.ema_decay=0.6"  # codes die within a dozen steps, so that they are revived at smoke scale
RECIPES = {
    "paper": ("train", "digits", "--scale", "smoke", "--recipe", "paper"),
    "best": ("train", "digits", "--scale", "smoke", "--recipe", "best", "--set", DECAY),
}
"""A codebook trained by gradients, and an EMA codebook with revived dead codes."""
LONGER = ("--set", "pretrain.epochs=6", "--set", "ordered.epochs=6", "--set", "prior.epochs=6")


@pytest.fixture(scope="session")
def finished(once: Callable[[str, Callable[[Path], None]], Path], launcher: Launcher) -> Callable[[str], Path]:
    """`finished("best")`: an uninterrupted run of a recipe, 48 steps per stage, with its output beside it in .out and .err."""

    def make(recipe: str, run: Path) -> None:
        done = launcher.run(*RECIPES[recipe], *LONGER, "--json", "--out", run)
        assert done.returncode == 0, done.stderr
        run.with_suffix(".out").write_text(done.stdout)
        run.with_suffix(".err").write_text(done.stderr)

    return lambda recipe: once(f"finished-{recipe}", lambda run: make(recipe, run))


@pytest.fixture(scope="session")
def command_of() -> Callable[[str, Path], tuple[str, ...]]:
    """The command that made `finished(recipe)`, for another run directory."""
    return lambda recipe, run: (*RECIPES[recipe], *LONGER, "--out", str(run))


@pytest.fixture
def appendix_runs(
    experiment_runs: Path, run_cli: Callable[..., Outcome], once: Callable[[str, Callable[[Path], None]], Path]
) -> Path:  # fmt: skip
    """`experiment_runs` and the runs of the appendix; the stderr of each experiment is in NAME.err."""

    def make(folder: Path) -> None:
        shutil.copytree(experiment_runs, folder, dirs_exist_ok=True)
        for name in (
            name for name, experiment in EXPERIMENTS.items() if experiment.figure.startswith(("Appendix C", "Appendix D"))
        ):
            words = ("--dataset", "digits", "--scale", "smoke", "--runs-dir", folder, "--out", folder / "results")
            outcome = run_cli("reproduce", name, *words)
            assert outcome.status == 0, outcome.err
            (folder / f"{name}.err").write_text(outcome.err)

    return once("appendix-runs", make)


@pytest.fixture
def experiment_runs(run_cli: Callable[..., Outcome], once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """All kinds of runs that experiments compare, trained once; their results are in results/."""

    def make(folder: Path) -> None:
        for name in ("fid", "layout"):
            words = ("--dataset", "digits", "--scale", "smoke", "--runs-dir", folder, "--out", folder / "results")
            outcome = run_cli("reproduce", name, *words)
            assert outcome.status == 0, outcome.err

    return once("experiment-runs", make)
