"""The scale-out without Ray: options, their mistakes, and what Ray Serve is asked for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from anytime.cli import main
from anytime.server import ray_serve
from anytime.server.messages import EngineSettings
from anytime.server.ray_serve import Ingress, Replica, Scale, parse_replicas
from anytime.server.run import ServerSettings, allowed_hosts

SETTINGS = ServerSettings(engine=EngineSettings(models=("mnist",)))


@pytest.mark.parametrize(("text", "expected"), [("1", (1, 1)), ("2", (2, 2)), ("1-4", (1, 4)), ("3-3", (3, 3))])
def test_replicas_are_a_number_or_a_range(text: str, expected: tuple[int, int]) -> None:
    assert parse_replicas(text) == expected


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "two", "1.5", "4-2", "0-2", "1-", "1-2-3", "1025", "9" * 5000, "\N{SUPERSCRIPT TWO}"]
)
def test_other_replicas_are_refused(text: str, refused: Callable[..., str]) -> None:
    assert "must be a number such as 2 or a range such as 1-4" in refused(parse_replicas, text)


def test_a_fixed_number_does_not_scale_and_a_range_does() -> None:
    assert Scale(least=2, most=2).options == {"num_replicas": 2}
    scaling = Scale(least=1, most=4, target_requests=8).options["autoscaling_config"]
    assert (scaling["min_replicas"], scaling["max_replicas"], scaling["target_ongoing_requests"]) == (1, 4, 8)


def sentence(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(["serve", *words])
    (line,) = capsys.readouterr().err.splitlines()
    assert end.value.code == 2 and line.startswith("anytime: ")
    return line


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--replicas", "2"), "--replicas needs --ray"),
        (("--target-requests", "2"), "--target-requests needs --ray"),
        (("--ray", "--replicas", "many"), "--replicas 'many' must be a number"),
        (("--ray", "--target-requests", "0"), "--target-requests must be between 1 and 512 (--queue), not 0"),
        (("--ray", "--queue", "4", "--target-requests", "5"), "between 1 and 4 (--queue), not 5"),
        (("--ray", "--port", "99999"), "--port must be between 0 and 65535"),
    ],
)
def test_mistakes_are_one_sentence(words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert expected in sentence(capsys, "mnist", *words)


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # importing it fails, as if it were not there
    monkeypatch.delitem(sys.modules, "ray.serve", raising=False)
    assert sentence(capsys, "mnist", "--ray") == "anytime: --ray needs the package ray[serve]; run `pip install 'ray[serve]'`"


def test_an_address_without_a_cluster_is_named_at_once(monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    assert "RAY_ADDRESS '127.0.0.1:9' cannot be used" in refused(ray_serve.connect_to_serve, FakeRay(), Scale())


def test_host_names_are_checked_on_this_machine_alone_and_only_without_a_token() -> None:
    assert allowed_hosts(SETTINGS) == {"localhost", "127.0.0.1", "[::1]"}
    assert allowed_hosts(ServerSettings(engine=SETTINGS.engine, host="0.0.0.0")) is None
    assert allowed_hosts(ServerSettings(engine=SETTINGS.engine, token="a-secret-of-some-length")) is None


class FakeRay:
    """Records what Ray is asked for."""

    def __init__(self, gpus: int = 0) -> None:
        self.gpus, self.asked = gpus, dict[str, Any]()
        self.serve = SimpleNamespace(
            start=lambda location, http, **_: self.asked.update(location=location, **http),
            ingress=lambda app: lambda cls: cls,
            deployment=self.deployment,
            run=lambda bound, **_: bound,
        )

    def cluster_resources(self) -> dict[str, float]:
        return {"GPU": self.gpus} if self.gpus else {}

    def remote(self, max_calls: int, **resources: int) -> Any:
        self.asked["checked"] = resources
        return lambda function: SimpleNamespace(remote=lambda settings: settings)

    def get(self, settings: EngineSettings) -> None:
        self.asked["engine"] = settings

    def deployment(self, cls: type, **options: Any) -> Any:
        self.asked.update(options)
        return SimpleNamespace(bind=lambda settings: settings)


@pytest.mark.parametrize(("gpus", "device", "expected"), [(0, None, 0), (2, None, 1), (2, "cuda", 1), (2, "cpu", 0)])
def test_a_replica_asks_for_a_gpu_if_there_is_one(gpus: int, device: str | None, expected: int) -> None:
    ray, settings = FakeRay(gpus), ServerSettings(engine=EngineSettings(models=("mnist",), device=device))
    ray_serve.deploy(ray, settings, Scale())
    assert ray.asked["ray_actor_options"] == ray.asked["checked"] == {"num_cpus": 1, "num_gpus": expected}


def test_ray_passes_requests_beyond_the_queue_on_so_that_the_replica_refuses_them() -> None:
    ray = FakeRay()
    served = ray_serve.deploy(ray, ServerSettings(engine=SETTINGS.engine, host="0.0.0.0", max_requests=100), Scale())
    assert ray.asked["max_ongoing_requests"] > 100 and served.max_requests == 100
    assert (ray.asked["location"], ray.asked["host"], ray.asked["port"]) == ("EveryNode", "0.0.0.0", 8000)
    ray_serve.deploy(ray, SETTINGS, Scale())
    assert ray.asked["location"] == "HeadOnly"


def test_directories_of_models_are_absolute(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path)
    served = ray_serve.deploy(FakeRay(), ServerSettings(engine=EngineSettings(models=("run", "mnist"))), Scale())
    assert served.engine.models == (str(tmp_path / "run"), "mnist")


def test_requests_go_to_the_replica_of_the_process_and_its_answers_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def web(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    respond = partial(Replica.respond, SimpleNamespace(web=web, name=b"abc"))  # type: ignore[arg-type]
    context = SimpleNamespace(servable_object=SimpleNamespace(respond=respond))
    monkeypatch.setattr(
        ray_serve, "import_ray", lambda part: SimpleNamespace(serve=SimpleNamespace(get_replica_context=lambda: context))
    )
    sent = list[dict[str, Any]]()

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Ingress()({"type": "http", "path": "/livez"}, None, send))  # type: ignore[arg-type]
    assert sent[0]["headers"] == [(b"a", b"b"), (b"anytime-replica", b"abc")] and sent[1]["body"] == b"/livez"


def test_a_replica_without_an_engine_is_unhealthy() -> None:
    replica = SimpleNamespace(supervisor=SimpleNamespace(is_alive=True))
    asyncio.run(Replica.check_health(replica))  # type: ignore[arg-type]
    replica.supervisor.is_alive = False
    with pytest.raises(RuntimeError, match="no engine"):
        asyncio.run(Replica.check_health(replica))  # type: ignore[arg-type]
