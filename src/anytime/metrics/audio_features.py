"""The network that sets of sounds are compared by: trained when it is first needed, kept in the cache with its accuracy.

Spoken digits have a recogniser of digits, whose distance is `frechet_digits`; other sounds a network that tells what was done
to them, whose distance is `frechet_sounds`. Neither is FID.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int16, Int64
from torch import Tensor

from anytime.core import storage
from anytime.core.errors import UserError
from anytime.core.progress import Reporter, SilentReporter
from anytime.data import Dataset
from anytime.data.download import cache_dir
from anytime.data.loader import to_float, to_int16
from anytime.data.recordings import Recordings
from anytime.metrics.audio_classifier import (
    BATCH,
    AudioClassifier,
    AudioClassifierConfig,
    AudioPredictions,
    accuracy,
    features_of,
    recognised,
)
from anytime.metrics.audio_classifier_training import (
    TRANSFORMS,
    AudioClassifierTraining,
    apply_transforms,
    sample_transforms,
    train_audio_classifier,
)
from anytime.training.run_dir import data_digest

MIN_DIGIT_ACCURACY = 0.97
"""Accuracy on unheard voices from which a recogniser of digits is believed."""
AUDIO_FEATURES_KIND = "ears 2"


@dataclass(frozen=True, slots=True)
class AudioFeatures:
    """A `FeatureNetwork` for 16-bit sounds."""

    classifier: AudioClassifier
    digest: str
    spoken_digits: bool  # whether it tells digits apart
    accuracy: float  # on held-out sounds, of voices that neither trained it nor chose how it is trained
    examples: int  # those
    seconds: float  # its training took

    @property
    def name(self) -> str:
        return "own recogniser of digits" if self.spoken_digits else "own network that tells what was done to a sound"

    @property
    def size(self) -> int:
        return self.classifier.config.features

    @property
    def batch(self) -> int:
        return BATCH

    @property
    def device(self) -> torch.device:
        return self.classifier.head.weight.device

    @property
    def distance(self) -> str:
        return f"frechet{self.suffix}"

    @property
    def suffix(self) -> str:
        return "_digits" if self.spoken_digits else "_audio"

    def __call__(self, x: Int16[Tensor, "n 1 time"]) -> Float[Tensor, "n features"]:
        return features_of(self.classifier, x)

    def predictions(self, features: Float[Tensor, "n features"]) -> AudioPredictions:
        """What it makes of sounds with these features."""
        return recognised(self.classifier, features.to(self.device))


def load_or_train_audio_features(
    dataset: Dataset, device: torch.device, *, smoke: bool = False, cache: Path | None = None, reporter: Reporter | None = None
) -> AudioFeatures:
    """The network for a set of sounds, from the cache or trained now, which takes minutes on a CPU."""
    assert isinstance(dataset.train, Recordings), "ears are for sounds"
    spoken_digits = dataset.labels is not None
    training = AudioClassifierTraining(epochs=2) if smoke else AudioClassifierTraining()
    config = AudioClassifierConfig(widths=(8, 8, 8, 8), features=16) if smoke else AudioClassifierConfig()
    config = config if spoken_digits else AudioClassifierConfig(**{**asdict(config), "classes": len(TRANSFORMS)})
    facts: dict[str, Any] = {
        "kind": AUDIO_FEATURES_KIND,
        "spoken_digits": spoken_digits,
        "config": asdict(config),
        "training": asdict(training),
    }
    facts |= {"data": data_digest(dataset), "count": len(dataset.train)}
    path = (cache or cache_dir()) / "audio_features" / f"{dataset.name}-{_name(facts)}.safetensors"
    found = _load_cached(path, config, spoken_digits, device)
    if found is not None:
        return found
    started = time.perf_counter()
    network = _train(dataset, config, training, device, reporter or SilentReporter())
    seconds = time.perf_counter() - started
    x, labels = held_out_examples(dataset)
    stored_facts = {**facts, "accuracy": accuracy(network, x, labels), "examples": len(x), "seconds": seconds}
    try:
        storage.write_tensors(path, network.state_dict(), stored_facts)
    except UserError as error:  # costs a minute at the next start, nothing else
        (reporter or SilentReporter()).say(f"the recogniser is not kept: {error}")
    return AudioFeatures(
        network,
        storage.digest(network.state_dict()),
        spoken_digits,
        stored_facts["accuracy"],
        stored_facts["examples"],
        seconds,
    )


def _name(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _load_cached(path: Path, config: AudioClassifierConfig, spoken_digits: bool, device: torch.device) -> AudioFeatures | None:
    if not path.is_file():
        return None
    try:
        tensors, facts, digest = storage.read_tensors(path)
    except storage.DamagedFileError:  # it can be made again
        return None
    network = AudioClassifier(config)
    network.load_state_dict(tensors)
    return AudioFeatures(
        network.to(device).eval(), digest, spoken_digits, facts["accuracy"], facts["examples"], facts["seconds"]
    )


def _train(
    dataset: Dataset, config: AudioClassifierConfig, training: AudioClassifierTraining, device: torch.device, reporter: Reporter
) -> AudioClassifier:
    recordings = dataset.train
    assert isinstance(recordings, Recordings)
    digits = None if dataset.labels is None else dataset.labels.train.to(device)
    x = recordings.tiles() if digits is None else recordings.first_crops()
    reporter.stage("recogniser", 0, training.epochs)
    return train_audio_classifier(
        x.to(device), digits, training, config, lambda epoch, loss: reporter.progress(epoch, {"loss": loss})
    )


def held_out_examples(dataset: Dataset) -> tuple[Int16[Tensor, "n 1 time"], Int64[Tensor, " n"]]:
    """The held-out sounds with what is to be heard in them; validation voices chose how the network is trained."""
    x = dataset.held_out
    if dataset.labels is not None:
        return x, dataset.labels.validation if dataset.test is None else dataset.labels.test
    labels = sample_transforms(len(x), 0, 0)
    parts = zip(torch.split(x, BATCH), labels.split(BATCH), strict=True)
    return to_int16(torch.cat([apply_transforms(to_float(part), transforms) for part, transforms in parts])), labels
