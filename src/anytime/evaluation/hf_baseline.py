"""The Hugging Face baseline: `generate` on a GPT-2 of the prior's size, timed as our sampler is."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from anytime.priors.transformer import TransformerConfig
from anytime.sampling.gumbel import SamplingSettings
from anytime.sampling.sample import Sample

CacheKind = Literal["dynamic", "static"]
CACHES: tuple[CacheKind, ...] = ("dynamic", "static")


def has_huggingface() -> bool:
    """Return whether Hugging Face transformers is installed."""
    return importlib.util.find_spec("transformers") is not None


class HFSampler:
    """`generate` of Hugging Face transformers on a GPT-2 of the prior's size with random weights, then our decoder."""

    def __init__(
        self,
        config: TransformerConfig,
        decoder: Callable[[Tensor], Tensor],
        device: torch.device,
        dtype: torch.dtype,
        cache: CacheKind,
    ) -> None:
        import transformers

        transformers.logging.set_verbosity_error()
        torch.manual_seed(0)
        shape = transformers.GPT2Config(
            vocab_size=config.codebook_size + 1, n_positions=config.length + 1, n_embd=config.width, n_layer=config.layers,
            n_head=config.heads, n_inner=config.hidden, activation_function="relu", bos_token_id=None, eos_token_id=None,
        )  # fmt: skip
        self.config, self.decoder, self.device, self.cache = config, decoder, device, cache
        self.version: str = transformers.__version__
        self.network: Any = transformers.GPT2LMHeadModel(shape).to(device=device, dtype=dtype).eval()

    @torch.no_grad()
    def sample(self, n: int, *, seed: int, codes: int) -> Sample:
        """Generate and decode."""
        codes_sampled = self.generate_codes(n, seed=seed, codes=codes)
        return Sample(self.decode(codes_sampled), codes_sampled, 0.0, seed, torch.arange(n), SamplingSettings(), "huggingface")

    @torch.no_grad()
    def generate_codes(self, n: int, *, seed: int, codes: int) -> Int[Tensor, "batch count"]:
        """Generate codes with `generate`."""
        torch.manual_seed(seed)
        start = torch.full((n, 1), self.config.codebook_size, device=self.device)
        options = {"cache_implementation": "static"} if self.cache == "static" else {}
        codes_sampled: Tensor = self.network.generate(
            start, attention_mask=torch.ones_like(start), do_sample=True, top_k=0, min_new_tokens=codes, max_new_tokens=codes,
            pad_token_id=0, **options,
        )[:, 1:]  # fmt: skip
        return codes_sampled.clamp(max=self.config.codebook_size - 1)  # the start symbol may be sampled: it has no latent

    @torch.no_grad()
    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Tensor:
        """Decode with our decoder."""
        return self.decoder(codes)
