"""anytime export --to onnx and --to aoti: what they write and refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_onnx_files_are_written_with_a_runner(saved: Path, command: Callable[..., Any], tmp_path: Path) -> None:
    outcome = command("export", saved, "--to", "onnx", "--out", "out", "--json")
    assert outcome.status == 0, outcome.err
    assert "python out/sample.py" in outcome.out
    made = json.loads(outcome.out.splitlines()[-1])
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"prior.onnx", "decoder.onnx", "model.json", "runner.py", "sample.py", "README.md"}
    assert made["bytes"] == sum(path.stat().st_size for path in (tmp_path / "out").iterdir())
    description = json.loads((tmp_path / "out" / "model.json").read_text())
    assert description["model"] == made["hash"]
    assert description["files"]["prior"]["bytes"] == made["files"]["prior.onnx"]


@pytest.mark.parametrize("to", ["onnx", "aoti"])
def test_mistakes_are_refused(to: str, saved: Path, refused: Callable[..., str], tmp_path: Path) -> None:
    assert f"--to {to} needs --out DIR" in refused("export", saved, "--to", to)
    for option in (("--name", "x"), ("--codes", 3), ("--temperature", 2), ("--weights", "int8"), ("--evaluation", "x.json")):
        sentence = refused("export", saved, "--to", to, "--out", "out", *option)
        assert f"{option[0]} is for --to bundle" in sentence
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    assert "--out full is not empty: it holds letter.txt" in refused("export", saved, "--to", to, "--out", "full")
    assert "cannot be written" in refused("export", saved, "--to", to, "--out", "full/letter.txt/x")
    assert "is not a model" in refused("export", "nowhere", "--to", to, "--out", "out")
    assert "is the directory of a run or a model" in refused("export", saved, "--to", to, "--out", saved)


def test_without_a_compiler_a_sentence_names_it(
    saved: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_compiler() -> str:
        raise RuntimeError("no working compiler")

    monkeypatch.setattr("torch._inductor.cpp_builder.get_cpp_compiler", no_compiler)
    assert "--to aoti needs a C++ compiler" in refused("export", saved, "--to", "aoti", "--out", "out")
