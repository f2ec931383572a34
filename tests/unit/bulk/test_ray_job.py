"""The tasks of a Ray job, with a fake cluster; `tests/smoke/test_bulk_ray.py` has a real one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from anytime.bulk.ray_job import Jobs, load_files, model_files
from anytime.bulk.request import bulk_request
from anytime.bulk.shards import Stopped, make_shard
from anytime.core.errors import UserError
from anytime.model import AnytimeModel


class RayError(Exception):
    """As Ray's, for lost nodes."""


class RayTaskError(RayError):
    """As Ray's, for errors of a task."""


class FakeRay:
    """A cluster whose tasks end in reverse order; a task is its shard, or the error that it raises."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, cpus: int) -> None:
        self.cpus, self.most = cpus, 0

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(self.cpus)} if self.cpus else {}

    def wait(self, tasks: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        self.most = max(self.most, len(tasks))
        return tasks[-1:], tasks[:-1]

    def get(self, task: Any) -> tuple[bytes, str]:
        if isinstance(task, Exception):
            raise task
        return bytes([task]), "node"


@pytest.mark.parametrize(("cpus", "most"), [(3, 6), (1, 2), (0, 1)])
def test_a_few_tasks_are_in_flight_for_each_cpu(cpus: int, most: int) -> None:
    ray = FakeRay(cpus)
    found = dict(Jobs(ray, lambda index: index, list(range(3, 20)), "CPU").run(None))
    assert found == {index: (bytes([index]), "node") for index in range(3, 20)}
    assert ray.most == most


def test_a_stop_ends_the_job() -> None:
    stop, found = threading.Event(), list[int]()
    with pytest.raises(Stopped):
        for index, _ in Jobs(FakeRay(1), lambda index: index, list(range(20)), "CPU").run(stop):
            found.append(index)
            stop.set()
    assert len(found) == 1


def test_errors_of_tasks(refused: Callable[..., str]) -> None:
    def run(error: Exception) -> None:
        list(Jobs(FakeRay(1), lambda index: error, [7], "CPU").run(None))

    assert refused(run, UserError("this device is too small")) == "this device is too small"
    sentence = refused(run, RayError("node 17 died"))
    assert (
        sentence
        == "shard 7 was lost with its node (node 17 died); check the nodes, then run the same command again to continue"
    )
    with pytest.raises(RayTaskError):
        run(RayTaskError("a bug"))


def test_a_model_travels_as_its_files(tiny: AnytimeModel) -> None:
    request = bulk_request(tiny, 20, codes=2)
    model = load_files(model_files(tiny), request)
    assert model.hash == tiny.hash and model is not tiny
    assert make_shard(model, request, 0) == make_shard(tiny, request, 0)
