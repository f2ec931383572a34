"""PixelCNN++ (Salimans et al. 2017), an autoregressive model of pixels, for the speed comparison of Section 5.2.2.

Not a prior over codes: an image of 32 × 32 takes 1,024 steps. Two streams of gated residual blocks go down to a quarter of the
image's size and up again. The row stream sees the rows above, the pixel stream also what is to the left. A mixture of logistics
models every pixel. Weight normalisation and dropout are left out: they change the training, not the time of sampling.

Sampling caches the inputs of every convolution (Ramachandran et al. 2017), so that a pixel costs one position of each layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from anytime.baselines.logistic_mixture import mixture_parameter_count, parse_mixture, sample_pixel
from anytime.core import random
from anytime.core.errors import UserError
from anytime.priors.pixelcnn import conv_at_position

InputCache = dict[nn.Module, Tensor]
"""Inputs of each layer so far."""
RowFeatures = dict[tuple[int, int], Tensor]
"""Outputs of the row stream for the pixel stream, by depth and block."""


@dataclass(frozen=True, kw_only=True)
class PixelCNNPlusPlusConfig:
    """Shape of the network; the defaults are the published ones."""

    shape: tuple[int, int, int]
    """Channels, height and width of an image."""
    width: int = 160
    """Channels of each stream."""
    blocks: int = 5
    """Residual blocks per stage."""
    stages: int = 3
    """Sizes of the feature map, each half of the one before."""
    mixtures: int = 10

    def __post_init__(self) -> None:
        if min(*self.shape, self.width, self.blocks, self.stages, self.mixtures) < 1:
            raise UserError("`shape`, `width`, `blocks`, `stages` and `mixtures` must all be at least 1")
        if any(side % (1 << (self.stages - 1)) for side in self.shape[1:]):
            raise UserError(f"{self.stages} `stages` need sides that {1 << (self.stages - 1)} divides, not {self.shape}")


@dataclass(frozen=True, slots=True)
class Region:
    """The part of a feature map that one step of sampling computes: a whole row, or one position of it."""

    row: int
    column: int | None
    input_cache: InputCache

    @property
    def even(self) -> bool:
        """Whether the map of half the size has a position here."""
        return self.row % 2 == 0 and (self.column is None or self.column % 2 == 0)

    @property
    def downsampled(self) -> Region:
        """The region on the map of half the size."""
        return replace(self, row=self.row // 2, column=None if self.column is None else self.column // 2)

    def window(self, layer: CausalConv2d, x: Tensor) -> Tensor:
        """Store x as this part of the layer's input; return what its kernel sees."""
        left, right, top, _ = layer.margin
        height, width = layer.size
        if layer not in self.input_cache:
            self.input_cache[layer] = x.new_zeros(*x.shape[:2], top + height, left + width + right)
        seen = self.input_cache[layer][:, :, self.row : self.row + top + 1]
        if self.column is None:
            seen[:, :, top, left : left + width] = x[:, :, 0]
            return seen
        seen[:, :, top, left + self.column] = x[:, :, 0, 0]
        return seen[:, :, :, self.column : self.column + left + 1]

    def crop(self, row: Tensor) -> Tensor:
        """Return this part of a row."""
        return row if self.column is None else row[..., self.column : self.column + 1]


class CausalConv2d(nn.Conv2d):
    """A convolution that sees its own position, the ones to the left and the rows above; if `wide`, both sides of those."""

    def __init__(
        self, inputs: int, outputs: int, kernel: tuple[int, int], size: tuple[int, int], *, wide: bool, stride: int = 1
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride)
        rows, columns = kernel
        self.margin = (columns // 2, columns // 2, rows - 1, 0) if wide else (columns - 1, 0, rows - 1, 0)
        self.size = size  # height and width of its input

    def forward(self, x: Tensor, region: Region | None = None) -> Tensor:
        """Convolve the whole map, or one region of it."""
        if region is None:
            return super().forward(F.pad(x, self.margin))
        return self.seen(x if self.kernel_size == (1, 1) else region.window(self, x), region)

    def seen(self, window: Tensor, region: Region) -> Tensor:
        """Return the output of one window."""
        return super().forward(window) if region.column is None else conv_at_position(self, window)[:, :, None, None]


class Upsample(nn.ConvTranspose2d):
    """Upsampling from a map of half the size: each position becomes four. A wide kernel also mixes neighbours."""

    def __init__(self, width: int, size: tuple[int, int], *, wide: bool) -> None:
        edge = (0, 1 if wide else 0)
        super().__init__(width, width, (2, 3 if wide else 2), 2, padding=edge, output_padding=edge)
        self.size = size  # height and width of its input

    def region(self, region: Region) -> Tensor:
        """Return the output at a region of the larger map, from the inputs given to `store`."""
        half, weight = region.downsampled, self.weight[:, :, region.row % 2]
        row = region.input_cache[self][:, :, half.row]
        if region.column is None:  # a whole row, in the row stream, whose kernel is wide
            return F.conv_transpose1d(row, weight, self.bias, stride=2, padding=1, output_padding=1)[:, :, None]
        assert half.column is not None
        return F.linear(row[..., half.column], weight[..., region.column % 2].T, self.bias)[:, :, None, None]

    def store(self, x: Tensor, region: Region) -> None:
        """Store x as this part of the input."""
        if self not in region.input_cache:
            region.input_cache[self] = x.new_zeros(*x.shape[:2], *self.size)
        region.crop(region.input_cache[self][:, :, region.row])[:] = x[:, :, 0]


def concat_elu(x: Tensor) -> Tensor:
    """Concatenate elu(x) and elu(−x)."""
    return F.elu(torch.cat([x, -x], 1))


class GatedResidualBlock(nn.Module):
    """x + a · σ(b), where a and b come from x by two convolutions, and from `skip_input` by a linear map in between."""

    def __init__(self, width: int, skip_input: int, size: tuple[int, int], *, wide: bool) -> None:
        super().__init__()
        kernel = (2, 3) if wide else (2, 2)
        self.first = CausalConv2d(2 * width, width, kernel, size, wide=wide)
        self.skip_input = CausalConv2d(2 * skip_input, width, (1, 1), size, wide=wide) if skip_input else None
        self.second = CausalConv2d(2 * width, 2 * width, kernel, size, wide=wide)

    def forward(self, x: Tensor, skip_input: Tensor | None, region: Region | None) -> Tensor:
        """Return the block's output for the whole map or one region."""
        h = self.first(concat_elu(x), region)
        if self.skip_input is not None and skip_input is not None:
            h = h + self.skip_input(concat_elu(skip_input), region)
        a, b = self.second(concat_elu(h), region).chunk(2, 1)
        out: Tensor = x + a * torch.sigmoid(b)
        return out


class Stage(nn.Module):
    """One stream at one size of the map: blocks on the way down, the smaller sizes, and blocks on the way up."""

    def __init__(self, config: PixelCNNPlusPlusConfig, depth: int, *, rows: bool) -> None:
        super().__init__()
        self.depth, self.rows, width = depth, rows, config.width
        size = config.shape[1] >> depth, config.shape[2] >> depth
        innermost = depth == config.stages - 1
        row_width = 0 if rows else width  # the pixel stream sees the row stream
        self.down_blocks = nn.ModuleList(GatedResidualBlock(width, row_width, size, wide=rows) for _ in range(config.blocks))
        count = config.blocks if innermost else config.blocks + 1
        self.up_blocks = nn.ModuleList(GatedResidualBlock(width, row_width + width, size, wide=rows) for _ in range(count))
        self.inner_stage: Stage | None = None
        if not innermost:
            self.downsample = CausalConv2d(width, width, (2, 3) if rows else (2, 2), size, wide=rows, stride=2)
            self.inner_stage = Stage(config, depth + 1, rows=rows)
            self.upsample = Upsample(width, (size[0] // 2, size[1] // 2), wide=rows)

    def forward(self, h: Tensor, row_features: RowFeatures, region: Region | None = None) -> Tensor:
        """Return the stream's output; the row stream writes `row_features`, the pixel stream reads them."""
        skips = [h]
        for index, block in enumerate(self.down_blocks):
            h = block(h, None if self.rows else self._row_features(row_features, index, region), region)
            if self.rows:
                row_features[self.depth, index] = h
            skips.append(h)
        h = skips.pop() if self.inner_stage is None else self._inner(h, row_features, region)
        for index, block in enumerate(self.up_blocks, start=len(self.down_blocks)):
            skip = skips.pop()
            h = block(h, skip if self.rows else torch.cat([self._row_features(row_features, index, region), skip], 1), region)
            if self.rows:
                row_features[self.depth, index] = h
        return h

    def _row_features(self, row_features: RowFeatures, index: int, region: Region | None) -> Tensor:
        features = row_features[self.depth, index]
        return features if region is None else region.crop(features)

    def _inner(self, h: Tensor, row_features: RowFeatures, region: Region | None) -> Tensor:
        assert self.inner_stage is not None
        if region is None:
            upsampled: Tensor = self.upsample(self.inner_stage(self.downsample(h), row_features))
            return upsampled
        window = region.window(self.downsample, h)
        if region.even:  # between two positions of the smaller map the last one still holds
            self.upsample.store(
                self.inner_stage(self.downsample.seen(window, region), row_features, region.downsampled), region.downsampled
            )
        return self.upsample.region(region)


class PixelCNNPlusPlus(nn.Module):
    """The two streams and the head."""

    def __init__(self, config: PixelCNNPlusPlusConfig) -> None:
        super().__init__()
        self.config = config
        channels, size = config.shape[0], config.shape[1:]
        self.above = CausalConv2d(channels + 1, config.width, (2, 3), size, wide=True)
        self.upper = CausalConv2d(channels + 1, config.width, (1, 3), size, wide=True)
        self.left = CausalConv2d(channels + 1, config.width, (2, 1), size, wide=False)
        self.rows = Stage(config, 0, rows=True)
        self.pixel_stream = Stage(config, 0, rows=False)
        self.head = CausalConv2d(config.width, mixture_parameter_count(channels, config.mixtures), (1, 1), size, wide=False)

    def forward(self, x: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch parameters height width"]:
        """Return the mixture parameters of every pixel given those before it in raster order; x is in [0, 1]."""
        # A channel of ones tells the image from the padding, which is zero.
        padded = torch.cat([2 * x - 1, torch.ones_like(x[:, :1])], 1)
        down, right = F.pad(padded, (0, 0, 1, -1)), F.pad(padded, (1, -1, 0, 0))
        row_features: RowFeatures = {}
        self.rows(self.above(down), row_features)
        parameters: Tensor = self.head(F.elu(self.pixel_stream(self.upper(down) + self.left(right), row_features)))
        return parameters

    @torch.no_grad()
    def sample(self, n: int, seed: int = 0) -> Float[Tensor, "n channel height width"]:
        """Sample images in [0, 1] pixel by pixel."""
        channels, height, width = self.config.shape
        padded = self.head.weight.new_zeros(n, channels + 1, 1 + height, 1 + width)
        device = padded.device
        input_cache: InputCache = {}
        row_features: RowFeatures = {}
        number, counter = torch.arange(n, device=device), torch.arange(self.config.mixtures + channels, device=device)
        for row in range(height):
            region, down = Region(row, None, input_cache), padded[:, :, row : row + 1, 1:]
            self.rows(self.above(down, region), row_features, region)
            upper = self.upper(down, region)
            pixels = row * width + torch.arange(width, device=device)
            uniforms = random.uniform(seed, number[:, None, None], pixels[:, None], counter)
            for column in range(width):
                region = Region(row, column, input_cache)
                left = self.left(padded[:, :, row + 1 : row + 2, column : column + 1], region)
                h = self.pixel_stream(region.crop(upper) + left, row_features, region)
                mixture = parse_mixture(self.head(F.elu(h), region)[:, :, 0, 0].float(), channels)
                padded[:, :channels, row + 1, column + 1] = sample_pixel(mixture, uniforms[:, column]).to(padded.dtype)
                padded[:, channels, row + 1, column + 1] = 1
        return (padded[:, :channels, 1:, 1:] + 1) / 2
