"""Codes that the autoencoder learns with and loses before the prior: the first ones go on as they were."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import torch

from anytime import data
from anytime.autoencoders.truncation import Full
from anytime.autoencoders.vqvae import VQVAE, AutoencoderConfig
from anytime.errors import UserError
from anytime.model import AnytimeModel
from anytime.storage import read_tensors
from anytime.training.folder import Paths, shared_stages
from anytime.training.log import Silent, read
from anytime.training.order import read_order
from anytime.training.pause import Pause, Paused
from anytime.training.recipes import Recipe, RunConfig, recipe, scaled, with_layout, with_truncation
from anytime.training.run import train
from anytime.training.variants import with_length

CPU = torch.device("cpu")


def config(codes: int = 12, spare: int = 4) -> RunConfig:
    small = scaled(recipe("mnist", "best", (1, 28, 28)), "smoke")
    return replace(with_length(small, codes), spare=spare, examples=64, checkpoint_seconds=1e9)


@pytest.fixture(scope="module")
def dataset() -> data.Dataset:
    return data.synthetic("mnist", (1, 28, 28), count=64)


@pytest.fixture(scope="module")
def whole(dataset: data.Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spare") / "whole"
    train(config(), dataset, folder, CPU, Silent(), "")
    return folder


def longer_than(short: AutoencoderConfig, spare: int) -> VQVAE:
    """A longer one with no weight at zero, so that whatever is mixed up shows."""
    torch.manual_seed(0)
    longer = VQVAE(replace(short, length=short.length + spare)).eval()
    with torch.no_grad():
        for name, tensor in longer.state_dict().items():
            if tensor.is_floating_point() and "running_var" not in name:
                tensor.add_(torch.randn_like(tensor) * 0.1)
    return longer


@pytest.mark.parametrize(
    ("name", "which", "shape"),
    [
        ("mnist", "paper", (1, 28, 28)), ("cifar10", "best", (3, 32, 32)),
        ("audiomnist", "paper", (1, 1024)), ("audiomnist", "best", (1, 1024)),
    ],
)  # fmt: skip
def test_the_first_codes_of_a_longer_one(name: str, which: Recipe, shape: tuple[int, ...]) -> None:
    """The same codes, and at every length the same data, from every network that may lose its last codes."""
    small = scaled(recipe(name, which, shape), "smoke").model.autoencoder
    short = VQVAE(replace(small, length=6)).eval()
    longer = longer_than(short.config, 3)
    x = torch.rand(5, *shape, generator=torch.Generator().manual_seed(1))
    short.take(longer)
    torch.testing.assert_close(short.latents(x), longer.latents(x)[:, :6])
    assert len(longer.latents(x).unique()) > 30
    codes = torch.randint(short.codebook_size, (5, 9), generator=torch.Generator().manual_seed(2))
    for kept in range(7):
        torch.testing.assert_close(short.decode(codes[:, :kept]), longer.decode(codes[:, :kept]), atol=1e-5, rtol=1e-5)
    assert (longer.decode(codes[:, :6]) - longer.decode(codes)).abs().max() > 1e-3, "what is lost did count"


def test_it_learns_as_one_that_loses_nothing(whole: Path, dataset: data.Dataset, tmp_path: Path) -> None:
    """Until the prior begins: to the bit, as its stages' results and as its log."""
    train(config(16, 0), dataset, tmp_path / "all", CPU, Silent(), "")
    after = [read_tensors(Paths(run).after("ordered"))[0] for run in (whole, tmp_path / "all")]
    assert after[0].keys() == after[1].keys()
    assert all(torch.equal(tensor, after[1][name]) for name, tensor in after[0].items())
    logs = [[line for line in read(Paths(run).metrics) if line["stage"] == "ordered"] for run in (whole, tmp_path / "all")]
    assert [line["validation"] for line in logs[0]] == [line["validation"] for line in logs[1]]


def test_the_finished_model_has_the_first_codes(whole: Path, dataset: data.Dataset) -> None:
    model = train(config(), dataset, whole, CPU, Silent(), "")
    assert isinstance(model, AnytimeModel)
    assert (model.length, model.prior.length, model.sample(2).codes.shape) == (12, 12, (2, 12))
    learned = VQVAE(config().learning)
    learned.load_state_dict(read_tensors(Paths(whole).after("ordered"))[0])
    x = torch.rand(8, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model.encode(x), learned.eval().encode(x)[:, :12])
    order = read_order(whole)
    assert [len(order[key]) for key in ("error", "gain", "entropy", "bits", "temperature")] == [13, 12, 12, 12, 12]


@pytest.mark.parametrize("steps", [3, 5])
def test_a_paused_run_goes_on_to_the_same_bytes(whole: Path, dataset: data.Dataset, tmp_path: Path, steps: int) -> None:
    """Inside the stages with spare codes, at their end, and in those without."""
    said = []
    for _ in range(20):
        looks = count(1.0)
        try:
            train(config(), dataset, tmp_path / "parts", CPU, Silent(), "", pause=Pause(float(steps), partial(next, looks)))
        except Paused as pause:
            said.append(str(pause).split()[0])
        else:
            break
    assert {"ordered", "prior"} <= set(said)
    found = [read_tensors(run / "model" / "model.safetensors")[2] for run in (whole, tmp_path / "parts")]
    assert found[0] == found[1]


def test_what_may_be_shared(whole: Path, dataset: data.Dataset, tmp_path: Path) -> None:
    """Other numbers of codes from the same learning: its two stages; the same numbers, the prior too."""
    assert shared_stages(whole, config(9, 7)) == shared_stages(whole, config(16, 0)) == 2
    assert shared_stages(whole, replace(config(), tune=None)) == 3
    with pytest.raises(UserError, match="length = 16, not 17"):
        shared_stages(whole, config(12, 5))
    fewer = train(config(9, 7), dataset, tmp_path / "fewer", CPU, Silent(), "", share=whole)
    alone = train(config(9, 7), dataset, tmp_path / "alone", CPU, Silent(), "")
    assert fewer.hash == alone.hash
    again = train(replace(config(), tune=None), dataset, tmp_path / "untuned", CPU, Silent(), "", share=whole)
    assert again.length == 12


def test_where_it_cannot_be() -> None:
    with pytest.raises(UserError, match="spare must be at least 0"):
        config(spare=-1)
    assert with_truncation(config(), Full()).spare == 0, "without an order the last codes are no worse than the first"
    spatial = with_layout(config(16, 4), "spatial")
    assert spatial.spare == 0
    for wrong in (spatial, recipe("cifar10", "original", (3, 32, 32))):
        with pytest.raises(UserError, match="0 where codes are places or blocks mix them, not 4"):
            replace(wrong, spare=4)
