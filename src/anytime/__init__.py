"""Generative models that you can stop at any moment.

>>> import anytime
>>> anytime.__version__
'0.1.0'
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anytime.core.errors import UserError
    from anytime.model import AnytimeModel, load
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
}


def __getattr__(name: str) -> Any:
    # Imported on first use: torch takes a second or more, and `anytime --help` must not wait for it.
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'anytime' has no attribute {name!r}")
    # Threads that wait for work must not spin: that takes the cores of other programs. Read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)
