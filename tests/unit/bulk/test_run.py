"""A directory of shards: resumed, shared by ranks, checked, and left in order whatever happens to it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from anytime.bulk import run as bulk_run
from anytime.bulk import shard_folder
from anytime.bulk.request import BulkRequest, bulk_request
from anytime.bulk.run import BulkResult, run_rank, sample_to_shards
from anytime.bulk.shard_folder import ShardFolder
from anytime.bulk.shards import make_shard
from anytime.core.errors import UserError
from anytime.core.progress import SilentReporter
from anytime.core.ranks import Ranks
from anytime.core.storage import write_new
from anytime.model import AnytimeModel

Refused = Callable[..., str]
N, OPTIONS = 90, {"seed": 3, "codes": 2, "rows_per_shard": 16}


class Reported(SilentReporter):
    """Keeps what was reported."""

    def __init__(self) -> None:
        self.said, self.stages, self.steps = list[str](), list[tuple[int, int]](), list[int]()

    def stage(self, name: str, step: int, steps: int) -> None:
        self.stages.append((step, steps))

    def progress(self, step: int, losses: Any) -> None:
        assert losses["samples/s"] >= 0
        self.steps.append(step)

    def say(self, text: str) -> None:
        self.said.append(text)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def inodes(folder: Path) -> dict[str, int]:
    """A shard that is written again is another file."""
    return {path.name: path.stat().st_ino for path in folder.glob("shard-*")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny: AnytimeModel) -> Path:
    """An uninterrupted request of six shards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anytime.sampling.engines.eager.EagerEngine.block", 8)
        folder = tmp_path_factory.mktemp("whole") / "shards"
        assert sample_to_shards(tiny, N, folder, **OPTIONS).complete
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def test_the_manifest_tells_everything(whole: Path, tiny: AnytimeModel) -> None:
    manifest = json.loads((whole / "manifest.json").read_text())
    files = manifest.pop("files")
    settings = {"temperature": 1.0, "top_k": None, "top_p": None}
    assert manifest == {
        "format": 1, "model": tiny.hash, "n": N, "seed": 3, "codes": 2, "settings": settings, "prefix": [], "engine": "eager",
        "precision": "fp32", "device": "cpu", "block": 8, "shards": "npz", "rows_per_shard": 16,
    }  # fmt: skip
    assert [(file["first"], file["rows"]) for file in files] == [(0, 16), (16, 16), (32, 16), (48, 16), (64, 16), (80, 10)]
    assert {path.name for path in whole.iterdir()} == {"manifest.json", *(file["file"] for file in files)}
    for file in files:
        assert hashlib.sha256((whole / file["file"]).read_bytes()).hexdigest() == file["sha256"]


def test_a_finished_request_is_not_made_again(copy: Path, whole: Path, tiny: AnytimeModel) -> None:
    before = inodes(copy)
    result = sample_to_shards(tiny, N, copy, **OPTIONS)
    assert (result.complete, result.made, inodes(copy)) == (True, 0, before)
    assert contents(copy) == contents(whole)


@pytest.mark.parametrize("keep", range(6))
def test_it_continues_where_it_stopped(keep: int, copy: Path, whole: Path, tiny: AnytimeModel) -> None:
    """A shard that a killed process had recorded but not yet listed is kept too."""
    manifest = json.loads((copy / "manifest.json").read_text())
    unlisted = manifest["files"][max(0, keep - 1) : keep]
    manifest["files"] = manifest["files"][: max(0, keep - 1)]
    (copy / "manifest.json").write_text(json.dumps(manifest))
    (copy / ".shard-00000.npz.0123abcd.json").write_text(json.dumps({"format": 1, "files": unlisted}))
    for index in range(keep, 6):
        (copy / f"shard-{index:05d}.npz").unlink()
    (copy / ".shard-00009.npz.0123abcd.partial").write_bytes(b"half")
    before, reporter = inodes(copy), Reported()
    result = sample_to_shards(tiny, N, copy, reporter=reporter, **OPTIONS)
    assert result.made == N - 16 * keep and reporter.stages == [(16 * keep, N)] and reporter.steps[-1] == N
    assert inodes(copy).items() >= before.items(), "no shard is made twice"
    assert contents(copy) == contents(whole)


@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: b"", lambda content: content[:-9] + bytes(9)])
def test_a_damaged_shard_is_made_again(damage: Any, copy: Path, whole: Path, tiny: AnytimeModel) -> None:
    path, reporter = copy / "shard-00002.npz", Reported()
    path.write_bytes(damage(path.read_bytes()))
    assert sample_to_shards(tiny, N, copy, reporter=reporter, **OPTIONS).complete
    assert reporter.said == ["shard-00002.npz is damaged; it is made again"]
    assert reporter.stages == [(N - 16, N)], "it is not counted as there already"
    assert contents(copy) == contents(whole)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_a_shard_without_a_record_is_made_again(count: int, replace: bool, copy: Path, whole: Path, tiny: AnytimeModel) -> None:
    """Nobody knows what it should hold: it may be damaged, or of another request."""
    manifest = json.loads((copy / "manifest.json").read_text())
    del manifest["files"][2]
    (copy / "manifest.json").write_text(json.dumps(manifest))
    if replace:
        shutil.copy(copy / "shard-00003.npz", copy / "shard-00002.npz")
    result, *_ = on_ranks(tiny, bulk_request(tiny, N, **OPTIONS), copy, count)[::-1]
    assert result.complete and result.made == 16
    assert contents(copy) == contents(whole)


def test_after_a_kill_only_the_shard_in_work_is_made_again(
    tmp_path: Path, tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest is written every few seconds, the record of a shard at once."""
    monkeypatch.setattr(shard_folder, "MANIFEST_SECONDS", 1e9)
    monkeypatch.setattr(bulk_run, "make_shard", lambda *given: make_shard(*given) if given[2] < 4 else pytest.fail("killed"))
    with pytest.raises(pytest.fail.Exception):
        sample_to_shards(tiny, N, tmp_path / "shards", **OPTIONS)
    assert json.loads((tmp_path / "shards" / "manifest.json").read_text())["files"] == []
    before = inodes(tmp_path / "shards")
    monkeypatch.setattr(bulk_run, "make_shard", make_shard)
    assert sample_to_shards(tiny, N, tmp_path / "shards", **OPTIONS).made == N - 64
    assert len(before) == 4 and inodes(tmp_path / "shards").items() >= before.items()
    assert sorted(path.name for path in (tmp_path / "shards").iterdir())[0] == "manifest.json", "no records are left"


def test_a_shard_that_another_command_makes_meanwhile_is_kept(copy: Path, tiny: AnytimeModel) -> None:
    """Two commands in one directory: the second one opens it before the first one finishes a shard."""
    request, shard = bulk_request(tiny, N, **OPTIONS), copy / "shard-00002.npz"
    content, before = shard.read_bytes(), inodes(copy)
    shard.unlink()
    manifest = json.loads((copy / "manifest.json").read_text())
    del manifest["files"][2]
    (copy / "manifest.json").write_text(json.dumps(manifest))
    first, second = ShardFolder(copy, request), ShardFolder(copy, request)
    first.open()
    second.open()
    first.write(2, content)
    assert second.check(range(6)) == [] and second.done == set(range(6))
    assert inodes(copy).keys() == before.keys()


def test_a_record_is_no_shard(tmp_path: Path, tiny: AnytimeModel) -> None:
    """A rank was killed between the two: rank 0 does not list the shard."""
    request = bulk_request(tiny, N, **OPTIONS)
    main, other = (ShardFolder(tmp_path / "shards", request, is_main=is_main) for is_main in (True, False))
    main.open()
    other.open()
    other._announce([other.record(1, "0" * 64)])
    main.collect(now=True)
    assert main.done == set()
    other.write(1, b"content")
    main.collect(now=True)
    assert main.done == {1} and len(list(main.path.iterdir())) == 2


def test_records_of_all_shards_of_a_rank_are_read(tmp_path: Path, tiny: AnytimeModel) -> None:
    """A rank that continues a large request records all its finished shards at once."""
    request = bulk_request(tiny, 16 * 50_000, **OPTIONS)
    folder = ShardFolder(tmp_path / "shards", request)
    folder.open()
    records = [folder.record(index, "0" * 64) for index in range(request.count)]
    folder._announce(records)
    (path,) = folder.path.glob(shard_folder.RECORDS)
    assert folder._read_records(path) == records


def test_a_missing_shard_is_not_listed_as_finished(copy: Path, tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    (copy / "shard-00001.npz").unlink()
    monkeypatch.setattr(bulk_run, "make_shard", lambda *_: pytest.fail("killed"))
    with pytest.raises(pytest.fail.Exception):
        sample_to_shards(tiny, N, copy, **OPTIONS)
    listed = [file["first"] for file in json.loads((copy / "manifest.json").read_text())["files"]]
    assert listed == [0, 32, 48, 64, 80]


def on_ranks(model: AnytimeModel, request: BulkRequest, folder: Path, count: int) -> list[BulkResult]:
    with ThreadPoolExecutor(count) as pool:
        ranks = [Ranks(rank, count, rank) for rank in range(count)]
        runs = [pool.submit(run_rank, model, request, folder, rank, SilentReporter()) for rank in reversed(ranks)]
        return [run.result(timeout=60) for run in runs]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_any_number_of_ranks_leaves_the_same_directory(
    count: int, tmp_path: Path, whole: Path, tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_folder, "MANIFEST_SECONDS", 0.0)
    *_, main = on_ranks(tiny, bulk_request(tiny, N, **OPTIONS), tmp_path / "shards", count)
    assert main.complete and main.made == N
    assert contents(tmp_path / "shards") == contents(whole), "no records are left"


def test_other_ranks_leave_records_that_a_later_run_collects(copy: Path, whole: Path, tiny: AnytimeModel) -> None:
    """Rank 0 was killed first: the records of rank 1 are of no manifest yet."""
    request = bulk_request(tiny, N, **OPTIONS)
    for path in copy.glob("shard-*"):
        path.unlink()
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {"files": []}))
    run_rank(tiny, request, copy, Ranks(1, 2, 1), SilentReporter())
    assert len(list(copy.glob(".shard-*.json"))) == 3 and len(inodes(copy)) == 3
    (copy / ".shard-00000.npz.00000000.json").write_text("[]")  # not ours
    before = inodes(copy)
    on_ranks(tiny, request, copy, 3)
    assert inodes(copy).items() >= before.items()
    assert contents(copy) == contents(whole)


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("seed", {"seed": 4}),
        ("codes", {"codes": 3}),
        ("n", {"n": 91}),
        ("temperature", {"temperature": 0.5}),
        ("top_k", {"top_k": 5}),
        ("top_p", {"top_p": 0.5}),
        ("prefix", {"prefix": (1,)}),
        ("shards", {"shards": "tar"}),
        ("rows_per_shard", {"rows_per_shard": 24}),
    ],
)
def test_another_request_is_refused_by_its_key(
    key: str, options: dict[str, Any], copy: Path, tiny: AnytimeModel, refused: Refused
) -> None:
    before = contents(copy)
    sentence = refused(sample_to_shards, tiny, out=copy, **{"n": N, **OPTIONS, **options})
    assert f"has samples of another request: `{key}` is " in sentence and "choose another `out`" in sentence
    assert contents(copy) == before


def broken_manifests() -> dict[str, Any]:
    entry = {"file": "shard-00000.npz", "first": 0, "rows": 16, "sha256": "0" * 64}
    return {
        "not JSON": b"{",
        "empty": b"",
        "a list": b"[]",
        "format 2": {"format": 2},
        "no files": {"files": None},
        "files of numbers": {"files": [1]},
        "a missing key": {"files": [{"file": "shard-00000.npz"}]},
        "a path": {"files": [entry | {"file": "../shard-00000.npz"}]},
        "a negative row": {"files": [entry | {"first": -16}]},
        "a row too far": {"files": [entry | {"first": 1 << 40, "file": "shard-68719476736.npz"}]},
        "odd rows": {"files": [entry | {"rows": 15}]},
        "a key too many": {"seeds": 3},
        "deep": b'{"format": 1, "files": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    }


@pytest.mark.parametrize("name", broken_manifests())
def test_a_broken_manifest_is_refused(name: str, copy: Path, tiny: AnytimeModel, refused: Refused) -> None:
    broken, path = broken_manifests()[name], copy / "manifest.json"
    path.write_bytes(broken if isinstance(broken, bytes) else json.dumps(json.loads(path.read_text()) | broken).encode())
    before = contents(copy)
    assert str(copy) in refused(sample_to_shards, tiny, N, copy, **OPTIONS)
    assert contents(copy) == before


def test_shards_without_a_manifest_are_refused(copy: Path, tiny: AnytimeModel, refused: Refused) -> None:
    (copy / "manifest.json").unlink()
    assert "has shards but no manifest.json" in refused(sample_to_shards, tiny, N, copy, **OPTIONS)
    assert len(contents(copy)) == 6


@pytest.mark.parametrize("name", ["shard-00002.npz", "manifest.json", ".shard-00002.npz.0123abcd.json"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("nowhere")], ids=["pipe", "folder", "link"])
def test_special_files_do_not_hang(name: str, make: Any, copy: Path, tiny: AnytimeModel) -> None:
    """A pipe waits for a writer, a link leads nowhere: a sentence, or the file is made anew."""
    (copy / name).unlink(missing_ok=True)
    make(copy / name)
    try:
        assert sample_to_shards(tiny, N, copy, **OPTIONS).complete
    except UserError as error:
        assert str(copy) in str(error)
    assert len(inodes(copy)) == 6, "nothing is lost"


def test_a_stop_during_the_check_of_finished_shards(copy: Path, tiny: AnytimeModel) -> None:
    stop, before = threading.Event(), contents(copy)
    stop.set()
    result = sample_to_shards(tiny, N, copy, stop=stop, **OPTIONS)
    assert not result.complete and (result.rows, result.made) == (N, 0)
    assert contents(copy) == before


def test_of_two_requests_that_start_together_one_is_refused(tmp_path: Path, tiny: AnytimeModel, refused: Refused) -> None:
    """Both find no manifest; the second one to write it finds the first one's."""
    first, second = (ShardFolder(tmp_path / "shards", bulk_request(tiny, N, **{**OPTIONS, "seed": seed})) for seed in (1, 2))
    first._create()
    second._create()
    first.open()
    assert "`seed` is 1 there and 2 here" in refused(second.open)


def test_a_new_file_replaces_none(tmp_path: Path) -> None:
    assert write_new(tmp_path / "deep" / "x", b"first") and not write_new(tmp_path / "deep" / "x", b"second")
    assert contents(tmp_path / "deep") == {"x": b"first"}


def test_a_new_file_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(self: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "hardlink_to", unsupported)
    assert write_new(tmp_path / "x", b"first")
    assert contents(tmp_path) == {"x": b"first"}


@pytest.mark.parametrize(
    ("number", "at"), [*((errno.ENOSPC, at) for at in range(1, 9)), (errno.EDQUOT, 3), (errno.EROFS, 3), (errno.EIO, 3)]
)
def test_a_disk_that_is_full_leaves_a_resumable_state(
    number: int, at: int, tmp_path: Path, whole: Path, tiny: AnytimeModel, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever write fails: a shard's, the manifest's."""
    writes, write = list[Path](), Path.write_bytes

    def failing(self: Path, content: bytes) -> int:
        writes.append(self)
        if len(writes) >= at:
            write(self, content[: len(content) // 2])
            raise OSError(number, os.strerror(number))
        return write(self, content)

    monkeypatch.setattr(Path, "write_bytes", failing)
    sentence = refused(sample_to_shards, tiny, N, tmp_path / "shards", **OPTIONS)
    assert os.strerror(number) in sentence and "run the same command again to continue" in sentence
    assert not list((tmp_path / "shards").glob("*.partial"))
    monkeypatch.setattr(Path, "write_bytes", write)
    before = inodes(tmp_path / "shards")
    assert sample_to_shards(tiny, N, tmp_path / "shards", **OPTIONS).complete
    assert inodes(tmp_path / "shards").items() >= before.items()
    assert contents(tmp_path / "shards") == contents(whole)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_directory_that_vanishes_is_not_made_anew(
    rank: int, copy: Path, whole: Path, tiny: AnytimeModel, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a disk is unmounted: what is restored later is continued."""
    for index in range(2, 6):
        (copy / f"shard-{index:05d}.npz").unlink()

    def moving(*given: Any) -> bytes:
        if copy.exists():
            copy.rename(copy.with_name("elsewhere"))
        return make_shard(*given)

    monkeypatch.setattr(bulk_run, "make_shard", moving)
    request = bulk_request(tiny, N, **OPTIONS)
    sentence = refused(run_rank, tiny, request, copy, Ranks(rank, 2, rank), SilentReporter())
    assert "manifest.json has vanished; restore the directory, then run the same command again" in sentence
    assert not copy.exists()
    monkeypatch.setattr(bulk_run, "make_shard", make_shard)
    copy.with_name("elsewhere").rename(copy)
    assert sample_to_shards(tiny, N, copy, **OPTIONS).complete
    assert contents(copy) == contents(whole)


def test_a_stop_leaves_a_resumable_state(
    tmp_path: Path, whole: Path, tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()

    def stopping(*given: Any) -> bytes:
        if given[2] == 2:
            stop.set()
        return make_shard(*given)

    monkeypatch.setattr(bulk_run, "make_shard", stopping)
    result = sample_to_shards(tiny, N, tmp_path / "shards", stop=stop, **OPTIONS)
    assert not result.complete and (result.rows, result.made) == (32, 32)
    files = json.loads((tmp_path / "shards" / "manifest.json").read_text())["files"]
    assert [file["first"] for file in files] == [0, 16], "the manifest lists what is there"
    monkeypatch.setattr(bulk_run, "make_shard", make_shard)
    assert sample_to_shards(tiny, N, tmp_path / "shards", **OPTIONS).made == N - 32
    assert contents(tmp_path / "shards") == contents(whole)


def test_rank_0_stops_while_it_waits_for_others(tmp_path: Path, tiny: AnytimeModel) -> None:
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    request = bulk_request(tiny, 20, **OPTIONS)
    result = run_rank(tiny, request, tmp_path / "shards", Ranks(0, 2, 0), SilentReporter(), stop)
    assert not result.complete and result.rows in (0, 16), "a slow machine may not have made its shard"


def test_a_rank_without_the_directory_of_rank_0_gives_up(tmp_path: Path, tiny: AnytimeModel) -> None:
    folder = ShardFolder(tmp_path / "elsewhere", bulk_request(tiny, N, **OPTIONS), is_main=False)
    with pytest.raises(UserError, match=r"rank 0 has not written .* all ranks must see the same `out`"):
        folder.open(wait=0.1)
    assert not folder.path.exists()
