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
from anytime.data import Dataset
from anytime.data.cache import cache_folder
from anytime.data.loader import to_float, to_int16
from anytime.data.recordings import Recordings
from anytime.metrics.audio_classifier import BATCH, Recogniser, RecogniserConfig, Recognition, accuracy, features_of, recognised
from anytime.metrics.audio_classifier_training import MANNERS, Training, in_manner, manners_of, train_recogniser
from anytime.training.log import Reporter, Silent
from anytime.training.run_dir import data_digest

ENOUGH = 0.97
"""Accuracy on unheard voices from which a recogniser of digits is believed."""
KIND = "ears 2"


@dataclass(frozen=True, slots=True)
class Ears:
    """A `FeatureNetwork` for 16-bit sounds."""

    recogniser: Recogniser
    digest: str
    spoken: bool  # whether it tells digits apart
    accuracy: float  # on held-out sounds, of voices that neither trained it nor chose how it is trained
    examples: int  # those
    seconds: float  # its training took

    @property
    def name(self) -> str:
        return "own recogniser of digits" if self.spoken else "own network that tells what was done to a sound"

    @property
    def size(self) -> int:
        return self.recogniser.config.features

    @property
    def batch(self) -> int:
        return BATCH

    @property
    def device(self) -> torch.device:
        return self.recogniser.head.weight.device

    @property
    def distance(self) -> str:
        return f"frechet{self.suffix}"

    @property
    def suffix(self) -> str:
        return "_digits" if self.spoken else "_sounds"

    def __call__(self, x: Int16[Tensor, "n 1 time"]) -> Float[Tensor, "n features"]:
        return features_of(self.recogniser, x)

    def recognition(self, features: Float[Tensor, "n features"]) -> Recognition:
        """What it makes of sounds with these features."""
        return recognised(self.recogniser, features.to(self.device))


def ears_for(
    dataset: Dataset, device: torch.device, *, smoke: bool = False, cache: Path | None = None, reporter: Reporter | None = None
) -> Ears:
    """The network for a set of sounds, from the cache or trained now, which takes minutes on a CPU."""
    assert isinstance(dataset.train, Recordings), "ears are for sounds"
    spoken = dataset.labels is not None
    training = Training(epochs=2) if smoke else Training()
    config = RecogniserConfig(widths=(8, 8, 8, 8), features=16) if smoke else RecogniserConfig()
    config = config if spoken else RecogniserConfig(**{**asdict(config), "classes": len(MANNERS)})
    facts: dict[str, Any] = {"kind": KIND, "spoken": spoken, "config": asdict(config), "training": asdict(training)}
    facts |= {"data": data_digest(dataset), "count": len(dataset.train)}
    path = (cache or cache_folder()) / "ears" / f"{dataset.name}-{_name(facts)}.safetensors"
    found = _kept(path, config, spoken, device)
    if found is not None:
        return found
    begun = time.perf_counter()
    network = _trained(dataset, config, training, device, reporter or Silent())
    seconds = time.perf_counter() - begun
    x, labels = unheard(dataset)
    told = {**facts, "accuracy": accuracy(network, x, labels), "examples": len(x), "seconds": seconds}
    try:
        storage.write_tensors(path, network.state_dict(), told)
    except UserError as error:  # costs a minute at the next start, nothing else
        (reporter or Silent()).say(f"the recogniser is not kept: {error}")
    return Ears(network, storage.digest(network.state_dict()), spoken, told["accuracy"], told["examples"], seconds)


def _name(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _kept(path: Path, config: RecogniserConfig, spoken: bool, device: torch.device) -> Ears | None:
    if not path.is_file():
        return None
    try:
        tensors, facts, digest = storage.read_tensors(path)
    except storage.DamagedFileError:  # it can be made again
        return None
    network = Recogniser(config)
    network.load_state_dict(tensors)
    return Ears(network.to(device).eval(), digest, spoken, facts["accuracy"], facts["examples"], facts["seconds"])


def _trained(
    dataset: Dataset, config: RecogniserConfig, training: Training, device: torch.device, reporter: Reporter
) -> Recogniser:
    recordings = dataset.train
    assert isinstance(recordings, Recordings)
    digits = None if dataset.labels is None else dataset.labels.train.to(device)
    x = recordings.tiles() if digits is None else recordings.first_crops()
    reporter.stage("recogniser", 0, training.epochs)
    return train_recogniser(
        x.to(device), digits, training, config, lambda epoch, loss: reporter.progress(epoch, {"loss": loss})
    )


def unheard(dataset: Dataset) -> tuple[Int16[Tensor, "n 1 time"], Int64[Tensor, " n"]]:
    """The held-out sounds with what is to be heard in them; validation voices chose how the network is trained."""
    x = dataset.held_out
    if dataset.labels is not None:
        return x, dataset.labels.validation if dataset.test is None else dataset.labels.test
    labels = manners_of(len(x), 0, 0)
    parts = zip(torch.split(x, BATCH), labels.split(BATCH), strict=True)
    return to_int16(torch.cat([in_manner(to_float(part), manners) for part, manners in parts])), labels
