"""Small blocks: a shard of 16 rows has two."""

from __future__ import annotations

import pytest

from anytime.sampling.engines.eager import EagerEngine

collect_ignore = ["conftest.py"]  # no doctests here, and other directories have modules of the same name


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EagerEngine, "block", 8)
