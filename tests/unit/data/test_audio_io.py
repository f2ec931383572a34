"""One audio file, of every format, valid and damaged."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from anytime.core.errors import UserError
from anytime.data.audio_io import INT16_MAX, MAX_PEAK, SAMPLE_RATE, TARGET_RMS, measure_loudness, read_blocks
from anytime.data.files import local_file


def tone(rate: int, seconds: float = 0.5, frequency: float = 440.0) -> np.ndarray:
    return 0.3 * np.sin(2 * np.pi * frequency * np.arange(round(rate * seconds)) / rate)


def read_audio(path: Path) -> tuple[np.ndarray, float]:
    """A whole file at the common loudness, and the gain that brought it there."""
    gain = measure_loudness(local_file(path)).gain
    return np.concatenate(list(read_blocks(local_file(path), gain))), gain


def loudest(samples: np.ndarray) -> float:
    """The frequency with the most energy."""
    return float(np.abs(np.fft.rfft(samples)).argmax() * SAMPLE_RATE / len(samples))


@pytest.mark.parametrize("rate", [8000, 16_000, 22_050, 44_100, 48_000])
@pytest.mark.parametrize("ending", ["wav", "flac"])
def test_every_rate_becomes_16_khz(rate: int, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{ending}"
    soundfile.write(path, tone(rate), rate)
    samples, gain = read_audio(path)
    assert samples.dtype == np.int16
    assert abs(len(samples) - SAMPLE_RATE / 2) <= 2
    assert abs(loudest(samples) - 440) < 4
    assert gain == pytest.approx(TARGET_RMS / (0.3 / np.sqrt(2)), rel=0.01)


@pytest.mark.parametrize("kind", ["PCM_U8", "PCM_16", "PCM_24", "FLOAT"])
@pytest.mark.parametrize("channels", [1, 2, 6])
def test_every_depth_and_number_of_channels_comes_to_one_loudness(kind: str, channels: int, tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, np.stack([tone(SAMPLE_RATE)] * channels, 1), SAMPLE_RATE, subtype=kind)
    samples, _ = read_audio(path)
    assert samples.shape == (SAMPLE_RATE // 2,)
    assert np.sqrt(np.square(samples / INT16_MAX).mean()) == pytest.approx(TARGET_RMS, rel=0.02)


def test_stereo_is_the_mean_of_its_channels(tmp_path: Path) -> None:
    low, high = tone(SAMPLE_RATE, frequency=200), tone(SAMPLE_RATE, frequency=2000)
    soundfile.write(tmp_path / "x.wav", np.stack([low, high], 1), SAMPLE_RATE, subtype="FLOAT")
    samples, gain = read_audio(tmp_path / "x.wav")
    assert np.abs(samples / INT16_MAX - gain * (low + high) / 2).max() < 1e-4


def test_a_click_is_scaled_by_its_peak_and_silence_not_at_all(tmp_path: Path) -> None:
    click = np.zeros(SAMPLE_RATE)
    click[100] = 0.5
    soundfile.write(tmp_path / "click.wav", click, SAMPLE_RATE, subtype="FLOAT")
    soundfile.write(tmp_path / "silence.wav", np.zeros(SAMPLE_RATE), SAMPLE_RATE)
    samples, gain = read_audio(tmp_path / "click.wav")
    assert gain == pytest.approx(2 * MAX_PEAK)
    assert samples.max() == round(MAX_PEAK * INT16_MAX)
    samples, gain = read_audio(tmp_path / "silence.wav")
    assert gain == 1
    assert not samples.any()


def test_clipping_is_detected(tmp_path: Path) -> None:
    for name, loud in (("clean", 3.0), ("clipped", 6.0)):
        soundfile.write(tmp_path / f"{name}.wav", np.clip(loud * tone(SAMPLE_RATE), -1, 1), SAMPLE_RATE)
    for name in ("clean", "clipped"):
        assert measure_loudness(local_file(tmp_path / f"{name}.wav")).clipped == (name == "clipped")


def test_a_file_that_is_not_audio_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("not audio at all, but long enough for a header")
    (tmp_path / "empty.wav").write_bytes(b"")
    soundfile.write(tmp_path / "none.wav", np.zeros(0), SAMPLE_RATE)
    soundfile.write(tmp_path / "nan.wav", np.array([0.1, np.nan, 0.1]), SAMPLE_RATE, subtype="FLOAT")
    soundfile.write(tmp_path / "cut.flac", tone(SAMPLE_RATE), SAMPLE_RATE)
    (tmp_path / "cut.flac").write_bytes((tmp_path / "cut.flac").read_bytes()[:30])
    for name, words in {
        "text.wav": "is not a readable audio file",
        "empty.wav": "is not a readable audio file",
        "none.wav": "holds no samples",
        "nan.wav": "not numbers",
        "cut.flac": "is not a readable audio file",
        "absent.wav": "cannot be read",
    }.items():
        with pytest.raises(UserError, match=words) as error:
            read_audio(tmp_path / name)
        assert name in str(error.value)


def test_a_long_file_is_streamed(tmp_path: Path) -> None:
    """Three hours at 8 kHz, 8 bits: decoded whole it would take 345 MB as float32, and four times that in double precision."""
    path = tmp_path / "hours.wav"
    with soundfile.SoundFile(path, "w", 8000, 1, "PCM_U8") as file:
        minute = tone(8000, 60)
        for _ in range(180):
            file.write(minute)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loudness = measure_loudness(local_file(path))
    count = sum(len(block) for block in read_blocks(local_file(path), loudness.gain))
    assert abs(count - 3 * 3600 * SAMPLE_RATE) < SAMPLE_RATE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def test_a_missing_package_is_named_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not as an extra of ours: somebody else may own our name on a package index."""
    soundfile.write(tmp_path / "x.wav", tone(8000), 8000)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(UserError, match=r"needs soundfile: run `pip install soundfile soxr`$"):
        read_audio(tmp_path / "x.wav")
