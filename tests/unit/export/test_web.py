"""The folder of a web export, with a made-up runtime: what is in it, and what is refused."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from anytime.cli import main
from anytime.core.errors import UserError
from anytime.data import download
from anytime.export import web, web_runtime
from anytime.export.web import POLICY, export_web
from anytime.export.web_runtime import FILES, PACKAGE, REGISTRY, VERSION, find_runtime, read_files, registry
from anytime.model import AnytimeModel, ModelConfig
from anytime.priors.lstm import LSTMConfig


def tarball(names: Sequence[str] = FILES) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("package.json", *(f"dist/{name}" for name in names), "../../escaped"):
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
    return buffer.getvalue()


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds a made-up package; there is no network."""
    content = tarball()
    monkeypatch.setenv("ANYTIME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(web_runtime, "PACKAGE", replace(PACKAGE, hash=f"sha256:{hashlib.sha256(content).hexdigest()}"))
    path = tmp_path / "cache" / "onnxruntime-web" / PACKAGE.name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_the_folder_is_complete(saved: Path, runtime: Path, tmp_path: Path, tiny: AnytimeModel) -> None:
    other = copy.deepcopy(tiny).save(tmp_path / "my second model")
    made = export_web([str(saved), str(other)], tmp_path / "page", progress=False)
    described = json.loads((made.folder / "models.json").read_text())["models"]
    assert [one["id"] for one in described] == ["saved", "my-second-model"] == list(made.models)
    for one in described:
        assert one["length"] == tiny.length and one["shape"] == [1, 28, 28] and one["sample_rate"] is None
        assert one["start_token"] == one["codebook_size"] == tiny.codebook_size
        for file in one["files"].values():
            assert (made.folder / one["folder"] / file["name"]).stat().st_size == file["bytes"]
    assert {path.name for path in (made.folder / "runtime").iterdir()} == {*FILES, "LICENSE"}
    assert "MIT License" in (made.folder / "runtime" / "LICENSE").read_text()
    assert (made.folder / "runtime" / FILES[0]).read_text() == f"dist/{FILES[0]}"
    assert made.bytes == sum(path.stat().st_size for path in made.folder.rglob("*") if path.is_file())
    assert not (tmp_path.parent / "escaped").exists()


def test_every_script_that_is_imported_is_there(saved: Path, runtime: Path, tmp_path: Path) -> None:
    folder = export_web([str(saved)], tmp_path / "page", progress=False).folder
    scripts = {path.name: path.read_text() for path in folder.glob("*.js")}
    for text in scripts.values():
        for line in text.splitlines():
            if line.startswith("import "):
                assert line.rstrip(";").rpartition(" ")[2].strip('"').removeprefix("./") in scripts
    assert all(
        build in FILES for build in ("ort.wasm.bundle.min.mjs", "ort.jspi.bundle.min.mjs") if build in scripts["worker.js"]
    )
    assert scripts["source.js"] != (Path(web.__file__).parents[1] / "server" / "static" / "source.js").read_text()


def test_the_page_has_a_strict_policy_before_anything_that_it_governs(saved: Path, runtime: Path, tmp_path: Path) -> None:
    text = (export_web([str(saved)], tmp_path / "page", progress=False).folder / "index.html").read_text()
    before, _, after = text.partition(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">')
    assert after and "<link" not in before and "<script" not in before
    assert "'unsafe-inline'" not in POLICY and "'unsafe-eval'" not in POLICY and "default-src 'none'" in POLICY
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text


@pytest.mark.parametrize("name", ["notes.txt", "index.html"])
def test_a_directory_with_files_is_refused(name: str, saved: Path, runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / name).write_text("mine")
    with pytest.raises(UserError, match=rf"page is not empty: it holds {name}; name an empty or a new directory"):
        export_web([str(saved)], tmp_path / "page", progress=False)
    assert [path.name for path in (tmp_path / "page").iterdir()] == [name]


def test_an_export_that_was_killed_is_completed(
    saved: Path, runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(web, "_index", lambda page: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            export_web([str(saved)], tmp_path / "page", progress=False)
    assert not (tmp_path / "page" / "index.html").exists()
    assert (export_web([str(saved)], tmp_path / "page", progress=False).folder / "index.html").is_file()


def test_a_mistake_in_a_later_model_leaves_nothing(saved: Path, runtime: Path, tmp_path: Path, tiny: AnytimeModel) -> None:
    config = tiny.config
    prior = LSTMConfig(length=tiny.length, codebook_size=tiny.codebook_size, width=8, layers=1)
    lstm = AnytimeModel(ModelConfig(name="digits", autoencoder=config.autoencoder, prior=prior)).save(tmp_path / "lstm")
    for wrong, match in (
        (lstm, "Transformer"),
        (tmp_path / "nothing", "is not a model"),
        (saved, "saved is named twice"),
        (AnytimeModel(config).save(tmp_path / "saved"), "two models are called saved"),
    ):
        with pytest.raises(UserError, match=match):
            export_web([str(saved), str(wrong)], tmp_path / "page", progress=False)
    assert not (tmp_path / "page").exists()


def run(*words: object) -> int:
    """Run a command; return its exit status."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return int(end.value.code or 0)


def test_several_models_are_for_web_only(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("export", saved, saved, "--to", "onnx", "--out", tmp_path / "out") == 2
    assert "--to onnx takes one MODEL, not 2; only --to web takes several" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_command_says_what_it_wrote(saved: Path, runtime: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("export", saved, "--to", "web", "--out", tmp_path / "page", "--json") == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document["models"]["saved"] > 0 and document["folder"] == str(tmp_path / "page")
    assert run("export", saved, "--to", "web") == 2
    assert "--to web needs --out DIR" in capsys.readouterr().err


def test_a_damaged_runtime_is_not_used(saved: Path, runtime: Path, tmp_path: Path) -> None:
    runtime.write_bytes(b"something else")
    with pytest.raises(UserError, match=r"is damaged or altered .* `npm pack onnxruntime-web@"):
        export_web([str(saved)], tmp_path / "page", progress=False)
    assert not (tmp_path / "page").exists() and not runtime.exists()


def test_without_a_network_the_command_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYTIME_CACHE", str(tmp_path))
    monkeypatch.setattr(web_runtime, "registry", lambda: "http://127.0.0.1:9")  # the discard port: nobody answers
    with pytest.raises(UserError, match=r"cannot be downloaded \(no connection\): .* `npm pack onnxruntime-web@"):
        find_runtime(progress=False)


def test_the_download_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    def fetch(file: download.RemoteFile, partial: Path, progress: bool, advice: str) -> None:
        asked.append(file.url)
        partial.write_bytes(b"another package")

    monkeypatch.setenv("ANYTIME_CACHE", str(tmp_path))
    monkeypatch.setattr(download, "_fetch", fetch)
    monkeypatch.setattr(web_runtime, "registry", lambda: "https://mirror.example")
    with pytest.raises(UserError, match="damaged or altered"):
        find_runtime(progress=False)
    assert asked == [f"https://mirror.example/onnxruntime-web/-/onnxruntime-web-{VERSION}.tgz"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("https://npm.example/path/\n", "https://npm.example/path"), ("undefined\n", REGISTRY), (None, REGISTRY)],
)
def test_the_registry_is_npm_s(answer: str | None, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def answering(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if answer is None:
            raise FileNotFoundError
        return subprocess.CompletedProcess(command, 0, answer, "")

    monkeypatch.delenv("NPM_CONFIG_REGISTRY", raising=False)
    monkeypatch.setattr(subprocess, "run", answering)
    assert registry() == expected


def test_a_package_without_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "package.tgz").write_bytes(tarball(FILES[1:]))
    with pytest.raises(UserError, match=f"lacks {FILES[0]}"):
        read_files(tmp_path / "package.tgz")
