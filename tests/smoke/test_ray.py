"""`anytime serve --ray`: two replicas answer as one server, one is killed under load, and a cluster is left as it was."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import pytest
import torch
from processes import children  # type: ignore[import-not-found]
from ray_nodes import cluster  # type: ignore[import-not-found]
from serving import Server, serving  # type: ignore[import-not-found]

from anytime import Client, load
from anytime.model import AnytimeModel

pytest.importorskip("ray", reason="needs `pip install 'ray[serve]'`")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]
TOKEN = "a-secret-of-some-length"
CLIENTS = 4
SEEDS = 32


@pytest.fixture(scope="module", autouse=True)
def ray_token() -> Iterator[None]:
    """A token for Ray's own connections; without it Ray would write one into the home directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        yield


@pytest.fixture(scope="module")
def server(ray_token: None) -> Iterator[Server]:
    with serving("--ray", "--replicas", 2) as started:
        yield started


@pytest.fixture(scope="module")
def model() -> AnytimeModel:
    return load("mnist", device="cpu")


def each_replica(server: Server, path: str, replicas: int = 2) -> dict[str, bytes]:
    """What every replica answers to a GET request: the proxy chooses one, so ask until all were asked."""
    found = dict[str, bytes]()
    for _ in range(200):
        answer = server.get(path)
        found[answer.headers["anytime-replica"]] = answer.content
        if len(found) == replicas:
            return found
    raise AssertionError(f"{len(found)} of {replicas} replicas answer")


def total(server: Server, metric: str) -> float:
    """The sum of a metric over both replicas."""
    texts = (content.decode() for content in each_replica(server, "/metrics").values())
    return sum(float(value) for text in texts for value in re.findall(rf"^{re.escape(metric)} (.+)$", text, re.MULTILINE))


def wait_idle(server: Server, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while any(json.loads(content)["queue"] for content in each_replica(server, "/v1/stats").values()):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_it_says_how_many_replicas_serve(server: Server) -> None:
    chosen, address = server.lines
    assert chosen.startswith("mnist on CPU") and chosen.endswith("; 2 replicas") and address == server.url


def test_both_replicas_answer_with_the_codes_of_the_model(server: Server, model: AnytimeModel) -> None:
    expected, replicas = model.sample(3, seed=7).codes.tolist(), Counter[str]()
    for _ in range(40):
        answer = server.post("/v1/samples", {"n": 3, "seed": 7}, Accept="application/json")
        assert answer.status == 200 and answer.document["code_rows"] == expected
        replicas[answer.headers["anytime-replica"]] += 1
    assert len(replicas) == 2


def test_requests_to_another_host_name_are_refused(server: Server) -> None:
    assert server.get("/v1/models", Host="example.com").status == 421
    assert server.get("/v1/models", Host=f"localhost:{server.port}").status == 200


def test_a_stream_passes_the_proxy_as_it_is_made(server: Server, model: AnytimeModel) -> None:
    with Client(server.url) as client:
        arrived, samples = [time.monotonic()], []
        for sample in client.stream(256, seed=5, every=2):
            arrived.append(time.monotonic())
            samples.append(sample)
    full = model.sample(256, seed=5).codes
    assert torch.equal(samples[-1].codes, full) and len(samples) > 2
    assert all(torch.equal(sample.codes, full[:, : sample.codes.shape[1]]) for sample in samples)
    start, first, *_, last = arrived
    assert first - start < 0.5 * (last - start), "the events came together"


def test_a_sample_can_be_refined_whichever_replica_made_it(server: Server, model: AnytimeModel) -> None:
    full = model.sample(2, seed=3).codes
    with Client(server.url) as client:
        for _ in range(20):
            assert torch.equal(client.refine(client.sample(2, seed=3, codes=4)).codes, full)
    statuses = set[int]()
    for _ in range(40):
        short = server.post("/v1/samples", {"n": 2, "seed": 3, "codes": 4}, Accept="application/json").document
        statuses.add(server.post("/v1/refine", {"id": short["id"]}).status)
    assert statuses == {200, 404}, "an id is known to one replica only"


def test_a_client_that_goes_away_cancels_its_work(server: Server) -> None:
    cancelled, answered = total(server, "anytime_cancelled_total"), total(server, "anytime_codes_per_answer_count")
    with Client(server.url) as client:
        for _ in client.stream(256, every=1):
            break
    wait_idle(server)
    assert total(server, "anytime_cancelled_total") == cancelled + 1
    content = json.dumps({"n": 256}).encode()
    kind = "Host: localhost\r\nContent-Type: application/json"
    head = f"POST /v1/samples HTTP/1.1\r\n{kind}\r\nContent-Length: {len(content)}\r\n\r\n"
    connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(12)]
    for connection in connections:
        connection.sendall(head.encode() + content)
    time.sleep(0.3)
    for connection in connections:
        connection.close()
    wait_idle(server)
    assert total(server, "anytime_codes_per_answer_count") < answered + 12


@dataclass(frozen=True)
class Asked:
    """A request under load."""

    at: float
    status: int
    """0 if the connection broke."""
    replica: str
    right: bool


def replica_processes(server: Server) -> list[int]:
    """The process numbers of the replicas: children of Ray's daemon, which is a child of the server."""
    found = [child for daemon in children(server.process.pid) for child in children(daemon)]
    return [child for child in found if Path(f"/proc/{child}/cmdline").read_bytes().startswith(b"ray::ServeReplica")]


@contextmanager
def load_of(server: Server, expected: list[list[list[int]]]) -> Iterator[list[Asked]]:
    """Send requests from several clients, one after the other each, and check every answer."""
    asked, over = list[Asked](), threading.Event()

    def ask(number: int) -> None:
        seed = number
        while not over.is_set():
            seed, at, right = (seed + CLIENTS) % SEEDS, time.monotonic(), True
            try:
                answer = server.post("/v1/samples", {"n": 2, "seed": seed, "deadline_ms": 5000}, Accept="application/json")
                if answer.status == 200:
                    found = answer.document
                    right = found["code_rows"] == [row[: found["codes"]] for row in expected[seed]]
                asked.append(Asked(at, answer.status, answer.headers.get("anytime-replica", ""), right))
            except (OSError, HTTPException):
                asked.append(Asked(at, 0, "", True))

    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(ask, number) for number in range(CLIENTS)]
        try:
            yield asked
        finally:
            over.set()
    for client in clients:
        client.result()


def test_a_killed_replica_is_replaced_under_load(server: Server, model: AnytimeModel) -> None:
    expected = [model.sample(2, seed=seed).codes.tolist() for seed in range(SEEDS)]
    with load_of(server, expected) as asked:
        time.sleep(5.0)
        before = {each.replica for each in asked}
        processes = replica_processes(server)
        assert len(before) == len(processes) == 2
        (engine,) = children(processes[0])
        os.kill(processes[0], signal.SIGKILL)
        killed = time.monotonic()

        def back() -> set[str]:
            return {each.replica for each in asked if each.at > killed and each.status == 200} - before

        while not back() and time.monotonic() < killed + 90:
            time.sleep(0.1)
        replaced = time.monotonic()
        time.sleep(5.0)
    assert not Path(f"/proc/{engine}").exists()
    failed = [each for each in asked if each.status != 200]
    later = [each for each in asked if each.at > killed + 5.0]
    figures = {
        "requests": len(asked), "failures": dict(Counter(each.status for each in failed)),
        "last failure after s": round(max((each.at for each in failed), default=killed) - killed, 2),
        "requests after 5 s": len(later), "failures after 5 s": sum(each.status != 200 for each in later),
        "both back after s": round(replaced - killed, 1),
    }  # fmt: skip
    print(json.dumps(figures))
    assert all(each.right for each in asked)
    assert len(back()) == 1 and replaced - killed < 60, figures
    assert len(later) > 20 and figures["failures after 5 s"] <= 0.01 * len(later), figures
    assert all(killed - 5.0 < each.at < replaced for each in failed), figures
    assert len({each.replica for each in asked if each.at > replaced and each.status == 200}) == 2, figures


def test_more_requests_than_the_target_bring_a_second_replica(model: AnytimeModel) -> None:
    expected = [model.sample(2, seed=seed).codes.tolist() for seed in range(SEEDS)]
    with serving("--ray", "--replicas", "1-2", "--target-requests", 1) as scaled, load_of(scaled, expected) as asked:
        assert scaled.lines[0].endswith("; 1 to 2 replicas")
        began = time.monotonic()
        while len({each.replica for each in asked if each.status == 200}) < 2:
            assert time.monotonic() < began + 90
            time.sleep(0.1)
    assert {each.status for each in asked} == {200} and all(each.right for each in asked)
    print(json.dumps({"second replica after s": round(time.monotonic() - began, 1), "requests": len(asked)}))


def second_server() -> str:
    """What a second server in the same cluster says, which must not harm the first."""
    command = [sys.executable, "-m", "anytime", "serve", "mnist", "--ray", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_in_a_cluster_the_token_is_needed_and_sigterm_drains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "token"
    secret.write_text(TOKEN)
    with cluster(Path("/tmp") / f"ray-{os.getpid()}") as address:  # paths of sockets must be short
        monkeypatch.setenv("RAY_ADDRESS", address)
        for _ in range(2):  # the second server finds the cluster as the first one did
            with serving("--ray", "--token", secret) as guarded:
                assert guarded.get("/livez").status == 200 and guarded.get("/v1/models").status == 401
                assert "Ray Serve runs in this cluster already" in second_server()
                headers = {"Accept": "application/json", "Authorization": f"Bearer {TOKEN}"}
                with ThreadPoolExecutor(4) as pool:
                    answers = [pool.submit(guarded.post, "/v1/samples", {"n": 256, "seed": n}, **headers) for n in range(4)]
                    time.sleep(0.3)
                    guarded.process.send_signal(signal.SIGTERM)
                    assert [answer.result().status for answer in answers] == [200] * 4
                assert guarded.process.wait(20) == 0
