"""Which committed results are to be measured again, and why. Every reason is read off the file itself."""

from __future__ import annotations

from collections.abc import Callable

from anytime.core.results import Results, select
from anytime.experiments import audio_verdicts, speed
from anytime.experiments.registry import find
from anytime.experiments.regularization import series_name
from anytime.experiments.statistics import values
from anytime.experiments.variants import VAE_VARIANCES

LOST_COMMITS = ("ebc4e1d",)
"""Commits that results name and that are not in the history."""
DEAD_CODEBOOK_COMMITS = ("61063b5", "65cfac4")
"""Commits at which 88 % of the original VQ-VAE's codebook died."""


def reasons(results: Results) -> list[str]:
    """Return why the results are to be measured again; none if they are not."""
    commits = commits_of(results)
    found = []
    if any(commit is None or commit.endswith("-dirty") for commit in commits):
        found.append("measured with uncommitted changes or with an unknown version of the code")
    if lost := [commit for commit in commits if commit in LOST_COMMITS]:
        found.append(f"commit {', '.join(lost)} is not in the history")
    own = OWN_REASONS.get(results.experiment)
    found += own(results) if own else []
    seeds = {row["seed"] for row in results.rows if "seed" in row}
    if find(results.experiment).multi_seed and len(seeds) == 1 and any(v.holds is None for v in results.verdicts):
        found.append("one seed, and a close call")
    return found


def commits_of(results: Results) -> list[str | None]:
    """Return the commits at which results were measured and their runs trained."""
    training = [record["commit"] for record in results.environment.get("training", {}).values()]
    measured = str(results.environment["commit"] or "").split(", ")
    return list(dict.fromkeys(commit or None for commit in (*measured, *training)))


def _fid(results: Results) -> list[str]:
    trainings = results.environment.get("training", {})
    dead = [name for name, record in trainings.items() if name.startswith("original ")
            and record["commit"] in DEAD_CODEBOOK_COMMITS]  # fmt: skip
    return ["the original VQ-VAE's codebook was 88 % dead"] if dead else []


def _speed(results: Results) -> list[str]:
    both = all(select(results.rows, series=series) for series in (speed.NAIVE, speed.INCREMENTAL))
    return [] if both else ["rows put together by hand; the original VQ-VAE is not timed with the naive sampler of the paper"]


def _audio(results: Results) -> list[str]:
    found = []
    if not audio_verdicts.one_classifier(results.rows):
        found.append("several classifiers in one table")
    if not any("first_stage" in row for row in results.rows):
        found.append("`best` and `best-unordered` do not share their first stage, and the paper's recipe learned no silence")
    return found


def _vae(results: Results) -> list[str]:
    missing = [v for v in VAE_VARIANCES if not select(results.rows, variance=v)]
    one = len({row["seed"] for row in results.rows}) == 1
    absent = [f"variance {', '.join(f'{v:g}' for v in missing)} of the decoder is missing"] if missing else []
    return absent + (["one seed"] if one else [])


def _priors(results: Results) -> list[str]:
    transformer, pixelcnn = (values(results.rows, series, "weights")[0] for series in ("transformer", "pixelcnn"))
    small = f"the PixelCNN has {pixelcnn / 1e6:.1f} million weights, the Transformer {transformer / 1e6:.1f}"
    return [] if pixelcnn > 0.9 * transformer else [f"{small}; another learning rate, no dropout"]


def _regularization(results: Results) -> list[str]:
    last = select(results.rows, series=series_name("unordered", "last"))
    return [] if last else ["the same epochs for every number of images, so that no prior overfits; no last checkpoint"]


OWN_REASONS: dict[str, Callable[[Results], list[str]]] = {
    "fid": _fid,
    "speed": _speed,
    "audio": _audio,
    "vae": _vae,
    "priors": _priors,
    "regularization": _regularization,
}
