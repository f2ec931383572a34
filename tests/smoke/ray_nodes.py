"""Nodes of a Ray cluster on this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from processes import kill_tree  # type: ignore[import-not-found]


@contextmanager
def cluster(folder: Path, cpus: int = 2) -> Iterator[str]:
    """A Ray cluster of one node; its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ("--head", "--port", str(port), "--include-dashboard", "false", "--temp-dir", str(folder))
    try:
        with node(cpus, *words) as process:
            yield f"127.0.0.1:{port}"
            assert process.poll() is None, "the cluster ended with the driver"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def node(cpus: int, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A node: a head, or one that `--address` adds to a cluster."""
    command = [
        Path(sys.executable).with_name("ray"),
        "start",
        "--block",
        "--num-cpus",
        str(cpus),
        "--disable-usage-stats",
        *words,
    ]
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        lines = list[str]()
        for line in process.stdout:
            lines.append(line)
            if "--block" in line:
                break
        assert process.poll() is None, "".join(lines)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            kill_tree(process.pid)
        process.stdout.close()
