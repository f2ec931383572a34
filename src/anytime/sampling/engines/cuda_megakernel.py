"""The megakernel engine: the cuda engine, with all steps of up to 8 rows in one cooperative launch.

It is experimental and has to be asked for by name. Batches of more rows, and requests with top k or top p, take the cuda
engine's path. So do all batches where the kernel cannot be compiled or launched, or when a launch has given up; the reason is
logged once. Both paths use the same buffers, so a batch may change from one to the other after any code.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from anytime.sampling.engines.base import ActiveBatch, Request
from anytime.sampling.engines.cuda import Arena, CudaEngine
from anytime.sampling.engines.cuda_step import bucket
from anytime.sampling.kernels import megakernel
from anytime.sampling.kernels.megakernel import Launcher, Megakernel
from anytime.sampling.kernels.nvrtc import KernelError

LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Launches:
    """The kernel on an arena's buffers, and what is known of its launches."""

    kernel: Megakernel
    is_pending: bool = False  # whether a launch has not been checked
    checked: int = 0  # codes of the arena's owner that are known to be right
    stream: torch.cuda.Stream | None = None  # of the last launch


class MegakernelEngine(CudaEngine):
    """Steps of few rows by one launch, everything else as the cuda engine."""

    name = "megakernel"

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._launches: dict[int, Launches] = {}
        self.unusable: dict[int, str] = {}
        """Why the kernel is not used, by batch bucket."""

    def is_warm(self, request: Request) -> bool:
        """Return whether the kernel is loaded, or the graphs are captured that take its place."""
        size = bucket(len(request.rows))
        if not self._is_for_kernel(request):
            return super().is_warm(request)
        return size in self._launches and size in self._arenas and self._decoder.is_warm(size)

    @torch.no_grad()
    def warm_up(self, request: Request) -> None:
        """Compile the kernel and capture a decode, or capture the graphs that take its place."""
        with self._lock:
            if self._launches_of(request) is None:
                super().warm_up(request)
            else:
                self.decode(torch.zeros(len(request.rows), 1, dtype=torch.long, device=self.device))
                self.wait()

    @torch.no_grad()
    def step(self, batch: ActiveBatch, times: int = 1) -> None:
        """Queue one launch of all these steps."""
        with self._lock:
            launches = self._launches_of(batch.request) if times > 0 else None
            if launches is None:
                super().step(batch, times)
                return
            arena = self._arena(len(batch.request.rows))
            if arena.owner is None or arena.owner() is not batch:
                self._swap_in(arena, batch)  # which may find that a launch for the owner before has given up
                launches.checked = batch.steps_done
            if self._is_for_kernel(batch.request) and self._launch(launches, times):
                batch.steps_done += times
            else:
                super().step(batch, times)

    @torch.no_grad()
    def codes(self, batch: ActiveBatch) -> Int[Tensor, "n count"]:
        """Return a copy of all codes available. It waits for the launch, whose codes count only if it has not given up."""
        with self._lock:
            arena = self._arenas.get(bucket(len(batch.request.rows)))
            if arena is not None and arena.owner is not None and arena.owner() is batch:
                self._check(arena)
            return super().codes(batch)

    def release(self) -> None:
        """Free all arenas and graphs, and the kernels' messages."""
        with self._lock:
            super().release()
            self._launches.clear()

    def _is_for_kernel(self, request: Request) -> bool:
        size = bucket(len(request.rows))
        return size <= megakernel.MAX_ROWS and size not in self.unusable and not request.settings.filters

    def _launches_of(self, request: Request) -> Launches | None:
        """Return the kernel for a request, which is compiled and tried out first, or None."""
        if not self._is_for_kernel(request):
            return None
        arena, size = self._arena(len(request.rows)), bucket(len(request.rows))
        if size not in self._launches:
            self._swap_out(arena)
            try:
                self._launches[size] = self._try_out(arena)
            except KernelError as error:
                self._give_up(size, str(error))
        return self._launches.get(size) if size not in self.unusable else None

    def _try_out(self, arena: Arena) -> Launches:
        """Build the kernel and run one step on buffers that nobody owns."""
        prior, buffers = self.step_once.prior, arena.buffers
        launches = Launches(Megakernel(self._build(len(buffers.position)), prior, buffers))
        buffers.position.zero_()
        if self._launch(launches, 1):
            self._wait_for(launches)
            if launches.kernel.has_failed:
                raise KernelError("its blocks do not receive each other's messages")
        return launches

    def _build(self, rows: int) -> Launcher:
        prior = self.step_once.prior
        processors = torch.cuda.get_device_properties(self.device).multi_processor_count
        shape = megakernel.fit(prior.config, rows, prior.tokens.weight.dtype, processors)
        return megakernel.compile_kernel(shape, self.device)

    def _launch(self, launches: Launches, times: int) -> bool:
        """Queue steps; return whether the driver has taken the launch."""
        try:
            launches.kernel.launch(times)
        except KernelError as error:
            self._give_up(launches.kernel.rows, str(error))
            return False
        launches.is_pending = True
        launches.stream = torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None
        return True

    def _wait_for(self, launches: Launches) -> None:
        if launches.stream is not None:
            launches.stream.synchronize()
        launches.is_pending = False

    def _check(self, arena: Arena) -> None:
        """Wait for the launches on an arena. If one has given up, its owner's codes since the last check are computed again."""
        size, batch = len(arena.buffers.position), arena.owner() if arena.owner is not None else None
        launches = self._launches.get(size)
        if launches is None or not launches.is_pending:
            return
        self._wait_for(launches)
        if launches.kernel.has_failed:
            self._give_up(size, "a launch has waited too long for its own messages")
            if batch is not None:
                self._compute_again(arena, batch, launches.checked)
        elif batch is not None:
            launches.checked = batch.steps_done

    def _compute_again(self, arena: Arena, batch: ActiveBatch, right: int) -> None:
        """Step the batch on the cuda engine's path from its first code that is not known to be right."""
        n, steps_done = len(batch.request.rows), batch.steps_done
        codes = arena.buffers.codes[:n, : max(right, batch.prefix_length)].long().cpu()
        arena.owner = None
        batch.request, batch.steps_done, batch.state = replace(batch.request, codes=codes), 0, None
        super().step(batch, steps_done)

    def _give_up(self, size: int, reason: str) -> None:
        """Use the cuda engine's path for this batch size from now on."""
        self.unusable[size] = reason
        LOG.info("batches of up to %d rows use the cuda engine's path, as the megakernel cannot be used: %s", size, reason)

    def _evict(self, arena: Arena) -> None:
        self._check(arena)
        super()._evict(arena)

    def _swap_out(self, arena: Arena) -> None:
        self._check(arena)
        super()._swap_out(arena)
