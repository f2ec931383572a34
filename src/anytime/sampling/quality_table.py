"""How many codes for this quality: a table that an evaluation leaves beside the model, and the choice made from it."""

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
    """What was measured of samples or reconstructions of so many codes."""

    codes: int
    fraction: float
    error: float
    """Held-out reconstruction error."""
    fid: float | None = None
    """Of samples; at some lengths, and only where the Inception network measured it."""
    latency_ms: float | None = None
    """For a batch, decoding included; at some lengths."""


@dataclass(frozen=True, kw_only=True)
class QualityTable:
    """A model's lengths from one code to all, and which of them is good enough.

    The quality of k codes is (least D of any length) / D(k), where D is FID if it was measured and the reconstruction error
    otherwise: at quality 0.95 D is at most 1/0.95 of, some 5 % above, the best that this model does. A longer prefix counts for
    at least as good as a shorter one, and quality 1 is all codes.

    The other candidate was the share of the way from one code to all, (D(1) − D(k)) / (D(1) − D(length)). It depends on how bad
    the first code is, which nobody asks for: a D that falls from 0.2 to 0.022 has gone 95 % of the way at 0.031, 40 % above its
    end, and a worse first code would make the same sample look better. A ratio means the same for FID and for the error, and
    needs no FID of a single code. The best length rather than the last is the measure, so that a prior whose last codes do
    harm is not asked for them below quality 1.
    """

    model: str
    """Hash of the model it belongs to."""
    scale: Literal["smoke", "full"]
    rows: tuple[QualityRow, ...]
    data: str
    examples: int
    """Pictures behind the error."""
    samples: int
    """Samples behind FID."""
    batch: int
    """Samples behind the milliseconds."""
    engine: str
    hardware: str
    date: str

    def __post_init__(self) -> None:
        if not self.rows or [row.codes for row in self.rows] != list(range(1, len(self.rows) + 1)):
            raise UserError("a quality table needs a row for every number of codes, 1 first")
        values = [value for row in self.rows for value in (row.error, row.fid) if value is not None]
        if not all(0 <= value < math.inf for value in values):
            raise UserError("a quality table holds errors and FIDs that are no finite numbers of at least 0")

    @property
    def length(self) -> int:
        return len(self.rows)

    @property
    def metric(self) -> Literal["fid", "error"]:
        """FID where it is known at full length and at another, else the error."""
        known = [row for row in self.rows if row.fid is not None]
        return "fid" if len(known) > 1 and known[-1] is self.rows[-1] else "error"

    @property
    def curve(self) -> list[tuple[int, float]]:
        """Numbers of codes and the least D up to there, where it was measured."""
        best_so_far, found = math.inf, list[tuple[int, float]]()
        for row in self.rows:
            value = row.fid if self.metric == "fid" else row.error
            if value is not None:
                best_so_far = min(best_so_far, value)
                found.append((row.codes, best_so_far))
        return found

    def codes_for(self, quality: float) -> int:
        """The fewest codes of that quality.

        Between measured lengths D is taken to be straight, which is careful: such curves sag. Of the lengths below the
        shortest that was measured nothing is known, and none of them is chosen.
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
        """D at that number of codes, straight between measured lengths."""
        curve = self.curve
        for (before, worse), (further, better) in pairwise(curve):
            if before <= codes <= further:
                return worse + (better - worse) * (codes - before) / (further - before)
        return curve[0][1]

    def explain(self, quality: float) -> str:
        """The choice in words."""
        codes, name = self.codes_for(quality), "FID" if self.metric == "fid" else "error"
        best = self.curve[-1][1]
        return (
            f"quality {quality:g} takes {codes} of {self.length} codes ({name} about {self.at(codes):.4g}, at best {best:.4g})"
        )


def lines(table: QualityTable) -> list[str]:
    """The measured lengths for a terminal."""
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
            cells = (
                f"{row.fraction:>8.2f}  {row.codes:>5}  {quality:>7.3f}  {row.error:>8.5f}  {fid:>8}  {row.latency_ms:>8.1f}"
            )
            output.append(cells)
    return output


def check_quality(quality: float) -> None:
    """Refuse what is no quality."""
    if not 0 < quality <= 1:  # NaN is refused too
        raise UserError(f"--quality must be above 0 and at most 1, not {quality}")


def write_table(folder: Path, table: QualityTable) -> Path:
    """Put a table beside the model that it belongs to."""
    storage.write_json(folder / FILE, asdict(table))
    return folder / FILE


def read_table(folder: Path, model: str) -> QualityTable | None:
    """The table beside a model, if there is one; another model's is refused."""
    path = folder / FILE
    if not path.is_file():
        return None
    table = from_dict(QualityTable, read_json(path), str(path))
    if table.model != model:
        raise UserError(
            f"{path} is the table of another model ({table.model[:12]}…, this is {model[:12]}…); "
            f"remove it and measure this one with `anytime evaluate`"
        )
    return table
