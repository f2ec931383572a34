"""Ray, which is optional: importing it, and connecting to a cluster or starting one on this machine."""

from __future__ import annotations

import importlib
import logging
import os
import re
import signal
import socket
import threading
from typing import Any

from anytime.core.errors import UserError

ENVIRONMENT = {
    "RAY_worker_niceness": "0",  # Ray's 15 lets every other process go first, whatever the deadline
    "GRPC_ENABLE_FORK_SUPPORT": "0",  # replicas start engines: each would print a line about it
}
"""Variables of Ray for a cluster on this machine, unless they are set."""
CONNECT_SECONDS = 5.0
"""Longest wait for the machine that RAY_ADDRESS names; Ray itself would wait for minutes."""


def import_ray(part: str | None = None) -> Any:
    """Import Ray and a part of it, such as `serve`."""
    package = "ray" if part is None else f"ray[{part}]"
    try:
        importlib.import_module("ray" if part is None else f"ray.{part}")
        return importlib.import_module("ray")
    except ImportError:
        raise UserError(f"`ray` needs the package {package}; run `pip install '{package}'`") from None


def connect(ray: Any, least_cpus: int = 1) -> None:
    """Connect to the cluster that RAY_ADDRESS names, or start one on this machine: no dashboard, no usage statistics."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address := os.environ.get("RAY_ADDRESS"):
        try:
            if match := re.fullmatch(r"(?:ray://)?(.+):([0-9]{1,5})", address):
                socket.create_connection((match[1].strip("[]"), int(match[2])), CONNECT_SECONDS).close()
            _init(ray, address)
        except (OSError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"RAY_ADDRESS {address!r} cannot be used ({reason}); check it and RAY_AUTH_MODE") from None
    else:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        # Ray counts CPUs to place work, it does not reserve them.
        cpus = max(os.cpu_count() or 1, least_cpus)
        _init(ray, "local", num_cpus=cpus, include_dashboard=False)


def _init(ray: Any, address: str, **options: Any) -> None:
    """Start Ray's driver, which sets a handler of SIGTERM; keep the program's own."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    ray.init(address, logging_level=logging.WARNING, **options)
    if is_main:
        signal.signal(signal.SIGTERM, before)
