"""A client with the interface of a local model: sample, stream and refine, computed by a server."""

from __future__ import annotations

import base64
import http.client
import io
import json
import ssl
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, SupportsFloat, SupportsIndex
from urllib.parse import urlsplit

from anytime.core.errors import UserError
from anytime.core.times import to_seconds
from anytime.sampling.budget import Budget, whole_number
from anytime.sampling.integers import Integers, prefix_codes
from anytime.sampling.sample import Sample
from anytime.sampling.sample_file import read_npz

NPZ, STREAM = "application/x-npz", "text/event-stream"
INITIAL_OVERHEAD = 0.003
"""Seconds that a request is expected to spend on its way, until some were measured."""
MAX_REMEMBERED = 64


class ServerError(RuntimeError):
    """The server could not answer: it is not reachable, overloaded, or the deadline is too short for it."""

    def __init__(self, text: str, status: int | None = None, possible_after: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.possible_after = possible_after
        """Seconds after which an answer could be ready; None if the server did not say."""


class Client:
    """A model behind `anytime serve`.

    `within` is kept as seen from here: the time on the way is measured and taken off the deadline that the server gets.
    """

    def __init__(
        self, url: str = "http://127.0.0.1:8000", *, model: str | None = None, token: str | None = None, timeout: float = 60.0
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"`url` {url!r} is not the address of a server; use one such as http://127.0.0.1:8000")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._timeout, self._lock = timeout, threading.Lock()
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._connection: http.client.HTTPConnection | None = None
        self._overheads: deque[float] = deque([INITIAL_OVERHEAD], maxlen=8)
        self._ids: OrderedDict[tuple[int, bytes], str] = OrderedDict()  # of answers, by seed and codes
        try:
            models = self._json("GET", "/v1/models")["data"]
            found = [each for each in models if model in (None, each["id"])]
            if not found:
                raise UserError(f"`model` {model!r} is not served at {url}; it has {', '.join(each['id'] for each in models)}")
        except BaseException:
            self.close()
            raise
        self.info: dict[str, Any] = found[0]
        """What the server says about the model."""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def length(self) -> int:
        """Full number of codes."""
        return int(self.info["length"])

    @property
    def codebook_size(self) -> int:
        """Number of values of a code."""
        return int(self.info["codebook_size"])

    @property
    def hash(self) -> str:
        """Hash of the model's weights."""
        return str(self.info["hash"])

    def sample(
        self,
        n: SupportsIndex = 1,
        *,
        seed: SupportsIndex = 0,
        codes: int | None = None,
        quality: float | None = None,
        within: SupportsFloat | str | None = None,
        prefix: Integers | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
    ) -> Sample:
        """Generate `n` samples; see `AnytimeModel.sample`. A busy server returns fewer codes rather than being late."""
        started = time.perf_counter()
        body = self._body(n, seed, codes, quality, within, prefix, temperature, top_p)
        return self._sample("/v1/samples", body, started)

    def stream(
        self,
        n: SupportsIndex = 1,
        *,
        every: int = 1,
        seed: SupportsIndex = 0,
        codes: int | None = None,
        quality: float | None = None,
        within: SupportsFloat | str | None = None,
        prefix: Integers | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
    ) -> Iterator[Sample]:
        """Yield finer and finer samples of the same rows. Leaving the loop stops the work on the server."""
        started = time.perf_counter()
        body = self._body(n, seed, codes, quality, within, prefix, temperature, top_p) | {"every": every, "format": "npz"}
        connection = self._open()
        try:
            response = self._request(connection, "POST", "/v1/samples", body, STREAM)
            for name, data in _events(response):
                if name == "error":
                    raise _error(data["status"], data)
                sample = read_npz(io.BytesIO(base64.b64decode(data["samples"][0])), "the answer")
                self._remember(sample, data["id"])
                yield replace(sample, seconds=time.perf_counter() - started)
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"the connection to the server broke ({error})") from None
        finally:
            connection.close()

    def refine(
        self,
        sample: Sample,
        *,
        codes: int | None = None,
        quality: float | None = None,
        within: SupportsFloat | str | None = None,
    ) -> Sample:
        """Continue a sample from where it stopped; the codes are those of one uninterrupted run."""
        started = time.perf_counter()
        if sample.model != self.hash:
            raise UserError(f"`sample` belongs to another model ({sample.model[:12]}…, the server has {self.hash[:12]}…)")
        budget = {"codes": codes, "quality": quality, "deadline_ms": self._deadline_ms(within)}
        if number := self._ids.get(_key(sample)):
            try:
                return self._sample("/v1/refine", {"id": number, **budget}, started)
            except UserError:  # the server has forgotten it, or is another one
                del self._ids[_key(sample)]
        settings = sample.settings
        body = {
            "model": self.info["id"], "n": len(sample.rows), "rows": sample.rows.tolist(), "prefix": sample.codes.tolist(),
            "seed": sample.seed, "temperature": settings.temperature, "top_p": settings.top_p, **budget,
        }  # fmt: skip
        return self._sample("/v1/samples", body, started)

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _body(
        self, n: SupportsIndex, seed: SupportsIndex, codes: int | None, quality: float | None,
        within: SupportsFloat | str | None, prefix: Integers | None, temperature: float | None, top_p: float | None,
    ) -> dict[str, Any]:  # fmt: skip
        return {
            "model": self.info["id"], "n": whole_number(n, "`n`"), "seed": whole_number(seed, "`seed`"),
            "codes": codes, "quality": quality,
            "deadline_ms": self._deadline_ms(within),
            "prefix": None if prefix is None else prefix_codes(prefix, "`prefix`").tolist(),
            "temperature": temperature, "top_p": top_p,
        }  # fmt: skip

    def _deadline_ms(self, within: SupportsFloat | str | None) -> float | None:
        seconds = Budget(codes=1, within=to_seconds(within, "`within`")).within  # refuses what is not a deadline
        return None if seconds is None else max(0.001, 1000 * (seconds - max(self._overheads)))

    def _sample(self, path: str, body: dict[str, Any], started: float) -> Sample:
        content, headers = self._exchange("POST", path, body, NPZ)
        sample = read_npz(io.BytesIO(content), "the answer")
        self._remember(sample, headers["Anytime-Id"] or "")
        seconds = time.perf_counter() - started
        self._overheads.append(max(0.0, seconds - sample.seconds))
        return replace(sample, seconds=seconds)

    def _remember(self, sample: Sample, number: str) -> None:
        self._ids[_key(sample)] = number
        while len(self._ids) > MAX_REMEMBERED:
            self._ids.popitem(last=False)

    def _json(self, method: str, path: str) -> Any:
        return json.loads(self._exchange(method, path, None, "application/json")[0])

    def _exchange(
        self, method: str, path: str, body: dict[str, Any] | None, accept: str
    ) -> tuple[bytes, http.client.HTTPMessage]:
        """Send a request on the open connection; the server may have closed it meanwhile, so try once more on a new one."""
        with self._lock:
            for attempt in range(2):
                is_new, self._connection = self._connection is None, self._connection or self._open()
                try:
                    response = self._request(self._connection, method, path, body, accept)
                    return response.read(), response.headers
                except (OSError, http.client.HTTPException) as error:
                    self._connection.close()
                    self._connection = None
                    if is_new or attempt:
                        raise ServerError(f"the server at {self._host}:{self._port} cannot be reached ({error})") from None
        raise AssertionError("unreachable")

    def _open(self) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _request(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: dict[str, Any] | None, accept: str
    ) -> http.client.HTTPResponse:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {**self._headers, "Accept": accept})
        response = connection.getresponse()
        if response.status != http.client.OK:
            text = response.read()
            try:
                document = json.loads(text)
            except ValueError:
                document = {"detail": response.reason}
            raise _error(response.status, document)
        return response


def _key(sample: Sample) -> tuple[int, bytes]:
    return sample.seed, sample.codes.cpu().numpy().tobytes()


def _error(status: int, document: dict[str, Any]) -> Exception:
    """Return a user's mistake, or an error of the server."""
    text = str(document.get("detail", "the server answered with an error"))
    if status < 500 and status not in (408, 429):
        return UserError(f"{text} (status {status})")
    after = document.get("possible_after_ms")
    return ServerError(f"{text} (status {status})", status, None if after is None else after / 1000)


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the data of server-sent events."""
    name = ""
    for line in response:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text.removeprefix("event: ")
        elif text.startswith("data: "):
            yield name, json.loads(text.removeprefix("data: "))
