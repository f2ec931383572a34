"""What the web process and the engine process say to each other. No torch: the web process does not import it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

HEADER_BYTES = 4
"""Length of a message, big-endian, as `multiprocessing.connection` writes it."""
MARGIN = 0.001
"""Seconds before its deadline that an answer leaves the engine, at the latest: it must still be encoded and sent."""


@dataclass(frozen=True, slots=True)
class Curves:
    """Seconds by number of rows, on a quiet machine, and the threads they were measured with."""

    step: dict[int, float]
    decode: dict[int, float]
    """With the copy to the host."""
    threads: int
    join: dict[int, float] = field(default_factory=lambda: {1: 0.0})
    """To give a new request slots."""
    samples_at_join: bool = False
    """Whether a new request has its first code by then; otherwise its first step samples it."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How to start an engine process."""

    models: tuple[str, ...]
    """Bundled names or directories."""
    device: str | None = None
    engine: str | None = None
    precision: str | None = None
    slots: int | None = None
    """Rows in memory at once; None for a number that suits the device."""
    adaptive: bool = True
    """Whether sequences are shortened under load."""
    curves: tuple[Curves, ...] = ()
    """What another engine on this machine has measured for each model; empty to measure."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that the engine serves."""

    name: str
    dataset: str
    hash: str
    length: int
    codebook_size: int
    shape: tuple[int, ...]
    sample_rate: int | None
    """Of audio; None for images."""
    temperature: float
    quality: tuple[float | None, ...]
    """Quality by number of codes, 1 first; None where it is not measured. Empty without a quality table."""
    step_ms: float
    """One step of one row, as calibrated."""
    decode_ms: float
    slots: int
    """Rows that fit into memory, the most that a request may have."""


@dataclass(frozen=True, slots=True)
class Submit:
    """A request for rows of one model."""

    number: int
    model: str
    rows: tuple[int, ...]
    """Row numbers."""
    seed: int
    prefix: tuple[tuple[int, ...], ...]
    """Codes given for each row; all rows have as many."""
    codes: int
    """Codes requested."""
    deadline: float
    """By the monotonic clock, which all processes of a machine share."""
    arrived: float
    temperature: float | None = None
    top_p: float | None = None
    every: int | None = None
    """Codes between two refinements; None for the final sample alone."""
    as_bytes: bool = False
    """Whether images are sent as bytes instead of floats."""
    continues: int | None = None
    """Number of the request whose rows these are, whose state may still be in its slots."""
    allowance: float = 0.0
    """Seconds that the web process may need, beyond the usual: the engine is done that long before the deadline."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """The client has gone."""

    number: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Finish everything by this time."""

    by: float


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine takes requests."""

    models: tuple[ModelInfo, ...]
    hardware: str
    engine: str
    choice: str
    """Threads and speed, in one line."""
    curves: tuple[Curves, ...]


@dataclass(frozen=True, slots=True)
class Unable:
    """The engine cannot start: a user's mistake, in one sentence."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The deadline cannot be kept."""

    number: int
    possible_after: float
    """Seconds from arrival until an answer would be ready."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The request failed by itself: an error, or samples that are not finite."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Expired:
    """The deadline passed before the answer was ready; only without adaptation."""

    number: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete sample: a refinement, or the final one."""

    number: int
    codes: np.ndarray  # [n, count], int32
    data: np.ndarray  # [n, ...], float32, or uint8 for images as bytes
    final: bool
    sent_at: float
    """By the monotonic clock."""


@dataclass(frozen=True, slots=True)
class Stats:
    """The state of the engine, sent a few times a second while it works, and as a sign of life."""

    jobs: int
    waiting: int
    slots_used: int
    step_seconds: float
    level: float
    """Mean number of codes that the plan has time for."""
    slowdown: float
    choice: str


Incoming = Submit | Cancel | Drain
Outgoing = Ready | Unable | Refused | Failed | Expired | Answer | Stats
