"""The quality table: what an evaluation measured at each number of codes, and the fewest codes for a quality."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from anytime.core import storage
from anytime.core.config import from_dict, read_json
from anytime.core.errors import UserError

FILE = "quality.json"


@dataclass(frozen=True, kw_only=True)
class QualityRow:
    """Measurements of samples and reconstructions with one number of codes."""

    codes: int
    fraction: float
    error: float
    """Held-out reconstruction error."""
    fid: float | None = None
    """Of samples; at some lengths, and only if the Inception network was available."""
    latency_ms: float | None = None
    """Of a batch, decoding included; at some lengths."""


@dataclass(frozen=True, kw_only=True)
class QualityTable:
    """A model's quality at each number of codes.

    The quality of k codes is (least D of any length) / D(k). D is FID if it was measured, else the reconstruction error. At
    quality 0.95, D is about 5 % above the best that the model reaches. Quality 1 is all codes.

    A ratio means the same for FID and for the error, and does not depend on how bad the first code is. It is relative to the
    best length rather than the last, so that last codes that do harm are not used below quality 1.
    """

    model: str
    """Hash of the model."""
    scale: Literal["smoke", "full"]
    rows: tuple[QualityRow, ...]
    data: str
    examples: int
    """Images that the error is averaged over."""
    samples: int
    """Samples that FID is computed from."""
    batch: int
    """Batch size of the latency measurement."""
    engine: str
    hardware: str
    date: str

    def __post_init__(self) -> None:
        if not self.rows or [row.codes for row in self.rows] != list(range(1, len(self.rows) + 1)):
            raise UserError("a quality table needs a row for every number of codes, 1 first")
        values = [value for row in self.rows for value in (row.error, row.fid) if value is not None]
        if not all(0 <= value < math.inf for value in values):
            raise UserError("a quality table needs finite errors and FIDs of at least 0")

    @property
    def length(self) -> int:
        """Full number of codes."""
        return len(self.rows)

    @property
    def metric(self) -> Literal["fid", "error"]:
        """FID if it is known at full length and at another length, else the error."""
        known = [row for row in self.rows if row.fid is not None]
        return "fid" if len(known) > 1 and known[-1] is self.rows[-1] else "error"

    @property
    def curve(self) -> list[tuple[int, float]]:
        """Measured numbers of codes, each with the least D up to there."""
        best_so_far, found = math.inf, list[tuple[int, float]]()
        for row in self.rows:
            value = row.fid if self.metric == "fid" else row.error
            if value is not None:
                best_so_far = min(best_so_far, value)
                found.append((row.codes, best_so_far))
        return found

    def codes_for(self, quality: float) -> int:
        """Return the fewest codes of that quality.

        D is interpolated linearly between measured lengths, which is conservative for a convex curve. No length below the
        shortest measured one is chosen.
        """
        if quality == 1:
            return self.length
        curve = self.curve
        most = curve[-1][1] / quality
        if curve[0][1] <= most:
            return curve[0][0]
        for (codes, worse), (further, better) in pairwise(curve):
            if better <= most:
                return codes + math.ceil((worse - most) / (worse - better) * (further - codes) - 1e-9)
        return self.length

    def at(self, codes: int) -> float:
        """Return D at a number of codes, interpolated linearly between measured lengths."""
        curve = self.curve
        for (before, worse), (further, better) in pairwise(curve):
            if before <= codes <= further:
                return worse + (better - worse) * (codes - before) / (further - before)
        return curve[0][1]

    def explain(self, quality: float) -> str:
        """Return the choice for a quality as a sentence."""
        codes, name = self.codes_for(quality), "FID" if self.metric == "fid" else "error"
        best = self.curve[-1][1]
        return (
            f"quality {quality:g} takes {codes} of {self.length} codes ({name} about {self.at(codes):.4g}, at best {best:.4g})"
        )


def lines(table: QualityTable) -> list[str]:
    """Format the measured lengths for a terminal."""
    metric = "error" if table.metric == "error" else f"FID of {table.samples:,} samples"
    output = [
        f"by {metric}; {table.scale} scale, {table.engine} engine, batch {table.batch}, {table.hardware}",
        "fraction  codes  quality     error       fid        ms",
    ]
    best = table.curve[-1][1]
    for row in table.rows:
        if row.latency_ms is not None:
            fid = "-" if row.fid is None else f"{row.fid:.2f}"
            quality = best / at if (at := table.at(row.codes)) else 1.0
            output.append(
                f"{row.fraction:>8.2f}  {row.codes:>5}  {quality:>7.3f}  {row.error:>8.5f}  {fid:>8}  {row.latency_ms:>8.1f}"
            )
    return output


def check_quality(quality: float) -> None:
    """Refuse a quality outside (0, 1]."""
    if not 0 < quality <= 1:  # NaN is refused too
        raise UserError(f"`quality` must be above 0 and at most 1, not {quality}")


def write_table(folder: Path, table: QualityTable) -> Path:
    """Write a quality table next to its model."""
    storage.write_json(folder / FILE, asdict(table))
    return folder / FILE


def read_table(folder: Path, model: str) -> QualityTable | None:
    """Read the quality table next to a model, if there is one; refuse another model's."""
    path = folder / FILE
    if not path.is_file():
        return None
    table = from_dict(QualityTable, read_json(path), str(path))
    if table.model != model:
        raise UserError(
            f"{path} is the quality table of another model ({table.model[:12]}…, this is {model[:12]}…); "
            f"remove it and run `anytime evaluate` on this one"
        )
    return table
