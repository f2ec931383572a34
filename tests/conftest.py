"""Shared by all tests: shapes in signatures are checked at run time; threads are few, as parallel tests would fight."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from jaxtyping import install_import_hook

install_import_hook("anytime", "beartype.beartype")
