from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from anytime.core.errors import UserError
from anytime.data import DATASETS, get, load
from anytime.data.download import RemoteFile, cache_dir

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
NAME = "train-images-idx3-ubyte.gz"


class Quiet(SimpleHTTPRequestHandler):
    cut = 0  # bytes that are announced but never sent

    def log_message(self, *arguments: object) -> None:
        pass

    def send_header(self, keyword: str, value: str) -> None:
        super().send_header(keyword, str(int(value) + self.cut) if keyword == "Content-Length" else value)


@pytest.fixture
def server(mnist: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    """Serve the small MNIST on the loopback, with the registry pointing there."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(mnist)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/"
    files = [replace(file, url=url + file.name, hash=sha256(mnist / file.name)) for file in DATASETS["mnist"].files]
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], files=tuple(files)))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def sha256(path: Path) -> str:
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


def test_get_then_load(server: ThreadingHTTPServer, cache: Path, mnist: Path) -> None:
    assert get("mnist", cache) == cache / "mnist"
    assert len(load("mnist", cache=cache).train) == 90
    (mnist / NAME).unlink()
    get("mnist", cache)  # nothing is missing, so nothing is requested
    assert sorted(path.name for path in (cache / "mnist").iterdir()) == sorted(
        [*(f.name for f in DATASETS["mnist"].files), "verified.json"]
    )


def test_an_altered_download_is_moved_aside(server: ThreadingHTTPServer, cache: Path, mnist: Path) -> None:
    whole = (mnist / NAME).read_bytes()
    (mnist / NAME).write_bytes(whole[:-1])
    with pytest.raises(UserError, match=rf"{NAME} .*expected sha256:\w+, got sha256:\w+.*{NAME}\.rejected.*data get mnist"):
        get("mnist", cache)
    assert [path.name for path in (cache / "mnist").iterdir()] == [f"{NAME}.rejected"]
    (mnist / NAME).write_bytes(whole)
    get("mnist", cache)
    assert len(load("mnist", cache=cache).train) == 90


@pytest.mark.parametrize("use", [lambda cache: load("mnist", cache=cache), lambda cache: get("mnist", cache)])
def test_a_cached_file_that_changed_is_moved_aside(server: ThreadingHTTPServer, cache: Path, use: object) -> None:
    cached = get("mnist", cache) / NAME
    cached.write_bytes(cached.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"damaged or altered .*\.rejected"):
        use(cache)  # type: ignore[operator]
    assert not cached.exists()
    assert cached.with_name(f"{NAME}.rejected").exists()
    get("mnist", cache)
    assert len(load("mnist", cache=cache).train) == 90


def test_a_large_verified_file_is_not_hashed_again(
    server: ThreadingHTTPServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anytime.data.download.ALWAYS_HASHED", 0)
    folder = get("mnist", cache)
    with monkeypatch.context() as patch:
        patch.setattr("anytime.data.download.digest", None)
        load("mnist", cache=cache)
    for damaged in ("damaged", "[" * 100_000):
        (folder / "verified.json").write_text(damaged)
        load("mnist", cache=cache)


@pytest.mark.parametrize("always_hashed", [0, 1 << 28])
def test_a_cached_file_altered_at_the_same_size_and_time_is_found(
    server: ThreadingHTTPServer, cache: Path, monkeypatch: pytest.MonkeyPatch, always_hashed: int
) -> None:
    """In place, or replaced by another file: the time of modification can be set back, the rest not."""
    monkeypatch.setattr("anytime.data.download.ALWAYS_HASHED", always_hashed)
    cached = get("mnist", cache) / NAME
    times, content = cached.stat(), bytearray(cached.read_bytes())
    content[-1] ^= 1
    cached.write_bytes(content)
    os.utime(cached, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(UserError, match=r"damaged or altered .*\.rejected"):
        load("mnist", cache=cache)


def test_only_sha256_is_accepted() -> None:
    with pytest.raises(ValueError, match="must be a SHA-256"):
        RemoteFile("a", "https://example.org/a", "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d", 1)


def test_a_server_that_sends_too_much_is_cut_off(
    server: ThreadingHTTPServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [replace(file, bytes=1000) for file in DATASETS["mnist"].files]
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], files=tuple(files)))
    with pytest.raises(UserError, match=r"cannot be downloaded \(it sends more than 1,000 bytes\)"):
        get("mnist", cache)
    assert not list((cache / "mnist").iterdir())


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="needs Debian's package dataset-fashion-mnist")
def test_the_checksums_of_fashion_mnist_are_those_of_the_published_files() -> None:
    """Debian removed name and time from the header of each gzip file; with both put back, the published bytes are there."""
    for file in DATASETS["fashion-mnist"].files:
        time = 1_504_176_606 if file.name.startswith("train") else 1_504_176_627
        header = b"\x1f\x8b\x08\x08" + time.to_bytes(4, "little") + b"\0\3" + file.name.removesuffix(".gz").encode() + b"\0"
        content = header + (DEBIAN / file.name).read_bytes()[10:]
        assert len(content) == file.bytes
        assert "sha256:" + hashlib.sha256(content).hexdigest() == file.hash


def test_a_connection_that_breaks_off(server: ThreadingHTTPServer, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quiet, "cut", 1000)
    with pytest.raises(
        UserError, match=rf"http://127\.0\.0\.1:\d+/{NAME} cannot be downloaded \(the connection broke off\).*--data DIR"
    ):
        get("mnist", cache)
    assert not list((cache / "mnist").iterdir())


def test_a_missing_page_and_no_network(
    server: ThreadingHTTPServer, cache: Path, mnist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mnist / NAME).unlink()
    with pytest.raises(UserError, match=r"cannot be downloaded \(status 404\).*--data DIR"):
        get("mnist", cache)
    nobody = [replace(file, url="http://127.0.0.1:9/x") for file in DATASETS["mnist"].files]
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], files=tuple(nobody)))
    with pytest.raises(UserError, match=r"http://127\.0\.0\.1:9/x cannot be downloaded \(no connection\).*--data DIR"):
        get("mnist", cache)


def test_a_cache_that_cannot_be_written(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot be written .*ANYTIME_CACHE"):
        get("mnist", tmp_path / "file")


def test_datasets_without_files(cache: Path) -> None:
    assert (get("digits", cache) / "digits.xz").exists()
    with pytest.raises(UserError, match="--data DIR"):
        get("folder", cache)
    with pytest.raises(UserError, match="`name` 'mnits' is not a dataset"):
        get("mnits", cache)


def test_the_environment_chooses_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYTIME_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("ANYTIME_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "anytime" in str(cache_dir())
