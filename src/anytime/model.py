"""AnytimeModel: an autoencoder and a prior over its codes, to load, sample and save.

x -> encode -> codes -> decode -> x          any prefix of the codes decodes to a complete x
seed -> sample -> codes -> decode -> x       stop after any code
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import SupportsFloat, SupportsIndex

import torch
from jaxtyping import Float, Int, Integer, Num
from torch import Tensor, nn

from anytime import priors
from anytime.autoencoders.input_data import check_data, to_range
from anytime.autoencoders.quantizer import QuantizerConfig
from anytime.autoencoders.vqvae import VQVAE, AutoencoderConfig
from anytime.core import storage
from anytime.core.config import from_dict, read_json, to_dict
from anytime.core.device import pick_device
from anytime.core.errors import UserError
from anytime.core.model_weights import WithoutInitialisation, read_weights
from anytime.core.times import to_seconds
from anytime.models import hub
from anytime.models.registry import CONFIG, WEIGHTS, locate
from anytime.priors.transformer import TransformerConfig
from anytime.sampling.budget import Budget, code_count, whole_number
from anytime.sampling.engines.base import Engine, Request, fixed_mode
from anytime.sampling.engines.eager import BLOCK, decode_in_blocks
from anytime.sampling.gumbel import SamplingSettings, check_temperature
from anytime.sampling.integers import Integers, prefix_codes
from anytime.sampling.quality_table import FILE as QUALITY_FILE
from anytime.sampling.quality_table import QualityTable, check_quality, read_table, write_table
from anytime.sampling.sample import Sample
from anytime.sampling.sampler import Sampler
from anytime.sampling.session import Progress, Session, read_session
from anytime.sampling.threads import adapt_to_process
from anytime.sampling.weights import WeightsHash

CODELESS_KINDS = {"vae": "a VAE", "density": "a density model"}
"""Models without codes, by the `kind` in their config.json."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Everything needed to build the networks, and the default temperature."""

    name: str
    """Dataset that the model was trained on."""
    autoencoder: AutoencoderConfig
    prior: priors.PriorConfig
    temperature: float = 1.0
    """Default sampling temperature, between 0.001 and 100."""

    def __post_init__(self) -> None:
        check_temperature(self.temperature, "model.temperature")
        theirs = (self.prior.length, self.prior.codebook_size)
        if theirs != (ours := (self.autoencoder.length, self.autoencoder.quantizer.codebook_size)):
            raise UserError(f"the prior models {theirs[0]} codes of {theirs[1]}, the autoencoder makes {ours[0]} of {ours[1]}")


class AnytimeModel(nn.Module):
    """An ordered autoencoder and a prior over its codes.

    Results do not depend on the caller's `torch.inference_mode` or `torch.autocast`. A forked process computes with one thread.

    >>> model = load("mnist")
    >>> sample = model.sample(2, seed=0, codes=3)
    >>> sample.data.shape, sample.codes.shape
    (torch.Size([2, 1, 28, 28]), torch.Size([2, 3]))
    >>> bool((model.sample(2, seed=0).codes[:, :3] == sample.codes).all())
    True
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        adapt_to_process()
        self.config = config  # sizes of the networks, and the default temperature
        self.autoencoder = VQVAE(config.autoencoder)  # data to codes, and any prefix of the codes to data
        self.prior = priors.build(config.prior)  # logits of each code given the earlier ones
        self.quality_table: QualityTable | None = None  # written by `anytime evaluate`
        self._weights_hash = WeightsHash(self)
        self._sampler = Sampler(self.prior, self.autoencoder, self._weights_hash)

    @property
    def length(self) -> int:
        """Full number of codes."""
        return self.config.autoencoder.length

    @property
    def codebook_size(self) -> int:
        """Number of values of a code."""
        return self.config.autoencoder.quantizer.codebook_size

    @property
    def is_audio(self) -> bool:
        """Whether the data are waveforms, [n, 1, time] in [-1, 1], rather than images."""
        return self.config.autoencoder.is_audio

    @property
    def device(self) -> torch.device:
        """The device that the weights are on."""
        return self.autoencoder.device

    @property
    def hash(self) -> str:
        """Hash of the weights, the same for a model and its saved copy.

        It follows every change of the weights that torch counts: an optimiser's step, `load_state_dict`, in-place operations.
        After an edit through `.data` or through memory shared with numpy, call `train()` and `eval()`.
        """
        if self.training:
            self._weights_hash.forget()
        return self._sampler.hash

    @property
    def sampler(self) -> Sampler:
        """The sampler, which holds the engine and its latency estimates."""
        if self.training or self.prior.training or self.autoencoder.training:
            self.eval()
        self._sampler.prior, self._sampler.autoencoder = self.prior, self.autoencoder  # they may have been replaced
        return self._sampler

    @property
    def engine(self) -> Engine:
        """The engine that computes samples."""
        return self.sampler.engine

    def use(self, engine: str | None = None, precision: str | None = None) -> AnytimeModel:
        """Sample with this engine from now on, by default the fastest for the device."""
        self._sampler.use(engine, precision)
        return self

    def train(self, mode: bool = True) -> AnytimeModel:
        """Set the training mode. Entering or leaving it forgets what depends on the weights: the engine and the hash."""
        if mode or self.training:
            self._sampler.reset()
            self._weights_hash.forget()
        super().train(mode)
        return self

    def code_count(self, codes: int | None = None, fraction: float | None = None, quality: float | None = None) -> int:
        """Return the number of codes requested: all, `codes`, a fraction of them, or the fewest of that quality."""
        if quality is None:
            return code_count(self.length, codes, fraction)
        if codes is not None or fraction is not None:
            other = "codes" if codes is not None else "fraction"
            raise UserError(f"`{other}` and `quality` both set the length; give one of them")
        check_quality(quality)
        return self.required_quality_table.codes_for(quality)

    @property
    def required_quality_table(self) -> QualityTable:
        """The model's quality table; a model without one is refused."""
        if self.quality_table is None:
            how = "which only image models have" if self.is_audio else "which `anytime evaluate MODEL` writes"
            raise UserError(f"`quality` needs the model's quality table, {how}; give `codes` or `fraction` instead")
        self._check_model_hash(self.quality_table.model, "the quality table")
        return self.quality_table

    def settings(
        self, temperature: float | None = None, top_k: int | None = None, top_p: float | None = None
    ) -> SamplingSettings:
        """Return sampling settings, at the model's temperature by default; `top_k` of 1 is greedy."""
        temperature = self.config.temperature if temperature is None else temperature
        return SamplingSettings(temperature=temperature, top_k=top_k, top_p=top_p)

    def encode(self, x: Num[Tensor, "batch channel *spatial"]) -> Int[Tensor, "batch length"]:
        """Return the codes of x, most important first.

        Images are float32 in [0, 1] or uint8 in 0 … 255, audio is float32 in [-1, 1].
        """
        check_data(x, self.config.autoencoder.shape)
        adapt_to_process()
        self.eval()
        with fixed_mode(self.device):
            x = to_range(x, self.is_audio)
            return torch.cat([self.autoencoder.encode(part.to(self.device)) for part in x.split(BLOCK)])

    def decode(self, codes: Integer[Tensor, "batch prefix"]) -> Float[Tensor, "batch channel *spatial"]:
        """Return complete samples from a prefix of any length, 0 included; missing codes are zero latents."""
        self._sampler.check_codes(codes, "`codes`")
        adapt_to_process()
        self.eval()
        with fixed_mode(self.device):
            return decode_in_blocks(self.autoencoder, codes.long())

    def sample(
        self,
        n: int = 1,
        *,
        seed: SupportsIndex = 0,
        codes: int | None = None,
        fraction: float | None = None,
        quality: float | None = None,
        within: SupportsFloat | str | None = None,
        stop: threading.Event | None = None,
        prefix: Integers | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        progress: Progress | None = None,
    ) -> Sample:
        """Generate `n` samples from all codes or the first `codes`, as many as `within` seconds allow, or until `stop` is set.

        `fraction` is a fraction of all codes, `quality` the fewest codes of that quality in the model's quality table. Budgets
        combine: the first one used up ends sampling. At least one code is always sampled. A row's codes depend on the seed,
        the row number, the prefix and the settings, never on `n` or the budget.

        A deadline cuts codes first. If not even one code of all `n` rows fits, only the first rows are returned, at least one
        block of them (`engine.block`), and a `DeadlineWarning` says how many.

        `within` is seconds or text such as "20ms". `prefix` is a tensor, a NumPy array or lists: codes that begin every
        sample, or one row of codes for each.
        """
        budget = Budget(codes=self.code_count(codes, fraction, quality), within=to_seconds(within, "`within`"), stop=stop)
        started = self.sampler.begin(budget)
        request = self.sampler.request(n, seed, self.settings(temperature, top_k, top_p), _codes(prefix), budget.codes)
        return self.sampler.run(request, budget, started, progress)

    def session(
        self,
        n: int = 1,
        *,
        seed: SupportsIndex = 0,
        prefix: Integers | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> Session:
        """Return a session: run it, look at the sample, run it again, or save it and continue in another process."""
        settings = self.settings(temperature, top_k, top_p)
        return self.sampler.session(self.sampler.request(n, seed, settings, _codes(prefix), self.length))

    def stream(
        self,
        n: int = 1,
        *,
        every: int = 1,
        seed: SupportsIndex = 0,
        codes: int | None = None,
        fraction: float | None = None,
        quality: float | None = None,
        within: SupportsFloat | str | None = None,
        stop: threading.Event | None = None,
        prefix: Integers | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> Iterator[Sample]:
        """Yield finer and finer samples of the same rows: one after every `every` codes and one at the end.

        Nothing is computed until the next sample is asked for. `within` starts with the first one. Every sample has all rows,
        so the first one may be late: by one step and one decode of `n` rows.
        """
        if whole_number(every, "`every`") < 1:
            raise UserError(f"`every` must be at least 1, not {every}")
        budget = Budget(codes=self.code_count(codes, fraction, quality), within=to_seconds(within, "`within`"), stop=stop)
        started = self.sampler.begin(budget)
        session = self.session(n, seed=seed, prefix=prefix, temperature=temperature, top_k=top_k, top_p=top_p)
        yield from session.stream(budget, every, started)

    def refine(
        self,
        sample: Sample,
        *,
        codes: int | None = None,
        fraction: float | None = None,
        quality: float | None = None,
        within: SupportsFloat | str | None = None,
        stop: threading.Event | None = None,
        progress: Progress | None = None,
    ) -> Sample:
        """Continue a sample from where it stopped; the codes are those of one uninterrupted run.

        If the sample's codes, rows or settings were edited, the new codes follow the edited ones, as they would a prefix.
        """
        budget = Budget(codes=self.code_count(codes, fraction, quality), within=to_seconds(within, "`within`"), stop=stop)
        if not isinstance(sample, Sample):
            kind = type(sample).__name__
            raise UserError(f"`sample` must be a Sample, not {kind}; to go on from codes, give them to `sample` as `prefix`")
        started = self.sampler.begin(budget)
        self._check_model_hash(sample.model, "the sample")
        given = Request(sample.codes, sample.rows, sample.seed, sample.settings, sample.model)
        request = self.sampler.check_request(given, lambda field: f"`sample.{field}`")
        if budget.codes < (has := sample.codes.shape[1]):
            raise UserError(f"the sample already has {has} codes; set `codes` to {has} or more, up to {self.length}")
        session = sample.session
        if session is not None and session.engine is self.sampler.engine and session.continues(sample):
            return session.run(budget, started=started, progress=progress)
        # There is no session, or the sample is not its last one: the state is recomputed from the codes.
        return self.sampler.run(request, budget, started, progress)

    def load_session(self, path: str | Path) -> Session:
        """Load a session that another process saved."""
        saved = read_session(path)
        self._check_model_hash(saved.model, str(path))
        return self.sampler.session(self.sampler.check_request(saved, lambda field: f"{path}: {field}"))

    def save(self, folder: str | Path) -> Path:
        """Write `config.json` and `model.safetensors` into a folder, and `quality.json` if the model was evaluated."""
        folder = Path(folder)
        found = storage.write_tensors(folder / WEIGHTS, self.state_dict())
        self._weights_hash.set(found)
        if self.quality_table is not None and self.quality_table.model == found:
            write_table(folder, self.quality_table)
        else:
            (folder / QUALITY_FILE).unlink(missing_ok=True)  # of a model saved here before
        storage.write_json(folder / CONFIG, {"hash": found, **to_dict(self.config)})
        return folder

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        revision: str | None = None,
        token: str | None = None,
        device: str | torch.device | None = None,
    ) -> AnytimeModel:
        """Load a model from the Hugging Face Hub by user/name, or from a directory; safetensors only."""
        return load(hub.find_pretrained(name, revision, token), device)

    def save_pretrained(self, folder: str | Path, name: str | None = None) -> Path:
        """Write the model as `save` does, with a model card for the Hub unless the folder has one."""
        folder = self.save(folder)
        if not (folder / "README.md").exists():
            kind = "audio clip" if self.is_audio else "image"
            card = hub.hub_card(self.config.name, self.length, kind, self.hash, name or folder.name)
            storage.write_text(folder / "README.md", card)
        return folder

    def push_to_hub(
        self, name: str, *, private: bool | None = None, token: str | None = None, message: str = "Upload the model"
    ) -> str:
        """Upload the model to the repository user/name of the Hugging Face Hub, made if needed; return its address."""
        with tempfile.TemporaryDirectory() as folder:
            saved = self.save_pretrained(Path(folder) / "model", name)
            return hub.upload(saved, name, private=private, token=token, message=message)

    def _check_model_hash(self, other: str, name: str) -> None:
        if other != (ours := self.hash):
            raise UserError(f"{name} belongs to another model ({other[:12]}…, this is {ours[:12]}…); load that model")


def _codes(prefix: Integers | None) -> Integer[Tensor, "given k"] | None:
    return None if prefix is None else prefix_codes(prefix, "`prefix`")


def load(
    name: str | Path,
    device: str | torch.device | None = None,
    engine: str | None = None,
    precision: str | None = None,
) -> AnytimeModel:
    """Load a model from its directory or a finished run's, or a bundled model by name; ready to sample.

    The default engine is the fastest for the device.
    """
    adapt_to_process()
    picked, folder = pick_device(device), locate(name)
    data = read_json(folder / CONFIG)
    if codeless := CODELESS_KINDS.get(str(data.get("kind"))):
        raise UserError(f"{folder} is {codeless} and has no codes to sample; train a model with codes")
    stored_hash = data.pop("hash", None)
    config = from_dict(ModelConfig, data, str(folder / CONFIG))
    tensors, actual_hash = read_weights(folder / WEIGHTS, lambda: AnytimeModel(config).float())
    if stored_hash != actual_hash:
        raise UserError(f"{folder / WEIGHTS} does not match the hash in {CONFIG}; restore both files")
    with torch.inference_mode(False):  # tensors made in inference mode count no changes
        with WithoutInitialisation():
            model = AnytimeModel(config).float()  # whatever torch's default type is
        model.load_state_dict(tensors)
        model.to(picked).eval().use(engine, precision)
    model.quality_table = read_table(folder, actual_hash)
    model._weights_hash.set(actual_hash)
    return model


def _tiny() -> ModelConfig:
    """The smallest useful model, for examples and tests."""
    autoencoder = AutoencoderConfig(
        shape=(1, 28, 28), length=8, dim=49, quantizer=QuantizerConfig(codebook_size=16),
        widths=(4, 8), kernels=(4, 4, 3), strides=(2, 2, 1),
    )  # fmt: skip
    prior = TransformerConfig(length=8, codebook_size=16, layers=2, width=16, hidden=32, heads=2)
    return ModelConfig(name="tiny", autoencoder=autoencoder, prior=prior)
