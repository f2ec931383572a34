"""What the config of every kind of run holds, and how a device wants it computed."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Protocol, TypeVar, runtime_checkable


@runtime_checkable
class Settings(Protocol):
    """What a run is told, besides its model and its stages."""

    @property
    def scale(self) -> Literal["smoke", "short", "full"]: ...

    @property
    def seed(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """(channel, height, width) of the data; (channel, time) of sound."""

    @property
    def examples(self) -> int | None: ...

    @property
    def precision(self) -> Literal["float32", "bfloat16"]: ...

    @property
    def compile(self) -> bool: ...

    @property
    def graph(self) -> bool: ...

    @property
    def checkpoint_seconds(self) -> float: ...

    @property
    def sample_grids(self) -> int: ...


Config = TypeVar("Config", bound=Settings)


def computed_on(config: Config, device: str) -> Config:
    """The recipe as that type of device computes it: on a GPU in bfloat16, compiled and captured as a graph."""
    if device != "cuda" or config.scale == "smoke":
        return config
    return replace(config, precision="bfloat16", compile=True, graph=True)  # type: ignore[type-var]  # all are dataclasses
