"""Sets of pictures: a catalogue, verified downloads, readers of the published formats, batches and picture files."""

from anytime.data.dataset import Dataset, synthetic_images
from anytime.data.download import get
from anytime.data.registry import DATASETS, DatasetInfo, load

__all__ = ["DATASETS", "Dataset", "DatasetInfo", "get", "load", "synthetic_images"]
