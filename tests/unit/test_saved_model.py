"""Saving and loading models: contents, lookup, errors and devices."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import anytime
from anytime.core import quantized_weights, storage
from anytime.core.config import to_dict
from anytime.core.device import pick_device
from anytime.core.storage import DamagedFileError
from anytime.model import AnytimeModel, ModelConfig, _tiny, load
from anytime.models.registry import CONFIG, WEIGHTS
from anytime.priors.pixelcnn import PixelCNNConfig

Refused = Callable[..., str]


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    """A saved model that a test may damage."""
    folder = tmp_path / "copied"
    folder.mkdir()
    for name in (CONFIG, WEIGHTS):
        (folder / name).write_bytes((saved / name).read_bytes())
    return folder


def test_a_saved_model_loads(tiny: AnytimeModel, saved: Path) -> None:
    model = load(saved)
    assert model.config == tiny.config
    assert not model.training
    assert (model.length, model.codebook_size) == (8, 16)
    assert isinstance(model, anytime.AnytimeModel)
    assert torch.equal(load(str(saved), device="cpu").sample(2).codes, tiny.sample(2).codes)


def test_a_finished_run_loads_by_its_directory(tiny: AnytimeModel, tmp_path: Path) -> None:
    copy.deepcopy(tiny).save(tmp_path / "run" / "model")
    storage.write_json(tmp_path / "run" / CONFIG, {"recipe": "paper"})
    (tmp_path / "run" / "checkpoints").mkdir()
    assert load(tmp_path / "run").hash == tiny.hash


def test_the_hash_names_the_weights(tiny: AnytimeModel, saved: Path, tmp_path: Path) -> None:
    model = copy.deepcopy(tiny)
    assert model.hash == tiny.hash == load(saved).hash == storage.digest(tiny.state_dict())
    with torch.no_grad():
        model.autoencoder.quantizer.codebook[0, 0] += 1
    assert model.hash != tiny.hash
    model.save(tmp_path)
    assert load(tmp_path).hash == model.hash != tiny.hash


def test_buffers_are_saved_too(tmp_path: Path) -> None:
    config = _tiny()
    quantizer = replace(config.autoencoder.quantizer, codebook="ema")
    model = AnytimeModel(replace(config, autoencoder=replace(config.autoencoder, quantizer=quantizer)))
    model.autoencoder.quantizer.count.fill_(3)
    model.autoencoder.train()(torch.rand(8, 1, 28, 28), torch.full((8,), 8))
    model.save(tmp_path)
    loaded = load(tmp_path)
    assert (loaded.autoencoder.quantizer.count == 3).all()
    assert any("running_mean" in name for name in loaded.state_dict())
    assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in model.state_dict().items())


def test_loading_never_unpickles(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("pickle was called")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(f"pickle.{name}", forbidden)
    monkeypatch.setattr(torch, "load", forbidden)
    load(copied)


def test_a_model_with_another_prior_saves_and_loads(tmp_path: Path) -> None:
    prior = PixelCNNConfig(length=8, codebook_size=16, side=3, layers=2, width=8, head=8)
    model = AnytimeModel(replace(_tiny(), prior=prior))
    assert json.loads((model.save(tmp_path) / CONFIG).read_text())["prior"]["kind"] == "pixelcnn"
    assert load(tmp_path).config.prior == prior
    assert torch.equal(load(tmp_path).sample(3).codes, model.sample(3).codes)


def test_a_name_that_is_not_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(load, "nothing").startswith("nothing is not a model: not a run directory, a saved model or a bundled model")
    assert "anytime train" in refused(load, "nothing")


def test_a_misspelt_run_suggests_the_nearest(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("digits-best", "mnist-paper"):
        (tmp_path / "runs" / name / "model").mkdir(parents=True)
    text = refused(load, "runs/digits-bset")
    assert "runs/digits-bset is not a model" in text
    assert "did you mean 'runs/digits-best'?" in text and "runs/digits-best, runs/mnist-paper" in text


def test_an_unfinished_run_says_how_to_continue(tmp_path: Path, refused: Refused) -> None:
    storage.write_json(tmp_path / CONFIG, {"recipe": "paper"})
    (tmp_path / "checkpoints").mkdir()
    assert refused(load, tmp_path) == (
        f"{tmp_path} is an unfinished run; run the same `anytime train` command again to finish it"
    )


def test_a_run_before_its_first_checkpoint_is_unfinished_too(tmp_path: Path, refused: Refused) -> None:
    storage.write_json(tmp_path / CONFIG, {"recipe": "paper"})
    storage.write_json(tmp_path / "environment.json", {"starts": []})
    assert "an unfinished run" in refused(load, tmp_path)


def test_missing_files_are_named(copied: Path, refused: Refused) -> None:
    (copied / WEIGHTS).rename(copied / "elsewhere")
    assert refused(load, copied) == f"{copied} has a {CONFIG} but no {WEIGHTS}; restore that file"
    (copied / "elsewhere").rename(copied / WEIGHTS)
    (copied / CONFIG).unlink()
    assert f"{copied / CONFIG} cannot be read as JSON" in refused(load, copied)


def test_a_config_with_an_unknown_key_is_refused(copied: Path, refused: Refused) -> None:
    data = json.loads((copied / CONFIG).read_text())
    data["prior"]["layer"] = 3
    (copied / CONFIG).write_text(json.dumps(data))
    assert refused(load, copied).startswith(f"{copied / CONFIG}.prior has the unknown key 'layer'; did you mean 'layers'?")


def test_a_config_of_another_format_is_refused(copied: Path, refused: Refused) -> None:
    data = json.loads((copied / CONFIG).read_text()) | {"format": 2}
    (copied / CONFIG).write_text(json.dumps(data))
    assert "has format 2, this version of anytime reads format 1" in refused(load, copied)


def test_weights_of_another_model_are_refused(copied: Path, tiny: AnytimeModel, tmp_path: Path, refused: Refused) -> None:
    """They fit and are intact, but their hash is not the one in the config."""
    other = copy.deepcopy(tiny)
    with torch.no_grad():
        other.autoencoder.quantizer.codebook[0, 0] += 1
    other.save(tmp_path / "other")
    (copied / WEIGHTS).write_bytes((tmp_path / "other" / WEIGHTS).read_bytes())
    assert refused(load, copied) == f"{copied / WEIGHTS} does not match the hash in {CONFIG}; restore both files"


@pytest.mark.parametrize("change", [{"width": 32}, {"layers": 3}, {"layers": 1}], ids=str)
def test_weights_that_do_not_fit_their_config_are_refused(
    tiny: AnytimeModel, copied: Path, change: dict[str, int], refused: Refused
) -> None:
    config: ModelConfig = replace(tiny.config, prior=replace(tiny.config.prior, **change))
    storage.write_json(copied / CONFIG, {"hash": tiny.hash, **to_dict(config)})
    assert refused(load, copied) == f"{copied / WEIGHTS} does not fit its {CONFIG}; restore both files"


HUGE = [
    {"prior": {"width": 1 << 30}},
    {"prior": {"hidden": 10**15}},
    {"prior": {"hidden": 10**400}},
    {"prior": {"layers": 10**12}},
    {"autoencoder": {"blocks": 10**12}},
    {"autoencoder": {"widths": [1 << 40, 8]}},
    {"autoencoder": {"shape": [1, 10**9, 10**9]}},
    {"autoencoder": {"quantizer": {"codebook_size": 10**12}}, "prior": {"codebook_size": 10**12}},
]


def merge(data: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return data | {key: merge(data[key], value) if isinstance(value, dict) else value for key, value in change.items()}


@pytest.mark.parametrize("change", HUGE, ids=str)
def test_huge_sizes_in_a_config_allocate_nothing(
    copied: Path, change: dict[str, Any], refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes are compared with those of the weights before a model is built."""
    data = merge(json.loads((copied / CONFIG).read_text()), change)
    (copied / CONFIG).write_text(json.dumps(data))
    monkeypatch.setattr(AnytimeModel, "load_state_dict", lambda *args: pytest.fail("the model was built"))
    began = time.perf_counter()
    text = refused(load, copied)
    assert time.perf_counter() - began < 5
    assert text == f"{copied / WEIGHTS} does not fit its {CONFIG}; restore both files" or any(
        word in text for word in ("autoencoder.shape", "64 bits")
    )


def test_sizes_that_the_weights_do_not_bound_are_bounded(refused: Refused) -> None:
    autoencoder, prior = _tiny().autoencoder, PixelCNNConfig(length=8, codebook_size=16, side=3)
    text = refused(replace, autoencoder, shape=(1, 28 << 20, 28 << 20))
    assert text == "`autoencoder.shape` (1, 29360128, 29360128) has more than 67108864 values"
    assert refused(replace, prior, side=9) == "`prior.side` (9) must not be larger than the 8 codes of the map"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("quantised", [False, True])
def test_weights_that_are_not_finite_are_refused(
    tiny: AnytimeModel, tmp_path: Path, value: float, quantised: bool, refused: Refused
) -> None:
    model = copy.deepcopy(tiny)
    with torch.no_grad():
        model.prior.tokens.weight[3, 2] = value
    model.save(tmp_path)
    if quantised:
        choose = lambda name, tensor: "bf16" if tensor.is_floating_point() else "fp32"  # noqa: E731
        tensors = quantized_weights.quantize_weights(model.state_dict(), choose)
        storage.write_tensors(tmp_path / WEIGHTS, tensors, {"kind": quantized_weights.FILE_KIND})
        found = storage.digest(quantized_weights.dequantize_weights(tensors))
        (tmp_path / CONFIG).write_text(json.dumps(json.loads((tmp_path / CONFIG).read_text()) | {"hash": found}))
    assert refused(load, tmp_path) == (
        f"{tmp_path / WEIGHTS} has NaN or infinite weights in prior.tokens.weight; train the model again"
    )


def test_weights_of_another_type_are_refused(copied: Path, tiny: AnytimeModel, refused: Refused) -> None:
    tensors = {name: tensor.double() if "codebook" in name else tensor for name, tensor in tiny.state_dict().items()}
    found = storage.write_tensors(copied / WEIGHTS, tensors)
    (copied / CONFIG).write_text(json.dumps(json.loads((copied / CONFIG).read_text()) | {"hash": found}))
    assert refused(load, copied) == f"{copied / WEIGHTS} does not fit its {CONFIG}; restore both files"


def test_damaged_weights_are_refused(copied: Path, refused: Refused) -> None:
    content = bytearray((copied / WEIGHTS).read_bytes())
    content[-1] ^= 1
    (copied / WEIGHTS).write_bytes(content)
    with pytest.raises(DamagedFileError, match=f"{WEIGHTS} was altered"):
        load(copied)


def test_saving_to_a_path_that_cannot_be_written(tiny: AnytimeModel, tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert "cannot be written" in refused(copy.deepcopy(tiny).save, tmp_path / "file")


# devices


def test_devices(saved: Path, refused: Refused) -> None:
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device(torch.device("cpu")).type == "cpu"
    assert pick_device(None).type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert load(saved, device="cpu").device.type == "cpu"
    assert refused(pick_device, "banana") == "`device` 'banana' is not a device; use cpu or cuda"
    assert refused(pick_device, "meta") == "`device` 'meta' is not supported; use cpu or cuda"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device(saved: Path, refused: Refused) -> None:
    assert refused(load, saved, device="cuda").startswith("`device` cuda needs an NVIDIA GPU")
