"""The VAE of Appendix C.1: the VQ model's networks, a Gaussian for the codebook. Ordered or not is a matter of training.

One channel of the feature map is one group of dimensions, so that a prefix of groups is cut as a prefix of codes is. The
latents are continuous: there are no `codes`, and nothing to sample from them without a prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime.autoencoders.layout import to_features, to_latents
from anytime.autoencoders.losses import squared_error
from anytime.autoencoders.networks import conv_image
from anytime.autoencoders.truncation import keep_mask, truncate
from anytime.core import storage
from anytime.core.config import from_dict, read_json, to_dict
from anytime.core.errors import UserError

CONFIG, WEIGHTS = "config.json", "model.safetensors"
VAE_KIND = {"kind": "vae"}  # tells its folder from that of a model with codes


@dataclass(frozen=True, kw_only=True)
class VAEConfig:
    """Shapes of the networks, and how sure the decoder is."""

    name: str
    """The data set it models."""
    shape: tuple[int, int, int]
    """Channels, height and width of the data."""
    length: int
    """K, number of groups of dimensions: channels of the feature map."""
    widths: tuple[int, ...]
    """Channels between the convolutions."""
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    variance: float = 0.01
    """Of the decoder's Gaussian, the same for every value of x in [0, 1]: what an error costs against a nat of the KL term."""

    def __post_init__(self) -> None:
        if not len(self.widths) + 1 == len(self.kernels) == len(self.strides):
            raise UserError("vae: kernels and strides need one entry each per convolution, widths one fewer")
        if self.length < 1 or not self.variance > 0:
            raise UserError(f"vae: length and variance must be above zero, not {self.length} and {self.variance}")
        if min(*self.shape, *self.widths, *self.kernels, *self.strides) < 1:
            raise UserError("vae: shape, widths, kernels and strides must all be at least 1")
        if self.decoded_size != self.shape[1:]:
            raise UserError(f"vae: these strides turn {self.shape[1:]} into {self.decoded_size}; use a multiple of them")

    @property
    def spatial_shape(self) -> tuple[int, int]:
        """Height and width of the feature map."""
        height, width = (conv_image.map_size(size, self.kernels, self.strides) for size in self.shape[1:])
        return height, width

    @property
    def decoded_size(self) -> tuple[int, int]:
        """Height and width of what the decoder makes of the feature map."""
        height, width = (conv_image.image_size(size, self.kernels, self.strides) for size in self.spatial_shape)
        return height, width

    @property
    def dim(self) -> int:
        """Dimensions of one group: the feature map's area."""
        return math.prod(self.spatial_shape)


@dataclass(frozen=True, slots=True)
class Posterior:
    """q(z | x), a Gaussian with independent dimensions."""

    mean: Tensor  # [batch, length, dim]
    log_variance: Tensor  # [batch, length, dim]

    def rsample(self, noise: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch length dim"]:
        """z = mean + σ · noise, with unit normal noise."""
        return self.mean + torch.exp(0.5 * self.log_variance) * noise

    def kl(self) -> Float[Tensor, "batch length"]:
        """KL(q(z_i | x) ‖ N(0, 1)) of each group, in nats, unreduced so that truncation can mask it."""
        return 0.5 * (self.mean.square() + self.log_variance.exp() - self.log_variance - 1).sum(-1)


@dataclass(frozen=True, slots=True)
class VAELosses:
    """One number per sample, [batch], in nats per value of x."""

    total: Tensor  # the negative evidence bound of the prefix
    reconstruction: Tensor  # −log p(x | z_{<=keep})
    kl: Tensor  # KL of the first `keep` groups
    error: Tensor  # mean squared error per value of x


class VAE(nn.Module):
    def __init__(self, config: VAEConfig) -> None:
        super().__init__()
        self.config = config
        between = [config.shape[0], *config.widths]
        self.encoder = conv_image.encoder([*between, 2 * config.length], config.kernels, config.strides)
        self.decoder = conv_image.decoder([*between, config.length], config.kernels, config.strides)

    @property
    def length(self) -> int:
        return self.config.length

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def posterior(self, x: Float[Tensor, "batch channel height width"]) -> Posterior:
        """q(z | x)."""
        mean, log_variance = to_latents(self.encoder(x), "channel").float().chunk(2, dim=1)
        return Posterior(mean, log_variance.clamp(-20, 20))  # exp overflows where a first step goes astray

    def latents(self, x: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch length dim"]:
        """The mean code, which Δ(i) is measured from."""
        return self.posterior(x).mean

    def decode_latents(self, latents: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch channel height width"]:
        """The mean of p(x | z)."""
        x: Tensor = self.decoder(to_features(latents, "channel", self.config.spatial_shape))
        return x.float()

    @torch.no_grad()
    def decode(self, latents: Float[Tensor, "batch prefix dim"]) -> Float[Tensor, "batch channel height width"]:
        """A complete x from any prefix of groups, none included; missing groups are zero, the mean of their prior."""
        missing = self.length - latents.shape[1]
        return self.decode_latents(nn.functional.pad(latents, (0, 0, 0, missing)))

    def forward(
        self,
        x: Float[Tensor, "batch channel height width"],
        keep: Int[Tensor, " batch"],
        noise: Float[Tensor, "batch length dim"],
    ) -> VAELosses:
        """The bracket of Appendix C.1's objective at i = keep: −log p(x | z_{<=i}) + KL over the first i groups."""
        posterior, size, variance = self.posterior(x), x[0].numel(), self.config.variance
        error = squared_error(x, self.decode_latents(truncate(posterior.rsample(noise), keep))) / size
        reconstruction = 0.5 * (error / variance + math.log(2 * math.pi * variance))
        kl = (posterior.kl() * keep_mask(keep, self.length)).sum(1) / size
        return VAELosses(reconstruction + kl, reconstruction, kl, error)

    def save(self, folder: str | Path) -> Path:
        """Write `config.json` and `model.safetensors` into a folder."""
        folder = Path(folder)
        storage.write_tensors(folder / WEIGHTS, self.state_dict())
        storage.write_json(folder / CONFIG, {**VAE_KIND, **to_dict(self.config)})
        return folder


def load_vae(folder: str | Path, device: str | torch.device = "cpu") -> VAE:
    """A saved VAE or a finished run of one."""
    folder = Path(folder)
    if (folder / "model" / CONFIG).is_file():
        folder = folder / "model"
    if not (folder / WEIGHTS).is_file():
        raise UserError(f"{folder} is no VAE: it holds no {WEIGHTS}; train one with `anytime train NAME --recipe vae`")
    data = read_json(folder / CONFIG)
    if data.pop("kind", None) != VAE_KIND["kind"]:
        raise UserError(f"{folder} is no VAE but a model with codes; train a VAE with `anytime train NAME --recipe vae`")
    model = VAE(from_dict(VAEConfig, data, str(folder / CONFIG)))
    try:
        model.load_state_dict(storage.read_tensors(folder / WEIGHTS)[0])
    except RuntimeError:
        raise UserError(f"{folder / WEIGHTS} does not fit its {CONFIG}; restore both from where they came from") from None
    return model.to(device).eval()
