from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from anytime import collective
from anytime.autoencoders.truncation import Uniform
from anytime.data.dataset import synthetic
from anytime.model import AnytimeModel
from anytime.training import judges
from anytime.training.adversarial import Examples, TuneTask, feature_distance, frozen_twin, hinge
from anytime.training.averages import Follower
from anytime.training.judges import PictureJudge, Verdict
from anytime.training.stages import TuneStage
from anytime.training.step import Compute

STAGE = TuneStage(epochs=2, truncation=Uniform(), batch=16, swapped=0.0, width=4)


def task(tiny: AnytimeModel, stage: TuneStage = STAGE, seed: int = 3) -> TuneTask:
    data, autoencoder = synthetic("strokes", (1, 28, 28), count=64), copy.deepcopy(tiny.autoencoder)
    torch.manual_seed(0)
    judge = PictureJudge(stage.width, 1, 28)
    size, length = autoencoder.codebook_size, autoencoder.length
    train, validation = (Examples(x, torch.randint(size, (len(x), length))) for x in (data.train, data.validation))
    bank = torch.randint(size, (50, length)) if stage.drawn else None
    return TuneTask(stage, autoencoder, judge, judges.moved_pictures, train, validation, seed, bank)


def gradients(made: TuneTask) -> tuple[list[Tensor], list[Tensor]]:
    """Of the decoder and of the judge."""
    made.objective.train()
    made.losses(made.objective, *made.inputs(0))[0].backward()
    found = [p.grad for part in (made.objective.decoder, made.objective.judge) for p in part.parameters()]
    count = len(list(made.objective.decoder.parameters()))
    assert all(g is not None for g in found)
    return found[:count], found[count:]  # type: ignore[return-value]


def test_the_judge_learns_nothing_from_pleasing_it_and_the_decoder_nothing_from_the_judges_loss(tiny: AnytimeModel) -> None:
    silent = replace(STAGE, adversarial=0.0, matching=0.0)
    (decoder, judge), (_, pleased) = gradients(task(tiny, silent)), gradients(task(tiny, replace(silent, adversarial=1.0)))
    assert all(torch.equal(a, b) for a, b in zip(judge, pleased, strict=True))
    assert any(g.abs().sum() > 0 for g in judge)
    nothing, _ = gradients(task(tiny, replace(silent, error=0.0)))
    assert all(g.abs().sum() == 0 for g in nothing)
    assert any(g.abs().sum() > 0 for g in decoder)


def test_a_frozen_twin_moves_with_its_network(tiny: AnytimeModel) -> None:
    network = nn.Linear(3, 2)
    twin = frozen_twin(network)
    with torch.no_grad():
        network.weight += 1
    x = torch.ones(1, 3, requires_grad=True)
    twin(x).sum().backward()
    assert torch.equal(x.grad[0], network.weight.sum(0))  # type: ignore[index]
    assert network.weight.grad is None and all(p.grad is None for p in twin.parameters())


def test_codes_keep_their_meaning(tiny: AnytimeModel) -> None:
    made = task(tiny, replace(STAGE, drawn=8))
    before = {name: tensor.clone() for name, tensor in made.model.state_dict().items()}
    optimizer = made.optimizer()
    move = Compute(torch.device("cpu")).step(made, optimizer)
    made.objective.train()
    for step in range(3):
        move(made.inputs(step))
        made.after_step(step)
    after = made.model.state_dict()
    changed = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"decoder"}


def test_the_decoder_does_not_look_at_its_batch(tiny: AnytimeModel) -> None:
    made = task(tiny)
    norms = [m for m in made.objective.decoder.modules() if isinstance(m, nn.BatchNorm2d)]
    before = [norm.running_mean.clone() for norm in norms if norm.running_mean is not None]
    made.objective.train()
    made.objective(*made.inputs(0))
    assert norms and all(torch.equal(a, b.running_mean) for a, b in zip(before, norms, strict=True))  # type: ignore[arg-type]
    assert made.objective.judge.training


def test_samples_of_the_prior_are_judged_and_nothing_else(tiny: AnytimeModel) -> None:
    made = task(tiny, replace(STAGE, drawn=8))
    x, codes, *rest = made.inputs(0)
    keep, numbers, _ = rest
    assert len(codes) == len(keep) == len(numbers) == len(x) + 8
    others = codes.clone()
    others[len(x) :] = (others[len(x) :] + 1) % made.model.codebook_size
    made.objective.eval()
    losses, other = (dict(zip(made.loss_names, made.objective(x, c, *rest), strict=True)) for c in (codes, others))
    assert all(torch.equal(losses[name], other[name]) for name in ("matching", "reconstruction"))
    assert not any(torch.equal(losses[name], other[name]) for name in ("judge", "adversarial"))


def test_ranks_share_a_step(tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = replace(STAGE, drawn=8, swapped=0.2)
    torch.manual_seed(1)
    whole = task(tiny, stage).inputs(5)
    monkeypatch.setattr(collective, "ranks", lambda: 2)
    parts = []
    for rank in (0, 1):
        monkeypatch.setattr(collective, "rank", lambda rank=rank: rank)
        parts.append(task(tiny, stage).inputs(5))
    for one, other, all_of_it in zip(*(part[2:4] for part in parts), whole[2:4], strict=True):  # keep and numbers
        examples, drawn = (torch.cat([one[rows], other[rows]]) for rows in (slice(8), slice(8, None)))
        assert torch.equal(torch.cat([examples, drawn]), all_of_it)


def test_the_judge_is_listened_to_little_by_little(tiny: AnytimeModel) -> None:
    made = task(tiny)
    steps = made.steps_per_epoch
    assert [float(made.inputs(step)[-1]) for step in (0, steps - 1, steps)] == pytest.approx([1 / steps, 1.0, 1.0])


def test_some_codes_are_those_of_another_example(tiny: AnytimeModel) -> None:
    plain, swapped = task(tiny), task(tiny, replace(STAGE, swapped=0.25))
    shares = []
    for step in range(20):
        own, given = plain.inputs(step)[1], swapped.inputs(step)[1]
        assert ((given == own) | (given == own.roll(1, 0))).all()
        differ = own != own.roll(1, 0)
        shares.append((given != own)[differ].float().mean())
    assert torch.stack(shares).mean() == pytest.approx(0.25, abs=0.05)


def test_losses_by_hand() -> None:
    real, made = Verdict([torch.tensor([2.0, 0.5])], [torch.tensor([[2.0]])]), Verdict([torch.tensor([-3.0, 0.0])], [])
    assert hinge(real, made) == pytest.approx(0.25 + 0.5)
    assert feature_distance(Verdict([], [torch.tensor([[3.0], [9.0]])]), real) == pytest.approx(0.5)


def test_the_weights_that_are_kept_follow_slowly() -> None:
    kept = nn.Linear(2, 2)
    start = kept.weight.detach().clone()
    follower = Follower(kept, 0.9)
    with torch.no_grad():
        follower.live.weight += 1
    follower.follow(1000)
    torch.testing.assert_close(kept.weight.detach(), start + 0.1)
    follower.follow(1001)
    torch.testing.assert_close(kept.weight.detach(), start + 0.19)
    follower.follow(0)  # at the beginning the memory is a tenth
    torch.testing.assert_close(kept.weight.detach(), start + 0.19 + 0.9 * 0.81)
    same = Follower(kept, 0.0)
    same.follow(0)
    assert same.live is kept and not same.apart


def test_a_judge_is_never_steep() -> None:
    """Each layer stretches nothing: the score moves at most as far as a bound by its depth says."""
    torch.manual_seed(0)
    judge = PictureJudge(8, 3, 32)
    with torch.no_grad():
        for parameter in judge.parameters():
            parameter.mul_(5)  # a judge that has grown
        for _ in range(20):
            judge(torch.rand(2, 3, 32, 32))  # the singular vectors follow
        judge.eval()
        largest = torch.linalg.matrix_norm(judge.last.weight, 2)
        assert largest == pytest.approx(1.0, abs=0.02)
        kernel = judge.blocks[0].one.weight.flatten(1)  # type: ignore[union-attr]
        assert torch.linalg.matrix_norm(kernel, 2) == pytest.approx(1.0, abs=0.1)
