"""A tiny model for everybody."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

from anytime.model import AnytimeModel, _tiny

collect_ignore = ["conftest.py"]  # doctests: two modules of this name cannot both be imported

# No deadline: the machine may be busy. Derandomised: the same examples on every run.
settings.register_profile("tests", deadline=None, derandomize=True)
settings.load_profile("tests")


@pytest.fixture(scope="session")
def tiny() -> AnytimeModel:
    """8 codes of 16 for pictures of 28 × 28; shared, so never change its weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AnytimeModel(_tiny())
        torch.nn.init.normal_(model.autoencoder.quantizer.codebook)
        return model.eval()
