"""Two machines with two ranks each, as two torchrun agents: on loopback, and in two network namespaces joined by a cable.

What counts are the files and sentences: torch's gloo may abort at the interpreter's exit, after the work is done.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

MINUTE = 60.0
LOST = "anytime: another rank ended or cannot be reached"
WEIGHTS = "model/model.safetensors"
WORDS = ("train", "digits", "--scale", "smoke", "--recipe", "paper", "--set", "ordered.epochs=6", "--set", "prior.epochs=4")


@dataclass
class Machines:
    """Two torchrun agents; `prefixes` are the commands that enter a machine."""

    launcher: Any
    folder: Path
    address: str = "127.0.0.1"
    interface: str = "lo"
    prefixes: tuple[list[str], list[str]] = ([], [])
    agents: list[subprocess.Popen[bytes]] = field(default_factory=list)
    port: int = 0

    def start(self, run: Path, *options: str) -> None:
        """Start a training of four ranks, which ends in this context."""
        self.port = free_port()
        environment = self.launcher.environment | {"GLOO_SOCKET_IFNAME": self.interface, "ANYTIME_JOIN_SECONDS": "60"}
        self.agents = []
        for node, prefix in enumerate(self.prefixes):
            torchrun = ["--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "2", *options]
            torchrun += ["--master-addr", self.address, "--master-port", str(self.port), "-m", "anytime"]
            command = [*prefix, sys.executable, "-m", "torch.distributed.run", *torchrun, *WORDS, "--out", str(run)]
            with self.log(node).open("ab") as log:
                self.agents.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))

    def log(self, node: int) -> Path:
        """What an agent and its ranks said."""
        return self.folder / f"node-{node}.txt"

    def text(self) -> str:
        return "".join(self.log(node).read_text(errors="replace") for node in (0, 1))

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 2 * MINUTE
        while not condition():
            assert time.monotonic() < deadline and self.running(), self.text()[-3000:]
            time.sleep(0.02)

    def running(self) -> bool:
        return any(agent.poll() is None for agent in self.agents)

    def pid(self, rank: int) -> int:
        """The process of a rank."""
        wanted = {f"RANK={rank}".encode(), f"MASTER_PORT={self.port}".encode()}
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if wanted <= set(path.read_bytes().split(b"\0")):
                    return int(path.parent.name)
            except OSError:  # it has ended
                continue
        raise AssertionError(f"rank {rank} does not run")

    def wait(self, seconds: float) -> list[int]:
        """Return the statuses of the agents, which must end in time."""
        deadline = time.monotonic() + seconds
        return [agent.wait(timeout=max(0.1, deadline - time.monotonic())) for agent in self.agents]

    def kill(self) -> None:
        """End the agents and all their ranks."""
        for agent in self.agents:
            if agent.poll() is None:
                os.killpg(agent.pid, signal.SIGKILL)
                agent.wait()
        for rank in range(4):
            try:
                os.kill(self.pid(rank), signal.SIGKILL)
            except (AssertionError, ProcessLookupError):
                continue


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def loopback(launcher: Any, tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(launcher, tmp_path)
    yield machines
    machines.kill()


@contextmanager
def two_namespaces() -> Iterator[tuple[str, str]]:
    """Two network namespaces with one address each, joined by a virtual cable of two ends called `cable`."""
    names = (f"anytime-{os.getpid()}-0", f"anytime-{os.getpid()}-1")
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        for number, name in enumerate(names, 1):
            ip("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", "cable")
            for interface in ("lo", "cable"):
                ip("-n", name, "link", "set", interface, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def namespaces(launcher: Any, tmp_path: Path) -> Iterator[tuple[Machines, str]]:
    """Two machines on a network, and the name of the second."""
    if shutil.which("ip") is None or subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        pytest.skip("network namespaces need iproute2 and the right to make them")
    with two_namespaces() as names:
        enter = [["ip", "netns", "exec", name] for name in names]
        machines = Machines(launcher, tmp_path, "10.77.0.1", "cable", (enter[0], enter[1]))
        yield machines, names[1]
        machines.kill()


def inside(launcher: Any, run: Path, steps: int) -> Callable[[], bool]:
    return lambda: launcher.steps(run) >= steps


def test_a_killed_rank_ends_all_ranks_of_both_machines(
    loopback: Machines, launcher: Any, tmp_path: Path, record_property: Any
) -> None:
    run = tmp_path / "run"
    loopback.start(run)
    loopback.wait_for(inside(launcher, run, 3))
    os.kill(loopback.pid(3), signal.SIGKILL)
    killed = time.monotonic()
    assert 0 not in loopback.wait(MINUTE)
    record_property("ended_after_seconds", round(time.monotonic() - killed, 2))
    said = [loopback.log(node).read_text() for node in (0, 1)]
    assert LOST in said[0], said[0][-3000:]  # the machine whose ranks were not touched
    assert "the same command on every machine resumes from the last checkpoint" in said[0]
    assert "[rank" not in "".join(said), "a traceback of a rank"
    assert launcher.steps(run) >= 3
    assert not (run / "model").exists()


@pytest.fixture
def undisturbed(loopback: Machines, tmp_path: Path) -> bytes:
    """The weights of four ranks that nothing disturbs."""
    loopback.start(tmp_path / "whole")
    assert loopback.wait(2 * MINUTE) is not None
    assert (tmp_path / "whole" / WEIGHTS).is_file(), loopback.text()[-3000:]
    return (tmp_path / "whole" / WEIGHTS).read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("rank", [0, 3])
def test_the_same_command_resumes_four_ranks(
    rank: int, loopback: Machines, undisturbed: bytes, launcher: Any, tmp_path: Path, record_property: Any
) -> None:
    run = tmp_path / "run"
    loopback.start(run)
    loopback.wait_for(inside(launcher, run, 20))
    os.kill(loopback.pid(rank), signal.SIGKILL)
    killed = time.monotonic()
    assert 0 not in loopback.wait(MINUTE)
    record_property("ended_after_seconds", round(time.monotonic() - killed, 2))
    assert not (run / "model").exists()
    loopback.start(run)
    loopback.wait(2 * MINUTE)
    assert "resuming the ordered stage at step" in loopback.text()
    assert (run / WEIGHTS).read_bytes() == undisturbed


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "rendezvous",
    [pytest.param((), id="static"), pytest.param(("--rdzv-backend", "c10d", "--rdzv-id", "run"), id="c10d")],
)
def test_torchrun_restarts_the_ranks(
    rendezvous: tuple[str, ...],
    loopback: Machines,
    undisturbed: bytes,
    launcher: Any,
    tmp_path: Path,
    record_property: Any,
) -> None:
    """Rank 3 is killed twice, and the agents go on from the checkpoints by themselves."""
    run = tmp_path / "run"
    if rendezvous:
        rendezvous = (*rendezvous, "--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    loopback.start(run, "--max-restarts", "3", *rendezvous)
    killed_at = []
    for steps in (5, 30):
        loopback.wait_for(inside(launcher, run, launcher.steps(run) + steps))
        if rendezvous:  # another port at every start
            os.kill(child_of(loopback.agents[1].pid), signal.SIGKILL)
        else:
            os.kill(loopback.pid(3), signal.SIGKILL)
        killed_at.append(launcher.steps(run))
        before = loopback.text().count("resuming the")
        loopback.wait_for(lambda before=before: loopback.text().count("resuming the") > before)
    loopback.wait(2 * MINUTE)
    record_property("steps_at_kills", killed_at)
    assert (run / WEIGHTS).read_bytes() == undisturbed


def child_of(parent: int) -> int:
    """A process that another one started."""
    return int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[-1])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_machines_on_a_network(
    namespaces: tuple[Machines, str], undisturbed: bytes, launcher: Any, tmp_path: Path, record_property: Any
) -> None:
    """Pull the cable: no connection closes, and all ranks still end within a minute. Then the same command resumes."""
    machines, second = namespaces
    run = tmp_path / "run"
    machines.start(run)
    machines.wait_for(inside(launcher, run, 20))
    ip("-n", second, "link", "set", "cable", "down")
    pulled = time.monotonic()
    assert 0 not in machines.wait(MINUTE)
    record_property("ended_after_seconds", round(time.monotonic() - pulled, 2))
    assert all(LOST in machines.log(node).read_text() for node in (0, 1))
    ip("-n", second, "link", "set", "cable", "up")
    machines.start(run)
    machines.wait(2 * MINUTE)
    assert (run / WEIGHTS).read_bytes() == undisturbed
