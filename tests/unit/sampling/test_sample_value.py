"""A sample as a value: its length, rows, equality, text, files and how Jupyter shows it."""

from __future__ import annotations

import base64
import copy
import io
import pickle
import re
import sys
import wave
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageShow

from anytime.model import AnytimeModel
from anytime.sampling.sample import Sample
from anytime.sampling.sample_file import read_npz

Refused = Callable[..., str]


@pytest.fixture
def sample(tiny: AnytimeModel) -> Sample:
    return tiny.sample(4, seed=3, codes=2)


@pytest.fixture
def audio(sample: Sample) -> Sample:
    return replace(sample, data=torch.linspace(-1, 1, 4 * 1600).reshape(4, 1, 1600), session=None)


def test_rows_are_indexed_by_position_and_keep_their_numbers(sample: Sample, tiny: AnytimeModel) -> None:
    assert len(sample) == 4
    assert [part.rows.tolist() for part in sample] == [[0], [1], [2], [3]]
    assert sample[-1].rows.tolist() == [3]
    assert sample[1:][0].rows.tolist() == [1], "a row of a part keeps its number"
    assert sample[[2, 0]].rows.tolist() == [2, 0]
    assert sample[torch.tensor([False, True, False, True])].rows.tolist() == [1, 3]
    assert torch.equal(sample[2].data, sample.data[2:3]) and torch.equal(sample[2].codes, sample.codes[2:3])
    assert torch.equal(tiny.refine(sample[2]).codes, tiny.sample(4, seed=3).codes[2:3])
    with pytest.raises(IndexError):
        sample[4]


def test_equal_contents_are_equal(sample: Sample, tiny: AnytimeModel) -> None:
    again = tiny.sample(4, seed=3, codes=2)
    assert sample == again and hash(sample) == hash(again), "the time it took does not matter"
    assert sample == copy.deepcopy(sample) == pickle.loads(pickle.dumps(sample))
    assert sample != tiny.sample(4, seed=4, codes=2)
    assert sample != tiny.sample(4, seed=3, codes=3)
    assert sample != replace(sample, data=sample.data + 1)
    assert sample != replace(sample, rows=sample.rows + 1)
    assert sample != sample[:2]
    assert sample != "a sample"


def test_the_text_is_one_short_line(sample: Sample, audio: Sample) -> None:
    assert re.fullmatch(r"Sample\(4 images of 1 × 28 × 28, 2 codes, seed 3, \S+ s, model [0-9a-f]{12}\)", repr(sample))
    assert repr(audio[0]).startswith("Sample(1 audio clip of 1 × 1600, 2 codes")


def test_jupyter_shows_an_image_grid(sample: Sample) -> None:
    found = re.search(r'src="data:image/png;base64,([^"]+)"', sample._repr_html_())
    assert found is not None
    png = sample._repr_png_()
    assert png == base64.b64decode(found[1])
    assert png is not None
    assert Image.open(io.BytesIO(png)).size == (118, 118), "two by two, enlarged twice"


def test_jupyter_shows_audio_players(audio: Sample) -> None:
    players = re.findall(r'<audio controls src="data:audio/wav;base64,([^"]+)"', audio._repr_html_())
    assert len(players) == 4
    with wave.open(io.BytesIO(base64.b64decode(players[0]))) as file:
        assert file.getnframes() == 1600
    many = audio[[0] * 9]
    assert many._repr_html_().count("<audio") == 8
    assert "the first 8 are shown" in many._repr_html_()


def test_samples_are_saved_by_suffix(sample: Sample, audio: Sample, tmp_path: Path) -> None:
    assert read_npz(sample.save(tmp_path / "a.npz"), "a") == sample
    with Image.open(sample.save(str(tmp_path / "a.PNG"))) as image:
        assert image.size == (62, 62)
    assert sorted(path.name for path in sample.save(tmp_path / "each").iterdir()) == [f"x-000{row}.png" for row in range(4)]
    (tmp_path / "v1.0").mkdir()
    assert len(list(sample.save(tmp_path / "v1.0").iterdir())) == 4, "a directory with a dot"
    audio.save(tmp_path / "one.wav")
    assert sorted(path.name for path in tmp_path.glob("*.wav")) == [f"one-000{row}.wav" for row in range(4)]
    assert audio[1].save(tmp_path / "single.wav").is_file()


def test_a_wrong_place_is_refused(sample: Sample, tmp_path: Path, refused: Refused) -> None:
    assert "`path` a.jpg: the suffix .jpg is not known" in refused(sample.save, "a.jpg")
    assert "`path` is empty" in refused(sample.save, "")
    assert "these samples are images" in refused(sample.save, tmp_path / "a.wav")
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refused(sample.save, tmp_path / "file" / "a.npz")


def test_show_opens_the_grid(sample: Sample, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    shown = list[Image.Image]()
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(ImageShow, "show", lambda image: shown.append(image) or True)  # type: ignore[func-returns-value]
    sample.show()
    assert np.asarray(shown[0]).shape == (118, 118)
    monkeypatch.setattr(ImageShow, "show", lambda image: False)
    assert "no image viewer" in refused(sample.show)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no DISPLAY")
def test_without_a_display_no_viewer_is_started(sample: Sample, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(ImageShow, "show", lambda image: pytest.fail("a viewer was started"))
    assert "no image viewer" in refused(sample.show)
