from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch

from anytime.autoencoders.quantizer import QuantizerConfig
from anytime.autoencoders.vqvae import AutoencoderConfig
from anytime.data.loader import to_float
from anytime.data.recordings import PADDING
from anytime.metrics import code_stats, reconstruction
from anytime.metrics.code_stats import (
    CodeStats,
    bits_by_position,
    code_warnings,
    copy_code_stats,
    diagnose,
    empty_tail,
    entropy_by_position,
    read_code_stats,
    write_code_stats,
)
from anytime.metrics.reconstruction import error_by_codes, gains
from anytime.model import AnytimeModel, ModelConfig
from anytime.priors.transformer import TransformerConfig


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.randint(256, (11, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_errors_by_hand(tiny: AnytimeModel, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconstruction, "BATCH", 4)
    counts = [0, 3, 8]
    pixels = to_float(x)
    codes = tiny.encode(pixels)
    expected = [float((tiny.decode(codes[:, :k]) - pixels).double().square().mean()) for k in counts]
    assert error_by_codes(tiny, x, counts) == pytest.approx(expected, rel=1e-5)
    assert len(set(expected)) == 3


@pytest.fixture
def audio_model() -> AnytimeModel:
    """Clips of 1,024 samples, 4 codes of 8, never trained."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        autoencoder = AutoencoderConfig(
            network="audio", shape=(1, 1024), length=4, dim=16, quantizer=QuantizerConfig(codebook_size=8),
            widths=(3, 4), kernels=(25,) * 3, strides=(4,) * 3,
        )  # fmt: skip
        prior = TransformerConfig(length=4, codebook_size=8, layers=1, width=8, hidden=8, heads=1)
        return AnytimeModel(ModelConfig(name="audio", autoencoder=autoencoder, prior=prior)).eval()


def test_padding_of_audio_is_left_out(audio_model: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its values and of their number; over batches, the last of which holds the short clip alone."""
    monkeypatch.setattr(reconstruction, "BATCH", 2)
    clips = torch.randint(-9000, 9000, (3, 1, 1024), generator=torch.Generator().manual_seed(0)).to(torch.int16)
    clips[2, :, 300:] = PADDING
    codes = audio_model.encode(to_float(clips))
    expected = []
    for count in range(5):
        wrong = (audio_model.decode(codes[:, :count]) - to_float(clips)).double().square()
        expected.append(float(wrong[:2].sum() + wrong[2, :, :300].sum()) / (2 * 1024 + 300))
    assert error_by_codes(audio_model, clips, range(5)) == pytest.approx(expected, rel=1e-5)
    found = diagnose("ordered", audio_model, clips)
    assert found is not None and found.entropy is not None
    assert found.error == pytest.approx(expected, rel=1e-5)
    assert len(found.entropy) == 4


def test_gains_add_up() -> None:
    errors = [1.0, 0.4, 0.3, 0.35]
    assert gains(errors) == pytest.approx([0.6, 0.1, -0.05])
    assert sum(gains(errors)) == pytest.approx(errors[0] - errors[-1])


class Uniform:
    """A prior that knows nothing."""

    length, codebook_size = 8, 16

    def __call__(self, codes: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*codes.shape, 16)

    def start(self, batch: int) -> object:
        raise NotImplementedError

    def step(self, codes: torch.Tensor | None, state: object) -> tuple[torch.Tensor, object]:
        raise NotImplementedError


def test_a_prior_that_knows_nothing_needs_every_bit() -> None:
    codes = torch.randint(16, (30, 8), generator=torch.Generator().manual_seed(0))
    assert bits_by_position(Uniform(), codes) == pytest.approx([4.0] * 8)


def test_bits_of_a_model_by_hand(tiny: AnytimeModel, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_stats, "BATCH", 4)
    codes = tiny.encode(to_float(x))
    with torch.no_grad():
        chances = tiny.prior(codes).softmax(-1)
    expected = [-sum(math.log2(float(chances[row, place, codes[row, place]])) for row in range(11)) / 11 for place in range(8)]
    assert bits_by_position(tiny.prior, codes) == pytest.approx(expected, rel=1e-4)
    assert len(set(expected)) == 8


def test_entropy_of_each_position() -> None:
    """One that never changes, one that is a fair coin, one that is uniform over all sixteen."""
    n = 4000
    codes = torch.stack([torch.full((n,), 3), torch.arange(n) % 2, torch.arange(n) % 16], 1)
    constant, coin, uniform = entropy_by_position(codes, 16)
    assert constant == 0
    assert coin == pytest.approx(1, abs=1e-3)
    assert uniform == 4, "never above what the codebook holds"


def test_entropy_of_few_examples_does_not_read_low() -> None:
    """2,000 draws of 256 equal entries: frequencies alone miss a tenth of a bit."""
    codes = torch.randint(256, (2000, 40), generator=torch.Generator().manual_seed(0))
    found = sum(entropy_by_position(codes, 256)) / 40
    assert found == pytest.approx(8, abs=0.01)


HEALTHY = [1.0, *(0.1 + 0.5 * 0.9**i for i in range(1, 41))]


def test_a_good_order_gives_no_warning() -> None:
    assert empty_tail(HEALTHY) is None
    assert code_warnings(HEALTHY, [3.0] * 40) == []


@pytest.mark.parametrize(
    ("errors", "first"),
    [
        (HEALTHY[:30] + [HEALTHY[29]] * 11, 30),  # flat from the 29th on
        ([1.0, 0.5, 0.2, 0.19, 0.21, 0.2], 3),  # it rises again
        ([1.0] * 9, 1),  # nothing is learned at all
        ([1.0, 0.5, 0.25, 0.2, 0.1, 0.1], None),  # one code of five: too few to speak of a tail
        ([0.5, 0.0, 0.0, 0.0], 2),  # perfect from the first
    ],
)
def test_empty_tail(errors: list[float], first: int | None) -> None:
    assert empty_tail(errors) == first


def test_warnings_are_sentences() -> None:
    entropy = [3.0, 0.0, 3.0, 0.01, 0.02]
    assert code_warnings([1.0, 0.5, 0.2, 0.2, 0.2, 0.2], entropy) == [
        "codes 3-5 bring no gain: error 0.20000 without them, 0.20000 with them",
        "codes 2, 4-5 hardly ever change: below 0.05 bits",
    ]
    assert code_warnings([1.0, 0.5, 0.2], [3.0, 0.0]) == ["code 2 hardly ever changes: below 0.05 bits"]


def test_diagnose_by_stage(tiny: AnytimeModel, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_stats, "ERROR_EXAMPLES", 6)
    model = copy.deepcopy(tiny).train()  # as a resumed run may leave it: dropout must be off
    assert diagnose("pretrain", model, x) is None
    found = diagnose("ordered", model, x)
    assert found is not None and found.error is not None and found.entropy is not None
    assert (found.error_examples, found.examples, found.bits) == (6, 11, None)
    assert found.error == pytest.approx(error_by_codes(tiny, x[:6], range(9)))
    assert found.gain == gains(found.error)
    assert found.entropy == entropy_by_position(tiny.encode(to_float(x)), 16)
    assert found.warnings == code_warnings(found.error, found.entropy)
    assert diagnose("finetune", model.train(), x) == found, "measured again for another decoder"
    known = diagnose("prior", model.train(), x)
    codes = tiny.encode(to_float(x))
    assert known == CodeStats(examples=11, bits=bits_by_position(tiny.prior, codes))


def test_statistics_of_all_stages_are_merged(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    assert read_code_stats(run) is None
    write_code_stats(run, "ordered", CodeStats(examples=3, gain=[1.0]))
    write_code_stats(run, "prior", CodeStats(examples=3, bits=[2.0]))
    assert read_code_stats(run) == CodeStats(examples=3, gain=[1.0], bits=[2.0])
    write_code_stats(run, "finetune", CodeStats(examples=3, gain=[1.5]))
    assert read_code_stats(run) == CodeStats(examples=3, gain=[1.5], bits=[2.0]), "of the model's decoder"
    copy_code_stats(other, run, ("pretrain", "ordered"))
    assert read_code_stats(other) == CodeStats(examples=3, gain=[1.0]), "the prior is not reused"
