"""The pieces of the GPU queue packed into allocations: a machine for 28 minutes, two pieces side by side where they fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from anytime.experiments.registry import find
from run_queue import DECIDE, PIECES, Piece

LIMIT, ALLOCATION, SHIPPING = 28, 27.0, 2.5
"""Minutes of an allocation: at most, as planned, and of those for copying data to the machine."""
SIDE_BY_SIDE = 1.5
"""A piece beside another takes this many times as long. Assumed: two trainings at once keep an H200 busy."""


@dataclass
class Allocation:
    """Pieces on one machine: first those that run alone, then lanes side by side."""

    alone: list[Piece] = field(default_factory=list)
    lanes: tuple[list[Piece], list[Piece]] = field(default_factory=lambda: ([], []))

    @property
    def minutes(self) -> float:
        """Return the estimated minutes, with copying.

        >>> pieces = [Piece("a", "fid", "cifar10", "", 8), Piece("b", "fid", "cifar10", "", 4)]
        >>> Allocation(lanes=([pieces[0]], [])).minutes, Allocation(lanes=([pieces[0]], [pieces[1]])).minutes
        (10.5, 12.5)
        """
        shorter, longer = sorted(sum(piece.minutes for piece in lane) for lane in self.lanes)
        return SHIPPING + sum(piece.minutes for piece in self.alone) + longer + (SIDE_BY_SIDE - 1) * shorter

    @property
    def beside(self) -> list[Piece]:
        """Return the pieces of both lanes, in the order in which they start.

        >>> pieces = [Piece(name, "fid", "cifar10", "", 8) for name in "abc"]
        >>> [piece.name for piece in Allocation(lanes=(pieces[:2], pieces[2:])).beside]
        ['a', 'c', 'b']
        """
        starts = [
            (sum(piece.minutes for piece in lane[:index]), number, index)
            for number, lane in enumerate(self.lanes)
            for index in range(len(lane))
        ]
        return [self.lanes[number][index] for _, number, index in sorted(starts)]

    @property
    def pieces(self) -> list[Piece]:
        """Return all pieces, in the order in which they start."""
        return [*self.alone, *self.beside]

    def add(self, chain: Sequence[Piece]) -> bool:
        """Add pieces that follow each other on one machine, if they fit."""
        lane = self.alone if chain[0].alone else min(self.lanes, key=lambda lane: sum(piece.minutes for piece in lane))
        lane.extend(chain)
        if self.minutes > ALLOCATION:
            del lane[-len(chain) :]
            return False
        return True


def chains(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Return pieces with those that need their runs, in order."""
    found: list[list[Piece]] = []
    for piece in pieces:
        if (own := next((chain for chain in found if chain[-1].name == piece.after), None)) is not None:
            own.append(piece)
        else:
            found.append([piece])
    return found


def allocations(pieces: Sequence[Piece] = PIECES) -> list[Allocation]:
    """Put every chain into the first allocation with room, by value.

    Pieces of the whole experiment that decide other pieces come last, in an allocation after those.
    """
    found: list[Allocation] = []
    for chain in chains(pieces):
        open_to_it = found[-1:] if chain[0].name.endswith("-decide") else found
        if not any(allocation.add(chain) for allocation in open_to_it):
            found.append(Allocation())
            found[-1].add(chain)
    return found


def decided(done: Sequence[Piece]) -> list[str]:
    """Return the experiments that these pieces suffice to decide, with the dataset where there are several."""
    measured = {(piece.experiment, piece.dataset, run, piece.seeds) for piece in done for run in piece.only.split(",")}
    whole = [f"{piece.experiment}, {piece.dataset}" for piece in done if not piece.only]
    places = [(name, find(name).datasets[0]) for name in DECIDE] + [("fid", "celeba")]
    complete = [
        f"{name}, {dataset}" for name, dataset in places
        if {(run, seed) for run in find(name).runs for seed in "01"} <= {
            (run, seeds) for experiment, at, run, seeds in measured if at == dataset and experiment in GROUPS[name]
        }
    ]  # fmt: skip
    return whole + complete


SHARED = ({"fid", "objective"}, {"regularization", "tailored", "priors"})
"""Experiments of one schedule that share their measurements."""
GROUPS = {name: next((group for group in SHARED if name in group), {name}) for name in DECIDE}
