"""An autoregressive model of pixels in PixelCNN++'s size class, for the speed comparison of Section 5.2.2.

Not a prior over codes: one picture of 32 × 32 is 1,024 steps. The network is that of Salimans et al. (2017): two streams of
gated residual blocks, one that has seen the rows above and one that has also seen what is to the left, each going in to a
quarter of the picture's size and out again, and a mixture of logistics for every pixel. Weight normalisation and dropout are
left out: they change how such a network is trained, not how long it takes to sample.

Sampling keeps what every convolution has been given so far (Ramachandran et al. 2017), so that a pixel costs one place of each
layer and not the whole picture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from anytime.baselines.logistic_mixture import draw, mixture_of, parameter_count
from anytime.core import random
from anytime.core.errors import UserError
from anytime.priors.pixelcnn import at_one_place

Maps = dict[nn.Module, Tensor]
"""What each layer has been given so far."""
Guides = dict[tuple[int, int], Tensor]
"""What the stream of rows says to the stream of places, by depth and block."""


@dataclass(frozen=True, kw_only=True)
class PixelSpaceConfig:
    """Shape of the network; the defaults are the published ones."""

    shape: tuple[int, int, int]
    """Channels, height and width of the pictures."""
    width: int = 160
    """Channels of each stream."""
    blocks: int = 5
    """Residual blocks per stage."""
    stages: int = 3
    """Sizes of the map, each half of the one before."""
    mixtures: int = 10

    def __post_init__(self) -> None:
        if min(*self.shape, self.width, self.blocks, self.stages, self.mixtures) < 1:
            raise UserError("pixelspace: shape, width, blocks, stages and mixtures must all be at least 1")
        if any(side % (1 << (self.stages - 1)) for side in self.shape[1:]):
            raise UserError(f"pixelspace: {self.stages} stages need sides that {1 << (self.stages - 1)} divides: {self.shape}")


@dataclass(frozen=True, slots=True)
class Part:
    """What sampling computes at once: a whole row, or one place of it."""

    row: int
    column: int | None
    maps: Maps

    @property
    def even(self) -> bool:
        """Whether the map of half the size has a part here."""
        return self.row % 2 == 0 and (self.column is None or self.column % 2 == 0)

    @property
    def halved(self) -> Part:
        return replace(self, row=self.row // 2, column=None if self.column is None else self.column // 2)

    def window(self, layer: Causal, x: Tensor) -> Tensor:
        """Take x in as this part of the layer's input; returns what its kernel then sees."""
        left, right, top, _ = layer.margin
        height, width = layer.size
        if layer not in self.maps:
            self.maps[layer] = x.new_zeros(*x.shape[:2], top + height, left + width + right)
        seen = self.maps[layer][:, :, self.row : self.row + top + 1]
        if self.column is None:
            seen[:, :, top, left : left + width] = x[:, :, 0]
            return seen
        seen[:, :, top, left + self.column] = x[:, :, 0, 0]
        return seen[:, :, :, self.column : self.column + left + 1]

    def cut(self, row: Tensor) -> Tensor:
        """This part of a row."""
        return row if self.column is None else row[..., self.column : self.column + 1]


class Causal(nn.Conv2d):
    """A convolution that sees its own place, what is to the left of it and the rows above: those on both sides, if `wide`."""

    def __init__(
        self, inputs: int, outputs: int, kernel: tuple[int, int], size: tuple[int, int], *, wide: bool, stride: int = 1
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride)
        rows, columns = kernel
        self.margin = (columns // 2, columns // 2, rows - 1, 0) if wide else (columns - 1, 0, rows - 1, 0)
        self.size = size  # height and width of its input

    def forward(self, x: Tensor, part: Part | None = None) -> Tensor:
        if part is None:
            return super().forward(F.pad(x, self.margin))
        return self.seen(x if self.kernel_size == (1, 1) else part.window(self, x), part)

    def seen(self, window: Tensor, part: Part) -> Tensor:
        """The output that belongs to a window."""
        return super().forward(window) if part.column is None else at_one_place(self, window)[:, :, None, None]


class Doubling(nn.ConvTranspose2d):
    """From a map of half the size. Each of its places becomes four; a wide kernel also fills in between neighbours."""

    def __init__(self, width: int, size: tuple[int, int], *, wide: bool) -> None:
        edge = (0, 1 if wide else 0)
        super().__init__(width, width, (2, 3 if wide else 2), 2, padding=edge, output_padding=edge)
        self.size = size  # height and width of its input

    def part(self, part: Part) -> Tensor:
        """Its output at a part of the larger map, from what `keep` was given."""
        half, weight = part.halved, self.weight[:, :, part.row % 2]
        row = part.maps[self][:, :, half.row]
        if part.column is None:  # a whole row: the stream of rows, whose kernel is wide
            return F.conv_transpose1d(row, weight, self.bias, stride=2, padding=1, output_padding=1)[:, :, None]
        assert half.column is not None
        return F.linear(row[..., half.column], weight[..., part.column % 2].T, self.bias)[:, :, None, None]

    def keep(self, x: Tensor, part: Part) -> None:
        """Take x in as this part of its input."""
        if self not in part.maps:
            part.maps[self] = x.new_zeros(*x.shape[:2], *self.size)
        part.cut(part.maps[self][:, :, part.row])[:] = x[:, :, 0]


def both_signs(x: Tensor) -> Tensor:
    """elu of x and of −x, side by side."""
    return F.elu(torch.cat([x, -x], 1))


class Block(nn.Module):
    """x + a · σ(b), where a and b come from x by two convolutions, and from `more` by a linear map in between."""

    def __init__(self, width: int, more: int, size: tuple[int, int], *, wide: bool) -> None:
        super().__init__()
        kernel = (2, 3) if wide else (2, 2)
        self.first = Causal(2 * width, width, kernel, size, wide=wide)
        self.more = Causal(2 * more, width, (1, 1), size, wide=wide) if more else None
        self.second = Causal(2 * width, 2 * width, kernel, size, wide=wide)

    def forward(self, x: Tensor, more: Tensor | None, part: Part | None) -> Tensor:
        h = self.first(both_signs(x), part)
        if self.more is not None and more is not None:
            h = h + self.more(both_signs(more), part)
        a, b = self.second(both_signs(h), part).chunk(2, 1)
        out: Tensor = x + a * torch.sigmoid(b)
        return out


class Stage(nn.Module):
    """One stream at one size of the map: blocks on the way in, the smaller sizes, and blocks on the way out, which see both."""

    def __init__(self, config: PixelSpaceConfig, depth: int, *, rows: bool) -> None:
        super().__init__()
        self.depth, self.rows, width = depth, rows, config.width
        size = config.shape[1] >> depth, config.shape[2] >> depth
        innermost = depth == config.stages - 1
        heard = 0 if rows else width  # the stream of places hears the stream of rows
        self.way_in = nn.ModuleList(Block(width, heard, size, wide=rows) for _ in range(config.blocks))
        count = config.blocks if innermost else config.blocks + 1
        self.way_out = nn.ModuleList(Block(width, heard + width, size, wide=rows) for _ in range(count))
        self.inside: Stage | None = None
        if not innermost:
            self.halving = Causal(width, width, (2, 3) if rows else (2, 2), size, wide=rows, stride=2)
            self.inside = Stage(config, depth + 1, rows=rows)
            self.doubling = Doubling(width, (size[0] // 2, size[1] // 2), wide=rows)

    def forward(self, h: Tensor, guides: Guides, part: Part | None = None) -> Tensor:
        """The stream of rows writes the guides, the stream of places reads them."""
        skips = [h]
        for index, block in enumerate(self.way_in):
            h = block(h, None if self.rows else self._heard(guides, index, part), part)
            if self.rows:
                guides[self.depth, index] = h
            skips.append(h)
        h = skips.pop() if self.inside is None else self._inner(h, guides, part)
        for index, block in enumerate(self.way_out, start=len(self.way_in)):
            skip = skips.pop()
            h = block(h, skip if self.rows else torch.cat([self._heard(guides, index, part), skip], 1), part)
            if self.rows:
                guides[self.depth, index] = h
        return h

    def _heard(self, guides: Guides, index: int, part: Part | None) -> Tensor:
        guide = guides[self.depth, index]
        return guide if part is None else part.cut(guide)

    def _inner(self, h: Tensor, guides: Guides, part: Part | None) -> Tensor:
        assert self.inside is not None
        if part is None:
            doubled: Tensor = self.doubling(self.inside(self.halving(h), guides))
            return doubled
        window = part.window(self.halving, h)
        if part.even:  # between two places of the smaller map its last one still counts
            self.doubling.keep(self.inside(self.halving.seen(window, part), guides, part.halved), part.halved)
        return self.doubling.part(part)


class PixelSpace(nn.Module):
    def __init__(self, config: PixelSpaceConfig) -> None:
        super().__init__()
        self.config = config
        channels, size = config.shape[0], config.shape[1:]
        self.above = Causal(channels + 1, config.width, (2, 3), size, wide=True)
        self.upper = Causal(channels + 1, config.width, (1, 3), size, wide=True)
        self.left = Causal(channels + 1, config.width, (2, 1), size, wide=False)
        self.rows = Stage(config, 0, rows=True)
        self.places = Stage(config, 0, rows=False)
        self.head = Causal(config.width, parameter_count(channels, config.mixtures), (1, 1), size, wide=False)

    def forward(self, x: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch parameters height width"]:
        """The mixture of every pixel given those before it in reading order; x in [0, 1]."""
        # A channel of ones tells the picture from the margin, which is zero.
        given = torch.cat([2 * x - 1, torch.ones_like(x[:, :1])], 1)
        down, right = F.pad(given, (0, 0, 1, -1)), F.pad(given, (1, -1, 0, 0))
        guides: Guides = {}
        self.rows(self.above(down), guides)
        parameters: Tensor = self.head(F.elu(self.places(self.upper(down) + self.left(right), guides)))
        return parameters

    @torch.no_grad()
    def sample(self, n: int, seed: int = 0) -> Float[Tensor, "n channel height width"]:
        """Pictures in [0, 1], drawn pixel by pixel."""
        channels, height, width = self.config.shape
        given = self.head.weight.new_zeros(n, channels + 1, 1 + height, 1 + width)
        device = given.device
        maps: Maps = {}
        guides: Guides = {}
        number, counter = torch.arange(n, device=device), torch.arange(self.config.mixtures + channels, device=device)
        for row in range(height):
            part, down = Part(row, None, maps), given[:, :, row : row + 1, 1:]
            self.rows(self.above(down, part), guides, part)
            upper = self.upper(down, part)
            pixels = row * width + torch.arange(width, device=device)
            uniforms = random.uniform(seed, number[:, None, None], pixels[:, None], counter)
            for column in range(width):
                part = Part(row, column, maps)
                left = self.left(given[:, :, row + 1 : row + 2, column : column + 1], part)
                h = self.places(part.cut(upper) + left, guides, part)
                mixture = mixture_of(self.head(F.elu(h), part)[:, :, 0, 0].float(), channels)
                given[:, :channels, row + 1, column + 1] = draw(mixture, uniforms[:, column]).to(given.dtype)
                given[:, channels, row + 1, column + 1] = 1
        return (given[:, :channels, 1:, 1:] + 1) / 2
