"""Tuning a decoder against a judge: who learns from what, and that codes keep their meaning."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from anytime.autoencoders.truncation import Full, Uniform
from anytime.autoencoders.vqvae import VQVAE
from anytime.data.dataset import synthetic
from anytime.data.tones import synthetic_sounds
from anytime.errors import UserError
from anytime.model import AnytimeModel
from anytime.training.adversarial import Examples, TuneObjective, TuneTask, feature_distance, frozen_twin, hinge
from anytime.training.judges import PictureJudge, SoundJudge, Verdict, moved_pictures, unmoved
from anytime.training.recipes import recipe, scaled
from anytime.training.samples import encoded
from anytime.training.stages import TuneStage

STAGE = TuneStage(epochs=2, truncation=Uniform(), batch=16, width=4)


def pictures(tiny: AnytimeModel, stage: TuneStage = STAGE, seed: int = 3) -> TuneTask:
    data = synthetic("strokes", (1, 28, 28), count=64)
    model = copy.deepcopy(tiny.autoencoder)
    torch.manual_seed(0)
    nn.init.normal_(model.quantizer.codebook)
    train, validation = (Examples(x, encoded(model, x)) for x in (data.pictures, data.validation))
    return TuneTask(stage, model, PictureJudge(stage.width, 1, 28), moved_pictures, train, validation, seed)


def gradients(task: TuneTask, **weights: float) -> tuple[float, float]:
    """How much the decoder and the judge are moved by the loss with these weights."""
    task.objective.stage = replace(task.stage, **weights)
    task.objective.zero_grad()
    task.losses(task.objective, *task.inputs(0))[0].backward()
    return tuple(
        sum(float(p.grad.abs().sum()) for p in part.parameters() if p.grad is not None) for part in (task.module, task.others)
    )  # type: ignore[return-value]


def test_each_side_learns_from_its_own_loss(tiny: AnytimeModel) -> None:
    task = pictures(tiny)
    decoder, judge = gradients(task, error=0.0, matching=0.0, adversarial=0.0)
    assert decoder == 0 and judge > 0, "the judge's loss is not the decoder's business"
    for name in ("error", "matching", "adversarial"):
        moved, still = gradients(task, **{"error": 0.0, "matching": 0.0, "adversarial": 0.0, name: 1.0})
        assert moved > 0, name
        assert still == pytest.approx(judge, rel=1e-5), f"the judge learns from its loss alone, not from {name}"


def test_encoder_and_codebook_stand_still_and_the_decoder_learns(tiny: AnytimeModel) -> None:
    task = pictures(tiny, replace(STAGE, truncation=Full(), swapped=0.0, adversarial=0.0, rate=3e-3))
    before = copy.deepcopy(task.model.state_dict())
    optimizer = task.optimizer()
    names, history = task.loss_names, []
    for step in range(40):
        losses = task.losses(task.objective, *task.inputs(step % 8))
        optimizer.zero_grad()
        losses[0].backward()
        optimizer.step()
        history.append(dict(zip(names, losses.tolist(), strict=True)))
    assert history[-1]["reconstruction"] < 0.8 * history[0]["reconstruction"]
    assert history[-1]["judge"] < history[0]["judge"], "the judge learns to tell them apart"
    moved = {name.split(".")[0] for name, tensor in task.model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == {"decoder"}
    assert torch.equal(encoded(task.model, task.train.x), task.train.codes), "codes keep their meaning"


def test_a_twin_follows_its_network_and_takes_no_gradient() -> None:
    network = nn.Linear(3, 2)
    twin = frozen_twin(network)
    x = torch.randn(4, 3, requires_grad=True)
    twin(x).sum().backward()
    assert x.grad is not None and x.grad.abs().sum() > 0
    assert all(p.grad is None for p in (*twin.parameters(), *network.parameters()))
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    network(x.detach()).sum().backward()
    optimizer.step()
    assert torch.equal(twin(x), network(x))
    network.load_state_dict(nn.Linear(3, 2).state_dict())
    assert torch.equal(twin(x), network(x)), "resumed, too"


def test_hinge_and_feature_distance() -> None:
    sure = Verdict([torch.full((2, 1, 3, 3), 2.0)], [torch.ones(2, 4)])
    fooled = Verdict([torch.full((2, 1, 3, 3), -2.0)], [torch.full((2, 4), 3.0)])
    assert hinge(sure, fooled) == 0
    assert hinge(fooled, sure) == 6
    assert feature_distance(sure, sure) == 0
    assert feature_distance(fooled, sure) == 2
    assert feature_distance(sure, fooled) == pytest.approx(2 / 3)


def test_some_codes_are_another_examples(tiny: AnytimeModel) -> None:
    task, same, again = (pictures(tiny, replace(STAGE, swapped=share)) for share in (0.25, 0.0, 0.25))
    codes = torch.randint(16, (64, 8), generator=torch.Generator().manual_seed(0))
    for each in (task, same, again):
        each.train = Examples(each.train.x, codes)
    shares = []
    for step in range(task.steps_per_epoch * 10):
        given, true = task.inputs(step)[1], same.inputs(step)[1]
        wrong = given != true
        assert (given == torch.where(wrong, true.roll(1, 0), true)).all()
        shares.append(wrong.float().mean(1))
    every = torch.stack(shares)
    assert 0.1 < every.mean() < 0.25, "a quarter, less where the other example has the same code"
    assert every.std() > 0.1, "some rows keep almost all of theirs"
    assert all(torch.equal(a, b) for a, b in zip(task.inputs(5), again.inputs(5), strict=True))


def test_validation_changes_nothing(tiny: AnytimeModel) -> None:
    task = pictures(tiny)
    task.objective.eval()
    before = copy.deepcopy(task.objective.state_dict())
    numbers = task.validate()
    assert numbers == task.validate()
    assert list(numbers) == ["loss", "judge", "adversarial", "matching", "reconstruction"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in task.objective.state_dict().items())


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
    objective = TuneObjective(model, SoundJudge(4), stage, unmoved)
    codes, keep = encoded(model, x).long(), torch.full((len(x),), model.length)
    losses = objective(x, codes, keep, torch.rand(len(x), 8))
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
    objective = TuneObjective(model, SoundJudge(2), replace(STAGE, padding="masked"), watch)
    with torch.no_grad():
        objective(x, encoded(model, x).long(), torch.full((len(x),), model.length), torch.rand(len(x), 8))
    padded = x == -32_768
    assert padded.any()
    assert (seen[1][padded] == 0).all() and (seen[1][~padded] != 0).any()


def test_pictures_are_moved_alike_and_gradients_pass() -> None:
    x = torch.rand(64, 3, 32, 32, requires_grad=True)
    unchanged = moved_pictures(x, torch.full((64, 8), 0.5))
    assert torch.equal(unchanged, x)
    numbers = torch.rand(64, 8, generator=torch.Generator().manual_seed(0))
    moved = moved_pictures(x, numbers)
    assert moved.shape == x.shape
    assert torch.equal(moved, moved_pictures(x, numbers))
    assert not torch.equal(moved, x)
    assert (moved == 0).all(1).flatten(1).any(1).float().mean() > 0.9, "moved or cut, something is missing from most"
    moved.sum().backward()
    assert x.grad is not None and (x.grad >= 0).all() and (x.grad > 0).float().mean() > 0.5


@pytest.mark.parametrize(
    "change", [{"swapped": 0.6}, {"matching": -1.0}, {"width": 0}, {"views": 0}, {"speed": 0.9}, {"epochs": 0}]
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
