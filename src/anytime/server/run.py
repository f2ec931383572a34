"""Running the server: the socket, the engine processes, the web application, and their orderly end."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FrameType

import uvicorn

from anytime.core.errors import UserError
from anytime.server.connection import GuardedConnection
from anytime.server.http import build_app
from anytime.server.messages import EngineSettings, Ready
from anytime.server.service import MAX_REQUESTS, Service
from anytime.server.supervisor import Supervisor

DRAIN_SECONDS = 10.0
"""Longest time that requests in flight get after a signal to stop."""
CLOSE_SECONDS = 3
"""Longest time that open connections get after that."""
UNREAD_SECONDS = 60
"""A connection is closed when its client has read nothing of an answer for so long."""
SWITCH_SECONDS = 0.0005
"""Longest time that a thread which encodes an answer holds up the event loop; Python's own choice is ten times that."""


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where and how to serve."""

    engine: EngineSettings
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    max_requests: int = MAX_REQUESTS
    spare: bool = True


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's own.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket, so that a mistake is known before the models are loaded."""
    try:
        family, kind, protocol, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # an answer of several parts must not wait for the first
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # on Linux, and handed on to the connections
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * UNREAD_SECONDS)
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"`host` {host} and `port` {port} cannot be used ({reason}); choose another port") from None
    return bound


def serve(settings: ServerSettings, say: Callable[[str], None]) -> None:
    """Serve until a signal to stop."""
    bound = bind(settings.host, settings.port)
    sys.setswitchinterval(SWITCH_SECONDS)
    with bound, asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(settings, bound, say))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop, which is faster, or Python's own."""
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _serve(settings: ServerSettings, bound: socket.socket, say: Callable[[str], None]) -> None:
    supervisor = Supervisor(settings.engine, spare=settings.spare, say=say)
    try:
        ready = await supervisor.start()
        service = Service(supervisor, ready, max_requests=settings.max_requests)
        settings = replace(settings, port=bound.getsockname()[1])  # 0 stands for a free one
        await _run_web(settings, bound, service, lambda: announce(settings, ready, say))
    finally:
        await supervisor.stop()


def announce(settings: ServerSettings, ready: Ready, say: Callable[[str], None], more: str = "") -> None:
    """Say what is served, what was measured, and where; warn if everybody can use it."""
    names, host = ", ".join(info.name for info in ready.models), settings.host
    say(f"{names} on {ready.hardware}: {ready.choice}{more}")
    if not is_loopback(host) and settings.token is None:
        say(f"WARNING: LISTENING ON {host} WITHOUT A TOKEN: EVERYBODY WHO REACHES THIS MACHINE CAN USE IT")
    say(f"http://{f'[{host}]' if ':' in host else host}:{settings.port}")


def allowed_hosts(settings: ServerSettings) -> frozenset[str] | None:
    """Return the host names that requests may have; None for all."""
    if settings.token is not None or not is_loopback(settings.host):
        return None
    return frozenset({"localhost", "127.0.0.1", "[::1]", settings.host})


async def _run_web(settings: ServerSettings, bound: socket.socket, service: Service, started: Callable[[], None]) -> None:
    app = build_app(service, token=settings.token, hosts=allowed_hosts(settings))
    config = uvicorn.Config(
        app, http=GuardedConnection, log_level="warning", access_log=False, lifespan="off", timeout_keep_alive=30,
        timeout_graceful_shutdown=CLOSE_SECONDS, server_header=False, backlog=1024,
    )  # fmt: skip
    server = DrainingServer(config, service)
    serving = asyncio.ensure_future(server.serve(sockets=[bound]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)
    started()
    await serving


class DrainingServer(uvicorn.Server):
    """A server that finishes its work before it ends: a first signal stops new requests, a second one ends it at once."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service, self._loop = service, asyncio.get_running_loop()
        self._draining: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain, or end at once."""
        if self.service.is_draining:
            self.should_exit = True
            self.force_exit = sig == signal.SIGINT
            return
        self.service.is_draining = True
        self._loop.call_soon_threadsafe(self._start_draining)

    def _start_draining(self) -> None:
        self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        end = time.monotonic() + DRAIN_SECONDS
        self.service.supervisor.drain(end - 1.0)
        while self.service.supervisor.tickets and time.monotonic() < end:
            await asyncio.sleep(0.02)
        self.should_exit = True
