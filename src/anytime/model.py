"""AnytimeModel: autoencoder and prior as one thing to load, sample and save.

x -> encode -> codes -> decode -> x          any prefix of the codes decodes to a complete x
seed -> sample -> codes -> decode -> x       stop after any code
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime import priors
from anytime.autoencoders.quantizer import QuantizerConfig
from anytime.autoencoders.vqvae import VQVAE, AutoencoderConfig
from anytime.core import quantized_weights, storage
from anytime.core.config import from_dict, read_json, to_dict
from anytime.core.device import pick_device
from anytime.core.errors import UserError, out_of_memory, warn
from anytime.models.registry import CONFIG, WEIGHTS, locate
from anytime.priors.transformer import TransformerConfig
from anytime.sampling.budget import Budget, LatencyEstimate, MemoryWarning, code_count
from anytime.sampling.engines.base import CPU_DECODE_BATCH, Engine, Request
from anytime.sampling.engines.eager import EagerEngine
from anytime.sampling.engines.registry import build
from anytime.sampling.gumbel import SamplingSettings, check_temperature
from anytime.sampling.quality_table import FILE as QUALITY_FILE
from anytime.sampling.quality_table import QualityTable, check_quality, read_table, write_table
from anytime.sampling.sample import Sample
from anytime.sampling.session import Progress, Session, read_session

BLOCK = EagerEngine.block
CODELESS_KINDS = {"vae": "a VAE, which has latents", "density": "a density model, which has real numbers"}  # kinds of folders
MAX_ROWS = 1 << 31  # their numbers are hashed as int32


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """All that is needed to build the networks."""

    name: str  # of the data set it models
    autoencoder: AutoencoderConfig
    prior: priors.PriorConfig = field(metadata={"kind": "transformer"})  # what files mean that were written before the choice
    temperature: float = 1.0  # that samples are drawn at where nothing else is said

    def __post_init__(self) -> None:
        check_temperature(self.temperature, "model: temperature")
        theirs = (self.prior.length, self.prior.codebook_size)
        if theirs != (ours := (self.autoencoder.length, self.autoencoder.quantizer.codebook_size)):
            raise UserError(f"prior models {theirs[0]} codes of {theirs[1]}, the autoencoder makes {ours[0]} of {ours[1]}")


class AnytimeModel(nn.Module):
    """An ordered autoencoder and a prior over its codes.

    >>> model = AnytimeModel(_tiny())
    >>> sample = model.sample(2, seed=0, codes=3)
    >>> sample.data.shape, sample.codes.shape
    (torch.Size([2, 1, 28, 28]), torch.Size([2, 3]))
    >>> bool((model.sample(2, seed=0).codes[:, :3] == sample.codes).all())
    True
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.autoencoder = VQVAE(config.autoencoder)
        self.prior = priors.build(config.prior)
        self._engine_choice: tuple[str | None, str | None] = ("eager", None)
        self._engine: Engine | None = None  # built when it is first needed
        self._latencies: dict[int, LatencyEstimate] = {}  # of this engine, by the number of rows
        self._saved_hash: str | None = None  # known once saved or loaded; training would make it stale
        self._engine_hash: str | None = None  # of the weights that the engine has: hashing takes longer than sampling
        self.quality_table: QualityTable | None = None  # what `anytime evaluate` found out about its lengths

    @property
    def length(self) -> int:
        """Full number of codes."""
        return self.config.autoencoder.length

    @property
    def codebook_size(self) -> int:
        return self.config.autoencoder.quantizer.codebook_size

    @property
    def is_audio(self) -> bool:
        """Whether it makes waveforms, [n, 1, time] in [-1, 1], rather than pictures."""
        return self.config.autoencoder.is_audio

    @property
    def device(self) -> torch.device:
        return self.autoencoder.quantizer.codebook.device

    @property
    def hash(self) -> str:
        """Names the weights: the same for a model and its saved copy."""
        return self._saved_hash or storage.digest(self.state_dict())

    @property
    def engine(self) -> Engine:
        """What computes the samples."""
        if self._engine is None or self._engine.device != self.device:
            self.eval()
            self._latencies = {}
            self._engine = build(*self._engine_choice, self.prior, self.autoencoder, self._decode, self.device)
        return self._engine

    def use(self, engine: str | None = None, precision: str | None = None) -> AnytimeModel:
        """Sample with this engine from now on: by default the fastest for the device. Engines hold copies of the weights."""
        self._engine_choice, self._engine, self._engine_hash = (engine, precision), None, None
        return self

    def train(self, mode: bool = True) -> AnytimeModel:
        """Weights are about to change: forget what was computed from them."""
        if mode:
            self._engine = self._engine_hash = self._saved_hash = None
        super().train(mode)
        return self

    def code_count(self, codes: int | None = None, fraction: float | None = None, quality: float | None = None) -> int:
        """How many codes are asked for: all of them, so many, a share of them, or the fewest of that quality."""
        if quality is None:
            return code_count(self.length, codes, fraction)
        if codes is not None or fraction is not None:
            other = "--codes" if codes is not None else "--fraction"
            raise UserError(f"{other} and --quality say the same thing twice; give one of them")
        check_quality(quality)
        return self.required_quality_table.codes_for(quality)

    @property
    def required_quality_table(self) -> QualityTable:
        """The model's own table of quality by code length; a model without one is refused."""
        if self.quality_table is None:
            made = "made for models of pictures only so far" if self.is_audio else "which `anytime evaluate MODEL` makes"
            raise UserError(f"--quality needs the model's table, {made}; give --codes or --fraction until then")
        self._check_model_hash(self.quality_table.model, "the quality table")
        return self.quality_table

    def settings(
        self, temperature: float | None = None, top_k: int | None = None, top_p: float | None = None
    ) -> SamplingSettings:
        """How codes are to be drawn, in numbers."""
        temperature = self.config.temperature if temperature is None else temperature
        return SamplingSettings(temperature=temperature, top_k=top_k, top_p=top_p)

    @torch.no_grad()
    def encode(self, x: Float[Tensor, "batch channel *place"]) -> Int[Tensor, "batch length"]:
        """The codes of x, most important first."""
        if tuple(x.shape[1:]) != self.config.autoencoder.shape:
            raise UserError(f"this model takes data of shape {self.config.autoencoder.shape}, not {tuple(x.shape[1:])}")
        self.eval()
        return torch.cat([self.autoencoder.encode(part.to(self.device)) for part in x.split(BLOCK)])

    @torch.no_grad()
    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch channel *place"]:
        """A complete sample from any prefix of codes, none included; missing codes are zero latents."""
        self._check_codes(codes, "codes")
        self.eval()
        return self._decode(codes)

    def sample(
        self,
        n: int = 1,
        *,
        seed: int = 0,
        codes: int | None = None,
        fraction: float | None = None,
        quality: float | None = None,
        within: float | None = None,
        stop: threading.Event | None = None,
        prefix: Int[Tensor, "given k"] | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        progress: Progress | None = None,
    ) -> Sample:
        """Draw `n` samples: all codes, the first `codes`, as many as `within` seconds allow, or until `stop` is set.

        `quality` is the fewest codes of that quality by the model's own table, `fraction` a share of them; `code_count` tells.
        Budgets combine: whichever is spent first ends the drawing, and at least one code is always drawn. A row's codes depend
        on the seed, its row number, the prefix and the settings only: never on `n` or on the budget. `temperature` is the
        model's own by default.
        """
        started = time.perf_counter()
        budget = Budget(codes=self.code_count(codes, fraction, quality), within=within, stop=stop)
        settings = self.settings(temperature, top_k, top_p)
        request = self._request(n, seed, settings, prefix, budget.codes)
        return self._run_microbatches(request, budget, started, progress)

    def session(
        self,
        n: int = 1,
        *,
        seed: int = 0,
        prefix: Int[Tensor, "given k"] | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> Session:
        """Samples to be drawn a little at a time: `run` it, look, run it again, save it, go on in another process."""
        settings = self.settings(temperature, top_k, top_p)
        return self._session(self._request(n, seed, settings, prefix, self.length))

    def stream(
        self,
        n: int = 1,
        *,
        every: int = 1,
        seed: int = 0,
        codes: int | None = None,
        fraction: float | None = None,
        quality: float | None = None,
        within: float | None = None,
        stop: threading.Event | None = None,
        prefix: Int[Tensor, "given k"] | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> Iterator[Sample]:
        """Ever finer samples of the same rows, one after every `every` codes and one at the end; leave the loop at any time.

        Nothing is computed between two samples unless the next one is asked for. `within` runs from the first one asked for.
        """
        started = time.perf_counter()
        if every < 1:
            raise UserError(f"every must be at least 1, not {every}")
        budget = Budget(codes=self.code_count(codes, fraction, quality), within=within, stop=stop)
        session = self.session(n, seed=seed, prefix=prefix, temperature=temperature, top_k=top_k, top_p=top_p)
        while True:
            target = min(budget.codes, (session.count // every + 1) * every)
            sample = session.run(replace(budget, codes=target), started=started)
            yield sample
            if session.count < target or session.count >= budget.codes:  # stopped, or done
                return

    def refine(
        self,
        sample: Sample,
        *,
        codes: int | None = None,
        fraction: float | None = None,
        quality: float | None = None,
        within: float | None = None,
        stop: threading.Event | None = None,
        progress: Progress | None = None,
    ) -> Sample:
        """Go on with a sample from where it stopped: the codes of one uninterrupted run."""
        started = time.perf_counter()
        budget = Budget(codes=self.code_count(codes, fraction, quality), within=within, stop=stop)
        self._check_model_hash(sample.model, "the sample")
        self._check_codes(sample.codes, "codes")
        if budget.codes < (has := sample.codes.shape[1]):
            raise UserError(f"the sample has {has} codes already; ask for {has} to {self.length} with --codes")
        if sample.session is not None and sample.session.count == has:
            return sample.session.run(budget, started=started, progress=progress)
        # It has none, or another request went on with it: the state is rebuilt from the codes.
        request = Request(sample.codes, sample.rows, sample.seed, sample.settings, sample.model)
        return self._run_microbatches(request, budget, started, progress)

    def load_session(self, path: str | Path) -> Session:
        """A session that another process saved, to go on with."""
        saved = read_session(path)
        self._check_model_hash(saved.model, str(path))
        self._check_codes(saved.codes, f"{path}: codes")
        return self._session(saved)

    def save(self, folder: str | Path) -> Path:
        """Write `config.json` and `model.safetensors` into a folder, and `quality.json` if the model was evaluated."""
        folder = Path(folder)
        self._saved_hash = storage.write_tensors(folder / WEIGHTS, self.state_dict())
        if self.quality_table is not None and self.quality_table.model == self._saved_hash:
            write_table(folder, self.quality_table)
        else:  # whatever lay there was another model's
            (folder / QUALITY_FILE).unlink(missing_ok=True)
        storage.write_json(folder / CONFIG, {"hash": self._saved_hash, **to_dict(self.config)})
        return folder

    def _decode(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch channel *place"]:
        rows = CPU_DECODE_BATCH if self.device.type == "cpu" else BLOCK
        return torch.cat([self.autoencoder.decode(part.to(self.device)) for part in codes.split(rows)])

    def _session(self, request: Request) -> Session:
        if self.training:
            self.eval()
        engine = self.engine
        return Session(engine, self._latencies.setdefault(len(request.rows), LatencyEstimate()), self.length, request)

    def _run_microbatches(self, request: Request, budget: Budget, started: float, progress: Progress | None) -> Sample:
        """As many rows at a time as memory should hold; each wave gets its share of the time that is left."""
        parts: list[Sample] = []
        n, size, first = len(request.rows), self.engine.microbatch, 0
        while first < n and not (parts and budget.stop is not None and budget.stop.is_set()):
            microbatch = replace(request, rows=request.rows[first : first + size], codes=request.codes[first : first + size])
            began, within = time.perf_counter() if parts else started, budget.within
            if within is not None and n > size:
                used = sum(part.seconds for part in parts)  # not the clock: an engine's warming up is no part of the deadline
                within = max(1e-9, (within - used) * len(microbatch.rows) / (n - first))
            try:
                parts.append(self._session(microbatch).run(replace(budget, within=within), started=began, progress=progress))
                first += size
            except RuntimeError as error:
                if not out_of_memory(error) or len(microbatch.rows) == 1:
                    raise
                size = (len(microbatch.rows) + 1) // 2
                text = f"{len(microbatch.rows)} rows do not fit into memory; going on with {size} at a time"
                warn(text, MemoryWarning)
                self.engine.release()
        return parts[0] if len(parts) == 1 else self._concat(parts, time.perf_counter() - started)

    def _concat(self, parts: list[Sample], seconds: float) -> Sample:
        """One sample of all waves, at one code length for all: what a wave drew beyond the shortest is dropped."""
        count = min(part.codes.shape[1] for part in parts)
        data = [p.data if p.codes.shape[1] == count else self.engine.decode(p.codes[:, :count]) for p in parts]
        codes, rows = (torch.cat(t) for t in ([p.codes[:, :count] for p in parts], [p.rows for p in parts]))
        return replace(parts[0], data=torch.cat(data), codes=codes, rows=rows, seconds=seconds, session=None)

    def _request(
        self, n: int, seed: int, settings: SamplingSettings, prefix: Int[Tensor, "given k"] | None, count: int
    ) -> Request:
        """`n` rows that begin with the prefix, if there is one; `count` codes are asked for."""
        if n < 1:
            raise UserError(f"-n must be at least 1, not {n}")
        if n >= MAX_ROWS:
            raise UserError(f"-n must be below {MAX_ROWS}, as many rows as noise is made for, not {n}")
        if not 0 <= seed < 1 << 63:
            raise UserError(f"--seed must be between 0 and 2^63 - 1, not {seed}")
        if prefix is None:
            prefix = torch.empty(1, 0, dtype=torch.long)
        self._check_codes(prefix, "--prefix")
        if len(prefix) not in (1, n):
            raise UserError(f"a prefix must have 1 row or {n} rows, one for each sample, not {len(prefix)}")
        if prefix.shape[1] > count:
            raise UserError(f"--prefix holds {prefix.shape[1]} codes, more than the {count} asked for; raise --codes")
        self._engine_hash = self._engine_hash or self.hash
        return Request(prefix.cpu().long().expand(n, -1), torch.arange(n), seed, settings, self._engine_hash)

    def _check_model_hash(self, other: str, what: str) -> None:
        if other != self.hash:
            raise UserError(f"{what} is of another model ({other[:12]}…, this is {self.hash[:12]}…); load that one")

    def _check_codes(self, codes: Int[Tensor, "batch prefix"], what: str) -> None:
        if codes.ndim != 2 or codes.shape[1] > self.length:
            raise UserError(f"{what} must be [batch, up to {self.length}], not {tuple(codes.shape)}")
        if codes.numel() and not (int(codes.min()) >= 0 and int(codes.max()) < self.codebook_size):
            bad = int(codes[(codes < 0) | (codes >= self.codebook_size)][0])
            raise UserError(f"{what} holds the code {bad}; this model's codes run from 0 to {self.codebook_size - 1}")


def load(
    name: str | Path,
    device: str | torch.device | None = None,
    engine: str | None = None,
    precision: str | None = None,
) -> AnytimeModel:
    """A saved model's folder, a finished run's, or a model of the package by its name; ready to sample.

    By default with the fastest engine for the device.
    """
    folder = locate(name)
    data = read_json(folder / CONFIG)
    if (kind := data.get("kind")) in CODELESS_KINDS:
        raise UserError(f"{folder} is {CODELESS_KINDS[kind]} and no codes to sample; train a model with codes for that")
    stored_hash = data.pop("hash", None)  # files from before it was written have none
    config = from_dict(ModelConfig, data, str(folder / CONFIG))
    tensors, metadata, actual_hash = storage.read_tensors(folder / WEIGHTS)
    if metadata.get("kind") == quantized_weights.FILE_KIND:
        tensors = quantized_weights.dequantize_weights(tensors)
        actual_hash = storage.digest(tensors)
    if stored_hash not in (None, actual_hash):
        raise UserError(f"{folder / WEIGHTS} is not what its {CONFIG} names; restore both from where they came from")
    model = AnytimeModel(config)
    try:
        model.load_state_dict(tensors)
    except RuntimeError:
        raise UserError(f"{folder / WEIGHTS} does not fit its {CONFIG}; restore both from where they came from") from None
    model._saved_hash = actual_hash
    model.quality_table = read_table(folder, actual_hash)
    return model.to(pick_device(device)).eval().use(engine, precision)


def _tiny() -> ModelConfig:
    """The smallest useful model, for examples and tests."""
    autoencoder = AutoencoderConfig(
        shape=(1, 28, 28), length=8, dim=49, quantizer=QuantizerConfig(codebook_size=16),
        widths=(4, 8), kernels=(4, 4, 3), strides=(2, 2, 1),
    )  # fmt: skip
    prior = TransformerConfig(length=8, codebook_size=16, layers=2, width=16, hidden=32, heads=2)
    return ModelConfig(name="tiny", autoencoder=autoencoder, prior=prior)
