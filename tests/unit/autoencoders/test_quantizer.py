from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor
from vector_quantize_pytorch import VectorQuantize

from anytime.autoencoders.quantizer import Quantizer, QuantizerConfig, codebook_usage
from anytime.autoencoders.truncation import keep_mask
from anytime.core import distributed
from anytime.core.errors import UserError

SIZE, DIM, LENGTH = 10, 4, 6


def quantizer(codebook: str = "gradient", **options: object) -> Quantizer:
    torch.manual_seed(0)
    made = Quantizer(QuantizerConfig(codebook_size=SIZE, codebook=codebook, **options), DIM)
    entries = torch.randn(SIZE, DIM)
    with torch.no_grad():
        made.codebook.copy_(entries)
        if codebook == "ema":
            made.mean_sum.copy_(entries)
    return made


def latents(batch: int = 5) -> Tensor:
    return torch.randn(batch, LENGTH, DIM, generator=torch.Generator().manual_seed(1))


def oracle(ours: Quantizer, **options: object) -> VectorQuantize:
    """The same codebook in another implementation."""
    theirs = VectorQuantize(
        DIM, SIZE, rotation_trick=False, threshold_ema_dead_code=0, commitment_weight=ours.config.commitment, **options
    )
    theirs._codebook.embed.data.copy_(ours.codebook.detach()[None])
    theirs._codebook.embed_avg.data.copy_(ours.codebook.detach()[None])
    return theirs.train()


def test_codes_and_latents_against_the_oracle() -> None:
    ours = quantizer()
    z = latents(200)
    found, (quantized, codes, _) = ours(z), oracle(ours, ema_update=False)(z)
    assert torch.equal(found.codes, codes)
    torch.testing.assert_close(found.latents, quantized, atol=1e-6, rtol=1e-6)
    assert len(codes.unique()) == SIZE


def test_codes_are_the_nearest_entries_by_brute_force() -> None:
    ours = quantizer()
    z = latents(50)
    distances = (z[:, :, None].double() - ours.codebook.detach().double()).square().sum(-1)
    assert torch.equal(ours.nearest(z), distances.argmin(-1))


def test_the_straight_through_gradient_against_the_oracle() -> None:
    ours = quantizer()
    weights = torch.randn(5, LENGTH, DIM, generator=torch.Generator().manual_seed(2))
    gradients = []
    for quantize in (lambda z: ours(z).latents, lambda z: oracle(ours, ema_update=False)(z)[0]):
        z = latents().requires_grad_()
        (quantize(z).square() * weights).sum().backward()
        gradients.append(z.grad)
    torch.testing.assert_close(gradients[0], gradients[1])
    expected = 2 * weights * ours.lookup(ours.nearest(latents())).detach()
    torch.testing.assert_close(gradients[0], expected)
    assert ours.codebook.grad is None, "the reconstruction moves the codebook"


@pytest.mark.parametrize("commitment", [0.25, 2.0])
def test_both_terms_and_their_gradients_against_the_oracle(commitment: float) -> None:
    """The oracle has one term of weight β for both; ours has weight 1 on the entries and β on the latents."""
    ours = quantizer(commitment=commitment)
    theirs = oracle(ours, ema_update=False, learnable_codebook=True)
    z, y = latents().requires_grad_(), latents().requires_grad_()
    found, (_, _, loss) = ours(z), theirs(y)
    assert found.loss.shape == (5, LENGTH)
    found.loss.sum().backward()
    loss.sum().backward()
    count = z.numel()  # the oracle takes the mean over values
    torch.testing.assert_close(found.loss.sum() / (1 + commitment), loss.sum() * count / commitment)
    torch.testing.assert_close(z.grad, y.grad * count)
    torch.testing.assert_close(ours.codebook.grad, theirs._codebook.embed.grad[0] * count / commitment)


def test_the_ema_against_the_oracle() -> None:
    ours = quantizer("ema", ema_decay=0.8)
    theirs = oracle(ours, decay=0.8, eps=1e-12)
    everything = torch.ones(5, LENGTH, dtype=torch.bool)
    for step in range(6):
        z = latents() + step / 4
        codes = ours.nearest(z)
        _, indices, _ = theirs(z)
        assert torch.equal(codes, indices)
        ours.update(z, codes, everything, seed=0, step=step)
        torch.testing.assert_close(ours.count, theirs._codebook.cluster_size[0])
        torch.testing.assert_close(ours.mean_sum, theirs._codebook.embed_avg[0])
        torch.testing.assert_close(ours.codebook.detach(), theirs._codebook.embed[0], atol=1e-5, rtol=1e-4)


def test_the_ema_of_kept_codes_against_the_oracle() -> None:
    ours = quantizer("ema", ema_decay=0.8)
    theirs = oracle(ours, decay=0.8, eps=1e-12)
    z, mask = latents(), keep_mask(torch.tensor([1, 2, 3, 6, 4]), LENGTH)
    theirs(z, mask=mask)
    ours.update(z, ours.nearest(z), mask, seed=0, step=0)
    torch.testing.assert_close(ours.codebook.detach(), theirs._codebook.embed[0], atol=1e-5, rtol=1e-4)


def test_the_ema_converges_to_the_mean() -> None:
    ours = quantizer("ema", ema_decay=0.5)
    z = latents()
    codes = ours.nearest(z)
    for step in range(60):
        ours.update(z, codes, torch.ones(5, LENGTH, dtype=torch.bool), seed=0, step=step)
    for code in codes.unique():
        torch.testing.assert_close(ours.codebook[code].detach(), z[codes == code].mean(0), atol=1e-5, rtol=1e-5)


def test_unused_entries_stay_finite() -> None:
    ours = quantizer("ema", ema_decay=0.5)
    nothing = torch.zeros(5, LENGTH, dtype=torch.bool)
    for step in range(2_000):
        ours.update(latents(), ours.nearest(latents()), nothing, seed=0, step=step)
    assert ours.codebook.isfinite().all()


def test_an_ema_codebook_gets_no_gradient() -> None:
    ours = quantizer("ema", commitment=0.5)
    assert not ours.codebook.requires_grad
    z = latents().requires_grad_()
    found = ours(z)
    found.loss.sum().backward()
    entries = ours.lookup(found.codes)
    torch.testing.assert_close(found.loss, 0.5 * (z - entries).square().sum(-1))
    torch.testing.assert_close(z.grad, 2 * 0.5 * (z - entries).detach())


def test_a_gradient_codebook_is_not_moved_by_update() -> None:
    ours = quantizer()
    before = copy.deepcopy(ours.state_dict())
    assert list(before) == ["codebook"]
    ours.update(latents(), ours.nearest(latents()), torch.ones(5, LENGTH, dtype=torch.bool), seed=0, step=0)
    assert torch.equal(ours.codebook, before["codebook"])


def crowded(revive_dead_codes: bool) -> tuple[Quantizer, Tensor]:
    """All latents near entry 0, so that the others die."""
    ours = quantizer("ema", ema_decay=0.5, revive_dead_codes=revive_dead_codes)
    return ours, ours.codebook[0].detach() + 0.05 * latents(8)


def test_dead_codes_are_revived_on_kept_latents() -> None:
    ours, z = crowded(revive_dead_codes=True)
    mask = keep_mask(torch.tensor([2] * 8), LENGTH)
    kept_latents = z[mask]
    for step in range(6):  # 0.5^6 < 0.03: dead
        ours.update(z, torch.zeros(8, LENGTH, dtype=torch.long), mask, seed=3, step=step)
    gaps = torch.cdist(ours.codebook[1:].detach(), kept_latents)
    assert (gaps.amin(1) < 1e-6).all(), "a revived entry equals a kept latent"
    assert len(ours.codebook.detach().unique(dim=0)) == SIZE, "there are enough latents for all entries"
    assert (ours.count[1:] == 1).all()
    assert len(ours.nearest(z).unique()) > 5


def test_without_revival_dead_codes_stay_dead() -> None:
    ours, z = crowded(revive_dead_codes=False)
    for step in range(6):
        ours.update(z, torch.zeros(8, LENGTH, dtype=torch.long), torch.ones(8, LENGTH, dtype=torch.bool), seed=3, step=step)
    assert (ours.count[1:] < Quantizer.DEAD_THRESHOLD).all()
    assert torch.cdist(ours.codebook[1:].detach(), z.flatten(0, 1)).min() > 0.1


def test_revival_leaves_living_codes_alone() -> None:
    plain, reviving = quantizer("ema", ema_decay=0.5), quantizer("ema", ema_decay=0.5, revive_dead_codes=True)
    z, everything = latents(40), torch.ones(40, LENGTH, dtype=torch.bool)
    for ours in (plain, reviving):
        ours.update(z, ours.nearest(z), everything, seed=3, step=0)
    assert torch.equal(plain.codebook, reviving.codebook)


def test_revival_is_a_function_of_seed_and_step() -> None:
    def revived(seed: int, step: int) -> Tensor:
        ours, z = crowded(revive_dead_codes=True)
        ours.count.fill_(0.001)
        ours.update(z, torch.zeros(8, LENGTH, dtype=torch.long), torch.ones(8, LENGTH, dtype=torch.bool), seed, step)
        return ours.codebook[1:].detach()

    assert torch.equal(revived(1, 5), revived(1, 5))
    assert not torch.equal(revived(1, 5), revived(1, 6))
    assert not torch.equal(revived(1, 5), revived(2, 5))


def test_sums_are_taken_over_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks with half of the batch each equal one rank with the whole batch."""
    z, everything = latents(), torch.ones(5, LENGTH, dtype=torch.bool)
    alone, shared = quantizer("ema", ema_decay=0.8), quantizer("ema", ema_decay=0.8)
    alone.update(torch.cat([z, z]), alone.nearest(torch.cat([z, z])), torch.cat([everything, everything]), seed=0, step=0)
    monkeypatch.setattr(distributed, "all_reduce_sum", lambda value: 2 * value)
    shared.update(z, shared.nearest(z), everything, seed=0, step=0)
    torch.testing.assert_close(shared.codebook, alone.codebook)


@pytest.mark.parametrize("codebook", ["gradient", "ema"])
def test_bfloat16_latents_are_quantized_in_float32(codebook: str) -> None:
    ours = quantizer(codebook)
    z = latents().bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found = ours(z)
        assert found.latents.dtype == found.loss.dtype == torch.float32
        assert torch.equal(found.codes, ours.nearest(z.float()))
        ours.update(z, found.codes, torch.ones(5, LENGTH, dtype=torch.bool), seed=0, step=0)
    assert ours.codebook.dtype == torch.float32


def test_the_codebook_starts_uniform_in_one_over_its_size() -> None:
    torch.manual_seed(0)
    init = Quantizer(QuantizerConfig(codebook_size=100), 50).codebook.detach() * 100
    assert -1 <= init.min() < -0.99
    assert 0.99 < init.max() <= 1
    assert init.var().item() == pytest.approx(1 / 3, rel=0.05)


@pytest.mark.parametrize("codebook", ["gradient", "ema"])
def test_a_codebook_may_start_from_latents(codebook: str) -> None:
    quantizer = Quantizer(QuantizerConfig(codebook_size=20, init="latents", codebook=codebook), 3)  # type: ignore[arg-type]
    latents = torch.randn(4, 10, 3, generator=torch.Generator().manual_seed(0))
    quantizer.init_from_latents(latents, seed=1)
    rows = {tuple(row) for row in latents.flatten(0, 1).tolist()}
    entries = {tuple(row) for row in quantizer.codebook.tolist()}
    assert len(entries) == 20 and entries <= rows
    before = quantizer.codebook.clone()
    quantizer.init_from_latents(latents, seed=1)
    assert torch.equal(quantizer.codebook, before)
    quantizer.init_from_latents(latents, seed=2)
    assert not torch.equal(quantizer.codebook, before)
    if codebook == "ema":
        assert torch.equal(quantizer.mean_sum, quantizer.codebook)
    quantizer.init_from_latents(latents[:1, :5], seed=0)
    assert len(quantizer.codebook.unique(dim=0)) == 5, "fewer latents than entries repeat"


def test_codebook_usage_counts_entries_and_perplexity() -> None:
    use = codebook_usage(torch.tensor([5.0, 5.0, 0.0, 5.0, 5.0]))
    assert (use.used, use.dead) == (4, 1)
    assert use.perplexity == pytest.approx(4)
    skewed = codebook_usage(torch.tensor([3.0, 1.0]))
    assert skewed.perplexity == pytest.approx(math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25))))
    nothing = codebook_usage(torch.zeros(3))
    assert (nothing.used, nothing.dead, nothing.perplexity) == (0, 3, 1.0)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"codebook_size": 1}, "codebook_size"),
        ({"commitment": 0.05}, "commitment"),
        ({"commitment": 2.5}, "commitment"),
        ({"ema_decay": 1.0}, "ema_decay"),
        ({"ema_decay": 0.0}, "ema_decay"),
        ({"revive_dead_codes": True}, "revive_dead_codes"),
    ],
)
def test_impossible_settings_are_named(options: dict[str, object], named: str) -> None:
    with pytest.raises(UserError, match=named):
        QuantizerConfig(**{"codebook_size": 8} | options)
