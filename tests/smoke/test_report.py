"""What a finished run leaves: the files the documentation names, and a report that needs nothing but itself."""

from __future__ import annotations

import base64
import html.parser
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from anytime.cli import main
from anytime.model import load

Finished = Callable[[str], Path]


class Page(html.parser.HTMLParser):
    """All attributes and all text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_report_is_one_file(finished: Finished) -> None:
    """Nothing is fetched: every source is in the page, nothing links out, and there is no script."""
    page = Page((finished("best") / "report.html").read_text())
    sources = [value for _, name, value in page.attributes if name in ("src", "href", "srcset", "data", "poster", "action")]
    assert len(sources) == 5
    assert all(source.startswith("data:image/") for source in sources)
    assert not {tag for tag, _, _ in page.attributes} & {"script", "link", "iframe", "object"}
    assert "url(" not in page.text
    assert "@import" not in page.text


def test_the_report_holds_the_figures(finished: Finished) -> None:
    run = finished("best")
    page = Page((run / "report.html").read_text())
    images = [
        Image.open(io.BytesIO(base64.b64decode(value.partition(",")[2])))
        for tag, name, value in page.attributes
        if (tag, name) == ("img", "src")
    ]
    assert [image.format for image in images] == ["PNG", "GIF", "PNG", "PNG", "PNG"]
    by_length, movie, losses, errors, code_stats = images
    with Image.open(run / "samples" / "by-length.png") as same:
        np.testing.assert_array_equal(np.asarray(same), np.asarray(by_length))
    assert movie.n_frames == 16
    for figure in (losses, errors, code_stats):
        assert len(np.unique(np.asarray(figure.convert("L")))) > 10  # lines and letters, not an empty sheet
    for words in ("Loss by epoch", "Held-out reconstruction error", "best epoch", "anytime train digits", '"pretrain"'):
        assert words in page.text


def test_run_directory_contents(finished: Finished) -> None:
    run = finished("best")
    config = json.loads((run / "config.json").read_text())
    assert config["format"] == 1
    assert config["pretrain"]["epochs"] == 6
    starts = json.loads((run / "environment.json").read_text())["starts"]
    assert [start["examples"] for start in starts] == [256]
    assert {"anytime", "torch", "python", "hardware", "ranks", "commit", "command", "data", "date"} <= set(starts[0])
    explained = {"source", "libraries", "cpu", "threads", "cuda", "math", "variables", "data_digest", "data_sha256", "started"}
    assert explained <= set(starts[0])
    assert starts[0]["variables"]["OMP_NUM_THREADS"] == "1"
    assert starts[0]["libraries"]["numpy"] == np.__version__
    errors = json.loads((run / "errors.json").read_text())["error_by_codes"]
    assert len(errors) == 17
    assert all(0 < error < 1 for error in errors)
    names = {path.name for path in (run / "samples").iterdir()}
    assert {"by-length.png", "refining.gif", "pretrain-0006.png", "ordered-0006.png", "prior-0006.png"} <= names
    assert {path.name for path in (run / "model").iterdir()} == {"config.json", "model.safetensors"}
    assert not list(run.rglob("*.partial"))


def test_run_has_code_stats(finished: Finished, capsys: Any) -> None:
    """Written when the stages end; `info` shows it without computing anything."""
    run = finished("best")
    code_stats = json.loads((run / "code_stats.json").read_text())
    assert code_stats.pop("format") == 1
    assert code_stats.keys() == {"ordered", "prior"}
    assert [len(code_stats["ordered"][name]) for name in ("error", "gain", "entropy")] == [17, 16, 16]
    assert len(code_stats["prior"]["bits"]) == 16
    prior = [line for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if line["stage"] == "prior"]
    best = min(line["validation"]["loss"] for line in prior)
    assert np.mean(code_stats["prior"]["bits"]) * np.log(2) == pytest.approx(best, rel=1e-4), "the weights that are kept"
    said = run.with_suffix(".err").read_text()
    assert all(f"usual at smoke scale: {text}" in said for text in code_stats["ordered"]["warnings"])
    with pytest.raises(SystemExit):
        main(["info", str(run), "--json"])
    *lines, last = capsys.readouterr().out.splitlines()
    assert json.loads(last)["code_stats"] == code_stats["ordered"] | code_stats["prior"]
    assert any(line.split() == ["code", "error", "gain", "entropy", "bits"] for line in lines)
    assert [line.split()[0] for line in lines if "█" in line] == ["gain", "entropy", "bits"]
    assert "Code statistics" in (run / "report.html").read_text()


def test_training_ends_with_a_json_document(finished: Finished) -> None:
    run = finished("best")
    *lines, last = run.with_suffix(".out").read_text().splitlines()
    document = json.loads(last)
    assert document["run"] == str(run)
    for name in ("model", "grid", "animation", "errors", "report"):
        assert Path(document[name]).exists()
        assert any(document[name] in line for line in lines)
    assert len(document["error_by_codes"]) == 17
    assert "synthetic" not in run.with_suffix(".err").read_text()


def test_the_run_can_be_used_at_once(finished: Finished, tmp_path: Path, capsys: Any) -> None:
    run = finished("best")
    for words in (["sample", run, "--fraction", "0.25", "--out", tmp_path / "x.png"], ["info", run, "--check", "--json"]):
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            assert end.code == 0
    assert all(json.loads(capsys.readouterr().out.splitlines()[-1])["check"].values())
    assert load(run).hash == load(run / "model").hash
