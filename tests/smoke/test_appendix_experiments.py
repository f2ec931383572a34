"""The appendix's experiments at smoke scale: reuse, rows, and what models without codes refuse."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anytime.core import results
from anytime.core.results import Results, Row
from anytime.experiments import vae
from anytime.experiments.registry import PAPER_FRACTIONS
from anytime.experiments.variants import VAE_VARIANCES
from anytime.training.log import read

RunCLI = Callable[..., Any]
SMOKE = ("--dataset", "digits", "--scale", "smoke")


def found(runs: Path, name: str) -> Results:
    return results.read(runs / "results" / name / "digits.json")


def select(results: Results, series: str, key: str) -> list[Row]:
    return [row for row in results.rows if row["series"] == series and key in row]


def measurement(runs: Path, experiment: str, name: str) -> dict[str, Any]:
    notes: dict[str, Any] = json.loads((runs / "measured" / f"{experiment}-digits-smoke.json").read_text())
    return notes["measurements"][name]


def test_runs_and_measurements_are_reused(appendix_runs: Path) -> None:
    """The runs of `fid` and their measurements are reused."""
    said = {
        name: (appendix_runs / f"{name}.err").read_text() for name in ("priors", "truncation", "tailored", "regularization")
    }
    for name, text in said.items():
        assert "training digits-paper-smoke-ordered-0" not in text
        assert f"{name}, ordered 0: cached in " in text
        assert measurement(appendix_runs, name, "ordered 0") == measurement(appendix_runs, "fid", "ordered 0")
    assert (
        "2 runs to train, 32 steps: digits-paper-smoke-lstm-0 (prior 16), digits-paper-smoke-pixelcnn-0 (prior 16)"
        in said["priors"]
    )
    assert "training digits-paper-smoke-unordered-0" not in said["tailored"] + said["regularization"]


def test_the_first_experiment_measures_for_the_others(appendix_runs: Path, run_cli: RunCLI, tmp_path: Path) -> None:
    own = Path(shutil.copytree(appendix_runs, tmp_path / "runs"))
    (own / "measured" / "fid-digits-smoke.json").unlink()
    outcome = run_cli("reproduce", "fid", *SMOKE, "--runs-dir", own, "--out", tmp_path)
    assert outcome.status == 0
    assert "fid, ordered 0: cached in " in outcome.err
    assert "fid, unordered 0: cached in " in outcome.err
    assert "fid, original 0: cached" not in outcome.err


def test_stages_are_reused(appendix_runs: Path) -> None:
    def lines(variant: str, stage: str) -> list[dict[str, Any]]:
        return [line for line in read(appendix_runs / f"digits-{variant}-0" / "metrics.jsonl") if line["stage"] == stage]

    for variant in ("lstm", "pixelcnn"):
        assert lines(f"paper-smoke-{variant}", "ordered") == lines("paper-smoke-ordered", "ordered"), "with equal seconds"
    for p in ("0.03", "0.1"):
        assert lines(f"paper-smoke-geometric-{p}", "pretrain") == lines("paper-smoke-ordered", "pretrain")
        assert lines(f"paper-smoke-geometric-{p}", "ordered") != lines("paper-smoke-ordered", "ordered")
    assert lines("paper-smoke-unordered-5k", "pretrain") == lines("paper-smoke-ordered-5k", "pretrain")
    assert lines("vae-smoke-standard-vae", "pretrain") == lines("vae-smoke-ordered-vae", "pretrain")


def test_rows_of_priors_distributions_and_lengths(appendix_runs: Path) -> None:
    priors = found(appendix_runs, "priors")
    for series in ("transformer", "lstm", "pixelcnn"):
        assert [row["fraction"] for row in select(priors, series, "frechet_random")] == list(PAPER_FRACTIONS)
        (row,) = select(priors, series, "bits_per_code")
        assert row["weights"] > 1000
    truncation = found(appendix_runs, "truncation")
    for series in ("uniform", "Geo(0.03)", "Geo(0.1)"):
        distribution = [row["probability"] for row in select(truncation, series, "keep")]
        assert len(distribution) == 16
        assert sum(distribution) == pytest.approx(1)
        assert [row["fraction"] for row in select(truncation, series, "frechet_random")] == list(PAPER_FRACTIONS)
    tailored = found(appendix_runs, "tailored")
    assert [(row["fraction"], row["codes"], row["length"]) for row in select(tailored, "tailored", "frechet_random")] == [
        (1.0, 16, 16), (0.8, 13, 13), (0.6, 10, 10), (0.4, 6, 6), (0.2, 3, 3),
    ]  # fmt: skip
    assert [row["codes"] for row in select(tailored, "anytime", "frechet_random")] == [3, 6, 10, 13, 16]


def test_rows_of_subsets_vaes_and_densities(appendix_runs: Path) -> None:
    regularization = found(appendix_runs, "regularization")
    for variant in ("ordered", "unordered", "ordered, last", "unordered, last"):
        assert [row["images"] for row in select(regularization, variant, "frechet_random")] == [256, 128, 51, 32]
        assert all(
            row["training_error"] > 0 and row["held_out_bits"] > 0 for row in select(regularization, variant, "training_error")
        )
    models = {
        series: [row["model"] for row in select(regularization, series, "held_out_bits")]
        for series in ("ordered", "ordered, last")
    }
    assert not set(models["ordered"]) & set(models["ordered, last"]), "the digest is that of the measured weights"
    assert "ordered-5k, unordered-5k" in regularization.schedule
    assert ": 16 + 16 + 16 epochs (as many steps as with all images)" in regularization.schedule
    assert "the same steps for every number of images" in regularization.schedule
    curves = found(appendix_runs, "vae")
    for series in vae.SERIES:
        for variance in VAE_VARIANCES:
            own = [row["codes"] for row in select(curves, series, "error") if row["variance"] == variance]
            assert own == list(range(17))
    densities = found(appendix_runs, "pca-prior")
    for space in ("pixels", "pca"):
        assert [row["part"] for row in select(densities, space, "bits")] == ["held out", "training"]
        assert [row["epoch"] for row in select(densities, space, "validation_bits")] == [1, 2]
        assert [row["samples"] for row in select(densities, space, "frechet_random")] == [32]
    assert "pixels, pca: 2 epochs (the paper states none)" in densities.schedule


@pytest.mark.parametrize(
    ("run", "what"),
    [("vae-smoke-ordered-vae-0", "a VAE"), ("pca-smoke-0", "a density model")],
)
def test_models_without_codes_are_not_sampled(
    appendix_runs: Path, run_cli: RunCLI, tmp_path: Path, run: str, what: str
) -> None:
    folder = appendix_runs / f"digits-{run}"
    for verb in (("sample", folder, "--out", tmp_path / "x.png"), ("info", folder), ("evaluate", folder, "--scale", "smoke")):
        assert f"is {what} and has no codes to sample" in run_cli(*verb).sentence


def test_train_a_density_model(run_cli: RunCLI, tmp_path: Path) -> None:
    words = ("train", "digits", "--recipe", "pca", "--scale", "smoke", "--set", "prior.epochs=1", "--out", tmp_path / "run")
    done = run_cli(*words, "--json")
    assert done.status == 0, done.err
    output = json.loads(done.out.splitlines()[-1])
    assert output["bits_per_dim"] > 0
    assert json.loads((tmp_path / "run" / "bits.json").read_text())["bits_per_dim"] == output["bits_per_dim"]
    assert "model.space = pca, not pixels" in run_cli(*("pixels" if word == "pca" else word for word in words)).sentence
