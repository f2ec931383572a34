"""A tiny model for all unit tests, and a fixture for refused calls."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from anytime.core.errors import UserError
from anytime.model import AnytimeModel, _tiny

collect_ignore = ["conftest.py"]  # no doctests here, and other directories have modules of the same name

# No deadline: the machine may be busy. Derandomised: the same examples on every run.
settings.register_profile("tests", deadline=None, derandomize=True)
settings.load_profile("tests")


@pytest.fixture(scope="session")
def tiny() -> AnytimeModel:
    """A model of 8 codes of 16 for images of 28 × 28; shared, so its weights must not change."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AnytimeModel(_tiny())
        torch.nn.init.normal_(model.autoencoder.quantizer.codebook)
        return model.eval()


@pytest.fixture(scope="session")
def saved(tiny: AnytimeModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy.deepcopy(tiny).save(tmp_path_factory.mktemp("model") / "saved")


@pytest.fixture
def refused() -> Callable[..., str]:
    """Return the sentence of the `UserError` that a call raises."""

    def sentence(call: Any, *args: Any, **kwargs: Any) -> str:
        with pytest.raises(UserError) as error:
            call(*args, **kwargs)
        text = str(error.value)
        assert text and "\n" not in text
        return text

    return sentence
