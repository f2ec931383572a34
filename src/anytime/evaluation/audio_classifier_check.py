"""The recogniser of digits itself, measured: on real digits of unheard voices, on sounds that are no digits, and on noise.

python -m anytime.evaluation.audio_classifier_check audiomnist --data DIR    needs the extra `audio`
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
from anytime.data import Dataset
from anytime.data.audio_io import SAMPLE_RATE
from anytime.data.loader import to_float, to_int16
from anytime.evaluation.evaluate_audio import audio_metrics
from anytime.metrics import feature_stats
from anytime.metrics.audio_classifier_training import AudioClassifierTraining, shuffle_segments
from anytime.metrics.audio_features import AUDIO_FEATURES_KIND, MIN_DIGIT_ACCURACY, AudioFeatures, load_or_train_audio_features
from anytime.metrics.feature_stats import compute_statistics
from anytime.metrics.quality import Row, reference_statistics

MAX_FALSE_POSITIVES = 0.05
"""Share of sounds without a digit that may be taken for one."""
NOISE_LEVELS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)
"""Noise laid over real digits, whose RMS is about 0.1."""
TRAINED_NEGATIVES = ("white noise", "silence", "digits backwards", "digits in shuffled pieces of 100 ms")
"""What the network is taught to be no digit; the other kinds it has never heard."""


def evaluate_audio_classifier(dataset: Dataset, audio_features: AudioFeatures, cache: Path | None = None) -> list[Row]:
    """All rows: `voices` of each part, sounds that are `no digit` by kind, and `noise` over held-out digits by level."""
    assert dataset.labels is not None
    parts = {"validation": (dataset.validation, dataset.labels.validation)}
    if dataset.test is not None:
        parts["test"] = dataset.test, dataset.labels.test
    rows = [{"series": "speakers", "part": part, **_accuracy_row(audio_features, *known)} for part, known in parts.items()]
    x, digits = parts.get("test", parts["validation"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        negatives, noise = non_digits(to_float(x)), torch.randn(x.shape)
    for kind, sounds in negatives.items():
        share = audio_features.predictions(audio_features(to_int16(sounds))).recognised
        rows.append(
            {
                "series": "non-digits",
                "kind": kind,
                "in_training": kind in TRAINED_NEGATIVES,
                "classified": share,
                "examples": len(x),
            }
        )
    real = reference_statistics(dataset.published_train, audio_features, cache)
    for level in NOISE_LEVELS:
        noisy = to_int16(to_float(x) + level * noise)
        (found,) = compute_statistics(feature_stats.images("noise", noisy), audio_features)
        rows.append(
            {
                "series": "noise",
                "level": level,
                **_accuracy_row(audio_features, noisy, digits),
                **audio_metrics(found, real, audio_features),
            }
        )
    return rows


def _accuracy_row(audio_features: AudioFeatures, x: Int16[Tensor, "n 1 time"], digits: Int[Tensor, " n"]) -> Row:
    found = audio_features.predictions(audio_features(x))
    scores = {
        "accuracy": found.accuracy_of(digits),
        "classified": found.recognised,
        "confident_accuracy": found.confident_accuracy(digits),
    }
    return {**scores, "examples": len(x)}


def non_digits(x: Float[Tensor, "n 1 time"]) -> dict[str, Float[Tensor, "n 1 time"]]:
    """Sounds that are no digits, as many of each kind as there are digits; by chance, from the global generator."""
    time = torch.arange(x.shape[-1]) / SAMPLE_RATE
    pitch = 80 * 50 ** torch.rand(len(x), 1, 1)  # Hz, 80 to 4,000
    loudness = F.interpolate(F.avg_pool1d(x.abs(), SAMPLE_RATE // 50), size=x.shape[-1], mode="linear")
    return {
        "white noise": 0.1 * torch.randn_like(x),
        "silence": torch.zeros_like(x),
        "digits backwards": x.flip(2),
        "digits in shuffled pieces of 100 ms": shuffle_segments(x, SAMPLE_RATE // 10),
        "digits in shuffled pieces of 200 ms": shuffle_segments(x, SAMPLE_RATE // 5),
        "tones": 0.14 * torch.sin(2 * torch.pi * pitch * time),
        "noise as loud as a digit from moment to moment": loudness * torch.randn_like(x),
    }


def holds(rows: Sequence[Row], distance: str) -> dict[str, bool]:
    """What is asked of the network, and whether it is so."""
    speakers = [row for row in rows if row["series"] == "speakers"][-1]
    trained = [row["classified"] for row in rows if row["series"] == "non-digits" and row["in_training"]]
    clean, *noisy = ((row["level"], row[distance]) for row in rows if row["series"] == "noise")
    ignored = AudioClassifierTraining().noise  # up to here it is taught to hear the same, and distances need not rise
    beyond = [found for level, found in noisy if level >= ignored]
    return {
        f"at least {MIN_DIGIT_ACCURACY:.0%} of the {speakers['part']} voices' digits are heard right": speakers["accuracy"]
        >= MIN_DIGIT_ACCURACY,
        f"at most {MAX_FALSE_POSITIVES:.0%} of noise, silence and mangled digits count as digits": max(trained)
        <= MAX_FALSE_POSITIVES,
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
        if dataset.labels is None or not dataset.is_audio:
            raise UserError(f"{dataset.name} holds no spoken digits: name a set that does, such as audiomnist")
        audio_features = load_or_train_audio_features(dataset, device)
        rows = evaluate_audio_classifier(dataset, audio_features)
    except UserError as error:
        print(f"hearing: {error}", file=sys.stderr)
        return 2
    found = holds(rows, audio_features.distance)
    network: Row = {
        "kind": AUDIO_FEATURES_KIND,
        "config": asdict(audio_features.classifier.config),
        "training": asdict(AudioClassifierTraining()),
    }
    network |= {"parameters": sum(p.numel() for p in audio_features.classifier.parameters()), "digest": audio_features.digest}
    network |= {"training_seconds": audio_features.seconds}
    command = f"python -m anytime.evaluation.audio_classifier_check {arguments.name}{' --data DIR' if arguments.data else ''}"
    facts = {"dataset": dataset.name, "data": dataset.source, "command": command, "network": network, "holds": found}
    print(json.dumps({**facts, "rows": rows, "environment": environment(device)}, indent=1))
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
