"""Audio models on the command line: wav files out and in, spectrograms, mistakes."""

from __future__ import annotations

import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image

from anytime.autoencoders.quantizer import QuantizerConfig
from anytime.autoencoders.vqvae import AutoencoderConfig
from anytime.data.audio_io import SAMPLE_RATE
from anytime.model import AnytimeModel, ModelConfig, load
from anytime.priors.transformer import TransformerConfig

Command = Callable[..., Any]
Refused = Callable[..., str]
TIME = 1024


@pytest.fixture(scope="session")
def audio_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model: 8 codes of 16, audio of 1,024 samples, untrained."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        autoencoder = AutoencoderConfig(
            network="audio", shape=(1, TIME), length=8, dim=16, quantizer=QuantizerConfig(codebook_size=16),
            widths=(4, 6), kernels=(25,) * 3, strides=(4,) * 3,
        )  # fmt: skip
        prior = TransformerConfig(length=8, codebook_size=16, layers=1, width=16, hidden=16, heads=2)
        model = AnytimeModel(ModelConfig(name="vctk", autoencoder=autoencoder, prior=prior))
        torch.nn.init.normal_(model.autoencoder.quantizer.codebook)
    return model.save(tmp_path_factory.mktemp("models") / "audio")


def frames(path: Path) -> np.ndarray:
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, SAMPLE_RATE)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32767


def test_one_sample_is_one_file_and_several_are_numbered(audio_model: Path, command: Command, tmp_path: Path) -> None:
    one, several = (command("sample", audio_model, "-n", n, "--out", name) for n, name in ((1, "one.wav"), (3, "x.wav")))
    assert one.status == several.status == 0
    assert one.out.splitlines()[-1].endswith(": one.wav")
    assert several.out.splitlines()[-1].endswith(": x-0000.wav to x-0002.wav")
    assert command("sample", audio_model, "-n", 3, "--out", "folder").status == 0
    assert sorted(path.name for path in tmp_path.glob("*.wav")) == ["one.wav", "x-0000.wav", "x-0001.wav", "x-0002.wav"]
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == ["x-0000.wav", "x-0001.wav", "x-0002.wav"]
    data = load(audio_model, "cpu").sample(3, seed=0).data
    assert data.shape == (3, 1, TIME)
    assert data.dtype == torch.float32
    assert data.abs().max() <= 1
    for row in range(3):
        assert np.abs(frames(tmp_path / f"x-{row:04d}.wav") - data[row, 0].numpy()).max() < 1e-4


def test_image_of_a_clip_is_its_spectrogram(audio_model: Path, command: Command, tmp_path: Path) -> None:
    assert command("sample", audio_model, "-n", 1, "--out", "x.png").status == 0
    assert command("sample", audio_model, "-n", 2, "--codes", 3, "--out", "x.gif").status == 0
    with Image.open(tmp_path / "x.png") as image:
        assert image.size == (TIME // 256 + 1 + 4, 64 + 4)  # a pixel for every 256 samples, 64 bands, a margin of 2
    with Image.open(tmp_path / "x.gif") as movie:
        assert movie.n_frames == 3


def test_saved_samples_are_refined(audio_model: Path, command: Command, tmp_path: Path) -> None:
    command("sample", audio_model, "-n", 4, "--codes", 2, "--seed", 5, "--out", "coarse.npz")
    command("sample", audio_model, "--refine", "coarse.npz", "--pick", 2, "--out", "fine.wav")
    whole = load(audio_model, "cpu").sample(4, seed=5).data[2, 0].numpy()
    assert np.abs(frames(tmp_path / "fine.wav") - whole).max() < 1e-4


def test_streams_and_deadlines_give_complete_clips(audio_model: Path) -> None:
    model = load(audio_model, "cpu")
    samples = list(model.stream(2, seed=1, every=4))
    assert [sample.data.shape for sample in samples] == [(2, 1, TIME)] * 2
    assert torch.equal(samples[-1].codes, model.sample(2, seed=1).codes)
    late = model.sample(2, seed=1, within=10.0)
    assert torch.equal(late.codes, samples[-1].codes)


@pytest.mark.parametrize(("rate", "seconds"), [(16_000, 0.01), (48_000, 0.5)])
def test_clip_of_any_length_is_reconstructed_at_its_own_loudness(
    rate: int, seconds: float, audio_model: Path, command: Command, tmp_path: Path
) -> None:
    samples = round(rate * seconds)
    soundfile.write(tmp_path / "in.wav", 0.001 * np.sin(np.arange(samples) / 9), rate, subtype="FLOAT")
    outcome = command("reconstruct", audio_model, "in.wav", "--codes", 3, "--json")
    assert outcome.status == 0
    [row] = json.loads(outcome.out.splitlines()[-1])["files"]
    expected = round(SAMPLE_RATE * seconds)
    assert abs(len(frames(tmp_path / "reconstructions/in.wav")) - expected) <= 2
    assert len(row["codes"]) == -(-expected // TIME)
    assert {len(codes) for codes in row["codes"]} == {3}
    assert np.abs(frames(tmp_path / "reconstructions/in.wav")).max() < 0.02  # the network's own loudness is far above


def test_long_clip_is_reconstructed_in_batches_of_crops(
    audio_model: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = 0.1 * np.random.default_rng(0).normal(size=20 * TIME + 77)
    soundfile.write(tmp_path / "in.wav", samples, SAMPLE_RATE, subtype="FLOAT")
    seen: list[int] = []
    encode = AnytimeModel.encode
    monkeypatch.setattr(AnytimeModel, "encode", lambda self, x: seen.append(len(x)) or encode(self, x))
    monkeypatch.setattr("anytime.data.audio_io._BLOCK", 3000)
    results = []
    for at_once in (64, 4):
        monkeypatch.setattr("anytime.cli.reconstruct.CROPS_PER_BATCH", at_once)
        [row] = json.loads(command("reconstruct", audio_model, "in.wav", "--json").out.splitlines()[-1])["files"]
        results.append((row, (tmp_path / "reconstructions/in.wav").read_bytes()))
    assert seen == [21, 4, 4, 4, 4, 4, 1]
    (one, whole), (other, parts) = results
    assert whole == parts and len(whole) == 44 + 2 * len(samples)
    assert one["codes"] == other["codes"] and len(one["codes"]) == 21
    assert one["error"] == pytest.approx(other["error"])


def test_clipped_audio_is_reported(audio_model: Path, command: Command, tmp_path: Path) -> None:
    for name, loudness in (("clean", 0.5), ("clipped", 3.0)):
        soundfile.write(tmp_path / f"{name}.wav", np.clip(loudness * np.sin(np.arange(3000) / 9), -1, 1), SAMPLE_RATE)
        assert ("the file is clipped" in command("reconstruct", audio_model, f"{name}.wav").out) == (name == "clipped")


def test_failed_write_leaves_no_partial_file(audio_model: Path, refused: Refused, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "in.wav", np.zeros(99), SAMPLE_RATE)
    (tmp_path / "reconstructions").mkdir()
    (tmp_path / "reconstructions" / "in.wav").mkdir()
    assert "in.wav cannot be written" in refused("reconstruct", audio_model, "in.wav")
    assert [path.name for path in (tmp_path / "reconstructions").iterdir()] == ["in.wav"]


def test_mistakes(audio_model: Path, model: Path, refused: Refused, tmp_path: Path) -> None:
    assert "makes images" in refused("sample", model, "--out", "x.wav")
    (tmp_path / "text.wav").write_text("hello, this is not audio")
    Image.new("L", (9, 9)).save(tmp_path / "x.png")
    assert "text.wav is not a readable audio file" in refused("reconstruct", audio_model, "text.wav")
    assert "x.png is not a readable audio file" in refused("reconstruct", audio_model, "x.png")
    assert "text.wav is not a readable image" in refused("reconstruct", model, "text.wav")
    assert "none.wav cannot be read" in refused("reconstruct", audio_model, "none.wav")
    soundfile.write(tmp_path / "instant.wav", np.zeros(1), 48_000)
    (tmp_path / "reconstructions").mkdir()
    assert "instant.wav is shorter than one sample at 16 kHz" in refused("reconstruct", audio_model, "instant.wav")
    assert "--inception is for images" in refused("evaluate", audio_model, "--inception", "x.pt")
    assert "--classifier is for images" in refused("evaluate", audio_model, "--classifier")
    assert "--temperature must be between 0.001 and 100" in refused("evaluate", audio_model, "--temperature", 0)
    for verb in (("sample", audio_model), ("reconstruct", audio_model, "in.wav")):
        assert "which only image models have" in refused(*verb, "--quality", 0.9)
    assert "pass the folder with --data" in refused("train", "vctk")
    assert "--size" in refused("train", "vctk", "--size", 32)
    soundfile.write(tmp_path / "in.wav", np.zeros(99), SAMPLE_RATE)
    assert "would be replaced" in refused("reconstruct", audio_model, "in.wav", "--out", ".")
