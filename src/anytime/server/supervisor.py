"""The supervisor: starts the engine process, passes requests to it, and replaces it when it dies.

A second engine waits, loaded and calibrated, so that requests in flight are answered by it instead of being lost: a request's
codes depend on its seed alone, so both give the same answer.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from anytime.core.errors import UserError
from anytime.core.openmp import set_waiting
from anytime.server.messages import (
    HEADER_BYTES,
    Answer,
    Cancel,
    Drain,
    EngineSettings,
    Expired,
    Failed,
    Incoming,
    Outgoing,
    Ready,
    Refused,
    Stats,
    Submit,
    Unable,
)

START = "import sys; from anytime.server.engine import from_socket; from_socket(int(sys.argv[1]))"
SILENCE_SECONDS = 10.0
"""An engine that says nothing for so long is hung, and is killed."""
MAX_PENDING_BYTES = 1 << 20
"""Of a request's refinements that wait for a slow reader."""
READ_BYTES = 1 << 22
"""Of the engine's messages, read ahead."""

Reply = Answer | Refused | Failed | Expired


@dataclass(eq=False)
class Ticket:
    """A request in flight. Of refinements that nobody took, the oldest give way: a slow reader holds up nothing."""

    submit: Submit
    _replies: list[Reply] = field(default_factory=list)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, reply: Reply) -> None:
        """Add a reply of the engine."""
        size = reply.data.nbytes if isinstance(reply, Answer) else 0
        while self._replies and isinstance(oldest := self._replies[0], Answer) and self._pending() + size > MAX_PENDING_BYTES:
            self._replies.remove(oldest)
        self._replies.append(reply)
        self._arrived.set()

    def _pending(self) -> int:
        return sum(reply.data.nbytes for reply in self._replies if isinstance(reply, Answer))

    async def next(self) -> Reply:
        """Wait for the next reply."""
        await self._arrived.wait()
        reply = self._replies.pop(0)
        if not self._replies:
            self._arrived.clear()
        return reply


class EngineProcess:
    """One engine process and the messages to and from it."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self.heard_at = time.monotonic()

    @property
    def is_ready(self) -> bool:
        """Whether it takes requests."""
        return self.ready.done() and self.ready.exception() is None

    async def start(self) -> None:
        """Start the process; it loads its models while others go on."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-c", START, str(theirs.fileno())]
            set_waiting(environment := dict(os.environ))
            # Its own session: Ctrl-C in a terminal reaches the web process alone, which lets the engine finish its work.
            self.process = await asyncio.create_subprocess_exec(
                *command, pass_fds=[theirs.fileno()], env=environment, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
            )
        self.reader, self.writer = await asyncio.open_connection(sock=ours, limit=READ_BYTES)
        self.send(self.settings)

    def send(self, message: Incoming | EngineSettings) -> None:
        """Send a message; what the engine does not read yet is buffered."""
        content = pickle.dumps(message)
        self.writer.write(len(content).to_bytes(HEADER_BYTES, "big") + content)

    async def receive(self) -> Outgoing:
        """Wait for a message; raise `EOFError` when the process has ended."""
        try:
            length = int.from_bytes(await self.reader.readexactly(HEADER_BYTES), "big")
            message: Outgoing = pickle.loads(await self.reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise EOFError from error
        self.heard_at = time.monotonic()
        return message

    async def stop(self, seconds: float = 5.0) -> None:
        """Close the connection, which ends the process; kill it if it does not end."""
        self.writer.close()
        try:
            await asyncio.wait_for(self.process.wait(), seconds)
        except TimeoutError:
            self.kill()
            await self.process.wait()

    def kill(self) -> None:
        """End the process at once."""
        with suppress(ProcessLookupError):
            self.process.kill()


class Supervisor:
    """Passes requests to an engine process that is always there."""

    def __init__(self, settings: EngineSettings, *, spare: bool = True, say: Callable[[str], None] = print) -> None:
        self.settings, self.wants_spare, self.say = settings, spare, say
        self.engine: EngineProcess | None = None
        self.spare: EngineProcess | None = None
        self.stats: Stats | None = None
        self.tickets: dict[int, Ticket] = {}
        self.restarts = 0
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    @property
    def is_alive(self) -> bool:
        """Whether an engine takes requests."""
        return self.engine is not None

    async def start(self) -> Ready:
        """Start the engine, then a spare one; raise `UserError` if the models cannot be served."""
        engine = await self._launch()
        try:
            ready = await engine.ready
        except EOFError:
            raise UserError("the engine process ended while it loaded the models; its messages are above") from None
        # A second engine need not measure again what the first one has measured.
        self.engine, self.settings = engine, replace(self.settings, curves=ready.curves)
        self._run(self._watch())
        self._run(self._prepare_spare())
        return ready

    def new_number(self) -> int:
        """Return a number for a request."""
        return next(self._numbers)

    def submit(self, submit: Submit) -> Ticket:
        """Pass a request to the engine; while there is none, it waits for the next."""
        ticket = self.tickets[submit.number] = Ticket(submit)
        if self.engine is not None:
            self.engine.send(submit)
        return ticket

    def release(self, ticket: Ticket) -> None:
        """Forget a request; cancel it if it is still in the engine."""
        if self.tickets.pop(ticket.submit.number, None) is not None and self.engine is not None:
            self.engine.send(Cancel(ticket.submit.number))

    def drain(self, by: float) -> None:
        """Ask the engine to finish everything by this time."""
        if self.engine is not None:
            self.engine.send(Drain(by))

    async def stop(self) -> None:
        """End all engine processes."""
        self._stopping = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*(engine.stop() for engine in (self.engine, self.spare) if engine is not None))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _launch(self) -> EngineProcess:
        engine = EngineProcess(self.settings)
        await engine.start()
        self._run(self._listen(engine))
        return engine

    async def _listen(self, engine: EngineProcess) -> None:
        """Hand out what an engine says until it ends."""
        try:
            while True:
                self._take(engine, await engine.receive())
        except EOFError as ended:
            if not engine.ready.done():
                engine.ready.set_exception(ended)
        engine.kill()
        engine.writer.close()
        await engine.process.wait()
        if engine is self.engine:
            self.engine, self.restarts = None, self.restarts + 1
            self._run(self._replace_engine())
        elif engine is self.spare:
            self.spare = None

    def _take(self, engine: EngineProcess, message: Outgoing) -> None:
        match message:
            case Ready():
                engine.ready.set_result(message)
            case Unable(reason):
                engine.ready.set_exception(UserError(reason))
            case Stats():
                self.stats = message if engine is self.engine else self.stats
            case _:
                if (ticket := self.tickets.get(message.number)) is not None:
                    if not isinstance(message, Answer) or message.final:
                        del self.tickets[message.number]
                    ticket.put(message)

    async def _replace_engine(self) -> None:
        """Let the spare engine continue with the requests in flight, or start a new one."""
        while self.engine is None:
            engine, self.spare = self.spare or await self._launch(), None
            with suppress(EOFError, UserError):
                await engine.ready
                self.engine = engine
        self.say(f"the engine process ended and was replaced (number {self.restarts})")
        now = time.monotonic()
        for number, ticket in list(self.tickets.items()):
            if ticket.submit.deadline > now:
                self.engine.send(ticket.submit)
            else:
                del self.tickets[number]
                ticket.put(Failed(number, "the engine was restarted"))
        self._run(self._prepare_spare())

    async def _prepare_spare(self) -> None:
        if self.wants_spare and self.spare is None:
            self.spare = await self._launch()
            with suppress(EOFError, UserError):
                await self.spare.ready

    async def _watch(self) -> None:
        """Kill an engine that hangs."""
        while True:
            await asyncio.sleep(1.0)
            if self.engine is not None and time.monotonic() - self.engine.heard_at > SILENCE_SECONDS:
                self.say(f"the engine process said nothing for {SILENCE_SECONDS:.0f} s and is killed")
                self.engine.kill()
