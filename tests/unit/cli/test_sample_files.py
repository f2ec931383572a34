"""`anytime sample`: the suffix of --out decides the format, and the same request gives the same bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image

from anytime.cli import output
from anytime.cli.sample import rows_within
from anytime.model import AnytimeModel, load
from anytime.sampling.sample import Sample

Command = Callable[..., Any]


def test_png_is_a_grid(command: Command, model: Path, tmp_path: Path) -> None:
    outcome = command("sample", model, "-n", 9, "--codes", 3, "--out", "grid.png")
    assert outcome.status == 0
    assert outcome.err == ""
    assert "9 samples of 3 of 8 codes" in outcome.out
    with Image.open(tmp_path / "grid.png") as image:
        assert image.mode == "L"
        assert image.size == (3 * 30 + 2, 3 * 30 + 2)


def test_default_output_is_samples_png(command: Command, model: Path, tmp_path: Path) -> None:
    assert command("sample", model).status == 0
    assert [path.name for path in tmp_path.iterdir()] == ["samples.png"]
    with Image.open(tmp_path / "samples.png") as image:
        assert image.size == (8 * 30 + 2, 8 * 30 + 2)


def test_arrays_have_the_names_and_values_of_a_sample(command: Command, model: Path, tmp_path: Path) -> None:
    words = ("--codes", 5, "--seed", 7, "--temperature", 0.5, "--top-k", 9, "--top-p", 0.75, "--prefix", "3,1")
    assert command("sample", model, "-n", 3, *words, "--out", "deep/x.npz").status == 0
    expected = load(model).sample(
        3, seed=7, codes=5, temperature=0.5, top_k=9, top_p=0.75, prefix=torch.tensor([[3, 1]])
    )  # fmt: skip
    with np.load(tmp_path / "deep" / "x.npz", allow_pickle=False) as arrays:
        assert set(arrays) == {"data", "codes", "seconds", "seed", "rows", "settings", "model"}
        assert set(arrays) <= {field.name for field in fields(Sample)}
        assert arrays["data"].dtype == np.float32
        np.testing.assert_array_equal(arrays["data"], expected.data.numpy())
        np.testing.assert_array_equal(arrays["codes"], expected.codes.numpy())
        assert (arrays["codes"][:, :2] == [3, 1]).all()
        np.testing.assert_array_equal(arrays["rows"], [0, 1, 2])
        assert int(arrays["seed"]) == 7
        assert str(arrays["model"]) == expected.model
        assert json.loads(str(arrays["settings"])) == asdict(expected.settings)
        assert float(arrays["seconds"]) > 0


def test_the_same_request_gives_the_same_codes_and_another_seed_others(command: Command, model: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        command("sample", model, "-n", 4, "--seed", seed, "--out", f"{name}.png")
    a, b, c = ((tmp_path / f"{name}.png").read_bytes() for name in "abc")
    assert a == b != c


def test_a_fraction_is_a_number_of_codes(command: Command, model: Path, tmp_path: Path) -> None:
    command("sample", model, "-n", 4, "--fraction", 0.25, "--out", "fraction.png")
    command("sample", model, "-n", 4, "--codes", 2, "--out", "codes.png")
    assert (tmp_path / "fraction.png").read_bytes() == (tmp_path / "codes.png").read_bytes()


def test_gif_has_one_frame_per_code(command: Command, model: Path, tmp_path: Path) -> None:
    assert command("sample", model, "-n", 4, "--codes", 5, "--out", "x.gif").status == 0
    with Image.open(tmp_path / "x.gif") as image:
        assert image.n_frames == 5
        assert image.size == (2 * 30 + 2, 2 * 30 + 2)


def test_folder_has_one_image_per_sample(command: Command, model: Path, tmp_path: Path) -> None:
    assert command("sample", model, "-n", 3, "--out", "images").status == 0
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == ["x-0000.png", "x-0001.png", "x-0002.png"]
    expected = load(model).sample(3, seed=0).uint8()
    for row in range(3):
        with Image.open(tmp_path / "images" / f"x-{row:04}.png") as image:
            np.testing.assert_array_equal(np.asarray(image), expected[row, 0].numpy())


def test_earlier_samples_in_the_directory_are_reported(command: Command, model: Path, tmp_path: Path) -> None:
    assert command("sample", model, "-n", 5, "--out", "images").out.rstrip().endswith(": images")
    (tmp_path / "images" / "mine.png").touch()
    assert command("sample", model, "-n", 5, "--out", "images").out.rstrip().endswith(": images"), "all are written anew"
    assert (
        command("sample", model, "-n", 3, "--out", "images")
        .out.rstrip()
        .endswith(": images, beside 2 files of earlier samples")
    )
    assert len(list((tmp_path / "images").iterdir())) == 6, "nothing is lost"


class Clockwork:
    """A fake model that takes a millisecond per row of one code, and ten times as long at first."""

    def __init__(self) -> None:
        self.asked = list[int]()

    def sample(self, n: int, *, codes: int) -> SimpleNamespace:
        self.asked.append(n)
        return SimpleNamespace(seconds=0.001 * n * codes * (10 if len(self.asked) == 1 else 1))


@pytest.mark.parametrize(("within", "rows"), [(1.0, 64), (0.128, 64), (0.127, 32), (0.02, 8), (0.004, 2), (1e-6, 1)])
@pytest.mark.filterwarnings("ignore::anytime.sampling.budget.DeadlineWarning")
def test_number_of_samples_fits_the_deadline(within: float, rows: int) -> None:
    model = Clockwork()
    assert rows_within(cast(AnytimeModel, model), within) == rows, "one code of them takes at most half of the time"
    assert model.asked == [64, 64], "what is cold is not counted"


def test_deadline_sets_the_default_number_of_samples(command: Command, model: Path) -> None:
    many = command("sample", model, "--within", "100s", "--json")
    assert json.loads(many.out.splitlines()[-1])["n"] == 64
    few = command("sample", model, "--within", "1us", "--json")
    assert json.loads(few.out.splitlines()[-1]).items() >= {"n": 1, "codes": 1}.items()
    assert "note: 1 sample, because the first code of 64 takes" in few.out
    asked = command("sample", model, "-n", 3, "--within", "1us", "--json")
    assert json.loads(asked.out.splitlines()[-1])["n"] == 3, "-n is kept"
    assert "--within must be above 0" in command("sample", model, "--within", "-1s").err


def test_more_than_a_thousand_samples_are_written_as_shards(
    command: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert output.MAX_FILES == 1000
    monkeypatch.setattr(output, "MAX_FILES", 10)
    command("sample", model, "-n", 10, "--codes", 1, "--out", "files")
    assert len(list((tmp_path / "files").iterdir())) == 10
    assert command("sample", model, "-n", 1100, "--codes", 2, "--out", "shards").status == 0
    manifest = json.loads((tmp_path / "shards" / "manifest.json").read_text())
    assert (manifest["format"], manifest["n"], manifest["seed"], manifest["model"]) == (1, 1100, 0, load(model).hash)
    named = [file["file"] for file in manifest["files"]]
    assert {path.name for path in (tmp_path / "shards").iterdir()} == {*named, "manifest.json"}
    shards = [np.load(tmp_path / "shards" / name, allow_pickle=False) for name in named]
    expected = load(model).sample(1100, seed=0, codes=2)
    np.testing.assert_array_equal(np.concatenate([shard["codes"] for shard in shards]), expected.codes.numpy())
    np.testing.assert_array_equal(np.concatenate([shard["data"] for shard in shards]), expected.data.numpy())
    np.testing.assert_array_equal(np.concatenate([shard["rows"] for shard in shards]), np.arange(1100))


def test_json_is_the_last_line(command: Command, model: Path) -> None:
    outcome = command("sample", model, "-n", 2, "--codes", 3, "--seed", 5, "--json", "--out", "x.png")
    document = json.loads(outcome.out.splitlines()[-1])
    assert document.pop("seconds") > 0
    hashed = load(model).hash
    assert document.items() >= {"out": "x.png", "n": 2, "codes": 3, "length": 8, "seed": 5, "model": hashed}.items()


def test_an_old_file_is_replaced_whole(command: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"old")
    assert command("sample", model, "-n", 2, "--out", "x.npz").status == 0
    assert set(np.load(io.BytesIO((tmp_path / "x.npz").read_bytes()))) >= {"data", "codes"}
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]
