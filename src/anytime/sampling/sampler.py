"""The sampler: chooses and builds the engine, keeps its latency estimates, checks requests and runs them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, SupportsIndex

import torch
from jaxtyping import Integer, Shaped
from torch import Tensor

from anytime.autoencoders.vqvae import VQVAE
from anytime.core.device import total_memory
from anytime.core.errors import UserError, warn
from anytime.priors import PriorNetwork
from anytime.sampling.budget import WARM_UP_TOLERANCE, Budget, DeadlineWarning, whole_number
from anytime.sampling.engines.base import Engine, Request, fixed_mode
from anytime.sampling.engines.registry import build_engine
from anytime.sampling.gumbel import SamplingSettings
from anytime.sampling.latency import LatencyEstimate
from anytime.sampling.microbatches import Microbatches
from anytime.sampling.sample import Sample
from anytime.sampling.sampling_bar import sampling_bar
from anytime.sampling.session import Progress, Session
from anytime.sampling.threads import ThreadChoice, adapt_to_process

MAX_ROWS = 1 << 31  # row numbers are hashed as int32
MAX_SEED = 1 << 63
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class Sampler:
    """Samples from a prior and decodes. Build it once; `use` changes the engine, which is built again if the weights change."""

    def __init__(self, prior: PriorNetwork, autoencoder: VQVAE, weights_hash: Callable[[], str]) -> None:
        self.prior, self.autoencoder = prior, autoencoder
        self.latencies: dict[int, LatencyEstimate] = {}  # of this engine, by batch size
        self._weights_hash = weights_hash
        self._choice: tuple[str | None, str | None] = ("eager", None)
        self._engine: Engine | None = None  # built on first use
        self._hash: str | None = None  # of the engine's weights
        self._process = adapt_to_process()  # that the engine was built in

    def __getstate__(self) -> dict[str, Any]:
        """Copy and pickle without the engine, whose packed weights and ONNX sessions cannot be; it is built again on use."""
        return self.__dict__ | {"latencies": {}, "_engine": None, "_hash": None}

    def begin(self, budget: Budget) -> float:
        """Build the engine if needed, which does not count towards a deadline; return the time at which a request begins."""
        began, before = time.perf_counter(), self._engine
        _ = self.hash, self.engine
        now = time.perf_counter()
        is_built = self._engine is not before
        if is_built and budget.within is not None and now - began > WARM_UP_TOLERANCE * budget.within:
            seconds = f"{now - began:.3g} s before `within` began"
            warn(f"the {self.engine.name} engine was built for the first request: {seconds}", DeadlineWarning)
        return now

    @property
    def engine(self) -> Engine:
        """The engine, built for the device that the weights are on, and again in a forked process."""
        process, device = adapt_to_process(), self.autoencoder.device
        if self._engine is None or self._engine.device != device or self._process != process:
            self.prior.eval()
            self.autoencoder.eval()
            self.latencies, self._process, self._hash = {}, process, self._weights_hash()
            with fixed_mode(device):
                self._engine = build_engine(*self._choice, self.prior, self.autoencoder)
        return self._engine

    @property
    def hash(self) -> str:
        """Hash of the weights as they are now; if they have changed, the engine is built again."""
        found = self._weights_hash()
        if found != self._hash:
            self.reset()
            self._hash = found
        return found

    def use(self, engine: str | None, precision: str | None) -> None:
        """Choose another engine; None is the fastest for the device."""
        self._choice = (engine, precision)
        self.reset()

    def reset(self) -> None:
        """Forget the engine, which may hold copies of the weights."""
        self._engine = self._hash = None

    def request(
        self, n: int, seed: SupportsIndex, settings: SamplingSettings, prefix: Integer[Tensor, "given k"] | None, max_codes: int
    ) -> Request:
        """Return a checked request for `n` rows that start with the prefix."""
        n, seed = self.check_memory(check_rows(n)), check_seed(seed, "`seed`")
        if prefix is None:
            prefix = torch.empty(1, 0, dtype=torch.long, device="cpu")
        self.check_codes(prefix, "`prefix`")
        if len(prefix) not in (1, n):
            raise UserError(f"`prefix` must have 1 row or {n} rows, one for each sample, not {len(prefix)}")
        self.check_prefix(prefix, max_codes)
        return Request(prefix.cpu().long().expand(n, -1), torch.arange(n, device="cpu"), seed, settings, self.hash)

    def check_memory(self, n: int) -> int:
        """Return a number of rows; refuse it if their samples alone do not fit into the device's memory."""
        device = self.autoencoder.device
        needed, memory = n * 4 * math.prod(self.autoencoder.config.shape), total_memory(device)
        if needed > memory:
            owner = "GPU" if device.type == "cuda" else "machine"
            sizes = f"{needed / 1e9:,.0f} GB of samples, and this {owner} has {memory / 1e9:,.0f} GB"
            raise UserError(f"`n` of {n:,} makes {sizes}; write shards with `anytime sample -n {n} --out DIR`, or lower `n`")
        return n

    def check_prefix(self, prefix: Integer[Tensor, "given k"], max_codes: int) -> None:
        """Refuse a prefix of wrong codes, or of more codes than requested."""
        self.check_codes(prefix, "`prefix`")
        if prefix.shape[1] > max_codes:
            raise UserError(f"`prefix` has {prefix.shape[1]} codes, more than the {max_codes} requested; raise `codes`")

    def check_request(self, request: Request, name: Callable[[str], str]) -> Request:
        """Return a request made of an earlier sample or session; refuse wrong codes, rows and seeds.

        `name` returns how an error names a field.
        """
        codes, rows = request.codes, request.rows
        self.check_codes(codes, name("codes"))
        if rows.dtype not in INTEGERS or rows.shape != (len(codes),):
            raise UserError(f"{name('rows')} must be {len(codes)} integers, one for each row of codes, not {_describe(rows)}")
        if not len(rows) or int(rows.min()) < 0 or int(rows.max()) >= MAX_ROWS:
            raise UserError(f"{name('rows')} must be at least one row number between 0 and {MAX_ROWS - 1}")
        seed = check_seed(request.seed, name("seed"))
        return Request(codes.cpu().long(), rows.cpu().long(), seed, request.settings, request.model)

    def check_codes(self, codes: Shaped[Tensor, "..."], name: str) -> None:
        """Refuse codes of a wrong type, shape or range."""
        length, codebook_size = self.prior.length, self.prior.codebook_size
        if not isinstance(codes, Tensor):
            raise UserError(f"{name} must be a tensor, not {type(codes).__name__}")
        if codes.dtype not in INTEGERS:
            raise UserError(f"{name} must be integers, not {_describe(codes)}")
        if codes.ndim != 2 or codes.shape[1] > length:
            raise UserError(f"{name} must be [batch, up to {length}], not {tuple(codes.shape)}")
        if codes.numel() and not (int(codes.min()) >= 0 and int(codes.max()) < codebook_size):
            bad = int(codes[(codes < 0) | (codes >= codebook_size)][0])
            raise UserError(f"{name} has the code {bad}; this model's codes run from 0 to {codebook_size - 1}")

    def session(self, request: Request) -> Session:
        """Return a session on the engine, which ends when the weights change."""
        return Session(self.engine, self.latency(len(request.rows)), self.prior.length, request, self._leave_training)

    def _leave_training(self) -> str:
        """Leave the training mode, whose dropout would change the codes; return the hash of the weights."""
        if self.prior.training or self.autoencoder.training:
            self.prior.eval()
            self.autoencoder.eval()
        return self._weights_hash()

    def _start(self, request: Request) -> Session:
        """Return the session of a request that runs at once."""
        return Session(self.engine, self.latency(len(request.rows)), self.prior.length, request)

    def latency(self, rows: int) -> LatencyEstimate:
        """Return the latency estimate of a batch size, with the choice of threads on a CPU."""
        engine = self.engine
        if rows not in self.latencies:
            self.latencies[rows] = LatencyEstimate(ThreadChoice() if engine.device.type == "cpu" else None)
        return self.latencies[rows]

    def run(self, request: Request, budget: Budget, started: float, progress: Progress | None) -> Sample:
        """Run a request in microbatches that fit into memory."""
        with sampling_bar(progress, budget.codes, len(request.rows), self.engine.device) as shown:
            return Microbatches(
                engine=self.engine, start=self._start, request=request, budget=budget, started=started, progress=shown
            ).run()


def check_rows(n: int) -> int:
    """Return a number of rows; refuse one out of range."""
    n = whole_number(n, "`n`")
    if n < 1:
        raise UserError(f"`n` must be at least 1, not {n}")
    if n >= MAX_ROWS:
        raise UserError(f"`n` must be below {MAX_ROWS}, not {n}")
    return n


def check_seed(seed: SupportsIndex, name: str) -> int:
    """Return a seed; refuse one out of range."""
    number = whole_number(seed, name)
    if not 0 <= number < MAX_SEED:
        raise UserError(f"{name} must be between 0 and 2^63 - 1, not {number}")
    return number


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
