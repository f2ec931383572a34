"""Every experiment at smoke scale through `anytime reproduce`, on shared runs; killed and paused experiments resume."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anytime
from anytime.core import results
from anytime.core.results import Results, Row
from anytime.experiments import fid, priority_code, runner, samples
from anytime.experiments.registry import EXPERIMENTS, PAPER_FRACTIONS
from anytime.metrics import feature_stats

ROOT = Path(anytime.__file__).parents[2]
RunCLI = Callable[..., Any]
SMOKE = ("--dataset", "digits", "--scale", "smoke")


@pytest.fixture
def own(experiment_runs: Path, tmp_path: Path) -> Path:
    """A copy of the runs without their measurements."""
    return Path(shutil.copytree(experiment_runs, tmp_path / "runs", ignore=shutil.ignore_patterns("measured", "results")))


@pytest.fixture
def reproduced(run_cli: RunCLI, experiment_runs: Path, tmp_path: Path) -> Callable[..., Results]:
    """`reproduced("fid")`: the results of an experiment."""

    def give(name: str, *words: object) -> Results:
        outcome = run_cli("reproduce", name, *SMOKE, "--runs-dir", experiment_runs, "--out", tmp_path / "out", *words)
        assert outcome.status == 0, outcome.err
        assert "training digits" not in outcome.err, "the runs exist"
        return results.read(tmp_path / "out" / name / "digits.json")

    return give


@pytest.mark.parametrize(
    "name", [name for name, experiment in EXPERIMENTS.items() if experiment.has_data and not experiment.is_audio]
)
def test_experiment(name: str, run_cli: RunCLI, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    runs = request.getfixturevalue(
        "appendix_runs" if EXPERIMENTS[name].figure.startswith(("Appendix C", "Appendix D")) else "experiment_runs"
    )
    outcome = run_cli("reproduce", name, *SMOKE, "--runs-dir", runs, "--out", tmp_path, "--json")
    assert outcome.status == 0, outcome.err
    *lines, last = outcome.out.splitlines()
    output, path = json.loads(last), tmp_path / name / "digits.json"
    found = results.read(path)
    assert (output["finished"], output["results"], output["figure"]) == (True, str(path), str(path.with_suffix(".png")))
    assert path.with_suffix(".png").stat().st_size > 1000
    assert [verdict["holds"] for verdict in output["verdicts"]] == [None] * len(found.verdicts), "a smoke run decides nothing"
    assert len(found.verdicts) > 1
    assert all(line.startswith("undecided") for line in lines[:-1])
    assert found.command == f"anytime reproduce {name} --dataset digits --scale smoke"
    assert found.environment["scale"] == "smoke"
    assert found.schedule.startswith("scale smoke; ")
    for place in (str(runs), str(tmp_path), str(ROOT)):
        assert place not in path.read_text(), "no path of this machine"
    variants = {key.split()[0]: training["command"] for key, training in found.environment["training"].items()}
    assert set(variants) == set(EXPERIMENTS[name].runs)
    assert all(command.startswith("anytime train digits --recipe ") for command in variants.values())


def test_the_theorem_needs_nothing(run_cli: RunCLI, tmp_path: Path) -> None:
    outcome = run_cli("reproduce", "theorem", "--out", tmp_path)
    assert outcome.status == 0
    assert outcome.out.count("holds") == 5
    assert results.read(tmp_path / "theorem" / "discrete.json").command == "anytime reproduce theorem"


def select(found: Results, series: str) -> list[Row]:
    return [row for row in found.rows if row["series"] == series]


def test_fid_rows(reproduced: Callable[..., Results]) -> None:
    found = reproduced("fid")
    for variant in ("ordered", "unordered", "original"):
        own = select(found, variant)
        assert [row["fraction"] for row in own] == list(PAPER_FRACTIONS)
        assert all(row["frechet_random"] > 0 and "fid" not in row for row in own)
        engine = "eager" if variant == "original" else "packed"  # the packed engine is the Transformer's
        assert {(row["samples"], row["seed"], row["engine"]) for row in own} == {(100, 0, engine)}
        assert all(("top rows" in row.get("prefix", "")) == (variant == "original") for row in own)
    assert [row["samples"] for row in select(found, fid.HELD_OUT)] == [128]
    assert "100 samples (the paper's: 50,000)" in found.schedule
    fewer = reproduced("fid", "--samples", 20)
    assert {row["samples"] for row in select(fewer, "ordered")} == {20}
    assert all("20 samples for 64 features" in row["warning"] for row in select(fewer, "ordered"))


def test_ordering_rows(reproduced: Callable[..., Results]) -> None:
    found = reproduced("ordering")
    for series in ("ordered", "unordered", "pca"):
        own = select(found, series)
        assert [row["codes"] for row in own] == list(range(17))
        assert {row["examples"] for row in own} == {128}
        assert [row["fraction"] for row in own if "fraction" in row] == list(PAPER_FRACTIONS)
    errors = [row["error"] for row in select(found, "pca")]
    assert errors == sorted(errors, reverse=True)


def test_speed_rows(reproduced: Callable[..., Results]) -> None:
    found = reproduced("speed")
    own = select(found, "anytime, eager")
    assert [row["fraction"] for row in own] == list(PAPER_FRACTIONS)
    assert all(row["engine"] == "eager" and row["images"] == 50_000 for row in found.rows)
    assert all(row["seconds"] == pytest.approx(row["seconds_p50"] * 5000) for row in found.rows)
    assert own[0]["scaled"] == "median of 3 batches of 10, times 5,000"
    assert {row["weights"] for row in own} == {"digits-paper-smoke-ordered-0"}
    assert {row["weights"] for row in select(found, "pixel space")} == {"random"}
    for sampler in ("naive", "incremental"):
        (original,) = select(found, f"original VQ-VAE, {sampler}")
        assert original["codes"] == original["length"] == 49


def test_speed_without_runs(run_cli: RunCLI, tmp_path: Path) -> None:
    assert run_cli("reproduce", "speed", *SMOKE, "--runs-dir", tmp_path / "runs", "--out", tmp_path).status == 0
    assert {row["weights"] for row in results.read(tmp_path / "speed" / "digits.json").rows} == {"random"}


def test_samples_and_priority_code_rows(reproduced: Callable[..., Results]) -> None:
    grids = [row for row in reproduced("samples").rows if "distance" in row]
    assert [(row["series"], row["fraction"]) for row in grids] == [
        (variant, fraction) for variant in ("ordered", "unordered") for fraction in samples.GRID_FRACTIONS
    ]
    found = reproduced("priority-code")
    for variant in ("ordered", "unordered"):
        assert len([row for row in select(found, variant) if "ratio" in row]) <= priority_code.SMOKE_CODES
        assert {row["measure"] for row in select(found, variant) if "measure" in row} >= {"distance, random pairs"}


def test_killed_between_training_and_measuring(
    own: Path, run_cli: RunCLI, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Killed after the unordered run is trained; the same command does not train it again."""
    shutil.rmtree(own / "digits-paper-smoke-unordered-0")
    command = ("reproduce", "ordering", *SMOKE, "--runs-dir", own, "--out", tmp_path / "out")
    load = runner.load

    def fail_midway(folder: Path, *rest: Any) -> Any:
        if "unordered" in folder.name:
            raise KeyboardInterrupt
        return load(folder, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "load", fail_midway)
        outcome = run_cli(*command)
    assert outcome.status == 130
    assert "training digits-paper-smoke-unordered-0: 2 + 2 + 2 epochs" in outcome.err
    metrics = (own / "digits-paper-smoke-unordered-0" / "metrics.jsonl").read_bytes()
    assert not (tmp_path / "out").exists()
    again = run_cli(*command)
    assert again.status == 0
    assert "training digits" not in again.err
    assert "ordering, ordered 0: cached in " in again.err
    assert (own / "digits-paper-smoke-unordered-0" / "metrics.jsonl").read_bytes() == metrics


def test_killed_inside_fid(own: Path, run_cli: RunCLI, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A killed measurement resumes from its saved features and gives the same numbers; the features are then removed."""
    monkeypatch.setattr(feature_stats, "CHUNK", 25)
    monkeypatch.setattr(feature_stats, "SAVE_SECONDS", 0.0)
    command = ("reproduce", "fid", *SMOKE, "--runs-dir", own, "--out")
    assert run_cli(*command, tmp_path / "whole").status == 0
    (own / "measured" / "fid-digits-smoke.json").unlink()
    save, saves = feature_stats._save, []

    def fail_midway(path: Path, *rest: Any) -> None:
        save(path, *rest)
        saves.append(path)
        if len(saves) == 6:  # four of the ordered run, two of the unordered one
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(feature_stats, "_save", fail_midway)
        assert run_cli(*command, tmp_path / "parts").status == 130
    assert [path.name for path in (own / "measured").iterdir() if path.is_dir()] == ["fid-digits-smoke-unordered-0"]
    outcome = run_cli(*command, tmp_path / "parts")
    assert outcome.status == 0
    assert "resuming the samples stage at step 250 of 500" in outcome.err
    assert {path.name for path in (own / "measured").iterdir()} == {".lock", "fid-digits-smoke.json"}
    whole, parts = (results.read(tmp_path / name / "fid" / "digits.json").rows for name in ("whole", "parts"))
    assert parts == whole


def test_work_in_parts(own: Path, experiment_runs: Path, run_cli: RunCLI, tmp_path: Path) -> None:
    """`--minutes` stops at the next safe point with status 0, and the parts give the same rows as one call."""
    shutil.rmtree(own / "digits-paper-smoke-unordered-0")
    command = ("reproduce", "ordering", *SMOKE, "--runs-dir", own, "--out", tmp_path)
    hurried, stops = (*command, "--minutes", 1e-6, "--json"), []
    for _ in range(3):
        outcome = run_cli(*hurried)
        assert outcome.status == 0
        said, last = outcome.out.splitlines()
        output = json.loads(last)
        assert output["finished"] is False
        assert said.startswith("stopped after 0.")
        assert said.endswith(f"({output['stopped']}); give the same command again to resume")
        stops.append(output["stopped"])
    assert stops == ["ordered 0 is measured", "ordered stage, step 1", "ordered stage, step 2"]
    assert not (tmp_path / "ordering").exists()
    assert run_cli(*command).status == 0
    in_parts = results.read(tmp_path / "ordering" / "digits.json")
    assert run_cli("reproduce", "ordering", *SMOKE, "--runs-dir", experiment_runs, "--out", tmp_path / "one").status == 0
    assert results.read(tmp_path / "one" / "ordering" / "digits.json").rows == in_parts.rows


def test_two_seeds(own: Path, run_cli: RunCLI, tmp_path: Path) -> None:
    """Each seed has its own runs."""
    outcome = run_cli("reproduce", "fid", *SMOKE, "--seeds", "0,1", "--samples", 20, "--runs-dir", own, "--out", tmp_path)
    assert outcome.status == 0, outcome.err
    found = results.read(tmp_path / "fid" / "digits.json")
    assert {(row["series"], row["seed"]) for row in found.rows if "seed" in row} == {
        (series, seed) for series in ("ordered", "unordered", "original") for seed in (0, 1)
    }  # fmt: skip
    assert len({row["model"] for row in found.rows if "model" in row}) == 6
    assert found.command.endswith("--samples 20 --seeds 0,1")
    assert "seeds 0, 1" in found.schedule
    assert "spread over seeds" in found.verdicts[-1].evidence


def test_the_list(run_cli: RunCLI) -> None:
    outcome = run_cli("reproduce", "--json")
    assert outcome.status == 0
    *lines, last = outcome.out.splitlines()
    assert [entry["name"] for entry in json.loads(last)["experiments"]] == list(EXPERIMENTS)
    for experiment in EXPERIMENTS.values():
        (line,) = (line for line in lines if line.startswith(f"{experiment.name} "))
        assert experiment.figure in line
        assert experiment.summary in line
    assert any("runs: ordered, unordered, original; the Inception network" in line for line in lines)


def test_results_of_another_format_are_refused(tmp_path: Path, run_cli: RunCLI) -> None:
    path = tmp_path / "ordering" / "digits.json"
    path.parent.mkdir()
    for text, named in (('{"format": 0}', "format 0"), ('{"format": 1, "rows": []}', "not a results file of this version")):
        path.write_text(text)
        assert named in run_cli("reproduce", "ordering", *SMOKE, "--runs-dir", tmp_path / "runs", "--out", tmp_path).sentence
    assert not (tmp_path / "runs").exists(), "refused before any work"


def test_only_some_runs_are_measured_and_the_rest_later(run_cli: RunCLI, tmp_path: Path) -> None:
    words = ("reproduce", "pca-prior", *SMOKE, "--runs-dir", tmp_path / "runs", "--out", tmp_path / "out")
    outcome = run_cli(*words, "--only", "pca", "--json")
    assert outcome.status == 0, outcome.err
    assert json.loads(outcome.out.splitlines()[-1])["finished"] is False
    assert json.loads(outcome.out.splitlines()[-1])["measured"] is True
    assert not (tmp_path / "out" / "pca-prior").exists(), "one run alone decides nothing"
    assert "no cached measurement of digits-pixels-smoke-0 in" in run_cli(*words, "--cached").sentence
    assert not (tmp_path / "runs" / "digits-pixels-smoke-0").exists(), "nothing was trained"
    assert "--only measures and --cached measures nothing" in run_cli(*words, "--only", "pca", "--cached").sentence
    pixels = run_cli(*words, "--only", "pixels")
    assert "training digits-pixels" in pixels.err
    assert "training digits-pca" not in pixels.err
    outcome = run_cli(*words, "--cached")
    assert outcome.status == 0, outcome.err
    assert "pca-prior, training images: cached" in outcome.err, "the reference was measured with the first run"
    assert "pca-prior, pca 0: cached" in outcome.err
    assert "--only pcaa is not a run of pca-prior" in run_cli(*words, "--only", "pcaa").sentence


def test_all_experiments_of_one_dataset(run_cli: RunCLI, tmp_path: Path) -> None:
    outcome = run_cli(
        "reproduce", "--all", "--dataset", "discrete", "--runs-dir", tmp_path / "runs", "--scale", "smoke", "--json"
    )
    assert outcome.status == 0, outcome.err
    assert "[1/1] theorem, discrete; time left: known after the first experiment" in outcome.out
    assert json.loads(outcome.out.splitlines()[-1])["finished"] is True
    assert (tmp_path / "runs" / "results" / "theorem" / "discrete.json").is_file(), "smoke results stay with the runs"


@pytest.mark.slow
def test_all_experiments_resume_after_a_pause(run_cli: RunCLI, tmp_path: Path) -> None:
    command = ("reproduce", "--all", "--scale", "smoke", "--runs-dir", tmp_path / "runs", "--json")
    first = run_cli(*command, "--minutes", "0.5")
    assert first.status == 0, first.err
    assert "give the same command again to resume" in first.out
    assert json.loads(first.out.splitlines()[-1])["finished"] is False
    second = run_cli(*command)
    assert second.status == 0, second.err
    done = json.loads(second.out.splitlines()[-1])
    assert done["finished"] is True
    assert len(done["experiments"]) == len(EXPERIMENTS)
    assert ": cached in " in second.err, "what the first call measured"
    third = run_cli(*command)
    assert third.status == 0 and "training " not in third.err, "nothing is left to train"
