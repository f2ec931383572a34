"""Law 3 for slots: a row's codes are those of `model.sample`, whatever joins, leaves and steps beside it."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from anytime.core.errors import UserError
from anytime.model import AnytimeModel
from anytime.priors.transformer import Transformer
from anytime.sampling.engines.base import Request
from anytime.sampling.gumbel import SamplingSettings
from anytime.sampling.slots import SlotGroup, SlotTable, build_slots

SETTINGS = (SamplingSettings(), SamplingSettings(temperature=0.7), SamplingSettings(top_k=5), SamplingSettings(top_p=0.8))
CAPACITY = 24


def requests(model: AnytimeModel, rng: random.Random, count: int) -> list[Request]:
    found = []
    for _ in range(count):
        n, given = rng.randint(1, 6), rng.choice((0, 0, 1, 3))
        prefix = torch.tensor([[rng.randrange(model.codebook_size) for _ in range(given)] for _ in range(n)]).view(n, given)
        rows = torch.tensor(rng.sample(range(1000), n))
        found.append(Request(prefix.long(), rows, rng.randrange(1 << 40), rng.choice(SETTINGS), model.hash))
    return found


def alone(model: AnytimeModel, request: Request) -> Tensor:
    """All codes of a request by itself."""
    return model.sampler.session(request).generate_codes(model.length)


def run(table: SlotTable, waiting: list[Request], length: int, rng: random.Random) -> dict[int, Tensor]:
    """Join, step random subsets and leave at random; return the codes of each request when it left."""
    active, found = list[tuple[int, SlotGroup]](), dict[int, Tensor]()
    numbered = list(enumerate(waiting))
    while numbered or active:
        while numbered and len(numbered[0][1].rows) <= table.free and rng.random() < 0.5:
            number, request = numbered.pop(0)
            active.append((number, table.join(request)))
        some = [group for _, group in active if group.position < length and rng.random() < 0.7]
        if some:
            table.step(some)
        for number, group in list(active):
            if group.position >= length or (group.count and rng.random() < 0.05):
                found[number] = table.codes(group)
                table.leave(group)
                active.remove((number, group))
    return found


@pytest.mark.parametrize("engine", ["eager", "packed", "onnx"])
@pytest.mark.parametrize("seed", range(6))
def test_codes_do_not_depend_on_what_is_beside_them(model: AnytimeModel, seed: int, engine: str) -> None:
    if not isinstance(model.prior, Transformer):
        with pytest.raises(UserError, match="needs a Transformer prior"):
            build_slots(model.engine, 4)
        return
    model.use(engine)
    rng = random.Random(seed)
    waiting = requests(model, rng, 20)
    table = build_slots(model.engine, CAPACITY)
    found = run(table, waiting, model.length, rng)
    assert table.free == CAPACITY
    codes = model.sample(3, seed=1).codes
    torch.testing.assert_close(table.decode(codes[:, :2]), model.decode(codes[:, :2]), atol=1e-5, rtol=1e-4)
    assert any(codes.shape[1] == model.length for codes in found.values())
    for number, codes in found.items():
        expected = alone(model, waiting[number])[:, : codes.shape[1]]
        assert torch.equal(codes, expected), (seed, number)
        assert codes.shape[1] >= max(1, waiting[number].codes.shape[1])
    model.use("eager")  # as the other tests find it


def test_a_table_that_is_full_refuses_more_rows(model: AnytimeModel) -> None:
    if isinstance(model.prior, Transformer):
        table = build_slots(model.engine, 4)
        request = Request(torch.empty(3, 0, dtype=torch.long), torch.arange(3), 0, SamplingSettings(), model.hash)
        table.join(request)
        with pytest.raises(ValueError, match="3 rows do not fit into 1 free slots"):
            table.join(request)
