"""Feature statistics in chunks: they do not depend on where a run was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anytime.core.pause import Pause, Paused
from anytime.core.random import derive
from anytime.data.loader import to_float, to_uint8
from anytime.metrics import feature_stats
from anytime.metrics.feature_stats import (
    FeatureSource,
    FeatureStatistics,
    compute_statistics,
    examples,
    reconstructions,
    samples,
)
from anytime.metrics.features import RandomNetwork
from anytime.model import AnytimeModel

COUNTS = [2, 5, 8]


@pytest.fixture(scope="module")
def network() -> RandomNetwork:
    return RandomNetwork(torch.device("cpu"))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_stats, "CHUNK", 10)
    monkeypatch.setattr(RandomNetwork, "max_kept", 25)
    monkeypatch.setattr(feature_stats, "SAVE_SECONDS", 0.0)


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.randint(256, (37, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


class Watching:
    """Records what is reported."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int, int]] = []
        self.steps: list[int] = []
        self.said: list[str] = []

    def stage(self, name: str, step: int, steps: int) -> None:
        self.stages.append((name, step, steps))

    def progress(self, step: int, losses: dict[str, float]) -> None:
        self.steps.append(step)

    def say(self, text: str) -> None:
        self.said.append(text)


def killed_after(source: FeatureSource, chunks: int) -> FeatureSource:
    """The same source, but the process dies in its next chunk."""
    made = 0

    def chunk(first: int, last: int) -> Iterable[torch.Tensor]:
        nonlocal made
        made += 1
        if made > chunks:
            raise KeyboardInterrupt
        return source.chunk(first, last)

    return replace(source, chunk=chunk)


def equal(first: list[FeatureStatistics], second: list[FeatureStatistics]) -> bool:
    return len(first) == len(second) and all(
        a.moments.count == b.moments.count
        and torch.equal(a.moments.total, b.moments.total)
        and torch.equal(a.moments.outer, b.moments.outer)
        and torch.equal(a.kept, b.kept)
        for a, b in zip(first, second, strict=True)
    )


def test_statistics_cover_all_images(network: RandomNetwork, x: torch.Tensor) -> None:
    (found,) = compute_statistics(examples("data", x), network)
    features = network(x)
    assert found.moments.count == 37
    torch.testing.assert_close(found.moments.mean, features.double().mean(0))
    torch.testing.assert_close(found.moments.covariance, torch.cov(features.double().T), rtol=1e-5, atol=1e-9)


def test_the_features_kept_are_a_mixture(network: RandomNetwork, x: torch.Tensor) -> None:
    (found,) = compute_statistics(examples("data", x), network)
    nearest = torch.cdist(found.kept, network(x)).argmin(1)
    assert len(set(nearest.tolist())) == 25
    assert nearest.max() > 30, "not the first 25 images"


def test_reconstructions_by_code_length(network: RandomNetwork, tiny: AnytimeModel, x: torch.Tensor) -> None:
    found = compute_statistics(reconstructions("held-out", tiny, x, COUNTS), network)
    codes = tiny.encode(to_float(x))
    for known, count in zip(found, COUNTS, strict=True):
        expected = network(to_uint8(tiny.decode(codes[:, :count]))).double()
        assert known.moments.count == 37
        torch.testing.assert_close(known.moments.mean, expected.mean(0), rtol=1e-5, atol=1e-6)


def test_samples_are_generated_once_and_truncated(
    network: RandomNetwork, tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples of full length decoded from a prefix are those of a shorter request (law 2)."""
    asked = []
    draw = AnytimeModel.sample

    def sample(model: AnytimeModel, n: int, **settings: int) -> object:
        asked.append((n, settings))
        return draw(model, n, **settings)

    monkeypatch.setattr(AnytimeModel, "sample", sample)
    found = compute_statistics(samples("samples", tiny, 23, COUNTS, seed=5), network)
    assert [n for n, _ in asked] == [10, 10, 3]
    monkeypatch.undo()
    for known, count in zip(found, COUNTS, strict=True):
        shorter = [tiny.sample(n, seed=derive(5, "evaluation", i), codes=count).uint8() for i, n in enumerate((10, 10, 3))]
        torch.testing.assert_close(known.moments.mean, network(torch.cat(shorter)).double().mean(0), rtol=1e-5, atol=1e-6)


SOURCES: dict[str, Callable[[AnytimeModel, torch.Tensor], FeatureSource]] = {
    "examples": lambda model, x: examples("data", x),
    "reconstructions": lambda model, x: reconstructions("held-out", model, x, COUNTS),
    "samples": lambda model, x: samples("samples", model, 37, COUNTS, seed=1),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("chunks", [0, 1, 3])
def test_a_killed_run_resumes(
    kind: str, chunks: int, network: RandomNetwork, tiny: AnytimeModel, x: torch.Tensor, tmp_path: Path
) -> None:
    source = SOURCES[kind](tiny, x)
    whole = compute_statistics(source, network)
    with pytest.raises(KeyboardInterrupt):
        compute_statistics(killed_after(source, chunks), network, tmp_path)
    watching = Watching()
    assert equal(compute_statistics(killed_after(source, 4 - chunks), network, tmp_path, watching), whole)
    assert watching.stages == [(source.label, 10 * chunks * source.series, 37 * source.series)]
    assert len(watching.steps) == (4 - chunks) * source.series
    assert watching.steps == sorted(set(watching.steps))
    assert watching.steps[-1] == 37 * source.series


def test_finished_statistics_are_read_from_the_file(network: RandomNetwork, x: torch.Tensor, tmp_path: Path) -> None:
    source = examples("data", x)
    whole = compute_statistics(source, network, tmp_path)
    watching = Watching()
    assert equal(compute_statistics(killed_after(source, 0), network, tmp_path, watching), whole)
    assert watching.stages == []
    assert not list(tmp_path.glob(".*"))


def test_statistics_of_another_source_are_not_resumed(
    network: RandomNetwork, tiny: AnytimeModel, x: torch.Tensor, tmp_path: Path
) -> None:
    compute_statistics(samples("samples", tiny, 20, COUNTS, seed=1), network, tmp_path)
    other_network = RandomNetwork(torch.device("cpu"))
    other_network.digest = "another"
    others = [
        (samples("samples", tiny, 20, COUNTS, seed=2), network),
        (samples("samples", tiny, 30, COUNTS, seed=1), network),
        (samples("samples", tiny, 20, [2, 5], seed=1), network),
        (samples("samples", tiny, 20, COUNTS, seed=1), other_network),
        (examples("samples", x), network),
    ]
    for source, theirs in others:
        assert equal(compute_statistics(source, theirs, tmp_path), compute_statistics(source, theirs))
    assert len(list(tmp_path.iterdir())) == 1 + len(others)


def test_a_damaged_file_is_made_again(network: RandomNetwork, x: torch.Tensor, tmp_path: Path) -> None:
    whole = compute_statistics(examples("data", x), network, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-100])
    assert equal(compute_statistics(examples("data", x), network, tmp_path), whole)
    assert equal(compute_statistics(killed_after(examples("data", x), 0), network, tmp_path), whole)


def test_a_folder_that_cannot_be_written_costs_only_time(network: RandomNetwork, x: torch.Tensor, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    watching = Watching()
    found = compute_statistics(examples("data", x), network, tmp_path / "file", watching)
    assert equal(found, compute_statistics(examples("data", x), network))
    assert len(watching.said) == 1
    assert "cannot be written" in watching.said[0]


def test_a_paused_run_resumes(tiny: AnytimeModel, network: RandomNetwork, tmp_path: Path) -> None:
    source = samples("samples", tiny, 37, COUNTS, seed=3)
    whole = compute_statistics(source, network)
    parts = []
    for _ in range(9):
        try:
            found = compute_statistics(source, network, tmp_path, pause=Pause(0.0))
        except Paused as pause:
            parts.append(str(pause))
        else:
            break
    assert parts == ["samples, 10 of 37", "samples, 20 of 37", "samples, 30 of 37"]
    assert equal(found, whole)


def test_without_a_folder_there_is_no_pause(tiny: AnytimeModel, network: RandomNetwork) -> None:
    source = samples("samples", tiny, 37, COUNTS, seed=3)
    assert equal(compute_statistics(source, network, pause=Pause(0.0)), compute_statistics(source, network))
