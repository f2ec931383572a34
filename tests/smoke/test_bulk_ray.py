"""`anytime sample --ray`: two nodes make the shards of one process, also if one of them or the driver is killed."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from processes import kill_tree  # type: ignore[import-not-found]
from ray_nodes import cluster, node  # type: ignore[import-not-found]

from anytime.bulk.run import sample_to_shards
from anytime.model import load

pytest.importorskip("ray", reason="needs `pip install ray`")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.timeout(900)]
N = 16000
WORDS = ("sample", "mnist", "--device", "cpu", "-n", N, "--codes", 4, "--ray")


@pytest.fixture(scope="module", autouse=True)
def ray_token() -> Iterator[None]:
    """A token for Ray's own connections; without it Ray would write one into the home directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.delenv("RAY_ADDRESS", raising=False)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The shards of one process without Ray."""
    folder = tmp_path_factory.mktemp("whole") / "shards"
    assert sample_to_shards(load("mnist", "cpu"), N, folder, codes=4).complete
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@contextmanager
def sampling(launcher: Any, folder: Path, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command, in a cluster, when it has written three shards."""
    environment = launcher.environment | {"RAY_ADDRESS": address}
    with folder.with_suffix(".txt").open("wb") as stderr:
        command = [sys.executable, "-m", "anytime", *map(str, WORDS), "--out", str(folder)]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        end = time.monotonic() + 240
        while len(list(folder.glob("shard-*"))) < 3:
            assert process.poll() is None and time.monotonic() < end, folder.with_suffix(".txt").read_text()[-2000:]
            time.sleep(0.01)
        yield process
    finally:
        if process.poll() is None:
            kill_tree(process.pid)
            process.wait()


@contextmanager
def two_nodes() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a cluster with one CPU on each of two nodes, and the process of the second."""
    with cluster(Path("/tmp") / f"ray-{os.getpid()}", cpus=1) as address, node(1, "--address", address) as second:
        yield address, second


def test_one_of_two_nodes_is_killed(
    launcher: Any, whole: dict[str, bytes], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    folder = tmp_path / "shards"
    with two_nodes() as (address, second), sampling(launcher, folder, address) as process:
        time.sleep(2.0)
        kill_tree(second.pid)
        killed, before = time.monotonic(), len(list(folder.glob("shard-*")))
        assert before < len(whole) - 3, "it was killed too late"
        assert process.wait(300) == 0, folder.with_suffix(".txt").read_text()[-2000:]
    assert "computed on 2 nodes" in folder.with_suffix(".txt").read_text()
    assert contents(folder) == whole
    record_property("killed after shards", before)
    record_property("finished after s", round(time.monotonic() - killed, 1))


def test_the_driver_is_killed_stopped_and_continued(launcher: Any, whole: dict[str, bytes], tmp_path: Path) -> None:
    folder, said = tmp_path / "shards", tmp_path / "shards.txt"
    with two_nodes() as (address, _):
        with sampling(launcher, folder, address) as process:
            kill_tree(process.pid)
        before = {path.name: path.stat().st_ino for path in folder.glob("shard-*")}
        with sampling(launcher, folder, address) as process:
            while len(list(folder.glob("shard-*"))) == len(before):  # until it adds to what was there before
                assert process.poll() is None, said.read_text()[-2000:]
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 130, said.read_text()[-2000:]
        last = said.read_text().splitlines()[-1]
        assert "stopped by SIGTERM after" in last and "run the same command again to continue" in last
        with sampling(launcher, folder, address) as process:
            assert process.wait(300) == 0, said.read_text()[-2000:]
    after = {path.name: path.stat().st_ino for path in folder.glob("shard-*")}
    assert after.items() >= before.items(), "no finished shard is made again"
    assert contents(folder) == whole


def test_on_one_machine_without_a_cluster(launcher: Any, whole: dict[str, bytes], tmp_path: Path) -> None:
    words = (*WORDS, "--out", tmp_path / "shards")
    command = [sys.executable, "-m", "anytime", *map(str, words)]
    done = subprocess.run(command, env=launcher.environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "shards") == whole


def test_an_address_without_a_cluster_is_one_sentence(launcher: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    done = launcher.run(*WORDS, "--out", tmp_path / "shards")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "anytime: RAY_ADDRESS '127.0.0.1:9' cannot be used" in done.stderr
    assert not (tmp_path / "shards").exists()
