"""Distances between clips: zero for the same clip, exact where a closed form is known, independent of padding."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from anytime.autoencoders.quantizer import QuantizerConfig
from anytime.autoencoders.vqvae import AutoencoderConfig
from anytime.data.recordings import CROP, PADDING
from anytime.data.spectrogram import log_mel, mel_bands, spectrogram_images
from anytime.metrics.audio import BANDS, audio_error_by_codes, band_errors, codes_to_half_error, log_mel_distance
from anytime.metrics.reconstruction import error_by_codes
from anytime.metrics.stft_distance import stft_distance
from anytime.model import AnytimeModel, ModelConfig
from anytime.priors.transformer import TransformerConfig

DISTANCES = [log_mel_distance, stft_distance]


def tones(*frequencies: float, time: int = CROP) -> Tensor:
    t = torch.arange(time) / 16_000
    return torch.stack([0.3 * torch.sin(2 * math.pi * f * t) for f in frequencies])[:, None]


@pytest.mark.parametrize("distance", DISTANCES)
def test_zero_for_the_same_and_more_the_further_apart(distance) -> None:  # type: ignore[no-untyped-def]
    x = tones(200, 1000, 3000)
    noise, everything = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)), torch.ones_like(x)
    assert (distance(x, x, everything) == 0).all()
    near, far = distance(x, x + 0.001 * noise, everything), distance(x, x + 0.1 * noise, everything)
    assert (near > 0).all()
    assert (near < far).all()


@pytest.mark.parametrize("distance", DISTANCES)
def test_padding_is_left_out(distance) -> None:  # type: ignore[no-untyped-def]
    x, y = tones(300, 300), tones(310, 310)
    mask = torch.ones_like(x)
    mask[0, :, 9000:] = 0
    loud = torch.where(mask.bool(), y, torch.ones_like(y))
    assert torch.equal(distance(x, loud, mask), distance(x, y, mask))
    silent = torch.where(mask.bool(), torch.zeros_like(y), y)  # what is left out is all that differs
    assert distance(mask * 0, silent, mask)[0] == 0
    assert distance(x, y, mask)[1] == distance(x, y, torch.ones_like(x))[1]


def test_half_the_loudness_is_a_mel_distance_of_log_two_in_its_band() -> None:
    x = torch.randn(1, 1, CROP, generator=torch.Generator().manual_seed(1))
    assert log_mel_distance(x, x / 2, torch.ones_like(x)) == pytest.approx(math.log(2), rel=1e-4)


def test_errors_lie_in_the_band_where_the_tone_is_and_do_not_hear_its_phase() -> None:
    x = tones(200, 1000, 3000)
    everything, silence = torch.ones_like(x), torch.zeros_like(x)
    energies = band_errors(x, silence, everything)
    assert (energies.argmax(1) == torch.arange(3)).all()
    assert (energies.diagonal() > 0.99 * energies.sum(1)).all()
    assert torch.allclose(band_errors(x, x / 2, everything), energies / 4, rtol=1e-3)
    later = x.roll(20, 2)  # a quarter of a turn at 200 Hz
    assert (band_errors(x, later, everything).sum(1) < 0.02 * energies.sum(1)).all()
    assert (x[:1] - later[:1]).square().sum() > x[:1].square().sum()


def test_band_errors_leave_padding_out() -> None:
    x, y = tones(300, 300), tones(310, 310)
    mask = torch.ones_like(x)
    mask[0, :, 9000:] = 0
    loud = torch.where(mask.bool(), y, torch.ones_like(y))
    assert torch.equal(band_errors(x, loud, mask), band_errors(x, y, mask))


def test_mel_bands_cover_all_frequencies_in_order() -> None:
    bands = mel_bands()
    assert bands.shape == (80, 513)
    assert torch.allclose(bands.sum(1), torch.ones(80))
    assert (bands.argmax(1).diff() >= 0).all()
    assert (log_mel(tones(200, 3000)).mean(2).argmax(1).diff() > 20).all()


def test_a_spectrogram_shows_high_tones_above_low_ones() -> None:
    low, high = spectrogram_images(tones(200, 4000))
    assert low.shape == (1, 64, 61)
    assert 0 <= low.min() <= low.max() <= 1
    assert high.mean(2).argmax() < low.mean(2).argmax()  # the first row is the top


@pytest.fixture
def model() -> AnytimeModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        autoencoder = AutoencoderConfig(
            network="audio", shape=(1, 4096), length=4, dim=16, quantizer=QuantizerConfig(codebook_size=8),
            widths=(3, 4, 5), kernels=(25,) * 4, strides=(4,) * 4,
        )  # fmt: skip
        prior = TransformerConfig(length=4, codebook_size=8, layers=1, width=8, hidden=8, heads=1)
        return AnytimeModel(ModelConfig(name="audio", autoencoder=autoencoder, prior=prior)).eval()


def test_errors_by_code_count(model: AnytimeModel) -> None:
    x = (tones(200, 900, 3000, time=4096) * 32767).round().to(torch.int16)
    x[1, :, 3000:] = PADDING
    found = audio_error_by_codes(model, x, range(5))
    assert [errors.codes for errors in found] == [0, 1, 2, 3, 4]
    assert [errors.error for errors in found] == pytest.approx(error_by_codes(model, x, range(5)), rel=1e-5)
    assert all(math.isfinite(getattr(errors, name)) for errors in found for name in ("log_mel", "stft", *BANDS))
    loud = x.clone()
    loud[1, :, 3000:] = 0  # silence that counts is not padding
    assert audio_error_by_codes(model, loud, [4])[0].error != found[4].error


def test_silence_leaves_the_whole_of_every_band(model: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    x = (tones(200, 900, 3000, time=4096) * 32767).round().to(torch.int16)
    monkeypatch.setattr(type(model), "decode", lambda self, codes: torch.zeros(len(codes), 1, 4096))
    [errors] = audio_error_by_codes(model, x, [0])
    assert [errors.low, errors.middle, errors.high] == pytest.approx([1, 1, 1])


def test_half_way() -> None:
    assert codes_to_half_error([1.0, 0.5, 0.0]) == 1
    assert codes_to_half_error([1.0, 1.0, 0.9, 0.1]) == 3
    assert codes_to_half_error([0.4, 0.3, 0.25, 0.21]) is None
    assert codes_to_half_error([0.2, 0.2]) is None
