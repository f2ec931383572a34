"""SSIM, the structural similarity of two images (Wang et al. 2004)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

WINDOW, SIGMA = 11, 1.5  # the paper's Gaussian window
C1, C2 = 0.01**2, 0.03**2  # the paper's constants, for values in [0, 1]


def ssim(x: Float[Tensor, "n channel height width"], y: Float[Tensor, "n channel height width"]) -> Float[Tensor, " n"]:
    """Return the SSIM of each pair of images in [0, 1]: the mean over channels and windows that lie inside the image.

    >>> x = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    >>> bool(torch.allclose(ssim(x, x), torch.ones(2))), bool((ssim(x, 1 - x) < 0).all())
    (True, True)
    """
    x, y = x.double(), y.double()  # variances are differences of nearly equal numbers
    mean_x, mean_y = _blur(x), _blur(y)
    variance_x, variance_y = _blur(x * x) - mean_x**2, _blur(y * y) - mean_y**2
    covariance = _blur(x * y) - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + C1) / (mean_x**2 + mean_y**2 + C1)
    structure = (2 * covariance + C2) / (variance_x + variance_y + C2)
    return (luminance * structure).mean((1, 2, 3)).float()


def _blur(x: Float[Tensor, "n channel height width"]) -> Float[Tensor, "n channel tall wide"]:
    """Apply the Gaussian window to each channel, without padding."""
    place = torch.arange(WINDOW, dtype=x.dtype, device=x.device) - WINDOW // 2
    window = torch.exp(-(place**2) / (2 * SIGMA**2))
    window = (window / window.sum()).expand(x.shape[1], 1, 1, -1)
    rows = F.conv2d(x, window, groups=x.shape[1])
    return F.conv2d(rows, window.transpose(2, 3), groups=x.shape[1])
