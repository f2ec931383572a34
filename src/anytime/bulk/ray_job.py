"""Bulk sampling as a Ray job: the nodes of a cluster compute shards, and this process writes them.

A task gets the model and the number of a shard and returns its bytes, so nodes need no shared directory. Tasks have no side
effects: Ray runs those of a lost node again elsewhere, and the bytes are the same.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from anytime.bulk.request import BulkRequest
from anytime.bulk.run import BulkProgress, BulkResult, keep_manifest, open_folder, show
from anytime.bulk.shard_folder import AGAIN, ShardFolder
from anytime.bulk.shards import Stopped, make_shard
from anytime.core.errors import UserError, reason
from anytime.core.progress import Reporter
from anytime.core.ray_cluster import connect, import_ray
from anytime.model import AnytimeModel, load

ModelFiles = dict[str, bytes]
QUEUED = 2
"""Tasks in flight for each CPU or GPU of the cluster: while one is computed, the next one waits on the same node."""
RETRIES = 20
"""How often Ray runs a task again whose node or process was lost: a lost node costs time, not the job."""
POLL_SECONDS = 0.5
"""Longest time between two looks at the event that stops the job."""


def sample_with_ray(
    model: AnytimeModel, request: BulkRequest, out: Path, reporter: Reporter, stop: threading.Event | None = None
) -> BulkResult:
    """Make all shards in the cluster that RAY_ADDRESS names, or in a new one on this machine."""
    ray, folder = import_ray(), ShardFolder(out, request)
    connect(ray)
    try:
        missing = open_folder(folder, range(request.count), reporter, stop)
        return keep_manifest(folder, reporter, lambda progress: _make(ray, model, folder, missing, progress, stop))
    finally:
        ray.shutdown()


def _make(
    ray: Any, model: AnytimeModel, folder: ShardFolder, missing: list[int], progress: BulkProgress, stop: threading.Event | None
) -> None:
    files = ray.put(model_files(model))
    resource = "GPU" if folder.request.device == "cuda" else "CPU"
    task = ray.remote(num_cpus=1, num_gpus=int(resource == "GPU"), max_retries=RETRIES)(compute)
    nodes = set[str]()
    if missing and not ray.cluster_resources().get(resource):
        progress.reporter.say(f"waiting for a node with a {resource}")
    jobs = Jobs(ray, lambda index: task.remote([files], folder.request, index), missing, resource)
    for index, (content, node) in jobs.run(stop):
        folder.write(index, content)
        nodes.add(node)
        show(folder, progress)
    if missing:
        progress.reporter.say(f"computed on {len(nodes)} node{'' if len(nodes) == 1 else 's'}")


class Jobs:
    """Tasks of a cluster that may grow and shrink: a few in flight for each of its CPUs or GPUs."""

    def __init__(self, ray: Any, submit: Callable[[int], Any], indices: list[int], resource: str) -> None:
        self.ray, self.submit, self.resource = ray, submit, resource
        self.waiting = indices[::-1]  # the next one is the last
        self.running: dict[Any, int] = {}

    def run(self, stop: threading.Event | None) -> Iterator[tuple[int, tuple[bytes, str]]]:
        """Yield results as they come; raise `Stopped` if the event is set."""
        while self.waiting or self.running:
            if stop is not None and stop.is_set():
                raise Stopped
            self._fill()
            ready, _ = self.ray.wait(list(self.running), num_returns=1, timeout=POLL_SECONDS)
            for reference in ready:
                index = self.running.pop(reference)
                yield index, self._result(reference, index)

    def _fill(self) -> None:
        """Keep enough tasks in flight. Without any CPU or GPU one waits in Ray until there is a node for it."""
        slots = int(self.ray.cluster_resources().get(self.resource, 0))
        while self.waiting and len(self.running) < max(1, QUEUED * slots):
            index = self.waiting.pop()
            self.running[self.submit(index)] = index

    def _result(self, reference: Any, index: int) -> tuple[bytes, str]:
        try:
            result: tuple[bytes, str] = self.ray.get(reference)
        except UserError as error:  # Ray's copy of it, with a traceback
            raise UserError(str(getattr(error, "cause", error))) from None
        except self.ray.exceptions.RayTaskError:  # a bug
            raise
        except self.ray.exceptions.RayError as error:  # nodes or processes were lost again and again
            raise UserError(f"shard {index} was lost with its node ({reason(error)}); check the nodes, {AGAIN}") from None
        return result


def model_files(model: AnytimeModel) -> ModelFiles:
    """Return the files of a saved model."""
    with tempfile.TemporaryDirectory() as folder:
        return {path.name: path.read_bytes() for path in model.save(folder).iterdir()}


_LOADED: dict[tuple[str, ...], AnytimeModel] = {}
"""The models of a worker process, by hash, device, engine and precision: Ray runs many tasks in one process."""


def compute(files: list[Any], request: BulkRequest, index: int) -> tuple[bytes, str]:
    """Return the content of a shard and the node that made it. `files` holds a reference, which only the first call reads."""
    ray, key = import_ray(), (request.model, request.device, request.engine, request.precision)
    if key not in _LOADED:
        _LOADED[key] = load_files(ray.get(files[0]), request)
    return make_shard(_LOADED[key], request, index), ray.get_runtime_context().get_node_id()


def load_files(files: ModelFiles, request: BulkRequest) -> AnytimeModel:
    """Load a model from the content of its files, for the device and engine of a request."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        return load(folder, request.device, request.engine, request.precision)
