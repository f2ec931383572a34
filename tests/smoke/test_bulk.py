"""Bulk sampling in processes: killed at any moment and continued, by any number of ranks, the shards are the same bytes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import children, kill_tree  # type: ignore[import-not-found]

from anytime.bulk.run import sample_to_shards
from anytime.model import AnytimeModel, _tiny, load

SHARDS = 40
N = 512 * SHARDS - 100
WORDS = ("-n", N, "--codes", 4, "--seed", 5, "--rows-per-shard", 512)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        built = AnytimeModel(_tiny())
        torch.nn.init.normal_(built.autoencoder.quantizer.codebook)
    return built.save(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shards of one process that nothing disturbs."""
    folder = tmp_path_factory.mktemp("whole") / "shards"
    assert sample_to_shards(load(model, "cpu"), N, folder, codes=4, seed=5, rows_per_shard=512).complete
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def inodes(folder: Path) -> dict[str, int]:
    """Finished shards; one that is written again is another file."""
    return {path.name: path.stat().st_ino for path in folder.glob("shard-*")} if folder.exists() else {}


def reaches(folder: Path, shards: int, seconds: float) -> Callable[[], bool]:
    """Return a condition that holds `seconds` after a number of shards is there."""
    seen = list[float]()

    def condition() -> bool:
        if not seen and len(inodes(folder)) >= shards:
            seen.append(time.monotonic())
        return bool(seen) and time.monotonic() - seen[0] >= seconds

    return condition


class Killer:
    """Kills bulk sampling with all its ranks, and checks that no finished shard is lost or made again."""

    def __init__(self, launcher: Any, folder: Path, *words: object) -> None:
        self.launcher, self.folder, self.kills = launcher, folder, list[dict[str, Any]]()
        self.words = ("sample", *words, "--device", "cpu", "--out", folder)
        self.before = dict[str, int]()

    def kill(self, ranks: int, shards: int, seconds: float, one: bool = False) -> bool:
        """Kill all processes, or one rank, `seconds` after that number of shards; return False if the command ended before."""
        condition, said = reaches(self.folder, shards, seconds), self.folder.with_suffix(".txt")
        process, end = self.launcher.start(*self.words, stderr_path=said, ranks=ranks), time.monotonic() + 120
        while process.poll() is None and not condition():
            assert time.monotonic() < end, said.read_text()[-2000:]
            time.sleep(0.002)
        ended, victims = process.poll() is not None, children(process.pid)
        if one and victims:
            os.kill(victims[-1], signal.SIGKILL)  # torchrun ends the others
        elif not ended:
            kill_tree(process.pid)
        status = process.wait(60)
        assert not ended or status == 0, said.read_text()[-2000:]
        self.check()
        if not ended:
            whom = "one rank" if one and victims else "all"
            self.kills.append({"ranks": ranks, "killed": whom, "shards": len(self.before), "after s": round(seconds, 3)})
        return not ended

    def check(self) -> None:
        after = inodes(self.folder)
        assert after.items() >= self.before.items(), "a finished shard was lost or made again"
        self.before = after

    def finish(self, ranks: int) -> None:
        said = self.folder.with_suffix(".txt")
        process = self.launcher.start(*self.words, stderr_path=said, ranks=ranks)
        assert process.wait(timeout=120) == 0, said.read_text()[-2000:]
        self.check()


@pytest.mark.timeout(300)
def test_killed_and_continued_by_one_rank_or_two(launcher: Any, model: Path, whole: Path, tmp_path: Path) -> None:
    killer = Killer(launcher, tmp_path / "shards", model, *WORDS)
    assert killer.kill(ranks=1, shards=3, seconds=0.02)
    assert killer.kill(ranks=2, shards=len(killer.before) + 3, seconds=0.03)
    killer.finish(ranks=2)
    assert contents(tmp_path / "shards") == contents(whole)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_at_twenty_random_moments(launcher: Any, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Moments fall everywhere: before the first shard, while finished shards are checked, during a step or a write."""
    count, draw = 100, random.Random(0)
    n = 512 * count - 100
    killer = Killer(launcher, tmp_path / "shards", "mnist", "-n", n, "--codes", 4, "--rows-per-shard", 512)
    while len(killer.kills) < 20:
        if draw.random() < 0.3:  # at any moment of the start
            killer.kill(draw.randint(1, 3), 0, draw.uniform(0.0, 5.0))
        else:
            shards, seconds = len(killer.before) + draw.randint(1, 2), draw.uniform(0.0, 0.3)
            killer.kill(draw.randint(1, 3), shards, seconds, one=draw.random() < 0.3)
        assert len(killer.before) < count - 2, "too few shards for twenty kills"
    killer.finish(ranks=2)
    assert sample_to_shards(load("mnist", "cpu"), n, tmp_path / "whole", codes=4, rows_per_shard=512).made == n
    assert contents(tmp_path / "shards") == contents(tmp_path / "whole")
    record_property("shards", count)
    record_property("kills", killer.kills)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shards", ["npz", "tar"])
def test_one_two_or_three_ranks_give_the_same_bytes(
    shards: str, launcher: Any, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The bundled model of digits, 10 shards."""
    found = list[dict[str, bytes]]()
    for ranks in (1, 2, 3):
        folder, said = tmp_path / f"{shards}-{ranks}", tmp_path / f"{ranks}.txt"
        words = ("sample", "mnist", "--device", "cpu", "-n", 10000, "--shards", shards, "--out", folder)
        process = launcher.start(*words, stderr_path=said, ranks=ranks)
        assert process.wait(timeout=280) == 0, said.read_text()[-2000:]
        found.append(contents(folder))
    assert len(found[0]) == 11 and found[0] == found[1] == found[2]
    record_property("shards", 10)


READ = """
import sys, webdataset
rows = list(webdataset.WebDataset(sys.argv[1], shardshuffle=False).decode("l8"))
assert [int(row["__key__"]) for row in rows] == [row["json"]["row"] for row in rows] == list(range(1500))
assert all(row["png"].shape == (28, 28) and len(row["json"]["codes"]) == 4 for row in rows)
"""


@pytest.mark.slow
def test_webdataset_reads_the_shards(launcher: Any, model: Path, tmp_path: Path) -> None:
    pytest.importorskip("webdataset", reason="needs `pip install webdataset`")
    words = ("sample", model, "-n", 1500, "--codes", 4, "--shards", "tar", "--out", tmp_path / "shards")
    assert launcher.run(*words).returncode == 0
    shards = f"{tmp_path}/shards/shard-{{00000..00001}}.tar"
    done = subprocess.run([sys.executable, "-c", READ, shards], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_file_that_may_not_grow_leaves_a_resumable_state(launcher: Any, model: Path, whole: Path, tmp_path: Path) -> None:
    """As on a full disk: the limit is one of the operating system."""
    words = ("sample", model, "--device", "cpu", *WORDS, "--out", tmp_path / "shards")
    done = launcher.run(*words, limit_bytes=1 << 20)
    assert done.returncode == 2
    *_, last = done.stderr.splitlines()
    assert (
        last.startswith("anytime: ") and "cannot be written (File too large)" in last and "run the same command again" in last
    )
    assert list(contents(tmp_path / "shards")) == ["manifest.json"]
    assert sample_to_shards(load(model, "cpu"), N, tmp_path / "shards", codes=4, seed=5, rows_per_shard=512).complete
    assert contents(tmp_path / "shards") == contents(whole)
