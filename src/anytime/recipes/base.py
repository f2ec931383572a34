"""What the config of every kind of run holds, and how a device wants it computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from anytime.core.errors import UserError

Scale = Literal["smoke", "short", "full"]
Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class BaseRunConfig:
    """What a run is told, besides its model and its stages."""

    recipe: str
    scale: Scale
    seed: int = 0
    examples: int | None = None
    """Train on the first so many examples only."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 is autocast: weights, losses and what must be exact (codebook, posterior, likelihood) stay in float32."""
    compile: bool = False
    """Compile the training step with torch.compile."""
    graph: bool = False
    """Capture the training step as a CUDA graph."""
    checkpoint_seconds: float = 30.0
    """Least time between two checkpoints inside a stage."""
    sample_grids: int = 5
    """Pictures written to samples/ per stage."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 63:
            raise UserError(f"--seed must be between 0 and 2^63 - 1, not {self.seed}")
        if self.examples is not None and self.examples < 1:
            raise UserError(f"examples must be at least 1, not {self.examples}; null means all")

    @property
    def shape(self) -> Shape:
        """(channel, height, width) of the data; (channel, time) of sound."""
        raise NotImplementedError


Config = TypeVar("Config", bound=BaseRunConfig)


def with_device_defaults(config: Config, device: str) -> Config:
    """The recipe as that type of device computes it: on a GPU in bfloat16, compiled and captured as a graph."""
    if device != "cuda" or config.scale == "smoke":
        return config
    return replace(config, precision="bfloat16", compile=True, graph=True)
