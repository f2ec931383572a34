"""Arguments as people have them: times as text, numbers of NumPy and torch, lists and arrays of codes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from anytime.model import AnytimeModel
from anytime.sampling import sampler
from anytime.sampling.budget import Budget

Refused = Callable[..., str]


@pytest.mark.parametrize("within", ["30s", "30000ms", 30, np.float32(30), torch.tensor(30.0)])
def test_deadlines(tiny: AnytimeModel, within: Any) -> None:
    assert tiny.sample(2, within=within).codes.shape == (2, 8)
    assert len(list(tiny.stream(2, within=within, every=8))) == 1
    assert tiny.refine(tiny.sample(2, codes=3), within=within).codes.shape == (2, 8)


def test_a_deadline_as_text_has_its_unit(monkeypatch: pytest.MonkeyPatch, tiny: AnytimeModel) -> None:
    budgets = list[Budget]()
    monkeypatch.setattr(tiny.sampler, "run", lambda request, budget, *rest: budgets.append(budget))
    monkeypatch.setattr(type(tiny), "sampler", tiny.sampler)
    with pytest.raises(Exception, match="None"):  # the type check of the tests: the stand-in returns no sample
        tiny.sample(2, within="20ms")
    assert budgets[0].within == 0.02


@pytest.mark.parametrize(
    ("within", "expected"),
    [
        ("20 parsecs", "`within` '20 parsecs' is not a time; write 50ms, 2s or plain seconds"),
        ("", "`within` '' is not a time; write 50ms, 2s or plain seconds"),
        ("0ms", "`within` must be above 0 and at most 1000000 seconds, not 0.0"),
        ("nan", "`within` must be above 0 and at most 1000000 seconds, not nan"),
        (True, '`within` must be seconds or a time such as "20ms", not True'),
    ],
)
def test_what_is_not_a_deadline(tiny: AnytimeModel, within: Any, expected: str, refused: Refused) -> None:
    assert refused(tiny.sample, within=within) == expected


def test_wrong_types_are_refused_in_a_sentence() -> None:
    """In its own process, without the type checks of the tests."""
    program = (
        "import anytime; from anytime.model import AnytimeModel, _tiny\nmodel = AnytimeModel(_tiny())\n"
        "for wrong in ({'within': [1]}, {'within': {}}, {'seed': 'a'}, {'prefix': 3.5}, {'prefix': [[1], [1, 2]]},\n"
        "              {'prefix': ['a']}, {'prefix': [[[1]]]}):\n"
        "    try: model.sample(2, **wrong)\n"
        "    except anytime.UserError as error: print(error)\n"
        "for call, value in ((model.sample(2).pick, [0.5]), (anytime.load, None), (model.refine, model.sample(2).data)):\n"
        "    try: call(value)\n"
        "    except ValueError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [
        '`within` must be seconds or a time such as "20ms", not [1]',
        '`within` must be seconds or a time such as "20ms", not {}',
        "`seed` must be a whole number, not 'a'",
        "`prefix` must be integers, not 3.5",
        "`prefix` must be a list of equally long rows of integers, not [[1], [1, 2]]",
        "`prefix` must be integers, not ['a']",
        "`prefix` must be [k] or [batch, k], not (1, 1, 1)",
        "`pick` must be integers, not [0.5]",
        "`name` must be the name or the directory of a model, not None",
        "`sample` must be a Sample, not Tensor; to go on from codes, give them to `sample` as `prefix`",
    ]


@pytest.mark.parametrize(
    "prefix", [[3, 1], [[3, 1]], np.array([3, 1]), np.array([[3, 1]], np.uint16), torch.tensor([3, 1]), torch.tensor([[3, 1]])]
)
def test_prefixes(tiny: AnytimeModel, prefix: Any) -> None:
    sample = tiny.sample(2, prefix=prefix, codes=4)
    assert sample.codes[:, :2].tolist() == [[3, 1], [3, 1]]
    assert sample == tiny.session(2, prefix=prefix).run(Budget(codes=4))
    assert tiny.sample(2, prefix=[[3], [1]]).codes[:, 0].tolist() == [3, 1], "one row each"
    assert tiny.sample(2, prefix=[]) == tiny.sample(2)


@pytest.mark.parametrize("seed", [7, np.int64(7), torch.tensor(7)])
def test_seeds(tiny: AnytimeModel, seed: Any) -> None:
    assert tiny.sample(2, seed=seed, codes=1) == tiny.sample(2, seed=7, codes=1)
    assert type(tiny.sample(2, seed=seed, codes=1).seed) is int


@pytest.mark.parametrize("rows", [[2, 0], np.array([2, 0]), torch.tensor([2, 0])])
def test_picked_rows(tiny: AnytimeModel, rows: Any) -> None:
    sample = tiny.sample(3, codes=2)
    assert sample.pick(rows).rows.tolist() == [2, 0]
    assert sample.pick(1) == sample[1]
    assert sample[1:].pick(2).rows.tolist() == [2], "by row number, not by position"


def test_more_samples_than_memory_are_refused(refused: Refused, tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = "`n` of 2,000,000,000 makes 6,272 GB of samples, and this machine has"
    assert expected in refused(tiny.sample, 2_000_000_000)
    assert expected in refused(tiny.session, 2_000_000_000)
    monkeypatch.setattr(sampler, "total_memory", lambda device: 2 * 4 * 28 * 28)
    assert len(tiny.sample(2)) == 2
    assert "`n` of 3" in refused(tiny.sample, 3)
