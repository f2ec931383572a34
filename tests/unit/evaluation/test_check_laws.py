from __future__ import annotations

import copy

import torch

from anytime.evaluation.check_laws import check_model
from anytime.model import AnytimeModel


def test_a_good_model_keeps_the_laws(tiny: AnytimeModel) -> None:
    found = check_model(tiny)
    assert len(found) >= 4
    assert all(found.values())


def test_a_weight_that_is_no_number_is_found(tiny: AnytimeModel) -> None:
    broken = copy.deepcopy(tiny)
    with torch.no_grad():
        next(broken.autoencoder.decoder.parameters()).fill_(torch.nan)
    found = check_model(broken)
    assert not found["all weights are finite"]
    assert not found["every prefix decodes to a complete sample"]
