"""Results that are to be measured again are marked, by reasons read off their files; none comes from a dirty tree."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from anytime.core.results import Results, Row, Verdict, read, results_files
from decide_results import RESULTS
from pages import reruns, results

FILES = results_files(RESULTS)
ENVIRONMENT = {"commit": "abc1234", "hardware": "a GPU", "torch": "2.13", "date": "2026-11-18"}


def found(experiment: str, rows: list[Row], commit: str | None = "abc1234", holds: bool | None = True) -> Results:
    training = {"original 0": {"commit": commit}}
    environment = {**ENVIRONMENT, "commit": commit, "training": training}
    return Results(experiment, "cifar10", "anytime reproduce", environment, "", rows, [Verdict("a claim", holds, "")])


TWO_SEEDS = [{"series": "ordered", "seed": seed} for seed in (0, 1)]


@pytest.mark.parametrize(
    ("experiment", "rows", "commit", "why"),
    [
        ("truncation", TWO_SEEDS, "abc1234-dirty", "uncommitted changes"),
        ("truncation", TWO_SEEDS, None, "unknown version"),
        ("truncation", TWO_SEEDS, "ebc4e1d", "not in the history"),
        ("fid", TWO_SEEDS, "65cfac4", "88 % dead"),
        ("speed", [{"series": "original VQ-VAE"}], "abc1234", "naive sampler"),
        ("vae", [{"series": "ordered", "seed": 0, "variance": 0.01}], "abc1234", "variance 0.002"),
        ("priors", [{"series": s, "seed": 0, "weights": w} for s, w in (("transformer", 19e6), ("pixelcnn", 2e6))],
         "abc1234", "2.0 million weights"),
        ("regularization", TWO_SEEDS, "abc1234", "no prior overfits"),
        ("audio", [{"series": "held-out data", "seed": 0}], "abc1234", "several classifiers"),
    ],
)  # fmt: skip
def test_reasons(experiment: str, rows: list[Row], commit: str | None, why: str) -> None:
    assert why in "; ".join(reruns.reasons(found(experiment, rows, commit)))


def test_nothing_to_run_again() -> None:
    assert reruns.reasons(found("truncation", TWO_SEEDS)) == []
    assert reruns.reasons(found("fid", TWO_SEEDS)) == []
    both = ("original VQ-VAE, naive", "original VQ-VAE, incremental")
    assert reruns.reasons(found("speed", [{"series": series} for series in both])) == []


def test_one_seed_is_enough_unless_a_call_is_close() -> None:
    one = found("tailored", TWO_SEEDS[:1])
    assert reruns.reasons(one) == []
    assert reruns.reasons(replace(one, verdicts=[Verdict("a claim", None, "")])) == ["one seed, and a close call"]


def test_the_page_marks_every_claim_of_such_a_file() -> None:
    text = results.page(RESULTS, RESULTS.parent / "docs" / "results.md")
    again = [read(path) for path in FILES if reruns.reasons(read(path))]
    assert text.count(f"({results.RERUN})") == sum(len(each.verdicts) for each in again)
    assert text.count("**To be run again: ") == len(again)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_committed_result_is_from_a_dirty_tree(path: object) -> None:
    commits = reruns.commits_of(read(path))  # type: ignore[arg-type]
    assert commits and all(commit is not None and not commit.endswith("-dirty") for commit in commits)


def test_every_commit_is_in_the_history_or_named_as_lost() -> None:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=RESULTS, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if git("rev-parse", "--is-shallow-repository") != "false":
            pytest.skip("the history is cut")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    history = git("log", "--format=%H").splitlines()
    named = {commit for path in FILES for commit in reruns.commits_of(read(path)) if commit is not None}
    lost = {commit for commit in named if not any(each.startswith(commit) for each in history)}
    assert lost == named & set(reruns.LOST_COMMITS)
