"""Bundled models, and the registry that finds a model by name or path. `anytime.models()` lists the bundled models."""

from __future__ import annotations

import sys
from types import ModuleType


class _Models(ModuleType):
    """This package as a function: the name `anytime.models` belongs to both."""

    def __call__(self) -> list[str]:
        """Return the names of the bundled models, which `anytime.load` takes."""
        from anytime.models.registry import bundled_names

        return bundled_names()


models = sys.modules[__name__]
models.__class__ = _Models
