"""Check the classifier of spoken digits: on digits of held-out speakers, on clips that are not digits, and under noise.

python scripts/check_audio_classifier.py audiomnist --data DIR    needs the extra `audio`
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
from anytime.core.environment import environment
from anytime.core.errors import UserError
from anytime.core.results import Row
from anytime.data import Dataset
from anytime.data.audio_io import SAMPLE_RATE
from anytime.data.loader import to_float, to_int16
from anytime.evaluation.audio_augment import NOISE, shuffle_segments
from anytime.evaluation.classifier_training import FORMAT, MIN_DIGIT_ACCURACY, load_or_train_audio_features
from anytime.metrics.classifier import AudioFeatures
from anytime.metrics.feature_stats import compute_statistics, examples
from anytime.metrics.quality import quality_row, reference_statistics

MAX_FALSE_POSITIVES = 0.05
"""Largest fraction of clips without a digit that may be classified as one."""
NOISE_LEVELS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)
"""Noise added to real digits, whose RMS is about 0.1."""
TRAINED_NEGATIVES = ("white noise", "silence", "digits backwards", "digits in shuffled pieces of 100 ms")
"""Clips of the negative class in training; the other kinds are new to the network."""


def check_rows(dataset: Dataset, network: AudioFeatures, cache: Path | None = None) -> list[Row]:
    """Return all rows: `speakers` of each part, `non-digits` by kind, and `noise` on held-out digits by level."""
    assert dataset.labels is not None
    parts = {"validation": (dataset.validation, dataset.labels.validation)}
    if dataset.test is not None:
        parts["test"] = dataset.test, dataset.labels.test
    rows = [{"series": "speakers", "part": part, **_accuracy_row(network, *known)} for part, known in parts.items()]
    x, digits = parts.get("test", parts["validation"])
    generator = torch.Generator().manual_seed(0)
    for kind, clips in non_digits(to_float(x), generator).items():
        share = network.predict(network(to_int16(clips))).classified
        trained = kind in TRAINED_NEGATIVES
        rows.append({"series": "non-digits", "kind": kind, "in_training": trained, "classified": share, "examples": len(x)})
    real = reference_statistics(dataset.published_train, network, cache)
    noise = torch.randn(x.shape, generator=generator)
    for level in NOISE_LEVELS:
        noisy = to_int16(to_float(x) + level * noise)
        (found,) = compute_statistics(examples("noise", noisy), network)
        quality = quality_row(found, real, network)
        rows.append({"series": "noise", "level": level, **_accuracy_row(network, noisy, digits), **quality})
    return rows


def _accuracy_row(network: AudioFeatures, x: Int16[Tensor, "n 1 time"], digits: Int[Tensor, " n"]) -> Row:
    found = network.predict(network(x))
    return {
        "accuracy": found.accuracy(digits),
        "classified": found.classified,
        "confident_accuracy": found.confident_accuracy(digits),
        "examples": len(x),
    }


def non_digits(x: Float[Tensor, "n 1 time"], generator: torch.Generator) -> dict[str, Float[Tensor, "n 1 time"]]:
    """Return clips that are not digits, by kind, as many of each kind as there are digits."""
    time = torch.arange(x.shape[-1]) / SAMPLE_RATE
    pitch = 80 * 50 ** torch.rand(len(x), 1, 1, generator=generator)  # Hz, 80 to 4,000
    loudness = F.interpolate(F.avg_pool1d(x.abs(), SAMPLE_RATE // 50), size=x.shape[-1], mode="linear")
    return {
        "white noise": 0.1 * torch.randn(x.shape, generator=generator),
        "silence": torch.zeros_like(x),
        "digits backwards": x.flip(2),
        "digits in shuffled pieces of 100 ms": shuffle_segments(x, SAMPLE_RATE // 10, generator),
        "digits in shuffled pieces of 200 ms": shuffle_segments(x, SAMPLE_RATE // 5, generator),
        "sinusoids": 0.14 * torch.sin(2 * torch.pi * pitch * time),
        "noise with the loudness of a digit": loudness * torch.randn(x.shape, generator=generator),
    }


def holds(rows: Sequence[Row], distance: str) -> dict[str, bool]:
    """Return the requirements and whether they hold."""
    speakers = [row for row in rows if row["series"] == "speakers"][-1]
    trained = [row["classified"] for row in rows if row["series"] == "non-digits" and row["in_training"]]
    clean, *noisy = ((row["level"], row[distance]) for row in rows if row["series"] == "noise")
    beyond = [found for level, found in noisy if level >= NOISE]  # less noise is part of the training
    low = f"accuracy of at least {MIN_DIGIT_ACCURACY:.0%} on the {speakers['part']} speakers"
    return {
        low: speakers["accuracy"] >= MIN_DIGIT_ACCURACY,
        f"at most {MAX_FALSE_POSITIVES:.0%} of noise, silence and mangled digits are classified": max(trained)
        <= MAX_FALSE_POSITIVES,
        f"{distance} of real digits is less than of noisy ones": all(clean[1] < found for _, found in noisy),
        f"{distance} rises with every level of noise from {NOISE} on": all(a < b for a, b in pairwise(beyond)),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the rows and their circumstances as JSON; status 1 if a requirement does not hold, 2 for a mistake."""
    parser = argparse.ArgumentParser(description="how good the classifier of spoken digits is")
    parser.add_argument("name")
    parser.add_argument("--data", type=Path, help="a local copy of the dataset")
    parser.add_argument("--device", help="cpu or cuda")
    arguments = parser.parse_args(argv)
    try:
        device = pick_device(arguments.device)
        dataset = data.load(arguments.name, data=arguments.data)
        if dataset.labels is None or not dataset.is_audio:
            raise UserError(f"{dataset.name} has no spoken digits; name a dataset that has, such as audiomnist")
        network = load_or_train_audio_features(dataset, device)
        rows = check_rows(dataset, network)
    except UserError as error:
        print(f"check_audio_classifier: {error}", file=sys.stderr)
        return 2
    found = holds(rows, network.distance)
    about = {
        "kind": FORMAT,
        "config": asdict(network.classifier.config),
        "parameters": sum(p.numel() for p in network.classifier.parameters()),
        "digest": network.digest,
        "training_seconds": network.report.seconds,
    }
    command = f"python scripts/check_audio_classifier.py {arguments.name}{' --data DIR' if arguments.data else ''}"
    facts = {"dataset": dataset.name, "data": dataset.source, "command": command, "network": about, "holds": found}
    print(json.dumps({**facts, "rows": rows, "environment": environment(device)}, indent=1))
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
