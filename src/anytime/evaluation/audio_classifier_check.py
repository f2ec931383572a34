"""The recogniser of digits itself, measured: on real digits of unheard voices, on sounds that are no digits, and on noise.

python -m anytime.evaluation.audio_classifier_check audiomnist --data DIR      trains it where it is not in the cache; needs the extra `audio`
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int16
from torch import Tensor

from anytime import data
from anytime.core.device import pick_device
from anytime.core.errors import UserError
from anytime.data import Dataset
from anytime.data.audio_io import RATE
from anytime.data.loader import to_float, to_int16
from anytime.evaluation.evaluate_audio import heard
from anytime.metrics import feature_stats
from anytime.metrics.audio_classifier_training import Training, in_pieces
from anytime.metrics.audio_features import ENOUGH, KIND, Ears, ears_for
from anytime.metrics.feature_stats import gathered
from anytime.metrics.quality import Row, reference
from anytime.training.run_dir import environment

FEW = 0.05
"""Share of sounds without a digit that may be taken for one."""
LEVELS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)
"""Noise laid over real digits, whose RMS is about 0.1."""
TAUGHT = ("white noise", "silence", "digits backwards", "digits in shuffled pieces of 100 ms")
"""What the network is taught to be no digit; the other kinds it has never heard."""


def measured(dataset: Dataset, ears: Ears, cache: Path | None = None) -> list[Row]:
    """All rows: `voices` of each part, sounds that are `no digit` by kind, and `noise` over held-out digits by level."""
    assert dataset.labels is not None
    parts = {"validation": (dataset.validation, dataset.labels.validation)}
    if dataset.test is not None:
        parts["test"] = dataset.test, dataset.labels.test
    rows = [{"series": "voices", "part": part, **_right(ears, *known)} for part, known in parts.items()]
    x, digits = parts.get("test", parts["validation"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        others, noise = without_digits(to_float(x)), torch.randn(x.shape)
    for kind, sounds in others.items():
        share = ears.recognition(ears(to_int16(sounds))).recognised
        rows.append({"series": "no digit", "kind": kind, "taught": kind in TAUGHT, "recognised": share, "examples": len(x)})
    real = reference(dataset.published_train, ears, cache)
    for level in LEVELS:
        noisy = to_int16(to_float(x) + level * noise)
        (found,) = gathered(feature_stats.pictures("noise", noisy), ears)
        rows.append({"series": "noise", "level": level, **_right(ears, noisy, digits), **heard(found, real, ears)})
    return rows


def _right(ears: Ears, x: Int16[Tensor, "n 1 time"], digits: Int[Tensor, " n"]) -> Row:
    found = ears.recognition(ears(x))
    told = {"accuracy": found.right(digits), "recognised": found.recognised, "right_when_sure": found.right_when_sure(digits)}
    return {**told, "examples": len(x)}


def without_digits(x: Float[Tensor, "n 1 time"]) -> dict[str, Float[Tensor, "n 1 time"]]:
    """Sounds that are no digits, as many of each kind as there are digits; by chance, from the global generator."""
    time = torch.arange(x.shape[-1]) / RATE
    pitch = 80 * 50 ** torch.rand(len(x), 1, 1)  # Hz, 80 to 4,000
    loudness = F.interpolate(F.avg_pool1d(x.abs(), RATE // 50), size=x.shape[-1], mode="linear")
    return {
        "white noise": 0.1 * torch.randn_like(x),
        "silence": torch.zeros_like(x),
        "digits backwards": x.flip(2),
        "digits in shuffled pieces of 100 ms": in_pieces(x, RATE // 10),
        "digits in shuffled pieces of 200 ms": in_pieces(x, RATE // 5),
        "tones": 0.14 * torch.sin(2 * torch.pi * pitch * time),
        "noise as loud as a digit from moment to moment": loudness * torch.randn_like(x),
    }


def holds(rows: Sequence[Row], distance: str) -> dict[str, bool]:
    """What is asked of the network, and whether it is so."""
    voices = [row for row in rows if row["series"] == "voices"][-1]
    taught = [row["recognised"] for row in rows if row["series"] == "no digit" and row["taught"]]
    clean, *noisy = ((row["level"], row[distance]) for row in rows if row["series"] == "noise")
    ignored = Training().noise  # up to here it is taught to hear the same, and distances need not rise
    beyond = [found for level, found in noisy if level >= ignored]
    return {
        f"at least {ENOUGH:.0%} of the {voices['part']} voices' digits are heard right": voices["accuracy"] >= ENOUGH,
        f"at most {FEW:.0%} of noise, silence and mangled digits count as digits": max(taught) <= FEW,
        f"{distance} of real digits is less than of noisy ones": all(clean[1] < found for _, found in noisy),
        f"{distance} rises with every level of noise from {ignored} on": all(a < b for a, b in pairwise(beyond)),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the rows with their circumstances as JSON; status 1 where something asked is not so, 2 for a mistake."""
    parser = argparse.ArgumentParser(description="how well the recogniser of spoken digits hears")
    parser.add_argument("name")
    parser.add_argument("--data", type=Path, help="a local copy of the set")
    parser.add_argument("--device", help="cpu or cuda")
    arguments = parser.parse_args(argv)
    try:
        device = pick_device(arguments.device)
        dataset = data.load(arguments.name, data=arguments.data)
        if dataset.labels is None or not dataset.is_sound:
            raise UserError(f"{dataset.name} holds no spoken digits: name a set that does, such as audiomnist")
        ears = ears_for(dataset, device)
        rows = measured(dataset, ears)
    except UserError as error:
        print(f"hearing: {error}", file=sys.stderr)
        return 2
    found = holds(rows, ears.distance)
    network: Row = {"kind": KIND, "config": asdict(ears.recogniser.config), "training": asdict(Training())}
    network |= {"parameters": sum(p.numel() for p in ears.recogniser.parameters()), "digest": ears.digest}
    network |= {"training_seconds": ears.seconds}
    command = f"python -m anytime.evaluation.audio_classifier_check {arguments.name}{' --data DIR' if arguments.data else ''}"
    facts = {"dataset": dataset.name, "data": dataset.source, "command": command, "network": network, "holds": found}
    print(json.dumps({**facts, "rows": rows, "environment": environment(device)}, indent=1))
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
