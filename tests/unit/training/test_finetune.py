"""Tuning a decoder against a judge: who learns from what, and that codes keep their meaning."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from anytime.autoencoders.truncation import Full, Uniform
from anytime.autoencoders.vqvae import VQVAE
from anytime.core import distributed
from anytime.core.errors import UserError
from anytime.data.dataset import synthetic
from anytime.data.loader import to_float
from anytime.data.synthetic import synthetic_sounds
from anytime.model import AnytimeModel
from anytime.recipes.presets import recipe, scaled
from anytime.training.checkpoint import optimizer_tensors, restore_optimizer
from anytime.training.discriminators import TOLD, PictureJudge, SoundJudge, Verdict, moved_pictures, unmoved
from anytime.training.ema import Follower
from anytime.training.sample_grids import encoded
from anytime.training.stages import TuneStage
from anytime.training.step import Compute, set_rate
from anytime.training.tasks.finetune import Examples, TuneObjective, TuneTask, feature_distance, frozen_twin, hinge

STAGE = TuneStage(epochs=2, truncation=Uniform(), batch=16, swapped=0.0, width=4)


def task(tiny: AnytimeModel, stage: TuneStage = STAGE, seed: int = 3) -> TuneTask:
    """With codes drawn at random."""
    data, autoencoder = synthetic("strokes", (1, 28, 28), count=64), copy.deepcopy(tiny.autoencoder)
    torch.manual_seed(0)
    judge = PictureJudge(stage.width, 1 + TOLD * stage.told, 28)
    size, length = autoencoder.codebook_size, autoencoder.length
    train, validation = (Examples(x, torch.randint(size, (len(x), length))) for x in (data.pictures, data.validation))
    bank = torch.randint(size, (50, length)) if stage.drawn else None
    return TuneTask(stage, autoencoder, judge, moved_pictures, train, validation, seed, bank)


def with_true_codes(made: TuneTask) -> TuneTask:
    """The same on a codebook that tells latents apart, with the examples' own codes."""
    nn.init.normal_(made.model.quantizer.codebook)
    made.train, made.validation = (Examples(x, encoded(made.model, x)) for x, _ in (made.train, made.validation))
    return made


def gradients(made: TuneTask, **weights: float) -> tuple[list[Tensor], list[Tensor]]:
    """Of the decoder and of the judge, by the loss with these weights."""
    made.objective.stage = replace(made.stage, **weights)  # type: ignore[arg-type]
    made.objective.zero_grad()
    made.objective.eval()  # the judge's norms stay as they are from call to call
    made.losses(made.objective, *made.inputs(0))[0].backward()
    decoder, judge = (list(part.parameters()) for part in (made.objective.decoder, made.objective.judge))
    return [p.grad for p in decoder if p.grad is not None], [p.grad for p in judge if p.grad is not None]


def test_each_side_learns_from_its_own_loss(tiny: AnytimeModel) -> None:
    made, silent = task(tiny), {"error": 0.0, "matching": 0.0, "adversarial": 0.0}
    decoder, judge = gradients(made, **silent)
    assert not any(g.abs().sum() > 0 for g in decoder), "the judge's loss is not the decoder's business"
    assert any(g.abs().sum() > 0 for g in judge)
    judge = [g.clone() for g in judge]
    for name in silent:
        moved, still = gradients(made, **{**silent, name: 1.0})
        assert any(g.abs().sum() > 0 for g in moved), name
        assert len(still) == len(judge)
        for now, before in zip(still, judge, strict=True):
            torch.testing.assert_close(now, before, msg=f"the judge learns from its loss alone, not from {name}")


def test_encoder_and_codebook_stand_still_and_the_decoder_learns(tiny: AnytimeModel) -> None:
    made = with_true_codes(task(tiny, replace(STAGE, truncation=Full(), adversarial=0.0, rate=3e-3)))
    before = copy.deepcopy(made.model.state_dict())
    optimizer = made.optimizer()
    names, history = made.loss_names, []
    for step in range(40):
        losses = made.losses(made.objective, *made.inputs(step % 8))
        optimizer.zero_grad()
        losses[0].backward()
        optimizer.step()
        history.append(dict(zip(names, losses.tolist(), strict=True)))
    assert history[-1]["reconstruction"] < 0.8 * history[0]["reconstruction"]
    assert history[-1]["judge"] < history[0]["judge"], "the judge learns to tell them apart"
    moved = {name.split(".")[0] for name, tensor in made.model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == {"decoder"}
    assert torch.equal(encoded(made.model, made.train.x), made.train.codes), "codes keep their meaning"


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


def test_a_twin_follows_its_network_and_takes_no_gradient() -> None:
    network = nn.Linear(3, 2)
    twin = frozen_twin(network)
    x = torch.randn(4, 3, requires_grad=True)
    twin(x).sum().backward()
    assert x.grad is not None and torch.equal(x.grad[0], network.weight.sum(0))
    assert all(p.grad is None for p in (*twin.parameters(), *network.parameters()))
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    network(x.detach()).sum().backward()
    optimizer.step()
    assert torch.equal(twin(x), network(x))
    network.load_state_dict(nn.Linear(3, 2).state_dict())
    assert torch.equal(twin(x), network(x)), "resumed, too"


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
    monkeypatch.setattr(distributed, "ranks", lambda: 2)
    parts = []
    for rank in (0, 1):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        parts.append(task(tiny, stage).inputs(5))
    for one, other, all_of_it in zip(*(part[2:4] for part in parts), whole[2:4], strict=True):  # keep and numbers
        examples, drawn = (torch.cat([one[rows], other[rows]]) for rows in (slice(8), slice(8, None)))
        assert torch.equal(torch.cat([examples, drawn]), all_of_it)


def test_the_judge_is_listened_to_little_by_little(tiny: AnytimeModel) -> None:
    made = task(tiny)
    steps = made.steps_per_epoch
    assert [float(made.inputs(step)[-1]) for step in (0, steps - 1, steps)] == pytest.approx([1 / steps, 1.0, 1.0])


def test_some_codes_are_those_of_another_example(tiny: AnytimeModel) -> None:
    plain, swapped, again = (task(tiny, replace(STAGE, swapped=share)) for share in (0.0, 0.25, 0.25))
    shares = list[Tensor]()
    for step in range(20):
        own, given = plain.inputs(step)[1], swapped.inputs(step)[1]
        wrong = given != own
        assert torch.equal(given, torch.where(wrong, own.roll(1, 0), own))
        differ = own != own.roll(1, 0)
        shares.append(wrong.sum(1) / differ.sum(1))
    every = torch.stack(shares)
    assert every.mean() == pytest.approx(0.25, abs=0.05)
    assert every.std() > 0.1, "some rows keep almost all of theirs"
    assert all(torch.equal(a, b) for a, b in zip(swapped.inputs(5), again.inputs(5), strict=True))


def test_losses_by_hand() -> None:
    real, made = Verdict([torch.tensor([2.0, 0.5])], [torch.tensor([[2.0]])]), Verdict([torch.tensor([-3.0, 0.0])], [])
    assert hinge(real, made) == pytest.approx(0.25 + 0.5)
    assert feature_distance(Verdict([], [torch.tensor([[3.0], [9.0]])]), real, 1) == pytest.approx(0.5)


def test_hinge_and_feature_distance() -> None:
    sure = Verdict([torch.full((2, 1, 3, 3), 2.0)], [torch.ones(2, 4)])
    fooled = Verdict([torch.full((2, 1, 3, 3), -2.0)], [torch.full((2, 4), 3.0)])
    assert hinge(sure, fooled) == 0
    assert hinge(fooled, sure) == 6
    assert feature_distance(sure, sure, 2) == 0
    assert feature_distance(fooled, sure, 2) == 2
    assert feature_distance(sure, fooled, 2) == pytest.approx(2 / 3)


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


def test_drawn_codes_may_have_lengths_of_their_own(tiny: AnytimeModel) -> None:
    made = task(tiny, replace(STAGE, drawn=8, truncation=Full(), drawn_truncation=Uniform()))
    keeps = torch.stack([made.inputs(step)[2] for step in range(4)])
    assert (keeps[:, :-8] == tiny.length).all()
    assert (keeps[:, -8:] < tiny.length).any()
    alike = task(tiny, replace(STAGE, drawn=8, truncation=Full()))
    assert (alike.inputs(0)[2] == tiny.length).all()


def watched(made: TuneTask) -> list[Tensor]:
    """What the judge sees of a step: real pictures, and twice those that are made."""
    seen = list[Tensor]()

    def watch(x: Tensor) -> Verdict:
        seen.append(x)
        verdict: Verdict = PictureJudge.forward(made.objective.judge, x)  # type: ignore[arg-type]
        return verdict

    made.objective.judge.forward = watch  # type: ignore[method-assign, assignment]
    made.objective.frozen.forward = watch  # type: ignore[method-assign, assignment]
    made.losses(made.objective, *made.inputs(0))
    return seen


def test_beside_each_that_is_made_stands_a_real_one(tiny: AnytimeModel) -> None:
    stage = replace(STAGE, drawn=24)
    made, alike = task(tiny, stage), task(tiny, stage)
    alike.objective.change = unmoved  # no two of them are changed in the same way otherwise
    real, judged, pleasing = watched(alike)
    assert len(real) == len(judged) == len(pleasing) == 16 + 24
    assert torch.equal(judged, pleasing)
    x = to_float(alike.inputs(0)[0])
    assert torch.equal(real, torch.cat([x, x, x[:8]])), "beside an example its own original"
    changed, numbers = watched(made)[0], made.inputs(0)[3]
    assert torch.equal(changed, moved_pictures(real, numbers)), "changed as the one that is made"
    assert all(math.isfinite(value) for value in made.validate().values()), "there nothing is drawn"


def test_a_judge_is_told_the_share_of_the_codes_and_who_drew_them(tiny: AnytimeModel) -> None:
    made = task(tiny, replace(STAGE, drawn=8, told=True))
    share = made.inputs(0)[2].float() / made.model.length
    for planes in (x[:, 1:].flatten(2) for x in watched(made)):
        assert (planes == planes[..., :1]).all(), "one number for a picture"
        assert torch.equal(planes[:, 0, 0], share), "real ones are said to be of the same kind"
        assert planes[:, 1, 0].tolist() == [0] * 16 + [1] * 8
    assert all(math.isfinite(value) for value in made.validate().values())


def test_the_judge_learns_faster_than_what_it_judges(tiny: AnytimeModel) -> None:
    made = task(tiny, replace(STAGE, lead=4.0))
    optimizer = made.optimizer()
    move = Compute(torch.device("cpu")).step(made, optimizer)
    set_rate(optimizer, made.rate(0))
    move(made.inputs(0))
    again = made.optimizer()
    restore_optimizer(again, optimizer_tensors(optimizer))
    for each in (optimizer, again):
        set_rate(each, made.rate(5))
        decoder, judge = each.param_groups
        assert decoder["lr"] == made.rate(5) < made.rate(0) and judge["lr"] == 4 * decoder["lr"]
        for group, part in ((decoder, made.objective.decoder), (judge, made.objective.judge)):
            assert all(one is other for one, other in zip(group["params"], part.parameters(), strict=True))
            assert all(each.state[p]["step"] == 1 for p in group["params"])


def test_validation_changes_nothing(tiny: AnytimeModel) -> None:
    made = task(tiny)
    made.objective.eval()
    before = copy.deepcopy(made.objective.state_dict())
    numbers = made.validate()
    assert numbers == made.validate()
    assert list(numbers) == ["loss", "judge", "adversarial", "matching", "reconstruction"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in made.objective.state_dict().items())


@pytest.fixture(scope="module")
def sounds() -> tuple[VQVAE, Tensor]:
    dataset = synthetic_sounds("tones", count=64)
    config = scaled(recipe("audiomnist", "best", dataset.shape), "smoke").model.autoencoder
    torch.manual_seed(0)
    return VQVAE(config), dataset.validation


def test_sounds_are_judged_by_their_spectra(sounds: tuple[VQVAE, Tensor]) -> None:
    model, x = sounds
    stage = replace(STAGE, spectral=1.0, padding="silence")
    torch.manual_seed(1)
    objective = TuneObjective(model, model.decoder, SoundJudge(4), stage, unmoved)
    codes, keep = encoded(model, x).long(), torch.full((len(x),), model.length)
    losses = objective(x, codes, keep, torch.rand(len(x), 8), torch.tensor(1.0))
    losses[0].backward()
    assert losses.shape == (6,) and losses.isfinite().all()
    for part in (model.decoder, objective.judge):
        assert all(p.grad is not None and p.grad.isfinite().all() for p in part.parameters())
    assert all(p.grad is None for p in objective.frozen.parameters())


def test_what_is_padded_is_silent_to_the_judge(sounds: tuple[VQVAE, Tensor]) -> None:
    model, x = sounds
    seen: list[Tensor] = []

    def watch(shown: Tensor, numbers: Tensor) -> Tensor:
        seen.append(shown)
        return shown

    torch.manual_seed(1)
    objective = TuneObjective(model, model.decoder, SoundJudge(2), replace(STAGE, padding="masked"), watch)
    with torch.no_grad():
        keep = torch.full((len(x),), model.length)
        objective(x, encoded(model, x).long(), keep, torch.rand(len(x), 8), torch.tensor(1.0))
    padded = x == -32_768
    assert padded.any()
    assert (seen[1][padded] == 0).all() and (seen[1][~padded] != 0).any()


@pytest.mark.parametrize(
    "change",
    [
        {"swapped": 0.6},
        {"lighter": 1.5},
        {"cut_out": -0.1},
        {"matching": -1.0},
        {"width": 0},
        {"views": 0},
        {"speed": 0.9},
        {"epochs": 0},
        {"drawn": -1},
        {"bank": 0},
        {"average": 1.0},
        {"lead": 0.0},
        {"drawn_temperature": 0.0},
    ],
)
def test_a_stage_that_cannot_be_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(UserError):
        replace(STAGE, **change)  # type: ignore[arg-type]


def test_spectral_weights_are_for_sounds() -> None:
    config = recipe("mnist", "paper", (1, 28, 28))
    with pytest.raises(UserError, match="spectral is a weight for sounds"):
        replace(config, ordered=replace(config.ordered, spectral=1.0))
    with pytest.raises(UserError, match="spectral is a weight for sounds"):
        replace(config, tune=replace(STAGE, spectral=1.0))


@pytest.mark.parametrize("name", ["told", "whole"])
def test_some_settings_are_for_judges_of_pictures(name: str) -> None:
    config = recipe("audiomnist", "best", (1, 15_360))
    assert config.tune is not None
    with pytest.raises(UserError, match=rf"tune\.{name} is for pictures"):
        replace(config, tune=replace(config.tune, **{name: True}))
