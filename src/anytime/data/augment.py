"""Augmentations addressed by index; index 0 is always the data unchanged.

Images: index 2k shifts by `SHIFTS[k]`, index 2k + 1 does the same and then flips horizontally (hflip).
Recordings: every other index has its own crop positions and its own speeds (speed_perturb).
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Int16, UInt8
from torch import Tensor

from anytime.core.random import uniform
from anytime.data.recordings import Recordings

SHIFTS = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))
"""Pixels down and to the right."""
NUM_AUGMENTATIONS = 2 * len(SHIFTS)
"""Number of augmentations of an image."""
_CROPS, _SPEEDS = 1, 2  # separate random counters: `keep` is sampled from the same seed


def augment_images(x: UInt8[Tensor, "n channel height width"], index: int) -> UInt8[Tensor, "n channel height width"]:
    """Return augmentation `index` of the images; edge pixels fill the gap that a shift leaves."""
    down, right = SHIFTS[index // 2]
    rows, columns = (torch.arange(side, device=x.device) for side in x.shape[-2:])
    shifted = x[..., (rows - down).clamp(0, len(rows) - 1), :][..., (columns - right).clamp(0, len(columns) - 1)]
    return shifted.flip(-1) if index % 2 else shifted


def augment_recordings(recordings: Recordings, seed: int, index: int, speed_perturb: float) -> Int16[Tensor, "n 1 crop"]:
    """Return augmentation `index` of all recordings, cut into consecutive crops."""
    if index == 0:
        return recordings.tiles()
    all_rows = torch.arange(len(recordings), device=recordings.device)
    return recordings.tiles(*crop_positions_and_speeds(all_rows, seed, index, speed_perturb))


def crop_positions_and_speeds(
    rows: Int[Tensor, " batch"], seed: int, index: int, speed_perturb: float
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"] | None]:
    """Sample a crop position in (0, 1) and a speed for each recording: a function of (seed, index, row) alone.

    Speeds lie between 1 / (1 + speed_perturb) and 1 + speed_perturb, uniform on a logarithmic scale.
    """
    position = uniform(seed, _CROPS, index, rows)
    if not speed_perturb:
        return position, None
    return position, (1 + speed_perturb) ** (2 * uniform(seed, _SPEEDS, index, rows) - 1)
