"""Files of `anytime reproduce`: a command without local paths, figures, and no results of a larger scale replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

import anytime
from anytime.core.errors import UserError
from anytime.core.results import Results
from anytime.experiments import reproduce, theorem
from anytime.experiments.registry import EXPERIMENTS, find


def test_every_experiment_has_a_module() -> None:
    assert set(EXPERIMENTS) == {
        "theorem", "layout", "ordering", "fid", "objective", "speed", "samples", "priority-code", "audio",
        "vae", "priors", "truncation", "regularization", "tailored", "pca-prior",
    }  # fmt: skip
    for experiment in EXPERIMENTS.values():
        assert (Path(anytime.__file__).parent / f"{experiment.module.removeprefix('anytime.').replace('.', '/')}.py").is_file()


def test_canonical_command_has_no_local_paths() -> None:
    words = reproduce.canonical_command(find("fid"), "celeba", "short", local=True, samples=10_000, seeds=(3,))
    assert words == "anytime reproduce fid --dataset celeba --scale short --data DIR --samples 10000 --seed 3"
    assert (
        reproduce.canonical_command(find("theorem"), "discrete", "full", local=False, samples=None, seeds=(0,))
        == "anytime reproduce theorem"
    )


def test_larger_scales_are_not_replaced(tmp_path: Path) -> None:
    Results("fid", "cifar10", "", {"scale": "short"}, "", [], []).write(tmp_path)
    reproduce.check_overwrite(tmp_path, "fid", "cifar10", "short")
    reproduce.check_overwrite(tmp_path, "fid", "cifar10", "full")
    reproduce.check_overwrite(tmp_path, "fid", "celeba", "smoke")
    with pytest.raises(
        UserError, match="holds results of `scale` short, which `scale` smoke would replace; choose another `out`"
    ):
        reproduce.check_overwrite(tmp_path, "fid", "cifar10", "smoke")


def test_figure_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    results = theorem.compute((0.4, 0.3, 0.2, 0.1), length=3)
    assert reproduce.write_results(results, tmp_path).figure == tmp_path / "theorem" / "discrete.png"
    (tmp_path / "theorem" / "discrete.png").unlink()
    (tmp_path / "theorem" / "discrete.png").mkdir()
    with pytest.raises(UserError, match=r"discrete\.png cannot be written"):
        reproduce.write_results(results, tmp_path)
    assert sorted(path.name for path in (tmp_path / "theorem").iterdir()) == ["discrete.json", "discrete.png"]
