"""The VQ-VAE of Section 4: x -> latents -> codes -> latents -> x. Training with truncation makes it ordered."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime.autoencoders.layout import Layout, code_shape, to_features, to_latents
from anytime.autoencoders.networks import conv_audio, conv_image, residual_audio, residual_image
from anytime.autoencoders.quantizer import Quantized, Quantizer, QuantizerConfig
from anytime.autoencoders.truncation import truncate
from anytime.core.errors import UserError

MAX_VALUES = 1 << 26
"""Values of one example at most, such as an image of 4730 × 4730 with three channels: the weights do not bound its size."""


@dataclass(frozen=True, kw_only=True)
class AutoencoderConfig:
    """Shapes of the autoencoder; length, dim and the size of the feature map must agree."""

    shape: tuple[int, int, int] | tuple[int, int]
    """Channels, height and width of an image; channels and samples of audio."""
    length: int
    """K, full number of codes."""
    dim: int
    """Size of one codebook entry: the feature map's area (channel-wise) or its channels (spatial-wise)."""
    quantizer: QuantizerConfig
    layout: Layout = "channel"
    """Which axis becomes the sequence of codes."""
    widths: tuple[int, ...]
    """Channels between the convolutions."""
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    blocks: int = 0
    """Residual blocks. Network `image`: on the feature map, 2 in the original VQ-VAE and 0 in the paper's. Residual networks:
    after every convolution but the last."""
    network: Literal["image", "residual-image", "audio", "residual-audio"] = "image"
    """The paper's image and audio networks, or ours with residual blocks."""

    def __post_init__(self) -> None:
        if len(self.shape) != (2 if self.is_audio else 3):
            raise UserError(f"`autoencoder.network` {self.network} does not take data of `autoencoder.shape` {self.shape}")
        if not len(self.widths) + 1 == len(self.kernels) == len(self.strides):
            raise UserError(
                "`autoencoder.kernels` and `autoencoder.strides` need one entry for each convolution, "
                "`autoencoder.widths` one fewer"
            )
        if min(self.length, self.dim, *self.shape, *self.widths, *self.kernels, *self.strides) < 1:
            raise UserError(
                "`autoencoder.shape`, `autoencoder.length`, `autoencoder.dim`, `autoencoder.widths`, `autoencoder.kernels` and "
                "`autoencoder.strides` must all be at least 1"
            )
        if math.prod(self.shape) > MAX_VALUES:
            raise UserError(f"`autoencoder.shape` {self.shape} has more than {MAX_VALUES} values")
        if self.blocks < 0:
            raise UserError(f"`autoencoder.blocks` must be at least 0, not {self.blocks}")
        if self.network == "audio" and self.blocks:
            raise UserError("`autoencoder.network` audio has no `autoencoder.blocks`; use residual-audio")
        if self.is_audio and any(k < s for k, s in zip(self.kernels, self.strides, strict=True)):
            raise UserError("`autoencoder.kernels` of the audio networks must not be smaller than their `autoencoder.strides`")
        if (self.length, self.dim) != (expected := code_shape(self.channels, self.spatial_shape, self.layout)):
            raise UserError(
                f"a {self.layout}-wise code on this network is {expected[0]} × {expected[1]}, "
                f"not {self.length} × {self.dim}; change `autoencoder.length`, `autoencoder.dim` or `autoencoder.strides`"
            )
        if self.decoded_size != self.shape[1:]:
            raise UserError(
                f"these `autoencoder.strides` turn {self.shape[1:]} into {self.decoded_size}; use a multiple of them"
            )

    @property
    def is_audio(self) -> bool:
        """Whether the data are waveforms rather than images."""
        return self.network in ("audio", "residual-audio")

    @property
    def channels(self) -> int:
        """Channels of the feature map."""
        return self.length if self.layout == "channel" else self.dim

    @property
    def spatial_shape(self) -> tuple[int, ...]:
        """Height and width of the feature map; its length for audio."""
        size = conv_audio.map_size if self.is_audio else conv_image.map_size
        return tuple(size(s, self.kernels, self.strides) for s in self.shape[1:])

    @property
    def decoded_size(self) -> tuple[int, ...]:
        """Height and width (or length) of the decoder's output."""
        if self.is_audio:
            return (self.spatial_shape[0] * math.prod(self.strides),)
        height, width = (conv_image.image_size(s, self.kernels, self.strides) for s in self.spatial_shape)
        return height, width


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """The output of a forward pass."""

    x: Tensor  # like the input, from the kept codes only
    latents: Tensor  # the encoder's output e(x), [batch, length, dim]
    quantized: Quantized


class VQVAE(nn.Module):
    """Encoder, quantizer and decoder."""

    def __init__(self, config: AutoencoderConfig) -> None:
        super().__init__()
        self.config, self.length, self.codebook_size = config, config.length, config.quantizer.codebook_size
        channels = [config.shape[0], *config.widths, config.channels]
        layers = channels, config.kernels, config.strides
        if config.network == "audio":
            self.encoder, self.decoder = conv_audio.encoder(*layers), conv_audio.decoder(*layers, config.spatial_shape[0])
        else:
            build = {"image": conv_image, "residual-image": residual_image, "residual-audio": residual_audio}[config.network]
            self.encoder, self.decoder = build.encoder(*layers, config.blocks), build.decoder(*layers, config.blocks)
        self.quantizer = Quantizer(config.quantizer, config.dim)

    @property
    def device(self) -> torch.device:
        """The device that the weights are on."""
        return self.quantizer.codebook.device

    def latents(self, x: Float[Tensor, "batch channel *spatial"]) -> Float[Tensor, "batch length dim"]:
        """Return e(x), before quantization."""
        return to_latents(self.encoder(x), self.config.layout)

    def decode_latents(self, latents: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch channel *spatial"]:
        """Return d(z)."""
        x: Tensor = self.decoder(to_features(latents, self.config.layout, self.config.spatial_shape))
        return x.float()

    def forward(self, x: Float[Tensor, "batch channel *spatial"], keep: Int[Tensor, " batch"]) -> Reconstruction:
        """Return d(z_{<=keep}): encode, quantize, truncate, decode."""
        latents = self.latents(x)
        quantized = self.quantizer(latents)
        return Reconstruction(self.decode_latents(truncate(quantized.latents, keep)), latents, quantized)

    @torch.no_grad()
    def encode(self, x: Float[Tensor, "batch channel *spatial"]) -> Int[Tensor, "batch length"]:
        """Return the codes of x, most important first."""
        return self.quantizer.nearest(self.latents(x).float())

    @torch.no_grad()
    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch channel *spatial"]:
        """Return complete samples from a prefix of any length, 0 included; missing codes are zero latents."""
        latents = self.quantizer.codebook.new_zeros(len(codes), self.length, self.config.dim)
        latents[:, : codes.shape[1]] = self.quantizer.lookup(codes)
        return self.decode_latents(latents)
