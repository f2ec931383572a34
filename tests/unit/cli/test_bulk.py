"""`anytime sample` into shards: what it says, what it refuses, and signals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anytime.bulk import run as bulk_run
from anytime.bulk.shards import make_shard
from anytime.model import load
from anytime.sampling.engines.eager import EagerEngine
from anytime.sampling.sample_file import read_npz

Command = Callable[..., Any]
Refused = Callable[..., str]
BULK = ("-n", 90, "--codes", 2, "--rows-per-shard", 16, "--out", "shards")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(EagerEngine, "block", 8)
    for name in ("RANK", "WORLD_SIZE", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_it_says_what_was_made_and_the_rate(command: Command, model: Path) -> None:
    outcome = command("sample", model, *BULK, "--json")
    assert outcome.status == 0
    said, document = outcome.out.splitlines()
    assert said.startswith("90 samples of 2 of 8 codes in 6 shards, 90 made in ") and said.endswith(" s: shards")
    assert json.loads(document).items() >= {"n": 90, "made": 90, "codes": 2, "shards": 6, "seed": 0, "out": "shards"}.items()
    assert "sampling 90/90  0 s left  samples/s " in outcome.err
    again = command("sample", model, *BULK)
    assert "90 of 90 samples are there already" in again.err
    assert again.out == "90 samples of 2 of 8 codes in 6 shards, all of them were there already: shards\n"


@pytest.mark.parametrize(("words", "codes"), [(("--fraction", 0.25), 2), (("--codes", 3, "--prefix", "3,1"), 3), ((), 8)])
def test_budgets_apply(words: tuple[object, ...], codes: int, command: Command, model: Path, tmp_path: Path) -> None:
    assert command("sample", model, "-n", 20, "--shards", "npz", *words, "--out", "shards").status == 0
    assert json.loads((tmp_path / "shards" / "manifest.json").read_text())["codes"] == codes
    shard = read_npz(tmp_path / "shards" / "shard-00000.npz", "shard")
    assert shard.codes.shape == (20, codes)
    if "--prefix" in words:
        assert shard.codes[:, :2].tolist() == [[3, 1]] * 20


def test_a_shard_can_be_refined(command: Command, model: Path, tmp_path: Path) -> None:
    command("sample", model, *BULK)
    shard = tmp_path / "shards" / "shard-00001.npz"
    assert command("sample", model, "--refine", shard, "--pick", "17,31", "--out", "finer.npz").status == 0
    finer = read_npz(tmp_path / "finer.npz", "finer")
    assert finer.codes.tolist() == load(model).sample(90).codes[[17, 31]].tolist()


def test_tar_shards(command: Command, model: Path, tmp_path: Path) -> None:
    assert command("sample", model, *BULK, "--shards", "tar").status == 0
    assert sorted(contents(tmp_path / "shards")) == ["manifest.json", *(f"shard-{index:05d}.tar" for index in range(6))]


def test_a_link_to_a_directory_is_followed(command: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "shards").symlink_to("there")
    assert command("sample", model, *BULK).status == 0
    assert len(contents(tmp_path / "there")) == 7 and (tmp_path / "shards").is_symlink()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--within", "1s"), "--within does not go with shards, which must not depend on the clock; use --codes"),
        (("--out", "x.npz"), "--rows-per-shard makes shards, which need a directory; choose another --out than x.npz"),
        (("--out", "x.npz", "--ray"), "--ray makes shards, which need a directory"),
        (("--refine", "x.npz"), "--rows-per-shard does not go with --refine"),
        (("--rows-per-shard", "12"), "--rows-per-shard must be a multiple of 8, the rows computed at once"),
        (("--rows-per-shard", "x"), "--rows-per-shard must be a whole number"),
        (("--shards", "zip"), "--shards has the unknown value"),
        (("-n", "1000000000"), "-n of 1000000000 makes 62,500,000 shards; set --rows-per-shard to"),
        (("-n", "0"), "-n must be at least 1"),
        (("--codes", "9"), "--codes must be between 1 and 8"),
        (("--fraction", "0.5"), "--codes and --fraction"),
        (("--quality", "0.9"), "--codes and --quality both set the length"),
        (("--prefix", "1,2,3"), "--prefix has 3 codes, more than the 2 requested"),
        (("--temperature", "0"), "--temperature must be between"),
        (("--engine", "cuda"), "--engine cuda needs an NVIDIA GPU"),
        (("--device", "gpu"), "--device 'gpu' is not a device"),
        (("--out", "/proc/shards"), " cannot be written"),
        (("--out", "/dev/null/shards"), "--out /dev/null/shards cannot be written"),
    ],
)
def test_mistakes(words: tuple[str, ...], expected: str, refused: Refused, model: Path) -> None:
    sentence = refused("sample", model, *BULK, *words)
    assert expected in sentence


def test_another_request_is_refused_by_its_flag(command: Command, refused: Refused, model: Path) -> None:
    command("sample", model, *BULK)
    for words, expected in (
        (("--seed", 4), "--seed is 0 there and 4 here"),
        (("--top-k", 4), "--top-k is None there and 4 here"),
        (("--shards", "tar"), "--shards is 'npz' there and 'tar' here"),
        (("-n", 80), "-n is 90 there and 80 here"),
    ):
        sentence = refused("sample", model, *BULK, *words)
        assert (
            f"--out shards has samples of another request: {expected}; repeat that request or choose another --out" in sentence
        )


def test_another_model_is_refused(command: Command, refused: Refused, model: Path) -> None:
    command("sample", model, *BULK)
    assert "another request: MODEL is '" in refused("sample", "mnist", *BULK)


def test_a_run_is_no_place_for_shards(refused: Refused, model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "shards")
    assert "is the directory of a run or a model" in refused("sample", model, *BULK)


def test_many_refined_samples_need_a_file(command: Command, refused: Refused, model: Path) -> None:
    command("sample", model, "-n", 1001, "--codes", 1, "--out", "coarse.npz")
    assert "--out finer takes up to 1000 refined samples" in refused(
        "sample", model, "--refine", "coarse.npz", "--out", "finer"
    )
    assert "-n does not go with --refine" in refused("sample", model, "--refine", "coarse.npz", "-n", 2000, "--out", "finer")


@pytest.mark.parametrize(
    ("variables", "words", "expected"),
    [
        ({"RANK": "1"}, BULK, "RANK=1 is set without WORLD_SIZE"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, BULK, "RANK=2 must be a whole number between 0 and 1"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, ("--out", "x.png"), "torchrun makes shards, which need a directory"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, (*BULK, "--ray"), "--ray does not go with torchrun"),
    ],
)
def test_ranks_are_checked(
    variables: dict[str, str], words: tuple[object, ...], expected: str, refused: Refused, model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from anytime import cli

    monkeypatch.setattr(cli, "several_ranks", lambda: False)  # several ranks end without leaving the interpreter
    for name, value in {**variables, "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    assert expected in refused("sample", model, *words)


def test_without_ray_it_says_what_to_install(refused: Refused, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # importing it fails, as if it were not there
    assert "--ray needs the package ray; run `pip install 'ray'`" in refused("sample", model, *BULK, "--ray")


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")]
)
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_leaves_whole_shards_and_says_how_to_continue(
    number: signal.Signals,
    name: str,
    times: int,
    command: Command,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second signal aborts at once, and nothing is half-written either."""
    assert command("sample", model, *BULK, "--out", "whole").status == 0

    def interrupted(*given: Any) -> bytes:
        for _ in range(times if given[2] == 3 else 0):
            os.kill(os.getpid(), number)
        return make_shard(*given)

    monkeypatch.setattr(bulk_run, "make_shard", interrupted)
    outcome = command("sample", model, *BULK)
    stopped = f"stopped by {name} after 48 of 90 samples" if times == 1 else "interrupted"
    assert outcome.status == 130 and outcome.out == ""
    assert outcome.err.splitlines()[-1] == (
        f"anytime: {stopped}: finished shards are in shards; run the same command again to continue"
    )
    assert sorted(contents(tmp_path / "shards")) == ["manifest.json", *(f"shard-{index:05d}.npz" for index in range(3))]
    assert len(json.loads((tmp_path / "shards" / "manifest.json").read_text())["files"]) == 3
    monkeypatch.setattr(bulk_run, "make_shard", make_shard)
    assert command("sample", model, *BULK).status == 0
    assert contents(tmp_path / "shards") == contents(tmp_path / "whole")
