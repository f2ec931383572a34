"""A real server process for tests: `anytime serve` on a free port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import anytime

START_SECONDS = 120


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.content)


@dataclass
class Server:
    process: subprocess.Popen[str]
    port: int
    lines: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self, timeout: float = 60.0) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Response:
        connection = self.connect()
        content = json.dumps(body).encode() if body is not None and not isinstance(body, bytes) else body
        kind = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, content, {**kind, **(headers or {})})
        answer = connection.getresponse()
        found = Response(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        connection.close()
        return found

    def post(self, path: str, body: Any, **headers: str) -> Response:
        return self.request("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})

    def get(self, path: str, **headers: str) -> Response:
        return self.request("GET", path, None, headers)

    def stats(self) -> Any:
        return self.get("/v1/stats").document

    def wait_idle(self, seconds: float = 5.0) -> float:
        """Wait until no request is in the engine; return how long it took."""
        return self.wait_until(lambda stats: not (stats["queue"] or stats["slots_used"]), seconds)

    def wait_until(self, condition: Callable[[Any], bool], seconds: float = 5.0) -> float:
        """Wait until the figures of /v1/stats meet a condition; return how long it took."""
        began = time.monotonic()
        while not condition(stats := self.stats()):
            assert time.monotonic() - began < seconds, stats
            time.sleep(0.01)
        return time.monotonic() - began

    def engines(self) -> list[int]:
        """The process numbers of the engines: children of the server."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(child) for child in children]


@contextmanager
def serving(*words: object, model: object = "mnist", spare: bool = False) -> Iterator[Server]:
    """Start a server; make sure that it and its engines are gone afterwards."""
    command = [sys.executable, "-m", "anytime", "serve", str(model), "--port", "0", *map(str, words)]
    command += [] if spare else ["--no-spare"]
    environment = os.environ | {"PYTHONPATH": str(Path(anytime.__file__).parents[1])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None and process.stderr is not None
    try:
        lines = list[str]()
        for line in process.stdout:
            lines.append(line.strip())
            if line.startswith("http://"):
                break
        assert lines and lines[-1].startswith("http://"), process.stderr.read()
        server = Server(process, int(lines[-1].rsplit(":", 1)[1]), lines)
        engines = server.engines()
        yield server
    finally:
        process.terminate()
        try:
            process.wait(25)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()
    for engine in engines:
        assert not Path(f"/proc/{engine}").exists() or "zombie" in Path(f"/proc/{engine}/status").read_text()
