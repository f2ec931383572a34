"""VCTK and AudioMNIST in all their layouts, and any folder of audio files."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image

from anytime.core.errors import UserError
from anytime.data import Dataset, load
from anytime.data.audio_datasets import split_speakers
from anytime.data.recordings import CROP, PADDING, Recordings


def write(path: Path, samples: int = 2 * CROP, rate: int = 16_000, pitch: float = 300.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.1 * np.sin(2 * np.pi * pitch * np.arange(samples) / rate), rate)


def names(dataset: Dataset) -> list[str]:
    assert isinstance(dataset.train, Recordings)
    return sorted({name.rpartition("/")[2] for name in dataset.train.names})


def zipped(folder: Path) -> Path:
    target = folder.with_suffix(".zip")
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return target


LAYOUTS = {
    "wav48": "wav48/{s}/{s}_{u}.wav",
    "corpus": "VCTK-Corpus/wav48/{s}/{s}_{u}.wav",
    "trimmed": "VCTK-Corpus-0.92/wav48_silence_trimmed/{s}/{s}_{u}_mic1.flac",
    "second": "wav48_silence_trimmed/{s}/{s}_{u}_mic2.flac",
    "bare": "{s}/{s}_{u}.flac",
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("packed", [False, True])
def test_vctk_in_its_layouts(layout: str, packed: bool, tmp_path: Path, cache: Path) -> None:
    where = tmp_path / "vctk"
    for speaker in ("p225", "p226", "s5"):
        for utterance, rate in (("001", 48_000), ("002", 16_000)):
            write(where / LAYOUTS[layout].format(s=speaker, u=utterance), rate * 2, rate)
    dataset = load("vctk", data=zipped(where) if packed else where, cache=cache)
    assert dataset.shape == (1, CROP)
    assert len(dataset.train) == 4
    assert tuple(dataset.validation.shape) == (4, 1, CROP)  # two of 2 s, each two crops
    assert dataset.test is None
    assert "3 speakers" in dataset.source
    assert "RMS of 0.1" in dataset.source


def test_vctk_takes_the_first_microphone_and_the_trimmed_copy(tmp_path: Path, cache: Path) -> None:
    where = tmp_path / "vctk"
    for speaker in ("p225", "p280"):
        write(where / f"wav48/{speaker}/{speaker}_001.wav")
        for microphone in (1, 2) if speaker == "p225" else (2,):
            write(where / f"wav48_silence_trimmed/{speaker}/{speaker}_001_mic{microphone}.flac")
    (where / "wav48_silence_trimmed/log.txt").write_text("p225 0 1")
    dataset = load("vctk", data=where, cache=cache)
    every = {*names(dataset), "p225_001_mic1.flac", "p280_001_mic2.flac"}
    assert every == {"p225_001_mic1.flac", "p280_001_mic2.flac"}
    assert len(dataset.train) == len(dataset.validation) // 2 == 1


def test_a_speaker_that_vctk_lists_but_lacks_is_reported(tmp_path: Path, cache: Path) -> None:
    where = tmp_path / "vctk"
    for speaker in ("p225", "p226"):
        write(where / f"wav48/{speaker}/{speaker}_001.wav")
    assert "lists" not in load("vctk", data=where, cache=cache).source
    (where / "wav48/p300").mkdir()
    (where / "txt/p315").mkdir(parents=True)
    (where / "speaker-info.txt").write_text("ID  AGE  GENDER\n225  23  F\n226  22  M\n362  29  F\n")
    assert "no audio of p300, p315, p362, listed by the corpus" in load("vctk", data=where, cache=cache).source


@pytest.fixture
def audiomnist(tmp_path: Path) -> Path:
    """Twenty speakers, two digits each, shorter than a crop."""
    where = tmp_path / "AudioMNIST"
    for speaker in range(1, 21):
        for digit in (3, 7):
            write(where / f"data/{speaker:02d}/{digit}_{speaker:02d}_0.wav", CROP // 2 + 100 * speaker, pitch=100 * digit)
    return where


def test_audiomnist_keeps_speakers_apart_and_counts_padding(audiomnist: Path, cache: Path) -> None:
    dataset = load("audiomnist", data=audiomnist, cache=cache)
    assert (len(dataset.train), len(dataset.validation), len(dataset.held_out)) == (32, 4, 4)
    assert "40 shorter ones padded;" in dataset.source
    assert (dataset.validation[:, :, -1] == PADDING).all()
    train_speakers = {name.split("_")[1] for name in names(dataset)}
    speaker_ids = split_speakers([f"{n:02d}" for n in range(1, 21)], audiomnist)
    assert train_speakers == set(speaker_ids[0])
    assert not train_speakers & {*speaker_ids[1], *speaker_ids[2]}
    assert len(train_speakers) == 16


def test_audiomnist_in_zip_files_is_the_same(audiomnist: Path, cache: Path, tmp_path: Path) -> None:
    plain = load("audiomnist", data=audiomnist, cache=cache)
    halves = tmp_path / "zips"
    for half, speakers in (("a", range(1, 11)), ("b", range(11, 21))):
        for speaker in speakers:
            shutil.copytree(audiomnist / f"data/{speaker:02d}", halves / f"audiomnist-{half}/{speaker:02d}")
        zipped(halves / f"audiomnist-{half}")
        shutil.rmtree(halves / f"audiomnist-{half}")
    (halves / "celeba64.zip").write_bytes(b"not AudioMNIST")
    packed = load("audiomnist", data=halves, cache=cache)
    assert names(packed) == names(plain)
    assert torch.equal(packed.validation, plain.validation)


def test_the_cached_array_is_reused_and_a_damaged_one_not(
    audiomnist: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load("audiomnist", data=audiomnist, cache=cache)
    [array] = (cache / "decoded").glob("*.int16")
    array.write_bytes(array.read_bytes()[:-2])
    assert torch.equal(load("audiomnist", data=audiomnist, cache=cache).validation, first.validation)
    monkeypatch.setattr("anytime.data.audio_io.measure_loudness", None)  # reading a single file would now fail
    assert torch.equal(load("audiomnist", data=audiomnist, cache=cache).validation, first.validation)


def test_spoken_digits_have_labels(audiomnist: Path, cache: Path) -> None:
    dataset = load("audiomnist", data=audiomnist, cache=cache)
    assert isinstance(dataset.train, Recordings) and dataset.labels is not None
    assert dataset.test is not None
    split_speakers = (dataset.train.tiles(), dataset.labels.train), (dataset.validation, dataset.labels.validation)
    for x, labels in (*split_speakers, (dataset.test, dataset.labels.test)):  # a 3 was written as 300 Hz and a 7 as 700 Hz
        energy = torch.fft.rfft(x[:, 0, : CROP // 2].float()).abs().argmax(1) * 16_000 / (CROP // 2)
        assert (energy / 100).round().tolist() == labels.tolist()
    few = dataset.subset(10, 2)
    assert few.labels is not None
    assert [len(part) for part in (few.labels.train, few.labels.validation, few.labels.test)] == [10, 2, 2]


def test_a_folder_of_audio_without_speakers(tmp_path: Path, cache: Path) -> None:
    for i in range(12):
        write(tmp_path / f"recordings/{i:02d}.wav", CROP, rate=(8000, 44_100)[i % 2])
    dataset = load("folder", data=tmp_path / "recordings", cache=cache)
    assert len(dataset.train) == 11
    assert "speakers unknown" in dataset.source
    with pytest.raises(UserError, match=r"`size` does not apply to .*recordings, which holds audio"):
        load("folder", data=tmp_path / "recordings", size=32, cache=cache)


def test_images_and_audio_are_separated_by_content(tmp_path: Path, cache: Path) -> None:
    where = tmp_path / "mixed"
    where.mkdir()
    for i in range(12):
        Image.effect_noise((40, 40), 50).save(where / f"{i:02d}.png")
    assert not load("folder", data=where, cache=cache).is_audio
    write(tmp_path / "x.wav")
    shutil.copy(tmp_path / "x.wav", where / "hidden.png")  # audio under the name of an image
    with pytest.raises(UserError, match="holds both images and audio"):
        load("folder", data=where, cache=cache)
    for path in where.glob("[01]*.png"):
        shutil.copy(tmp_path / "x.wav", path)
    assert load("folder", data=where, cache=cache).is_audio


def test_corrupt_audio_is_named(tmp_path: Path, cache: Path) -> None:
    where = tmp_path / "recordings"
    for i in range(12):
        write(where / f"{i:02d}.wav")
    (where / "05.wav").write_text("not audio")
    with pytest.raises(UserError, match=r"05\.wav is not a readable audio file"):
        load("folder", data=where, cache=cache)
    assert not list(cache.rglob("*.int16"))


@pytest.mark.parametrize(("name", "words"), [("vctk", "p225/p225_001.wav"), ("audiomnist", "D_NN_R.wav")])
def test_a_folder_that_is_not_the_dataset_is_refused(name: str, words: str, tmp_path: Path, cache: Path) -> None:
    write(tmp_path / "other/x.wav")
    with pytest.raises(UserError, match=words):
        load(name, data=tmp_path / "other", cache=cache)


def test_one_speaker_is_not_enough(tmp_path: Path, cache: Path) -> None:
    write(tmp_path / "vctk/p225/p225_001.wav")
    with pytest.raises(UserError, match="one speaker only, p225"):
        load("vctk", data=tmp_path / "vctk", cache=cache)
