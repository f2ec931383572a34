"""Codes that are learned like all others and cut off at the end: the first ones go on as they were."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import torch

from anytime import data
from anytime.autoencoders.truncation import Full
from anytime.core.errors import UserError
from anytime.core.pause import Pause, Paused
from anytime.core.progress import SilentReporter
from anytime.core.storage import read_tensors
from anytime.metrics.code_stats import read_code_stats
from anytime.metrics.reconstruction import error_by_codes
from anytime.model import AnytimeModel, load
from anytime.recipes.modify import PriorType, with_layout, with_length, with_prior, with_scale, with_truncation
from anytime.recipes.presets import preset
from anytime.training.config import Recipe, RunConfig
from anytime.training.log import read
from anytime.training.run import train, training_subset
from anytime.training.run_dir import RunPaths, reusable_stages
from anytime.training.run_spec import VQVAERunSpec
from anytime.training.truncate_model import truncate_model, with_num_codes

CPU = torch.device("cpu")


def config(codes: int = 12, extra_codes: int = 4) -> RunConfig:
    small = with_scale(preset("mnist", "best", (1, 28, 28)), "smoke")
    return replace(with_length(small, codes), extra_codes=extra_codes, examples=64, checkpoint_seconds=1e9)


@pytest.fixture(scope="module")
def dataset() -> data.Dataset:
    return data.synthetic_images("mnist", (1, 28, 28), count=64)


@pytest.fixture(scope="module")
def truncated(dataset: data.Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("extra") / "truncated"
    train(config(), dataset, run_dir, CPU, SilentReporter(), "")
    return run_dir


def test_the_sample_pool_has_its_own_temperature(dataset: data.Dataset) -> None:
    """The model's own temperature is for the finished model."""
    plan = config()
    assert plan.finetune is not None
    pools = []
    for model_temperature, prior_temperature in ((1.0, 1.0), (0.5, 1.0), (1.0, 0.5)):
        torch.manual_seed(0)
        changed = replace(
            plan,
            model=replace(plan.model, temperature=model_temperature),
            finetune=replace(plan.finetune, prior_temperature=prior_temperature),
        )
        seen = training_subset(dataset, changed)
        pools.append(VQVAERunSpec(changed, seen.train, seen.validation, CPU)._sample_pool(0, lambda text: None))
    first, second, third = pools
    assert first is not None and second is not None and third is not None
    assert torch.equal(first, second) and not torch.equal(first, third)


@pytest.mark.parametrize(
    ("name", "which", "shape", "prior"),
    [
        ("mnist", "paper", (1, 28, 28), "transformer"), ("mnist", "paper", (1, 28, 28), "lstm"),
        ("cifar10", "best", (3, 32, 32), "transformer"),
        ("audiomnist", "paper", (1, 1024), "transformer"), ("audiomnist", "best", (1, 1024), "transformer"),
    ],
)  # fmt: skip
def test_the_first_codes_of_a_model(name: str, which: Recipe, shape: tuple[int, ...], prior: PriorType) -> None:
    """The same latents, at every length the same data, and the same samples from the same seed."""
    torch.manual_seed(0)
    plan = with_prior(with_scale(preset(name, which, shape), "smoke"), prior)
    model = AnytimeModel(with_num_codes(plan.model, 9)).eval()
    with torch.no_grad():
        for key, tensor in model.state_dict().items():  # no weight stays at zero: whatever is mixed up shows
            if tensor.is_floating_point() and "running_var" not in key:
                tensor.add_(torch.randn_like(tensor) * 0.1)
    short = truncate_model(model, 6)
    assert short.length == short.prior.length == 6
    x = torch.rand(5, *shape, generator=torch.Generator().manual_seed(1))
    latents, theirs = short.autoencoder.latents(x), model.autoencoder.latents(x)
    torch.testing.assert_close(latents, theirs[:, :6])
    assert len(theirs.unique()) > 30
    codes = torch.randint(short.codebook_size, (5, 9), generator=torch.Generator().manual_seed(2))
    for keep in range(7):
        torch.testing.assert_close(short.decode(codes[:, :keep]), model.decode(codes[:, :keep]), atol=1e-5, rtol=1e-5)
    assert (model.decode(codes[:, :6]) - model.decode(codes)).abs().max() > 1e-3, "what is lost did count"
    assert torch.equal(short.sample(7, seed=3).codes, model.sample(7, seed=3).codes[:, :6])


def test_extra_codes_do_not_change_training(truncated: Path, dataset: data.Dataset, tmp_path: Path) -> None:
    """To the bit, through all of its stages."""
    full = train(config(16, 0), dataset, tmp_path / "all", CPU, SilentReporter(), "")
    short = load(truncated, "cpu")
    assert (short.length, short.prior.length, short.sample(2).codes.shape) == (12, 12, (2, 12))
    assert short.hash == truncate_model(full, 12).hash
    logs = [
        [(line["stage"], line["validation"]) for line in read(RunPaths(run).metrics)] for run in (truncated, tmp_path / "all")
    ]
    assert logs[0] == logs[1]


def test_code_stats_are_those_of_the_remaining_codes(truncated: Path, dataset: data.Dataset) -> None:
    stats, model = read_code_stats(truncated), load(truncated, "cpu")
    assert stats is not None and stats.error is not None
    lengths = [len(values or []) for values in (stats.error, stats.gain, stats.entropy, stats.bits)]
    assert lengths == [13, 12, 12, 12]
    validation = training_subset(dataset, config()).validation
    assert stats.error == pytest.approx(error_by_codes(model, validation, range(13)), rel=1e-5)


@pytest.mark.parametrize("steps", [3, 5])
def test_a_paused_run_goes_on_to_the_same_bytes(truncated: Path, dataset: data.Dataset, tmp_path: Path, steps: int) -> None:
    paused_stages = []
    for _ in range(20):
        ticks = count(1.0)
        try:
            train(
                config(),
                dataset,
                tmp_path / "parts",
                CPU,
                SilentReporter(),
                "",
                pause=Pause(float(steps), partial(next, ticks)),
            )
        except Paused as pause:
            paused_stages.append(str(pause).split()[0])
        else:
            break
    assert {"ordered", "finetune"} <= set(paused_stages)
    for name in ("model.safetensors", "config.json"):
        found = [(run / "model" / name).read_bytes() for run in (truncated, tmp_path / "parts")]
        assert found[0] == found[1], name


def test_reusable_stages(truncated: Path, dataset: data.Dataset, tmp_path: Path) -> None:
    """All that is learned alike, whatever is cut off of it."""
    assert reusable_stages(truncated, config(9, 7)) == reusable_stages(truncated, config(16, 0)) == 3
    with pytest.raises(UserError, match="length = 16, not 17"):
        reusable_stages(truncated, config(12, 5))
    fewer = train(config(9, 7), dataset, tmp_path / "fewer", CPU, SilentReporter(), "", reuse=truncated)
    alone = train(config(9, 7), dataset, tmp_path / "alone", CPU, SilentReporter(), "")
    assert fewer.hash == alone.hash
    assert (
        read_tensors(RunPaths(truncated).stage_weights("prior"))[2]
        == read_tensors(RunPaths(tmp_path / "alone").stage_weights("prior"))[2]
    )


def test_extra_codes_are_refused() -> None:
    with pytest.raises(UserError, match="`extra_codes` must be at least 0, not -1"):
        config(extra_codes=-1)
    assert with_truncation(config(), Full()).extra_codes == 0, "without an order the last codes are not worse than the first"
    spatial, square = with_layout(config(16, 4), "spatial"), with_prior(config(), "pixelcnn")
    assert spatial.extra_codes == square.extra_codes == 0
    for wrong in (spatial, square, preset("cifar10", "original", (3, 32, 32))):
        with pytest.raises(UserError, match="the last codes cannot be dropped with spatial codes"):
            replace(wrong, extra_codes=4)
