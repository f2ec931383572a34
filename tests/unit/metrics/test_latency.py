from __future__ import annotations

import pytest
import torch

from anytime.metrics import latency
from anytime.metrics.latency import TimedSampler, latencies, latency_by_codes
from anytime.model import AnytimeModel
from anytime.sampling.gumbel import SamplingSettings
from anytime.sampling.sample import Sample


class FakeSampler:
    """A model whose steps take 1 ms a sample and whose decodes take 2, by its own clock; the first request is slow."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.now, self.asked = 0.0, list[tuple[int, int, int]]()

    def clock(self) -> float:
        return self.now

    def sample(self, n: int, *, seed: int, codes: int) -> Sample:
        self.now += 100 if not self.asked else 0
        self.asked.append((n, seed, codes))
        sampled = self.generate_codes(n, seed=seed, codes=codes)
        return Sample(self.decode(sampled), sampled, 0.0, seed, torch.arange(n), SamplingSettings(), "none")

    def generate_codes(self, n: int, *, seed: int, codes: int) -> torch.Tensor:
        self.now += 0.001 * n * codes
        return torch.zeros(n, codes, dtype=torch.long)

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        self.now += 0.002 * len(codes)
        return torch.zeros(len(codes), 1, 2, 2)


def test_times_by_a_fake_clock() -> None:
    model, done = FakeSampler(), list[int]()
    found = latency_by_codes(model, [3, 8], batch=10, repeats=5, clock=model.clock, progress=done.append)
    assert [(s.codes, s.batch, s.repeats) for s in found] == [(3, 10, 5), (8, 10, 5)]
    assert [s.p50 for s in found] == pytest.approx([0.05, 0.10])
    assert [s.p95 for s in found] == pytest.approx([0.05, 0.10]), "the slow first request is a warm-up"
    assert [s.samples_per_second for s in found] == pytest.approx([200, 100])
    assert [s.draw for s in found] == pytest.approx([0.03, 0.08])
    assert [s.decode_fraction for s in found] == pytest.approx([0.4, 0.2])
    assert len(set(model.asked)) == len(model.asked) == 12, "a seed of its own for every repetition"
    assert done == [1, 2, 3, 4, 5]
    assert [codes for _, _, codes in model.asked[2:6]] == [3, 8, 3, 8], "in rounds: what slows the machine down slows all"


def test_slow_models_are_repeated_less(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeSampler()
    monkeypatch.setattr(latency, "MAX_SECONDS_PER_COUNT", 0.39)
    for counts, rounds in (([3], 4), ([80], 3), ([3, 4], 4)):
        found = latency_by_codes(model, counts, batch=10, repeats=20, clock=model.clock)
        assert [s.repeats for s in found] == [rounds] * len(counts)


def test_samplers_take_turns() -> None:
    one, other = FakeSampler(), FakeSampler()
    order = list[FakeSampler]()
    for sampler in (one, other):
        plain = sampler.decode
        sampler.decode = lambda codes, sampler=sampler, plain=plain: order.append(sampler) or plain(codes)  # type: ignore[method-assign]
    found = latencies([(one, 3), (other, 8)], batch=10, repeats=3, clock=lambda: one.now + other.now)
    assert [latency.p50 for latency in found] == pytest.approx([0.05, 0.10])
    turns = [sampler for before, sampler in zip([None, *order], order, strict=False) if sampler is not before]
    assert turns == [one, other] * 5, "each is warmed up by a request and by a decode, then come three rounds"


def test_a_real_model(tiny: AnytimeModel) -> None:
    (found,) = latency_by_codes(TimedSampler(tiny), [8], batch=4, repeats=3)
    assert 0 < found.decode < found.p50 <= found.p95
    assert found.samples_per_second == pytest.approx(4 / found.p50)


def test_the_decoder_that_is_timed_is_the_engines_own(tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, decode = list[int](), tiny.engine.decode
    monkeypatch.setattr(tiny.engine, "decode", lambda codes: asked.append(len(codes)) or decode(codes))
    latency_by_codes(TimedSampler(tiny), [2, 8], batch=4, repeats=1)
    assert asked == [4] * 8, "two lengths, each generated and decoded twice"


def test_what_is_drawn_without_a_decode_is_what_a_request_draws(tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tiny.sample(5, seed=3, codes=6).codes
    monkeypatch.setattr(tiny.engine, "decode", lambda codes: pytest.fail("decoded"))
    assert torch.equal(tiny.session(5, seed=3).generate_codes(6), asked)
    monkeypatch.setattr(tiny.engine, "microbatch", 2)
    assert [len(codes) for codes in TimedSampler(tiny).generate_codes(5, seed=3, codes=6)] == [2, 2, 1], "in microbatches"
