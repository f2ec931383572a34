"""A discretised mixture of logistics for the channels of a pixel, one after the other (Salimans et al. 2017, Section 2).

Values lie on an even grid of 256 levels from -1 to 1. A level's probability is the mass of a logistic distribution within half
a level of it; the lowest and the highest level have the tails. So a logistic sample rounded to the nearest level is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

MAX_LEVEL = 255
HALF_LEVEL = 1 / MAX_LEVEL  # half the distance between two levels
MIN_LOG_SCALE = -7.0  # a narrower distribution lies within one level


@dataclass(frozen=True, slots=True)
class LogisticMixture:
    """Parameters of the mixture of each pixel."""

    weights: Tensor  # [..., mixtures], logits
    means: Tensor  # [..., channels, mixtures]
    log_scales: Tensor  # [..., channels, mixtures]
    channel_coeffs: Tensor  # [..., channels (channels - 1) / 2, mixtures], how a mean depends on the channels before


def mixture_parameter_count(channels: int, mixtures: int) -> int:
    """Return the number of parameters per pixel: 100 for three channels and ten mixtures."""
    return mixtures * (1 + 2 * channels + channels * (channels - 1) // 2)


def parse_mixture(parameters: Float[Tensor, "*batch parameters"], channels: int) -> LogisticMixture:
    """Read a network's output as a mixture."""
    pairs = channels * (channels - 1) // 2
    rows = parameters.unflatten(-1, (1 + 2 * channels + pairs, -1))
    weights, means, log_scales, channel_coeffs = rows.split([1, channels, channels, pairs], dim=-2)
    return LogisticMixture(weights[..., 0, :], means, log_scales.clamp_min(MIN_LOG_SCALE), torch.tanh(channel_coeffs))


def log_likelihood(mixture: LogisticMixture, x: Float[Tensor, "*batch channel"]) -> Float[Tensor, "*batch"]:
    """Return log p(x) of a pixel whose channels are on the grid."""
    total = mixture.weights.log_softmax(-1)
    for channel, value in enumerate(x.unbind(-1)):
        mean, log_scale = _conditional_means(mixture, x[..., :channel, None], channel), mixture.log_scales[..., channel, :]
        value, inverse_scale = value[..., None], torch.exp(-log_scale)
        upper, lower = (value + HALF_LEVEL - mean) * inverse_scale, (value - HALF_LEVEL - mean) * inverse_scale
        # σ(u) − σ(l) = σ(u) σ(−l) (1 − exp(l − u)), which loses no digits in the tails.
        below = torch.where(value > 1 - HALF_LEVEL, 0.0, F.logsigmoid(upper))
        above = torch.where(value < HALF_LEVEL - 1, 0.0, F.logsigmoid(-lower))
        inside = torch.where(value.abs() > 1 - HALF_LEVEL, 0.0, torch.log(-torch.expm1(-2 * HALF_LEVEL * inverse_scale)))
        total = total + below + above + inside
    return torch.logsumexp(total, -1)


def log_density(mixture: LogisticMixture, value: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Return log p(value) of a real value of one channel, without the grid."""
    mean, log_scale = mixture.means[..., 0, :], mixture.log_scales[..., 0, :]
    s = (value[..., None] - mean) * torch.exp(-log_scale)
    # The logistic density is σ(s) σ(−s) / scale.
    each = F.logsigmoid(s) + F.logsigmoid(-s) - log_scale
    return torch.logsumexp(mixture.weights.log_softmax(-1) + each, -1)


def sample_real(mixture: LogisticMixture, uniforms: Float[Tensor, "*batch uniforms"]) -> Float[Tensor, "*batch"]:
    """Sample a real value of one channel. The uniforms choose a component, one each, and then the value."""
    chosen = (mixture.weights - torch.log(-torch.log(uniforms[..., :-1]))).argmax(-1, keepdim=True)[..., None]
    mean, log_scale = (_select_component(part, chosen)[..., 0, 0] for part in (mixture.means, mixture.log_scales))
    return mean + torch.exp(log_scale) * torch.logit(uniforms[..., -1])


def sample_pixel(mixture: LogisticMixture, uniforms: Float[Tensor, "*batch uniforms"]) -> Float[Tensor, "*batch channel"]:
    """Sample a pixel. The uniforms choose a component, one each, and then the channels, one each."""
    choice, noise = uniforms.split([mixture.weights.shape[-1], uniforms.shape[-1] - mixture.weights.shape[-1]], dim=-1)
    chosen = (mixture.weights - torch.log(-torch.log(choice))).argmax(-1, keepdim=True)[..., None]
    component = LogisticMixture(
        mixture.weights,
        *(_select_component(part, chosen) for part in (mixture.means, mixture.log_scales, mixture.channel_coeffs)),
    )
    x = mixture.means.new_empty(*noise.shape[:-1], 0)
    for channel, u in enumerate(noise.unbind(-1)):
        mean, scale = _conditional_means(component, x[..., None], channel)[..., 0], component.log_scales[..., channel, 0].exp()
        value = mean + scale * torch.logit(u)
        level = ((value + 1) / 2 * MAX_LEVEL).round().clamp(0, MAX_LEVEL)
        x = torch.cat([x, (level / MAX_LEVEL * 2 - 1)[..., None]], -1)
    return x


def _conditional_means(
    mixture: LogisticMixture, before: Float[Tensor, "*batch before 1"], channel: int
) -> Float[Tensor, "*batch mixtures"]:
    """Return the means of a channel given the channels before it."""
    first = channel * (channel - 1) // 2
    return mixture.means[..., channel, :] + (mixture.channel_coeffs[..., first : first + channel, :] * before).sum(-2)


def _select_component(part: Float[Tensor, "*batch some mixtures"], chosen: Tensor) -> Float[Tensor, "*batch some 1"]:
    return part.gather(-1, chosen.expand(*part.shape[:-1], 1))
