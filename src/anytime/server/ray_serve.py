"""Scale-out: the web application as a Ray Serve deployment. Every replica has its own engine process and scheduler.

Ray is optional: it is imported only when it is used.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.types import Message, Receive, Scope, Send

from anytime.core.errors import UserError
from anytime.core.ray_cluster import connect, import_ray
from anytime.server.http import build_app
from anytime.server.messages import EngineSettings, Ready
from anytime.server.run import DRAIN_SECONDS, ServerSettings, allowed_hosts, announce, bind, is_loopback
from anytime.server.service import Service
from anytime.server.supervisor import Supervisor

APPLICATION = "anytime"
MAX_REPLICAS = 1024
TARGET_REQUESTS = 16
MARGIN = 64
"""Requests that Ray passes to a replica with a full queue, so that they are refused at once instead of waiting in the proxy."""
UPSCALE_SECONDS = 10.0
"""How long more requests must last before a replica is added; Ray removes one after ten minutes with fewer."""
HEALTH_SECONDS = 5.0
"""Time between two health checks of a replica; Ray replaces it after three that failed."""
QUIET = {"log_level": "WARNING", "enable_access_log": False}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How many replicas to run."""

    least: int = 1
    most: int = 1
    target_requests: int = TARGET_REQUESTS
    """Requests in flight per replica that autoscaling aims at."""

    def __str__(self) -> str:
        """The number of replicas in words.

        >>> str(Scale()), str(Scale(least=1, most=4))
        ('1 replica', '1 to 4 replicas')
        """
        count = str(self.least) if self.least == self.most else f"{self.least} to {self.most}"
        return f"{count} replica{'' if self.most == 1 else 's'}"

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of a Ray Serve deployment."""
        if self.least == self.most:
            return {"num_replicas": self.least}
        scaling = {"min_replicas": self.least, "max_replicas": self.most, "target_ongoing_requests": self.target_requests}
        return {"autoscaling_config": {**scaling, "look_back_period_s": UPSCALE_SECONDS, "upscale_delay_s": UPSCALE_SECONDS}}


def parse_replicas(text: str) -> tuple[int, int]:
    """Return the least and the largest number of replicas, written as `2` or `1-4`.

    >>> parse_replicas("2"), parse_replicas("1-4")
    ((2, 2), (1, 4))
    """
    if match := re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", text):
        least, most = int(match[1]), int(match[2] or match[1])
        if 1 <= least <= most <= MAX_REPLICAS:
            return least, most
    raise UserError(f"`replicas` {text!r} must be a number such as 2 or a range such as 1-4, from 1 to {MAX_REPLICAS}")


class Replica:
    """One replica: the application with a supervisor and an engine process."""

    async def __init__(self, settings: ServerSettings) -> None:  # type: ignore[misc]  # Ray awaits it
        self.supervisor = Supervisor(settings.engine, spare=settings.spare)
        self.ready = await self.supervisor.start()
        service = Service(self.supervisor, self.ready, max_requests=settings.max_requests)
        self.web = build_app(service, token=settings.token, hosts=allowed_hosts(settings))
        self.name = import_ray("serve").serve.get_replica_context().replica_tag.encode()

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; a header names the replica."""

        async def send_with_name(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"anytime-replica", self.name)]
            await send(message)

        await self.web(scope, receive, send_with_name)

    async def describe(self) -> Ready:
        """Return what the engine said when it was ready."""
        return self.ready

    async def check_health(self) -> None:
        """Raise an error while no engine takes requests."""
        if not self.supervisor.is_alive:
            raise RuntimeError("no engine takes requests")

    async def __del__(self) -> None:
        """End the engine; Ray has waited for the requests in flight before."""
        await self.supervisor.stop()


class Ingress:
    """What Ray's proxies call: it passes requests to the replica of its process."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on. The replica starts and ends its engine itself, so the lifespan is an empty application's."""
        if scope["type"] == "lifespan":
            await Starlette()(scope, receive, send)
        else:
            await import_ray("serve").serve.get_replica_context().servable_object.respond(scope, receive, send)


def serve_with_ray(settings: ServerSettings, scale: Scale, say: Callable[[str], None]) -> None:
    """Serve until a signal to stop: in the cluster that RAY_ADDRESS names, or in a new one on this machine."""
    ray = import_ray("serve")
    with bind(settings.host, settings.port) as bound:  # a mistake is known before anything starts; port 0 becomes a free one
        settings = replace(settings, port=bound.getsockname()[1])
    connect_to_serve(ray, scale)
    on_signals(signal.default_int_handler)  # KeyboardInterrupt; after Ray, which has handlers of its own
    try:
        handle = deploy(ray, settings, scale)
        announce(settings, handle.describe.remote().result(), say, f"; {scale}")
        while True:
            time.sleep(3600.0)
    except KeyboardInterrupt:
        pass
    finally:
        on_signals(signal.SIG_IGN)  # the shutdown ends by itself
        shut_down(ray)


def on_signals(handler: Any) -> None:
    """Set what signals to stop do."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def connect_to_serve(ray: Any, scale: Scale) -> None:
    """Connect to the cluster that RAY_ADDRESS names, or start one on this machine; refuse one that runs Ray Serve."""
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    connect(ray, least_cpus=scale.most)  # on this machine all replicas find a place
    if os.environ.get("RAY_ADDRESS") and ray.serve.status().proxies:
        raise UserError("Ray Serve runs in this cluster already; end it with `serve shutdown`")


def deploy(ray: Any, settings: ServerSettings, scale: Scale) -> Any:
    """Start the replicas and the proxies; return a handle of the deployment when they answer."""
    folders = tuple(str(Path(name).resolve()) if Path(name).is_dir() else name for name in settings.engine.models)
    engine = replace(settings.engine, models=folders)  # replicas run in another directory
    has_gpu = engine.device != "cpu" and ray.cluster_resources().get("GPU", 0) > 0
    resources = {"num_cpus": 1, "num_gpus": int(has_gpu)}
    try:
        ray.get(ray.remote(max_calls=1, **resources)(check_engine).remote(engine))  # one call: its process ends
    except UserError as error:  # Ray's copy of it, with a traceback
        raise UserError(str(getattr(error, "cause", error))) from None
    http = {"host": settings.host, "port": settings.port}
    ray.serve.start("HeadOnly" if is_loopback(settings.host) else "EveryNode", http, logging_config=QUIET)
    deployment = ray.serve.deployment(
        ray.serve.ingress(Ingress())(Replica),
        name="replica",
        ray_actor_options=resources,
        max_ongoing_requests=settings.max_requests + MARGIN,
        max_queued_requests=settings.max_requests + MARGIN,
        graceful_shutdown_wait_loop_s=0.2,
        graceful_shutdown_timeout_s=DRAIN_SECONDS,
        health_check_period_s=HEALTH_SECONDS,
        logging_config=QUIET,
        **scale.options,
    )
    return ray.serve.run(deployment.bind(replace(settings, engine=engine)), name=APPLICATION, route_prefix="/")


def check_engine(settings: EngineSettings) -> None:
    """Start an engine once, in the cluster: a replica whose engine cannot start would be started again and again."""
    from anytime.server.engine import start  # imports torch

    start(settings)


def shut_down(ray: Any) -> None:
    """Finish the requests in flight, then end Ray Serve, and Ray itself if it was started here."""
    if ray.is_initialized():
        if APPLICATION in ray.serve.status().applications:
            ray.serve.delete(APPLICATION)
            if "RAY_ADDRESS" in os.environ:
                ray.serve.shutdown()
        ray.shutdown()
