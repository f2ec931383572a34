"""AnytimeModel: sampling, quality, temperature, encoding."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import anytime
from anytime.autoencoders.quantizer import QuantizerConfig
from anytime.autoencoders.vqvae import AutoencoderConfig
from anytime.core import storage
from anytime.core.errors import UserError
from anytime.model import AnytimeModel, _tiny, load
from anytime.sampling.budget import Budget
from anytime.sampling.quality_table import QualityRow, QualityTable
from anytime.sampling.sample import Sample

Refused = Callable[..., str]


# sampling


def test_the_fields_of_a_sample(tiny: AnytimeModel) -> None:
    sample = tiny.sample(3, seed=4, codes=5, temperature=0.8, top_k=7, top_p=0.9)
    assert sample.data.shape == (3, 1, 28, 28)
    assert sample.data.dtype == torch.float32
    assert sample.codes.shape == (3, 5)
    assert sample.codes.dtype == torch.int64
    assert 0 <= sample.codes.min() <= sample.codes.max() < tiny.codebook_size
    assert sample.rows.tolist() == [0, 1, 2]
    assert (sample.seed, sample.model) == (4, tiny.hash)
    assert (sample.settings.temperature, sample.settings.top_k, sample.settings.top_p) == (0.8, 7, 0.9)
    assert sample.seconds > 0
    assert isinstance(sample, anytime.Sample)


def test_sampling_leaves_no_gradient_and_no_training_mode(tiny: AnytimeModel) -> None:
    model = copy.deepcopy(tiny).train()
    sample = model.sample(2, seed=1)
    assert not model.training
    assert not sample.data.requires_grad
    assert torch.equal(sample.data, tiny.sample(2, seed=1).data)


def test_top_1_is_greedy_for_every_seed(tiny: AnytimeModel) -> None:
    assert torch.equal(tiny.sample(2, seed=0, top_k=1).codes, tiny.sample(2, seed=9, top_k=1).codes)


PREFIX = torch.tensor([[3, 1, 2]])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"n": 0}, "`n` must be at least 1, not 0"),
        ({"n": -5}, "`n` must be at least 1, not -5"),
        ({"temperature": 1e-38}, "`temperature` must be between 0.001 and 100, not 1e-38"),
        ({"codes": 0}, "`codes` must be between 1 and 8, the model's length, not 0"),
        ({"codes": 9}, "`codes` must be between 1 and 8, the model's length, not 9"),
        ({"fraction": 1.5}, "`fraction` must be above 0 and at most 1, not 1.5"),
        ({"codes": 3, "fraction": 0.5}, "`codes` and `fraction` both set the length; give one of them"),
        ({"temperature": 0.0}, "`temperature` must be between 0.001 and 100, not 0.0"),
        ({"top_k": 0}, "`top_k` must be at least 1, not 0"),
        ({"top_p": 2.0}, "`top_p` must be above 0 and at most 1, not 2.0"),
        ({"prefix": PREFIX, "codes": 2}, "`prefix` has 3 codes, more than the 2 requested; raise `codes`"),
        ({"prefix": PREFIX.expand(3, 3)}, "`prefix` must have 1 row or 2 rows, one for each sample, not 3"),
        ({"prefix": PREFIX + 14}, "`prefix` has the code 17; this model's codes run from 0 to 15"),
        ({"prefix": PREFIX - 2}, "`prefix` has the code -1; this model's codes run from 0 to 15"),
        ({"prefix": PREFIX.repeat(1, 3)}, "`prefix` must be [batch, up to 8], not (1, 9)"),
    ],
)
def test_a_request_that_cannot_be_met_names_its_argument(
    tiny: AnytimeModel, arguments: dict[str, Any], expected: str, refused: Refused
) -> None:
    assert refused(tiny.sample, **{"n": 2} | arguments) == expected


@pytest.mark.parametrize("name", ["n", "codes", "seed", "every"])
def test_a_number_that_is_not_whole_names_its_argument(tiny: AnytimeModel, name: str) -> None:
    """In its own process, without the type checks of the tests."""
    program = (
        "import anytime; from anytime.model import AnytimeModel, _tiny\n"
        f"try: list(AnytimeModel(_tiny()).stream(**{{'n': 2}} | {{{name!r}: 2.5}}))\n"
        "except anytime.UserError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said == f"`{name}` must be a whole number, not 2.5\n"


def test_the_lowest_temperature_is_greedy(tiny: AnytimeModel) -> None:
    assert torch.equal(tiny.sample(8, temperature=1e-3).codes, tiny.sample(8, top_k=1).codes)


# samples as values


def edited(sample: Sample, **changes: Any) -> Sample:
    return replace(sample, **changes)


def test_refining_follows_what_the_sample_says(tiny: AnytimeModel) -> None:
    """Edited or cut samples do not continue the session that made them."""

    def coarse() -> Sample:
        return tiny.sample(4, seed=5, codes=3)

    full, other_codes = tiny.sample(4, seed=5), (coarse().codes + 1) % 16
    as_prefix = tiny.sample(4, seed=5, prefix=other_codes).codes
    assert torch.equal(tiny.refine(edited(coarse(), codes=other_codes)).codes, as_prefix)
    assert torch.equal(tiny.refine(edited(coarse(), codes=full.codes[:, :2])).codes, full.codes)
    assert torch.equal(
        tiny.refine(edited(coarse(), codes=full.codes[1:3, :3], rows=torch.tensor([1, 2]))).codes, full.codes[1:3]
    )
    assert torch.equal(tiny.refine(edited(coarse(), codes=full.codes[:, :3].to(torch.int32))).codes, full.codes)
    assert not torch.equal(tiny.refine(edited(coarse(), rows=torch.tensor([9, 8, 7, 6]))).codes, full.codes)
    assert not torch.equal(tiny.refine(edited(coarse(), seed=6)).codes, full.codes)
    greedy = tiny.refine(edited(coarse(), settings=tiny.settings(top_k=1)))
    assert torch.equal(greedy.codes, tiny.sample(4, prefix=coarse().codes, top_k=1).codes)


def test_tensors_of_a_sample_that_are_changed_in_place(tiny: AnytimeModel) -> None:
    full, coarse = tiny.sample(4, seed=5), tiny.sample(4, seed=5, codes=3)
    coarse.rows.copy_(torch.tensor([3, 2, 1, 0]))
    coarse.codes.copy_(full.codes[[3, 2, 1, 0], :3])
    assert torch.equal(tiny.refine(coarse).codes, full.codes[[3, 2, 1, 0]])
    prefix = full.codes[:, :2].clone()
    session = tiny.session(4, seed=5, prefix=prefix)
    prefix.zero_()
    assert torch.equal(session.run(Budget(codes=8)).codes, full.codes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"codes": torch.zeros(4, 3)}, "`sample.codes` must be integers, not float32 (4, 3)"),
        ({"rows": torch.arange(3)}, "`sample.rows` must be 4 integers, one for each row of codes, not int64 (3,)"),
        ({"rows": torch.arange(4.0)}, "`sample.rows` must be 4 integers, one for each row of codes, not float32 (4,)"),
        ({"rows": -torch.arange(4)}, "`sample.rows` must be at least one row number between 0 and 2147483647"),
        ({"rows": torch.arange(4) + 2**31}, "`sample.rows` must be at least one row number between 0 and 2147483647"),
        (
            {"codes": torch.zeros(0, 3, dtype=torch.long), "rows": torch.arange(0)},
            "`sample.rows` must be at least one row number between 0 and 2147483647",
        ),
        ({"seed": -1}, "`sample.seed` must be between 0 and 2^63 - 1, not -1"),
    ],
)
def test_a_sample_that_cannot_be_refined(tiny: AnytimeModel, changes: dict[str, Any], expected: str, refused: Refused) -> None:
    assert refused(tiny.refine, edited(tiny.sample(4, codes=3), **changes)) == expected


@pytest.mark.parametrize("travel", [copy.copy, copy.deepcopy, lambda sample: pickle.loads(pickle.dumps(sample))])
def test_a_sample_is_a_plain_value(tiny: AnytimeModel, travel: Callable[[Sample], Sample]) -> None:
    full, coarse = tiny.sample(4, seed=5), tiny.sample(4, seed=5, codes=3)
    arrived = travel(coarse)
    assert arrived.session is None and coarse.session is not None
    assert torch.equal(arrived.data, coarse.data) and torch.equal(arrived.rows, coarse.rows)
    assert (arrived.seconds, arrived.seed, arrived.settings, arrived.model) == (
        coarse.seconds, coarse.seed, coarse.settings, coarse.model,
    )  # fmt: skip
    assert torch.equal(tiny.refine(arrived).codes, full.codes)
    assert asdict(coarse).keys() == {field.name for field in fields(coarse)}


def test_a_copied_session_continues_on_its_own(tiny: AnytimeModel) -> None:
    session = tiny.session(4, seed=5)
    session.run(Budget(codes=3))
    twin = copy.deepcopy(session)
    assert torch.equal(twin.run(Budget(codes=8)).codes, tiny.sample(4, seed=5).codes)
    assert session.count == 3


def test_refining_with_another_engine_recomputes_the_state(tiny: AnytimeModel) -> None:
    model = copy.deepcopy(tiny)
    full, coarse = model.sample(4, seed=5), model.sample(4, seed=5, codes=3)
    assert torch.equal(model.use("eager").refine(coarse).codes, full.codes)
    assert coarse.session is not None and coarse.session.count == 3, "the old engine's session is not used"


# quality


@pytest.fixture
def measured(tiny: AnytimeModel) -> AnytimeModel:
    """A model with a quality table: quality 0.5 needs three of eight codes."""
    model = copy.deepcopy(tiny)
    rows = tuple(QualityRow(codes=k, fraction=k / 8, error=1 / min(k, 6)) for k in range(1, 9))
    model.quality_table = QualityTable(
        model=model.hash, scale="full", rows=rows, data="none", examples=1, samples=1, batch=1,
        engine="eager", hardware="-", date="-",
    )  # fmt: skip
    return model


def test_quality_sets_the_number_of_codes(measured: AnytimeModel) -> None:
    assert [measured.code_count(quality=quality) for quality in (0.1, 0.5, 0.9, 1.0)] == [1, 3, 6, 8]
    full = measured.sample(2, seed=3)
    coarse = measured.sample(2, seed=3, quality=0.5)
    assert torch.equal(coarse.codes, full.codes[:, :3])
    assert torch.equal(measured.refine(coarse, quality=0.9).codes, full.codes[:, :6])
    assert [s.codes.shape[1] for s in measured.stream(2, quality=0.9, every=4)] == [4, 6]


@pytest.mark.filterwarnings("ignore::anytime.DeadlineWarning")
def test_quality_and_a_deadline(measured: AnytimeModel) -> None:
    assert measured.sample(2, quality=1.0, within=1e-6).codes.shape[1] < 8, "the deadline comes first"
    assert measured.sample(2, quality=0.5, within=100.0).codes.shape[1] == 3


@pytest.mark.parametrize("quality", [0.0, -0.5, 1.01, float("nan")])
def test_a_quality_outside_its_range_is_refused(measured: AnytimeModel, quality: float, refused: Refused) -> None:
    assert refused(measured.sample, 2, quality=quality) == f"`quality` must be above 0 and at most 1, not {quality}"


def test_quality_without_a_table_or_with_another_length_is_refused(
    measured: AnytimeModel, tiny: AnytimeModel, refused: Refused
) -> None:
    assert "`codes` and `quality` both set the length" in refused(measured.sample, 2, quality=0.5, codes=3)
    assert "`fraction` and `quality`" in refused(measured.sample, 2, quality=0.5, fraction=0.5)
    for call in (tiny.sample, tiny.stream):
        assert "`quality` needs the model's quality table, which `anytime evaluate MODEL` writes" in refused(
            lambda c=call: list(c(2, quality=0.5))
        )  # type: ignore[misc]
    coarse = measured.sample(2, codes=4)
    assert "the sample already has 4 codes" in refused(measured.refine, coarse, quality=0.5)
    with torch.no_grad():
        measured.autoencoder.quantizer.codebook[0, 0] += 1
    assert "the quality table belongs to another model" in refused(measured.sample, 2, quality=0.5)


def test_the_quality_table_is_saved_with_the_model(measured: AnytimeModel, tiny: AnytimeModel, tmp_path: Path) -> None:
    loaded = load(measured.save(tmp_path / "here"))
    assert loaded.quality_table == measured.quality_table
    assert load(loaded.save(tmp_path / "there")).code_count(quality=0.5) == 3
    copy.deepcopy(tiny).save(tmp_path / "there")
    assert load(tmp_path / "there").quality_table is None, "a table must not stay with another model"


def test_a_directory_with_the_quality_table_of_another_model(measured: AnytimeModel, tmp_path: Path, refused: Refused) -> None:
    measured.save(tmp_path / "here")
    other = copy.deepcopy(measured)
    with torch.no_grad():
        other.autoencoder.quantizer.codebook[0, 0] += 1
    other.save(tmp_path / "there")
    (tmp_path / "there" / "quality.json").write_bytes((tmp_path / "here" / "quality.json").read_bytes())
    assert "is the quality table of another model" in refused(load, tmp_path / "there")


# temperature


def test_the_default_temperature(tiny: AnytimeModel, tmp_path: Path) -> None:
    """Used by all ways of sampling, and saved with the model."""
    model = AnytimeModel(replace(tiny.config, temperature=0.5))
    model.load_state_dict(tiny.state_dict())
    cool, warm = tiny.sample(9, temperature=0.5), tiny.sample(9)
    assert not torch.equal(cool.codes, warm.codes)
    assert (warm.settings.temperature, model.sample(9).settings.temperature) == (1.0, 0.5)
    for sample in (
        model.sample(9),
        model.session(9).run(Budget(codes=8)),
        list(model.stream(9))[-1],
        load(model.save(tmp_path / "cool")).sample(9),
    ):
        assert torch.equal(sample.codes, cool.codes)
    assert torch.equal(model.sample(9, temperature=1.0).codes, warm.codes)


@pytest.mark.parametrize("temperature", [0.0, -1.0, 1e-38, 101.0, float("nan")])
def test_impossible_temperatures_are_refused(tiny: AnytimeModel, temperature: float) -> None:
    with pytest.raises(UserError, match=r"`model.temperature` must be between 0.001 and 100"):
        replace(tiny.config, temperature=temperature)


# encoding and decoding


def test_encode_and_decode(tiny: AnytimeModel) -> None:
    x = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    codes = tiny.encode(x)
    assert codes.shape == (5, 8)
    assert torch.equal(codes, tiny.autoencoder.encode(x))
    assert torch.equal(tiny.decode(codes[:, :3]), tiny.autoencoder.decode(codes[:, :3]))
    assert torch.equal(tiny.decode(codes.to(torch.int32)), tiny.decode(codes))


def test_empty_batches(tiny: AnytimeModel) -> None:
    assert tiny.encode(torch.empty(0, 1, 28, 28)).shape == (0, 8)
    assert tiny.decode(torch.empty(0, 8, dtype=torch.long)).shape == (0, 1, 28, 28)


@pytest.mark.parametrize("shape", [(2, 3, 28, 28), (2, 1, 32, 32), (2, 1, 28, 27), (28, 28), (1, 28, 28)])
def test_data_of_another_shape_is_refused(tiny: AnytimeModel, shape: tuple[int, ...], refused: Refused) -> None:
    expected = f"`x` must be (n, 1, 28, 28) for n rows of this model's data, not {shape}"
    assert refused(tiny.encode, torch.zeros(shape)) == expected


def test_images_as_bytes_are_converted(tiny: AnytimeModel) -> None:
    x = torch.randint(0, 256, (5, 1, 28, 28), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    assert torch.equal(tiny.encode(x), tiny.encode(x.float() / 255))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int8])
def test_data_of_another_type_is_refused(tiny: AnytimeModel, dtype: torch.dtype, refused: Refused) -> None:
    name = str(dtype).removeprefix("torch.")
    expected = f"`x` must be float32 or uint8, not {name}; convert it to float32"
    assert refused(tiny.encode, torch.zeros(2, 1, 28, 28, dtype=dtype)) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), "`x` must be between 0 and 1; it has NaN"),
        (float("inf"), "`x` must be between 0 and 1; its values are between 0.5 and inf"),
        (-0.01, "`x` must be between 0 and 1; its values are between -0.01 and 0.5"),
        (255.0, "`x` must be between 0 and 1; its values are between 0.5 and 255"),
    ],
)
def test_data_out_of_range_is_refused(tiny: AnytimeModel, value: float, expected: str, refused: Refused) -> None:
    x = torch.full((2, 1, 28, 28), 0.5)
    x[1, 0, 3, 4] = value
    assert refused(tiny.encode, x) == expected


def test_audio_is_between_minus_one_and_one(refused: Refused) -> None:
    quantizer, conv = QuantizerConfig(codebook_size=16), {"widths": (5, 7), "kernels": (25, 25, 25), "strides": (4, 4, 4)}
    audio = AutoencoderConfig(shape=(1, 256), length=8, dim=4, quantizer=quantizer, network="audio", **conv)  # type: ignore[arg-type]
    model = AnytimeModel(replace(_tiny(), autoencoder=audio))
    assert model.encode(torch.full((2, 1, 256), -1.0)).shape == (2, 8)
    assert "`x` must be between -1 and 1" in refused(model.encode, torch.full((2, 1, 256), -1.5))
    assert refused(model.encode, torch.zeros(2, 1, 256, dtype=torch.uint8)) == (
        "`x` must be float32, not uint8; convert it to float32"
    )


def test_codes_of_every_integer_type_decode(tiny: AnytimeModel) -> None:
    codes = tiny.sample(2).codes
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        assert torch.equal(tiny.decode(codes.to(dtype)), tiny.decode(codes))


def test_codes_out_of_range_are_refused(tiny: AnytimeModel, refused: Refused) -> None:
    zeros = torch.zeros(2, 9, dtype=torch.long)
    assert refused(tiny.decode, zeros) == "`codes` must be [batch, up to 8], not (2, 9)"
    assert refused(tiny.decode, zeros[:, :3] + 16) == "`codes` has the code 16; this model's codes run from 0 to 15"
    assert refused(tiny.decode, zeros[:, :3] - 1) == "`codes` has the code -1; this model's codes run from 0 to 15"


# config and hash


def test_a_prior_for_other_codes_is_refused(refused: Refused) -> None:
    config = _tiny()
    assert refused(replace, config, prior=replace(config.prior, length=9)) == (
        "the prior models 9 codes of 16, the autoencoder makes 8 of 16"
    )
    assert "8 codes of 17" in refused(replace, config, prior=replace(config.prior, codebook_size=17))


def test_sampling_hashes_the_weights_once(tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, hashing takes longer than sampling."""
    model, hashed = AnytimeModel(tiny.config).eval(), list[int]()
    digest = storage.digest
    monkeypatch.setattr(storage, "digest", lambda tensors: hashed.append(1) or digest(tensors))
    first = model.sample(1).model
    assert model.sample(2, seed=1).model == first and len(hashed) == 1
    with torch.no_grad():
        model.train().autoencoder.quantizer.codebook += 1
    assert first != model.eval().sample(1).model == model.hash


def test_a_seed_out_of_range_is_refused() -> None:
    for seed in (-1, 1 << 63):
        with pytest.raises(UserError, match=f"`seed` must be between 0 and 2.63 - 1, not {seed}"):
            AnytimeModel(_tiny()).sample(1, seed=seed)


def test_a_warning_points_at_the_callers_line(tiny: AnytimeModel, tmp_path: Path) -> None:
    """In its own process, without the shape checks of the tests."""
    program = tmp_path / "caller.py"
    copy.deepcopy(tiny).save(tmp_path / "model")  # saving sets the hash of a shared model
    program.write_text(
        "import sys, anytime\n"
        "model = anytime.load(sys.argv[1])\n"
        "model.sample(3, within=1e-9)\n"
        "next(model.stream(3, within=1e-9))\n"
        "model.session(3).run(anytime.Budget(codes=8, within=1e-9))\n"
    )
    words = [sys.executable, "-W", "always", str(program), str(tmp_path / "model")]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    assert {int(line) for line in re.findall(r"caller.py:(\d): DeadlineWarning", said)} == {3, 4, 5}
    assert said.count("DeadlineWarning") == said.count("caller.py")
