"""The loop of the engine process: takes requests, carries out the scheduler's decisions, and answers."""

from __future__ import annotations

import os
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anytime.data.loader import to_uint8
from anytime.model import AnytimeModel
from anytime.sampling.engines.base import Request
from anytime.sampling.slots import SlotGroup, SlotTable
from anytime.server.channel import Channel
from anytime.server.costs import CostModel
from anytime.server.messages import (
    Answer,
    Cancel,
    Curves,
    Drain,
    Expired,
    Failed,
    Incoming,
    ModelInfo,
    Ready,
    Refused,
    Stats,
    Submit,
)
from anytime.server.scheduler import Job, Scheduler

STATS_SECONDS = 0.25
"""Between two messages about the engine's state."""
MAX_PARKED = 64
"""Shortened answers whose state is kept for refining."""


@dataclass
class ServedModel:
    """A model, its slots and what its steps cost."""

    model: AnytimeModel
    info: ModelInfo
    table: SlotTable
    costs: CostModel
    curves: Curves


@dataclass
class Work:
    """What the engine keeps with a job."""

    submit: Submit
    served: ServedModel
    group: SlotGroup | None = None
    codes: Tensor | None = None  # of the final sample, once decoding has begun
    parts: list[Tensor] = field(default_factory=list)  # decoded so far


class EngineLoop:
    """Takes requests, works, and answers, between any two steps."""

    def __init__(
        self,
        connection: Connection,
        served: Sequence[ServedModel],
        adaptive: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.channel, self.clock = Channel(connection), clock
        self.served = {each.info.name: each for each in served}
        self.scheduler = Scheduler(min(each.table.capacity for each in served), adaptive=adaptive)
        self.jobs: dict[int, Job] = {}
        self.parked: OrderedDict[int, Work] = OrderedDict()  # shortened answers, refined while there is nothing else to do
        self._stats_at, self._turned_at, self._step_seconds = 0.0, clock(), 0.0

    def run(self) -> None:
        """Serve until the connection is closed."""
        self.channel.send(self._ready())
        while True:
            self.turn()

    def turn(self) -> None:
        """Take what has arrived, then do one piece of work. Its time counts from the end of the last piece."""
        self.channel.flush()
        self._take_arrived()
        action = self.scheduler.next(self.clock())
        if action.kind == "wait":
            if not self._refine_parked():
                self._send_stats()
                self.channel.wait(STATS_SECONDS)
            self._turned_at = self.clock()
            return
        work = {"step": self._step, "decode": self._decode, "refine": self._refine, "expire": self._expire}[action.kind]
        work(list(action.jobs))
        if self.clock() - self._stats_at > STATS_SECONDS:
            self._send_stats()
        self._turned_at = self.clock()

    def _ready(self) -> Ready:
        model = next(iter(self.served.values())).model
        device, threads = model.device, torch.get_num_threads()
        hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {os.cpu_count()} cores"
        infos = tuple(each.info for each in self.served.values())
        curves = tuple(each.curves for each in self.served.values())
        return Ready(infos, hardware, model.engine.name, self._choice(threads), curves)

    def _choice(self, threads: int) -> str:
        each = next(iter(self.served.values()))
        used = f"{threads} of {os.cpu_count()} cores" if each.model.device.type == "cpu" else each.model.engine.name
        return f"{used}, {1000 * each.costs.step(8):.2f} ms a step of 8 rows"

    def _take_arrived(self) -> None:
        """Take all messages that have arrived, cancellations first: they make room for the new requests among them."""
        arrived = self.channel.receive()
        cancelled = {message.number for message in arrived if isinstance(message, Cancel)}
        for message in sorted(arrived, key=lambda message: not isinstance(message, Cancel)):
            if not (isinstance(message, Submit) and message.number in cancelled):
                self._take(message)

    def _take(self, message: Incoming) -> None:
        match message:
            case Submit():
                self._submit(message)
            case Cancel(number):
                if number in self.jobs:
                    self._finish(self.jobs[number])
            case Drain(by):
                for job in self.jobs.values():
                    job.deadline = min(job.deadline, by)
                self.scheduler.reorder()

    def _submit(self, submit: Submit) -> None:
        """Accept a request, or refuse it at once if its deadline cannot be kept."""
        served, now, given = self.served[submit.model], self.clock(), len(submit.prefix[0])
        job = Job(
            submit.number, served.costs, len(submit.rows), submit.codes, submit.deadline - submit.allowance, submit.arrived,
            count=given, lead=given + 1, every=submit.every, payload=Work(submit, served),
        )  # fmt: skip
        self._continue_parked(job, submit)
        possible_after = self.scheduler.refusal(job, now)
        if possible_after is not None:
            self._release(job.payload)
            self.channel.send(Refused(submit.number, possible_after + now - submit.arrived))
            return
        self.jobs[submit.number] = job
        self.scheduler.add(job)

    def _continue_parked(self, job: Job, submit: Submit) -> None:
        """Continue in the slots of the request that this one refines, if they still hold its codes."""
        work = self.parked.get(submit.continues) if submit.continues is not None else None
        if work is None or work.group is None or _settings(work.submit) != _settings(submit):
            return
        codes, given = work.served.table.codes(work.group).cpu(), torch.tensor(submit.prefix)
        if codes.shape[1] >= given.shape[1] and torch.equal(codes[:, : given.shape[1]], given):
            del self.parked[work.submit.number]
            job.payload.group, job.has_slots = work.group, True
            self._count(job)

    def _step(self, jobs: list[Job]) -> None:
        """Step the rows of these jobs. Those without slots join first, which may give them their first code already."""
        new = [job for job in jobs if job.payload.group is None]
        for job in new:
            self._join(job)
        waiting = [job for job in jobs if job.number in self.jobs and (job.has_slots or job.payload.group.position == 0)]
        stepped = sum(job.size for job in waiting)
        if waiting:
            self._step_groups(waiting)
        for job in jobs:
            if job.number in self.jobs:
                job.has_slots = True
                self._count(job)
        self._step_seconds = self.clock() - self._turned_at
        jobs[0].costs.add_step(stepped, self._step_seconds, [job.size for job in new])

    def _join(self, job: Job) -> None:
        submit, served = job.payload.submit, job.payload.served
        while served.table.free < job.size and self.parked:
            self._release(self.parked.popitem(last=False)[1])
        settings = served.model.settings(submit.temperature, None, submit.top_p)
        prefix, rows = torch.tensor(submit.prefix, dtype=torch.long), torch.tensor(submit.rows)
        request = Request(prefix.view(len(rows), -1), rows, submit.seed, settings, served.info.hash)
        self._attempt([job], lambda: setattr(job.payload, "group", served.table.join(request)))

    def _step_groups(self, jobs: list[Job]) -> None:
        """Run one step. If it fails, each job steps by itself, so that only the one at fault does."""
        table: SlotTable = jobs[0].payload.served.table

        def step(some: list[Job]) -> None:
            table.step([job.payload.group for job in some])
            table.wait()

        try:
            step(jobs)
        except Exception:
            failed = [job for job in jobs if not self._attempt([job], lambda job=job: step([job]))]  # type: ignore[misc]
            if len(failed) == len(jobs) > 1:
                raise  # not one request's fault

    def _attempt(self, jobs: list[Job], work: Callable[[], Any]) -> bool:
        """Do some work for these jobs; if it raises, they fail and the engine goes on. Return whether it succeeded."""
        try:
            work()
        except Exception as error:
            for job in jobs:
                self._fail(job, f"{type(error).__name__}: {error}")
            return False
        return True

    def _fail(self, job: Job, reason: str) -> None:
        print(f"request {job.number} failed: {reason}", file=sys.stderr, flush=True)
        self.parked.pop(job.number, None)
        self._finish(job)
        self.channel.send(Failed(job.number, reason))

    def _count(self, job: Job) -> None:
        """Update the number of codes from the job's slots."""
        group: SlotGroup = job.payload.group
        job.count = min(job.target, group.count)
        job.lead = max(1, group.request.codes.shape[1] + 1 - group.position)

    def _decode(self, jobs: list[Job]) -> None:
        """Decode several jobs in one go, or a chunk of one job's rows; answer what is complete."""
        if len(jobs) > 1:
            try:
                self._decode_together(jobs)
            except Exception:  # each by itself, so that only the one at fault fails
                for job in (job for job in jobs if job.number in self.jobs):
                    self._attempt([job], lambda job=job: self._decode_chunk(job))  # type: ignore[misc]
        else:
            self._attempt(jobs, lambda: self._decode_chunk(jobs[0]))

    def _decode_together(self, jobs: list[Job]) -> None:
        """Decode jobs with as many codes and answer them; each fails by itself."""
        codes = torch.cat([self._codes(job) for job in jobs])
        data = jobs[0].payload.served.table.decode(codes)
        self._send(jobs, codes, data, final=True)
        jobs[0].costs.add_decode(len(data), self.clock() - self._turned_at)

    def _decode_chunk(self, job: Job) -> None:
        work: Work = job.payload
        if work.codes is None:
            work.codes = self._codes(job)
        chunk = work.codes[job.decoded : job.decoded + job.costs.chunk]
        work.parts.append(work.served.table.decode(chunk))
        job.decoded += len(chunk)
        if job.decoded < job.size:
            self.scheduler.reorder()
        else:
            codes, data = work.codes, torch.cat(work.parts)
            if work.group is not None and job.count < job.target and len(self.jobs) == 1 and self.scheduler.adaptive:
                self._park(work)
            self._send([job], codes, data, final=True)
        job.costs.add_decode(len(chunk), self.clock() - self._turned_at)

    def _codes(self, job: Job) -> Tensor:
        work: Work = job.payload
        if work.group is None:  # a prefix and no time for more
            return torch.tensor(work.submit.prefix)
        return work.served.table.codes(work.group)[:, : job.count]

    def _refine(self, jobs: list[Job]) -> None:
        """Decode a job's codes so far and send them."""
        (job,) = jobs
        job.shown = job.count

        def work() -> None:
            codes, table = self._codes(job), job.payload.served.table
            data = torch.cat([table.decode(chunk) for chunk in codes.split(job.costs.chunk)])
            self._send([job], codes, data, final=False)

        self._attempt(jobs, work)

    def _send(self, jobs: list[Job], codes: Tensor, data: Tensor, *, final: bool) -> None:
        """Answer jobs whose rows were decoded together; a job with rows that are not finite fails. Final answers end them."""
        is_finite, code_rows = data.isfinite().flatten(1).all(1).cpu().numpy(), codes.int().cpu().numpy()
        kinds = {job.payload.submit.as_bytes for job in jobs}
        arrays, first = {as_bytes: to_host(data, as_bytes) for as_bytes in kinds}, 0
        for job in jobs:
            own, first = slice(first, first + job.size), first + job.size
            if not is_finite[own].all():
                self._fail(job, "ValueError: the sample is not finite")
                continue
            part = arrays[job.payload.submit.as_bytes][own]
            self.channel.send(Answer(job.number, code_rows[own], part, final, self.clock()))
            if final:
                self._finish(job)

    def _expire(self, jobs: list[Job]) -> None:
        for job in jobs:
            self._finish(job)
            self.channel.send(Expired(job.number))

    def _finish(self, job: Job) -> None:
        """Forget a job and free its slots, unless they are parked."""
        self.scheduler.remove(job)
        self.jobs.pop(job.number, None)
        if job.number not in self.parked:
            self._release(job.payload)

    def _park(self, work: Work) -> None:
        """Keep the state of a shortened answer, to refine it while there is nothing else to do."""
        work.codes, work.parts = None, []
        self.parked[work.submit.number] = work
        while len(self.parked) > MAX_PARKED:
            self._release(self.parked.popitem(last=False)[1])

    def _release(self, work: Work) -> None:
        if work.group is not None:
            work.served.table.leave(work.group)
            work.group = None

    def _refine_parked(self) -> bool:
        """Run one step for the newest parked answers that lack codes; return whether there was one."""
        lacking = [w for w in reversed(self.parked.values()) if w.group is not None and w.group.count < w.submit.codes]
        if not lacking:
            return False
        served, rows, groups = lacking[0].served, 0, list[SlotGroup]()
        for work in lacking:
            if (
                work.served is served
                and work.group is not None
                and (not groups or rows + work.group.size <= served.costs.batch)
            ):
                groups.append(work.group)
                rows += work.group.size
        served.table.step(groups)
        served.table.wait()
        return True

    def _send_stats(self) -> None:
        self._stats_at = self.clock()
        jobs = self.scheduler.jobs
        used = sum(job.size for job in jobs if job.has_slots)
        level = sum(job.planned for job in jobs) / len(jobs) if jobs else 0.0
        waiting = sum(not job.has_slots for job in jobs)
        costs = next(iter(self.served.values())).costs
        choice = self._choice(torch.get_num_threads())
        self.channel.send(Stats(len(jobs), waiting, used, self._step_seconds, level, costs.slowdown, choice))


def to_host(data: Tensor, as_bytes: bool) -> np.ndarray:
    """Return samples as an answer holds them: bytes, or float32."""
    array: np.ndarray = (to_uint8(data) if as_bytes else data.float()).cpu().numpy()
    return array


def _settings(submit: Submit) -> tuple[object, ...]:
    """Return everything that determines a request's codes, besides those given."""
    return submit.model, submit.rows, submit.seed, submit.temperature, submit.top_p
