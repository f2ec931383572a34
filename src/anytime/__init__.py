"""Generative models that you can stop at any moment.

>>> import anytime
>>> anytime.__version__
'0.1.0'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from anytime.core.openmp import set_waiting

if TYPE_CHECKING:
    from anytime.core.errors import UserError
    from anytime.model import AnytimeModel, load
    from anytime.models.registry import bundled_names as models
    from anytime.sampling.budget import Budget, DeadlineWarning, MemoryWarning
    from anytime.sampling.sample import Sample
    from anytime.sampling.session import Session
    from anytime.server.client import Client, ServerError

__version__ = "0.1.0"

__all__ = [
    "AnytimeModel",
    "Budget",
    "Client",
    "DeadlineWarning",
    "MemoryWarning",
    "Sample",
    "ServerError",
    "Session",
    "UserError",
    "__version__",
    "load",
    "models",
]

_LAZY_IMPORTS = {
    "AnytimeModel": "anytime.model",
    "Budget": "anytime.sampling.budget",
    "Client": "anytime.server.client",
    "DeadlineWarning": "anytime.sampling.budget",
    "MemoryWarning": "anytime.sampling.budget",
    "Sample": "anytime.sampling.sample",
    "ServerError": "anytime.server.client",
    "Session": "anytime.sampling.session",
    "UserError": "anytime.core.errors",
    "load": "anytime.model",
    "models": "anytime.models",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: torch takes a second or more, and `anytime --help` must not wait for it.
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'anytime' has no attribute {name!r}")
    set_waiting()  # before torch is imported
    return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    """Return the public names, also those that are not imported yet."""
    return sorted(__all__)


def load_ipython_extension(ipython: Any) -> None:
    """Add `%anytime VERB …` to a notebook; `%load_ext anytime` calls this."""
    from anytime.cli.magic import register

    register(ipython)
