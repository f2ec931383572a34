"""Sets of pictures: a catalogue, verified downloads, readers of the published formats, batches and picture files."""

from anytime.data.dataset import Dataset, synthetic
from anytime.data.download import get
from anytime.data.registry import CATALOG, Entry, load

__all__ = ["CATALOG", "Dataset", "Entry", "get", "load", "synthetic"]
