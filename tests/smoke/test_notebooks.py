"""The notebooks run from top to bottom, and what they show is what a reader expects: images, players and progress bars."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbmake.nb_run import NotebookRun

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 240  # of a cell; a busy machine is slow

EXTRA = """
import torch
from anytime.core.progress import DownloadBar, default_reporter, track
from anytime.sampling.sample import Sample
from anytime.sampling.gumbel import SamplingSettings
from anytime.sampling import sampling_bar

tones = torch.sin(torch.arange(8000) / 20).expand(2, 1, -1) / 2
display(Sample(tones, torch.zeros(2, 3).long(), 0.1, 0, torch.arange(2), SamplingSettings(), "0" * 64))
---
list(track(range(5), 5, "reading <files>", delay=0.0));
bar = DownloadBar("weights.pt", 100)
bar.update(60)
bar.update(40)
bar.close()
---
reporter = default_reporter()
reporter.stage("pretrain", 0, 50)
reporter.progress(50, {"loss": 0.5})
reporter.stage("ordered", 10, 50)
reporter.say("encoding 256 examples")
---
sampling_bar.SHOW_AFTER = 0.0
many = model.sample(600, seed=0)
---
model.sample(16, seed=0).show()
"""


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A place for the notebooks and everything that Jupyter writes."""
    folder = tmp_path_factory.mktemp("notebooks")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "ANYTIME_CACHE"):
            patch.setenv(name, str(folder / name.lower()))
        yield folder


def execute(path: Path, folder: Path, more: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Execute a copy of a notebook, with more cells at its end; yield the source and the outputs of each cell."""
    notebook = nbformat.read(path, 4)
    notebook.cells += [nbformat.v4.new_code_cell(cell.strip()) for cell in more.split("---") if more]
    nbformat.write(notebook, folder / path.name)
    result = NotebookRun(folder / path.name, SECONDS).execute()
    assert result.error is None, result.error.trace
    for cell in result.nb.cells:
        if cell.cell_type == "code":
            yield cell.source, cell.outputs


def shown(outputs: list[Any], mime: str) -> list[str]:
    return [output["data"][mime] for output in outputs if mime in output.get("data", {})]


def printed(outputs: list[Any], stream: str = "stdout") -> str:
    return "".join(output["text"] for output in outputs if output.get("name") == stream)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stripped_and_runs_on_any_python(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None and cell["metadata"] == {} for cell in code)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert path.stat().st_size < 20_000
    nbformat.validate(nbformat.read(path, 4))
    assert all(len("".join(cell["source"]).splitlines()) <= 12 for cell in code), "cells are short"
    links = re.findall(r"\]\((?!http)(.*?)\)", path.read_text(encoding="utf-8"))
    assert all((FOLDER / link).exists() for link in links)


def test_there_are_two_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["ten-minutes", "train-on-your-own-images"]


def test_ten_minutes(jupyter: Path) -> None:
    """Also what the package shows in any notebook: audio players, and a bar for everything that takes long."""
    cells = dict(execute(FOLDER / "ten-minutes.ipynb", jupyter, EXTRA))
    views = [shown(outputs, "text/html") for outputs in cells.values()]
    grids = [view for view in itertools.chain(*views) if 'src="data:image/png;base64,' in view]
    assert len(grids) == 11  # one for each sample that a cell ends with or displays; the last is `show`
    assert all("images of 1 × 28 × 28" in grid for grid in grids)
    (streamed,) = shown(next(outputs for source, outputs in cells.items() if "model.stream" in source), "text/html")
    assert "16 codes" in streamed, "the view shows the last sample"

    audio, bars, stages, sampling, _ = list(cells.values())[-5:]
    (players,) = shown(audio, "text/html")
    assert players.count('<audio controls src="data:audio/wav;base64,') == 2
    reading, download = shown(bars, "text/html")
    assert re.search(r'<progress value="5" max="5".*reading &lt;files&gt;  100 %  5 of 5', reading)
    assert re.search(r'<progress value="100" max="100".*weights.pt  100 %', download)
    assert re.fullmatch(r"reading <files>  100 %  5 of 5  \d+ s", shown(bars, "text/plain")[0])
    pretrain, ordered = shown(stages, "text/plain")
    assert re.fullmatch(r"pretrain  100 %  50 of 50  \d+ s  loss 0.5", pretrain)
    assert re.fullmatch(r"ordered  20 %  10 of 50  \d+ s", ordered)
    assert printed(stages) == "encoding 256 examples\n"
    (bar,) = shown(sampling, "text/plain")
    assert re.fullmatch(r"sampling  100 %  16 of 16  \d+ s  codes of 600 samples", bar)


def test_train_on_your_own_images(jupyter: Path) -> None:
    cells = dict(execute(FOLDER / "train-on-your-own-images.ipynb", jupyter))
    trained = next(outputs for source, outputs in cells.items() if source.startswith("%anytime train"))
    bars = shown(trained, "text/plain")
    assert [bar.split()[:3] for bar in bars] == [[name, "100", "%"] for name in ("pretrain", "ordered", "prior")]
    assert all('<progress value="' in bar for bar in shown(trained, "text/html"))
    assert "model    runs/discs/model" in printed(trained)
    assert all(not printed(outputs, "stderr") for outputs in cells.values()), "no warning of a library"
    evaluated = next(outputs for source, outputs in cells.items() if source.startswith("%anytime evaluate"))
    assert {bar.split()[0] for bar in shown(evaluated, "text/plain")} >= {"samples", "reconstructions", "speed"}
    assert "frechet_random" in printed(evaluated)
    assert "warning" not in printed(evaluated).lower(), "smoke scale does not alarm beginners"
    starts = json.loads((jupyter / "runs/discs/environment.json").read_text(encoding="utf-8"))["starts"]
    assert starts[0]["command"].startswith("anytime train folder --data my-images"), "the line, not the kernel's arguments"
    assert any(
        "image/png" in output.get("data", {}) for output in cells['Image.open("reconstructed/000.png").resize((128, 128))']
    )
