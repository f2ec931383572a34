"""Sessions on a prior whose logits are all equal, with a fake clock."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor

from anytime.core.errors import UserError
from anytime.sampling.budget import Budget
from anytime.sampling.engines.base import Request
from anytime.sampling.engines.eager import EagerEngine
from anytime.sampling.gumbel import SamplingSettings, gumbel, gumbel_argmax
from anytime.sampling.latency import LatencyEstimate
from anytime.sampling.sample import Sample
from anytime.sampling.session import SESSION_KIND, Session, read_session


@dataclass
class FakePrior:
    """A prior with equal logits that records the codes fed to it. The state is the number of steps."""

    length: int = 6
    codebook_size: int = 9
    fed: list[Tensor | None] = field(default_factory=list)

    def __call__(self, codes: Tensor) -> Tensor:
        return torch.zeros(*codes.shape, self.codebook_size)

    def start(self, batch: int) -> tuple[int, int]:
        return batch, 0

    def step(self, codes: Tensor | None, state: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
        batch, done = state
        assert done < self.length
        self.fed.append(None if codes is None else codes.clone())
        return torch.zeros(batch, self.codebook_size), (batch, done + 1)


def session_of(prior: FakePrior, rows: Tensor, prefix: Tensor | None = None, seed: int = 0) -> Session:
    prefix = torch.empty(len(rows), 0, dtype=torch.long) if prefix is None else prefix
    engine = EagerEngine(prior, lambda codes: codes.float(), torch.device("cpu"))
    return Session(engine, LatencyEstimate(), prior.length, Request(prefix, rows, seed, SamplingSettings(), "a model"))


def sampled(prior: FakePrior, rows: Tensor, count: int, prefix: Tensor | None = None, seed: int = 0) -> Tensor:
    return session_of(prior, rows, prefix, seed).run(Budget(codes=count)).codes


def test_codes_are_the_argmax_of_their_noise() -> None:
    rows = torch.tensor([3, 0, 511, 7])
    codes = sampled(FakePrior(), rows, 6, seed=5)
    for position in range(6):
        assert torch.equal(
            codes[:, position], gumbel_argmax(torch.zeros(4, 9), SamplingSettings(), gumbel(5, rows, position, 9))
        )


def test_the_prior_gets_none_first_and_then_every_code_in_order() -> None:
    prior = FakePrior()
    codes = sampled(prior, torch.arange(4), 6)
    assert prior.fed[0] is None
    assert torch.equal(torch.stack([codes for codes in prior.fed[1:] if codes is not None], 1), codes[:, :5])


def test_no_step_is_spent_beyond_the_budget() -> None:
    prior = FakePrior()
    assert sampled(prior, torch.arange(4), 2).shape == (4, 2)
    assert len(prior.fed) == 2


def test_the_prefix_is_kept_and_fed_to_the_prior() -> None:
    prior, prefix = FakePrior(), torch.tensor([[8, 7, 6], [0, 1, 2]])
    codes = sampled(prior, torch.arange(2), 5, prefix)
    assert torch.equal(codes[:, :3], prefix)
    fed = torch.stack([codes for codes in prior.fed[1:] if codes is not None], 1)
    assert torch.equal(fed, codes[:, :4])
    assert torch.equal(codes[:, 3:], sampled(FakePrior(), torch.arange(2), 5)[:, 3:]), "the noise is that of the position"


def test_a_prefix_as_long_as_the_budget_leaves_nothing_to_sample() -> None:
    prefix = torch.tensor([[8, 7, 6]])
    assert torch.equal(sampled(FakePrior(), torch.arange(1), 3, prefix), prefix)


def test_equal_logits_give_equal_frequencies() -> None:
    codes = sampled(FakePrior(), torch.arange(2_000), 6)
    for position in range(6):
        counts = torch.bincount(codes[:, position], minlength=9).double()
        expected = 2_000 / 9
        assert ((counts - expected) ** 2 / expected).sum() < 8 + 5 * 4
    assert abs(torch.corrcoef(codes.double().T) - torch.eye(6)).max() < 5 / 2_000**0.5


def test_the_block_is_a_constant_of_the_format() -> None:
    assert EagerEngine.block == 512, "another block size would change the bytes of bulk samples"


def test_a_stop_that_is_set_gives_one_code() -> None:
    stop = threading.Event()
    stop.set()
    sample = session_of(FakePrior(), torch.arange(3)).run(Budget(codes=6, stop=stop))
    assert sample.codes.shape == (3, 1)
    assert sample.data.shape == (3, 1)


def test_a_stop_between_steps_ends_there() -> None:
    stop = threading.Event()

    def watch(codes: int, seconds: float) -> None:
        if codes == 4:
            stop.set()

    sample = session_of(FakePrior(), torch.arange(3)).run(Budget(codes=6, stop=stop), progress=watch)
    assert sample.codes.shape == (3, 4)


def test_a_session_continues_without_feeding_a_code_twice() -> None:
    prior = FakePrior()
    session = session_of(prior, torch.arange(4))
    first, second = session.run(Budget(codes=2)), session.run(Budget(codes=6))
    assert torch.equal(second.codes[:, :2], first.codes)
    assert torch.equal(second.codes, sampled(FakePrior(), torch.arange(4), 6))
    assert len(prior.fed) == 6
    assert first.session is session
    assert second.session is None, "nothing is left to refine"


def test_several_blocks_keep_no_state() -> None:
    session = session_of(FakePrior(), torch.arange(EagerEngine.block + 1))
    assert session.run(Budget(codes=2)).session is None


def test_a_saved_session_continues_elsewhere(tmp_path: Path) -> None:
    session = session_of(FakePrior(), torch.tensor([5, 2]), seed=11)
    session.run(Budget(codes=3))
    session.save(tmp_path / "s.safetensors")
    saved = read_session(tmp_path / "s.safetensors")
    assert (saved.seed, saved.settings, saved.model) == (11, SamplingSettings(), "a model")
    again = session_of(FakePrior(), saved.rows, saved.codes, saved.seed).run(Budget(codes=6))
    assert torch.equal(again.codes, sampled(FakePrior(), torch.tensor([5, 2]), 6, seed=11))


def test_a_damaged_or_foreign_session_is_refused(tmp_path: Path) -> None:
    from anytime.core.storage import write_tensors

    session_of(FakePrior(), torch.arange(2)).save(path := tmp_path / "s.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match="is truncated"):
        read_session(path)
    write_tensors(path, {"codes": torch.zeros(1)}, {"kind": "session 0"})
    with pytest.raises(UserError, match="session 0"):
        read_session(path)
    write_tensors(path, {"codes": torch.zeros(1)}, {"kind": SESSION_KIND, "seed": 0, "settings": {}, "model": ""})
    with pytest.raises(UserError, match="is not a session: it lacks 'rows'"):
        read_session(path)
    write_tensors(path, {"codes": torch.zeros(1), "rows": torch.zeros(1)}, {"kind": SESSION_KIND})
    with pytest.raises(UserError, match="is not a session: it lacks 'seed'"):
        read_session(path)


@pytest.mark.parametrize("seed", ["7", "\x1b[31m", 1.5, None, [], True])
def test_a_saved_seed_is_a_whole_number(seed: object, tmp_path: Path) -> None:
    from anytime.core.storage import write_tensors

    tensors = {"codes": torch.zeros(1, 1, dtype=torch.int64), "rows": torch.zeros(1, dtype=torch.int64)}
    path = tmp_path / "s.safetensors"
    write_tensors(path, tensors, {"kind": SESSION_KIND, "seed": seed, "settings": {}, "model": ""})
    with pytest.raises(UserError, match="seed must be a whole number; save it again"):
        read_session(path)


def test_latency_is_measured_with_a_deadline() -> None:
    session = session_of(FakePrior(), torch.arange(2))
    session.run(Budget(codes=1))
    assert len(session.latency.steps) == 0, "no deadline, so no synchronisation"
    session.run(Budget(codes=4, within=100.0))
    assert len(session.latency.steps) == 3
    assert len(session.latency.decodes) == 2
    cold = session_of(FakePrior(), torch.arange(2))
    cold.run(Budget(codes=4, within=100.0))
    assert len(cold.latency.decodes) == 2, "one extra to measure it"


def test_picked_rows_keep_their_numbers() -> None:
    sample = session_of(FakePrior(), torch.arange(6)).run(Budget(codes=2))
    picked = sample.pick([4, 1])
    assert picked.rows.tolist() == [4, 1]
    assert torch.equal(picked.codes, sample.codes[[4, 1]])
    assert picked.pick([1]).rows.tolist() == [1]
    with pytest.raises(UserError, match=r"`pick` 6 is not among the 6 rows of the sample \(0 to 5\)"):
        sample.pick([6])
    with pytest.raises(UserError, match="4, 1"):
        picked.pick([0])
    assert isinstance(picked, Sample)


def test_a_budget_of_no_codes_or_of_too_many_is_refused_before_any_step() -> None:
    prior = FakePrior()
    with pytest.raises(UserError, match="`codes` must be at least 1, not 0"):
        Budget(codes=0)
    with pytest.raises(UserError, match="`codes` must be between 1 and 6"):
        session_of(prior, torch.arange(2)).run(Budget(codes=7))
    assert prior.fed == []


def test_a_decode_that_was_measured_is_not_thrown_away() -> None:
    decodes = list[int]()
    prior = FakePrior()
    engine = EagerEngine(prior, lambda codes: (decodes.append(codes.shape[1]), codes.float())[1], torch.device("cpu"))
    engine._warm_batch_sizes.add(2)
    request = Request(torch.empty(2, 0, dtype=torch.long), torch.arange(2), 0, SamplingSettings(), "a model")
    session = Session(engine, LatencyEstimate(), prior.length, request)
    assert session.run(Budget(codes=1, within=100.0)).codes.shape == (2, 1)
    assert decodes == [1]


def test_a_stopped_stream_does_not_repeat_its_last_sample() -> None:
    stop, session = threading.Event(), session_of(FakePrior(), torch.arange(2))
    counts = []
    for sample in session.stream(Budget(codes=6, stop=stop), 2, 0.0):
        counts.append(sample.codes.shape[1])
        if len(counts) == 2:
            stop.set()
    assert counts == [2, 4]
