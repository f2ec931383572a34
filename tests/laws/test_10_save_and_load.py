"""Law 10. Saved and loaded: the same bytes on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import anytime
from anytime.model import AnytimeModel
from anytime.models.registry import CONFIG, WEIGHTS


@pytest.fixture(scope="module")
def saved(model: AnytimeModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model.save(tmp_path_factory.mktemp("saved"))


def test_saving_again_gives_the_same_bytes(model: AnytimeModel, saved: Path, tmp_path: Path) -> None:
    for attempt in range(8):
        again = model.save(tmp_path / str(attempt))
        for name in (CONFIG, WEIGHTS):
            assert (again / name).read_bytes() == (saved / name).read_bytes()


def test_loading_and_saving_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    again = anytime.load(saved, device="cpu").save(tmp_path)
    for name in (CONFIG, WEIGHTS):
        assert (again / name).read_bytes() == (saved / name).read_bytes()


def test_a_loaded_model_has_the_same_weights_and_config(model: AnytimeModel, saved: Path) -> None:
    loaded = anytime.load(saved, device="cpu")
    assert loaded.config == model.config
    ours, theirs = model.state_dict(), loaded.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert theirs[name].dtype == tensor.dtype
        assert torch.equal(theirs[name], tensor), name


def test_a_loaded_model_samples_encodes_and_decodes_the_same_bits(model: AnytimeModel, saved: Path) -> None:
    loaded = anytime.load(saved, device="cpu", engine=model.engine.name)
    settings = {"seed": 21, "temperature": 0.9, "top_k": 12, "top_p": 0.95}
    ours, theirs = model.sample(30, **settings), loaded.sample(30, **settings)
    assert torch.equal(ours.codes, theirs.codes)
    assert torch.equal(ours.data, theirs.data)
    assert ours.model == theirs.model
    assert torch.equal(model.encode(ours.data), loaded.encode(ours.data))
    assert torch.equal(model.prior(ours.codes), loaded.prior(ours.codes))


def test_one_changed_weight_changes_the_bytes_and_the_hash(saved: Path, tmp_path: Path) -> None:
    changed = anytime.load(saved, device="cpu")
    hash_before = changed.hash
    with torch.no_grad():
        changed.prior.tokens.weight[0, 0] += 1e-3
    again = changed.save(tmp_path)
    assert (again / WEIGHTS).read_bytes() != (saved / WEIGHTS).read_bytes()
    assert changed.hash != hash_before


def test_the_directory_holds_a_config_and_tensors_and_nothing_else(saved: Path) -> None:
    assert sorted(path.name for path in saved.iterdir()) == [CONFIG, WEIGHTS]
    assert json.loads((saved / CONFIG).read_text())["format"] == 1
