"""Datasets: a registry, verified downloads, readers of the published formats, batches, image and audio files."""

from anytime.data.dataset import Dataset
from anytime.data.registry import DATASETS, DatasetInfo, get, load, load_labels
from anytime.data.synthetic import synthetic_audio, synthetic_images

__all__ = ["DATASETS", "Dataset", "DatasetInfo", "get", "load", "load_labels", "synthetic_audio", "synthetic_images"]
