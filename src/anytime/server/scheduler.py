"""The scheduler: which rows to step or decode next, so that every answer is complete and ready by its deadline.

Every job must get one code and its decode: its mandatory work. Whatever time the deadlines leave goes into more codes. Before
each piece of work the scheduler plans: with how many codes for everybody are all deadlines kept, one job after the other in the
order of their deadlines? That number is the level. Under load it falls, and everybody's sequences become shorter; when the load
ends, it rises again. A job whose mandatory work would make an answer late is refused at once.

There is no torch here: the engine process carries out the decisions.
"""

from __future__ import annotations

import math
import time
from bisect import bisect
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from anytime.server.costs import CostModel
from anytime.server.messages import MARGIN

HEADROOM = 0.4
"""Largest fraction of the time until a deadline that is left to jobs that may still arrive."""
RECENT_SECONDS, RECENT = 1.0, 256
"""How long, and how many, past arrivals tell how many are to come."""
FEW_JOBS = 16
"""Number of jobs up to which every new one leads to a new plan at once."""
MIN_PLAN_SECONDS, MAX_PLANNING = 0.002, 0.05
"""Shortest time that a plan is used, and the largest share of all time that may go into planning."""
MAX_DECODE_SHARE = 0.75
"""Jobs are decoded in one go if that takes at most this share of the time that they take one after the other."""
GROUPS = 3
"""Levels in one plan: the jobs with the earliest deadlines get the first one, those after them may get more."""


@dataclass(eq=False)  # compared by identity
class Job:
    """One request, as the scheduler sees it."""

    number: int
    costs: CostModel
    """Of its model; jobs with the same costs may be stepped together."""
    size: int
    """Rows."""
    target: int
    """Codes requested."""
    deadline: float
    """By the monotonic clock."""
    arrived: float
    count: int = 0
    """Codes available."""
    lead: int = 1
    """Steps until the next code: more than one while a prefix is fed to the prior."""
    every: int | None = None
    """Codes between two refinements that are sent if there is time; None for the final sample alone."""
    shown: int = 0
    """Codes of the last refinement sent."""
    decoded: int = 0
    """Rows of the final sample decoded so far; once positive, the codes are fixed."""
    has_slots: bool = False
    payload: Any = field(default=None, repr=False)
    """What the engine keeps with it."""
    planned: int = field(default=1, init=False)
    """Codes that the plan has time for."""
    decode: float = field(default=0.0, init=False)
    """Seconds to decode the rest of its rows."""
    mandatory: float = field(default=0.0, init=False)
    """Seconds until it has one code and is decoded."""

    def wants(self) -> bool:
        """Return whether it should get another code."""
        return self.decoded == 0 and self.count < self.planned

    def price(self) -> None:
        """Set what is left to do at the present speed of the machine. The first step may have to be taken alone."""
        self.decode = self.costs.decode(self.size - self.decoded)
        self.mandatory = self.decode + (0.0 if self.count else self.costs.step(self.stepped)) + self.join

    @property
    def stepped(self) -> int:
        """Rows that take part in the next step; none if joining samples their first code."""
        return self.size if self.has_slots or self.count or not self.costs.samples_at_join else 0

    @property
    def join(self) -> float:
        """Seconds to give it slots, if it has none."""
        return 0.0 if self.has_slots else self.costs.join(self.size)


class Action(NamedTuple):
    """What to do next: `step` or `decode` these jobs, `refine` one of them, let them `expire`, or `wait` for a job."""

    kind: Literal["step", "decode", "refine", "expire", "wait"]
    jobs: Sequence[Job] = ()


class Scheduler:
    """Decides the order of work of all jobs of an engine."""

    def __init__(self, capacity: int, *, adaptive: bool = True, timer: Callable[[], float] = time.perf_counter) -> None:
        self.capacity = capacity  # slots
        self._timer = timer  # of the planning itself
        self.adaptive = adaptive
        """Whether sequences are shortened. Otherwise jobs are served in order of arrival, and expire at their deadline."""
        self.jobs: list[Job] = []  # the most urgent first
        self._plan_until = -math.inf
        self._arrivals: deque[float] = deque(maxlen=RECENT)
        self._row_steps: dict[CostModel, float] = {}  # seconds of a step for one row, in the batches that there are jobs for

    def refusal(self, job: Job, now: float) -> float | None:
        """Return None if the job can be served, else the seconds after which it could be."""
        if not self.adaptive:
            return None
        job.price()
        ends, late, is_after = now, 0.0, False
        for each in (*self.jobs, None):
            if not is_after and (each is None or self._key(each) > self._key(job)):
                is_after, ends = True, ends + job.mandatory
                late = max(late, ends + job.costs.mean_delay(ends - now) + MARGIN - job.deadline)
            if each is not None:
                ends += each.mandatory
                if is_after:
                    late = max(late, ends + each.costs.mean_delay(ends - now) + MARGIN - each.deadline)
        return late + job.deadline - now if late > 0 else None

    def add(self, job: Job) -> None:
        """Add a job that was not refused."""
        place = bisect(self.jobs, self._key(job), key=self._key)
        near = self.jobs[place - 1 : place] or self.jobs[:1]
        job.planned = job.target if not self.adaptive else min([job.target, *(each.planned for each in near)])  # until planned
        self.jobs.insert(place, job)
        self._arrivals.append(job.arrived)
        if len(self.jobs) <= FEW_JOBS:
            self._plan_until = -math.inf

    def remove(self, job: Job) -> None:
        """Remove a job that is done, cancelled or failed."""
        if job in self.jobs:
            self.jobs.remove(job)

    def reorder(self) -> None:
        """Take notice of changed deadlines or of rows that were decoded."""
        self.jobs.sort(key=self._key)
        self._plan_until = -math.inf

    def _key(self, job: Job) -> tuple[float, int]:
        return job.deadline if self.adaptive else job.arrived, job.number

    def next(self, now: float) -> Action:
        """Return what to do next."""
        if not self.adaptive and (expired := [job for job in self.jobs if now > job.deadline]):
            return Action("expire", expired)
        self._plan(now)
        ready = [job for job in self.jobs if job.count]
        batch = self._batch(now)
        if (late := self._must_decode(ready, batch, now)) is not None:
            return Action("decode", self._decoded_together(late))
        finished = next((job for job in ready if not job.wants()), None)
        if finished is not None and (not batch or self._key(finished) < self._key(batch[0])):
            return Action("decode", self._decoded_together(finished))
        if (shown := self._refinement(ready, now)) is not None:
            return Action("refine", [shown])
        return Action("step", batch) if batch else Action("wait")

    def _plan(self, now: float) -> None:
        """Set the codes that each job has time for: the same for everybody, and more for jobs whose deadlines allow more."""
        if now < self._plan_until or not self.jobs:
            return
        began = self._timer()
        self._price()
        if self.adaptive:
            self._set_levels(now)
        else:
            for job in self.jobs:
                job.planned = job.target
        self._plan_until = now + max(MIN_PLAN_SECONDS, (self._timer() - began) / MAX_PLANNING)

    def _price(self) -> None:
        rows: dict[CostModel, int] = {}
        for job in self.jobs:
            rows[job.costs] = rows.get(job.costs, 0) + job.size
        batches = {costs: min(costs.batch, total) for costs, total in rows.items()}
        self._row_steps = {costs: costs.step(batch) / batch for costs, batch in batches.items()}
        for job in self.jobs:
            job.price()

    def _set_levels(self, now: float) -> None:
        """Find the largest level at which everybody is done in time; repeat for the jobs after the one that limits it."""
        jobs = self.jobs
        rows = [
            (j.count, j.target, j.lead, j.size * self._row_steps[j.costs], j.mandatory, j.deadline, j.decoded) for j in jobs
        ]
        count, target, lead, step, mandatory, deadline, decoded = np.array(rows).T
        once, fraction = np.array([j.costs.delay_line for j in jobs]).T
        left = deadline - MARGIN - now
        expected = self._arrival_rate(now) * np.maximum(left, 0)  # jobs until then
        latest = (1 - HEADROOM * expected / (1 + expected)) * left
        levels = np.arange(1, int(target.max()) + 1)[:, None]
        wanted = np.minimum(levels, target)
        available = np.maximum(count, 1)  # the first code is part of the mandatory work
        steps = np.where((wanted > available) & (decoded == 0), wanted - available + lead - 1, 0)
        work = steps * step + mandatory  # seconds of every job, for every level
        planned, first, spent = np.ones(len(jobs), int), 0, 0.0
        for group in range(GROUPS):
            ends = spent + work[:, first:].cumsum(1)
            late = ends * (1 + fraction[first:]) + once[first:] > latest[first:]
            fits = ~late.any(1)
            level = int(fits.nonzero()[0].max()) if fits.any() else 0
            is_last = group == GROUPS - 1 or level == len(levels) - 1
            last = len(jobs) if is_last else first + int(late[level + 1].argmax()) + 1
            planned[first:last] = wanted[level, first:last]
            spent, first = float(ends[level, last - first - 1]), last
            if first == len(jobs):
                break
        for job, codes in zip(jobs, planned.tolist(), strict=True):
            job.planned = codes

    def _arrival_rate(self, now: float) -> float:
        """Return the jobs that arrive in a second."""
        since = [now - at for at in self._arrivals if now - at < RECENT_SECONDS]
        return len(since) / RECENT_SECONDS if len(since) < RECENT else RECENT / max(1e-3, *since)

    def _batch(self, now: float) -> list[Job]:
        """Return the jobs to step: the most urgent ones that want a code, as many as are worth stepping together."""
        batch, rows, free = list[Job](), 0, self.capacity - sum(job.size for job in self.jobs if job.has_slots)
        for job in self.jobs:
            if not job.wants() or (batch and job.costs is not batch[0].costs) or (not job.has_slots and job.size > free):
                continue
            if batch and (rows + job.size > job.costs.batch or not self._keeps_up(batch[0], rows + job.size, now)):
                break
            batch.append(job)
            rows, free = rows + job.size, free - (0 if job.has_slots else job.size)
        return batch

    def _keeps_up(self, first: Job, rows: int, now: float) -> bool:
        """Return whether the most urgent job still gets its planned codes if that many rows are stepped with it."""
        if not self.adaptive:
            return True
        needed = (first.planned - first.count + first.lead - 1) * first.costs.step(rows) + first.decode
        return now + needed + first.costs.delay(needed) + MARGIN <= first.deadline

    def _must_decode(self, ready: Sequence[Job], batch: Sequence[Job], now: float) -> Job | None:
        """Return the job to decode now, if after another step not all deadlines could be kept."""
        if not batch or not self.adaptive:
            return None
        ends = now + batch[0].costs.step(sum(job.stepped for job in batch)) + sum(job.join for job in batch)
        for job in ready:
            ends += job.decode
            if ends + job.costs.delay(ends - now) + MARGIN > job.deadline:
                return ready[0]
        return None

    def _decoded_together(self, first: Job) -> list[Job]:
        """Return the jobs to decode in one go: finished ones with as many codes, while that is clearly cheaper than apart."""
        together, rows, apart = [first], first.size, first.decode
        for job in self.jobs if first.decoded == 0 else ():
            is_alike = job.costs is first.costs and job.count == first.count and job.decoded == 0 and not job.wants()
            if job is first or not is_alike or rows + job.size > first.costs.chunk:
                continue
            if first.costs.decode(rows + job.size) <= MAX_DECODE_SHARE * (apart + job.decode):
                together.append(job)
                rows, apart = rows + job.size, apart + job.decode
        return together

    def _refinement(self, ready: Sequence[Job], now: float) -> Job | None:
        """Return a job whose new codes should be shown, if there is time to decode them for that."""
        shown = next((job for job in ready if job.every and job.wants() and job.count >= job.shown + job.every), None)
        if shown is None:
            return None
        ends = now + shown.costs.decode(shown.size)
        for job in self.jobs:
            ends += job.mandatory
            if ends + job.costs.delay(ends - now) + MARGIN > job.deadline:
                return None
        return shown
