"""Models of the Hugging Face Hub, against directories and a local stand-in for the server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from anytime.model import AnytimeModel
from anytime.models import hub

Refused = Callable[..., str]
COMMIT = "c" * 40


@pytest.fixture
def server(tiny: AnytimeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve the repositories below a directory, as the Hub does."""
    root = tmp_path / "hub"

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            words = self.path.partition("?")[0].strip("/").split("/")
            is_info = words[:2] == ["api", "models"]
            repo = root / "/".join(words[2:4] if is_info else words[:2])
            if not repo.is_dir():
                return self.answer(404, b"", {"X-Error-Code": "RepoNotFound"})
            if is_info and "tree" in words:
                tree = [{"type": "file", "path": p.name, "size": p.stat().st_size, "oid": p.name} for p in repo.iterdir()]
                return self.answer(200, json.dumps(tree).encode(), {})
            if is_info:
                files = [{"rfilename": path.name} for path in repo.iterdir()]
                return self.answer(200, json.dumps({"id": "u/m", "sha": COMMIT, "siblings": files}).encode(), {})
            content = (repo / words[-1]).read_bytes()
            return self.answer(200, content, {"ETag": f'"{words[-1]}"', "X-Repo-Commit": COMMIT})

        def answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    tiny.save_pretrained(root / "user" / "model")
    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{found.server_port}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    yield root
    found.shutdown()
    found.server_close()


def test_a_directory_round_trip(tiny: AnytimeModel, tmp_path: Path) -> None:
    folder = tiny.save_pretrained(tmp_path / "m")
    again = AnytimeModel.from_pretrained(folder).use(tiny.engine.name)
    assert again.hash == tiny.hash
    assert again.sample(4, seed=2) == tiny.sample(4, seed=2)
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: anytime\npipeline_tag: unconditional-image-generation\n")
    assert tiny.hash in card


def test_a_model_of_the_hub(tiny: AnytimeModel, server: Path) -> None:
    again = AnytimeModel.from_pretrained("user/model").use(tiny.engine.name)
    assert again.hash == tiny.hash
    assert again.sample(2) == tiny.sample(2)


def test_what_the_hub_does_not_have(server: Path, refused: Refused) -> None:
    assert "user/other is not on the Hub, or is private" in refused(AnytimeModel.from_pretrained, "user/other")
    assert "neither a directory nor a name" in refused(AnytimeModel.from_pretrained, "no such")
    assert "`anytime.load('mnist')` loads the bundled model" in refused(AnytimeModel.from_pretrained, "mnist")
    assert "`name` must be a directory or a name on the Hub" in refused(AnytimeModel.from_pretrained, "")
    (server / "user" / "model" / "pytorch_model.bin").write_bytes(b"")
    assert "pytorch_model.bin, a pickle" in refused(AnytimeModel.from_pretrained, "user/model")
    assert "pytorch_model.bin, a pickle" in refused(AnytimeModel.from_pretrained, server / "user" / "model")
    (server / "user" / "model" / "pytorch_model.bin").unlink()
    (server / "user" / "model" / "model.safetensors").unlink()
    assert "user/model has no model.safetensors" in refused(AnytimeModel.from_pretrained, "user/model")


def test_a_model_of_a_newer_format(server: Path, refused: Refused) -> None:
    config = server / "user" / "model" / "config.json"
    config.write_text(config.read_text().replace('"format": 1', '"format": 2'))
    assert "config.json has format 2, this version of anytime reads format 1" in refused(
        AnytimeModel.from_pretrained, "user/model"
    )


def test_without_network(tiny: AnytimeModel, server: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    AnytimeModel.from_pretrained("user/model")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert AnytimeModel.from_pretrained("user/model").hash == tiny.hash, "from the cache"
    assert "user/unseen cannot be read from the Hub" in refused(AnytimeModel.from_pretrained, "user/unseen")


def test_a_model_is_pushed(tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    calls = dict[str, Any]()

    class ForbiddenError(OSError):
        response = 403

    class Api:
        def create_repo(self, name: str, **settings: Any) -> str:
            calls["created"] = (name, settings)
            return f"https://hub/{name}"

        def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str) -> None:
            if repo_id == "me/forbidden":
                raise ForbiddenError("403 Forbidden")
            if repo_id == "me/offline":
                raise OSError("connection refused")
            calls["files"] = sorted(path.name for path in folder_path.iterdir())
            calls["card"] = (folder_path / "README.md").read_text()

    monkeypatch.setattr(hub, "_api", lambda token: Api())
    assert tiny.push_to_hub("me/model", private=True) == "https://hub/me/model"
    assert calls["created"] == ("me/model", {"private": True, "exist_ok": True})
    assert calls["files"] == ["README.md", "config.json", "model.safetensors"]
    assert 'from_pretrained("me/model")' in calls["card"]
    assert "cannot be uploaded (403 Forbidden); log in with `hf auth login`" in refused(tiny.push_to_hub, "me/forbidden")
    assert refused(tiny.push_to_hub, "me/offline").endswith("(connection refused); check the network")
    assert "`name` 'model' is not a name" in refused(tiny.push_to_hub, "model")
