from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from anytime.core.errors import UserError
from anytime.data import DATASETS, get, load
from anytime.data.download import cache_dir

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
    files = [replace(file, url=url + file.name, hash=md5(mnist / file.name)) for file in DATASETS["mnist"].files]
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], files=tuple(files)))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def md5(path: Path) -> str:
    return "md5:" + hashlib.md5(path.read_bytes()).hexdigest()


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
    with pytest.raises(UserError, match=rf"{NAME} .*expected md5:\w+, got md5:\w+.*{NAME}\.rejected.*data get mnist"):
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


def test_a_verified_file_is_not_hashed_again(server: ThreadingHTTPServer, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = get("mnist", cache)
    with monkeypatch.context() as patch:
        patch.setattr("anytime.data.download.digest", None)
        load("mnist", cache=cache)
    (folder / "verified.json").write_text("damaged")
    load("mnist", cache=cache)


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
    with pytest.raises(UserError, match="unknown dataset"):
        get("mnits", cache)


def test_the_environment_chooses_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYTIME_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("ANYTIME_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "anytime" in str(cache_dir())
