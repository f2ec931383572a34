"""`anytime serve` as its users meet it: a real process, real sockets, OpenAI's own client."""

from __future__ import annotations

import base64
import io
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from serving import Server, serving  # type: ignore[import-not-found]

from anytime import Client, ServerError, UserError, load
from anytime.model import AnytimeModel
from anytime.server.load import Load, poisson, quantile, run

pytestmark = pytest.mark.xdist_group("server")  # one server for all tests of this file
TOKEN = "a-secret-of-some-length"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


@pytest.fixture(scope="module")
def model() -> AnytimeModel:
    return load("mnist", device="cpu")


def test_it_says_in_one_line_what_was_chosen(server: Server) -> None:
    chosen, address = server.lines
    assert chosen.startswith("mnist on CPU") and "cores" in chosen and "ms a step" in chosen
    assert address == server.url


def test_images_come_as_png_with_facts_in_headers(server: Server, model: AnytimeModel) -> None:
    answer = server.post("/v1/samples", {"n": 4, "seed": 3, "codes": 6})
    assert (answer.status, answer.headers["content-type"]) == (200, "image/png")
    assert answer.headers["anytime-codes"] == "6" and answer.headers["anytime-shortened"] == "false"
    assert answer.headers["anytime-seed"] == "3"
    image = Image.open(io.BytesIO(answer.content))
    assert image.size == (2 * 30 + 2, 2 * 30 + 2)
    expected = (model.sample(4, seed=3, codes=6).data[3, 0] * 255).round().numpy()
    assert abs(np.asarray(image)[32:60, 32:60].astype(float) - expected).max() <= 1


def test_npz_and_json_have_the_codes_of_the_model(server: Server, model: AnytimeModel) -> None:
    expected = model.sample(5, seed=11, temperature=0.8, top_p=0.9).codes
    body = {"n": 5, "seed": 11, "temperature": 0.8, "top_p": 0.9}
    arrays = np.load(io.BytesIO(server.post("/v1/samples", body, Accept="application/x-npz").content))
    assert arrays["codes"].tolist() == expected.tolist() and arrays["data"].shape == (5, 1, 28, 28)
    small = np.load(io.BytesIO(server.post("/v1/samples", body, Accept="application/x-npz; dtype=uint8").content))
    assert small["data"].dtype == np.uint8 and abs(small["data"] - arrays["data"] * 255).max() < 0.51
    document = server.post("/v1/samples", body, Accept="application/json").document
    assert document["code_rows"] == expected.tolist() and document["codes"] == 16
    assert len(document["samples"]) == 5 and document["media_type"] == "image/png"


def test_accept_may_exclude_a_format_and_come_in_parts(server: Server) -> None:
    kinds = {"image/png;q=0, */*": "application/json", "image/*, application/json;q=0.5": "image/png"}
    for accept, kind in kinds.items():
        assert server.post("/v1/samples", {}, Accept=accept).headers["content-type"] == kind
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:
        raw.sendall(post("Accept: text/html\r\nAccept: application/json\r\nConnection: close\r\nContent-Length: 2") + b"{}")
        assert b"application/json" in raw.recv(1 << 16)


def events(content: bytes) -> list[tuple[str, Any]]:
    parts = [dict(line.split(": ", 1) for line in part.splitlines()) for part in content.decode().strip().split("\n\n")]
    return [(part["event"], json.loads(part["data"])) for part in parts]


def test_a_stream_sends_refinements(server: Server, model: AnytimeModel) -> None:
    answer = server.post("/v1/samples", {"n": 2, "seed": 5, "every": 5}, Accept="text/event-stream")
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = events(answer.content)
    assert found[-1][0] == "sample" and found[-1][1]["codes"] == 16
    assert {name for name, _ in found[:-1]} <= {"refinement"}
    codes = [data["codes"] for _, data in found]
    assert codes == sorted(set(codes))
    expected = model.sample(2, seed=5).codes.tolist()
    assert all(data["code_rows"] == [row[: data["codes"]] for row in expected] for _, data in found)


def test_an_answer_can_be_refined_by_its_id_and_without(server: Server, model: AnytimeModel) -> None:
    short = server.post("/v1/samples", {"n": 3, "seed": 2, "codes": 4}, Accept="application/json").document
    full = model.sample(3, seed=2).codes.tolist()
    finer = server.post("/v1/refine", {"id": short["id"]}, Accept="application/json").document
    assert finer["code_rows"] == full
    some = server.post("/v1/refine", {"id": short["id"], "pick": [2, 0], "codes": 9}, Accept="application/json").document
    assert some["code_rows"] == [full[2][:9], full[0][:9]] and some["rows"] == [2, 0]
    body = {"n": 1, "rows": [1], "seed": 2, "prefix": [full[1][:4]]}
    assert server.post("/v1/samples", body, Accept="application/json").document["code_rows"] == [full[1]]
    lost = server.post("/v1/refine", {"id": "0123456789abcdef"})
    assert lost.status == 404 and "send its seed, rows and codes" in lost.document["detail"]


def test_a_deadline_shortens_or_is_refused_with_a_time(server: Server) -> None:
    server.post("/v1/samples", {"n": 8})
    answers = [server.post("/v1/samples", {"n": 8, "deadline_ms": 9}) for _ in range(5)]
    shortened = [answer for answer in answers if answer.status == 200]
    assert all(int(answer.headers["anytime-codes"]) < 16 for answer in shortened)
    assert all(answer.headers["anytime-shortened"] == "true" for answer in shortened)
    refused = server.post("/v1/samples", {"n": 64, "deadline_ms": 1})
    assert refused.status == 429 and int(refused.headers["retry-after"]) >= 1
    assert refused.document["possible_after_ms"] > 1


def refusal_times(server: Server, count: int) -> list[float]:
    """Seconds of requests whose deadline is too short, each on an open connection."""
    connection, times = server.connect(), list[float]()
    for _ in range(count):
        began = time.monotonic()
        connection.request("POST", "/v1/samples", '{"n": 64, "deadline_ms": 1}', {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        times.append(time.monotonic() - began)
        assert answer.status == 429
    connection.close()
    return times


@pytest.mark.timing
def test_a_refusal_comes_at_once(server: Server) -> None:
    assert quantile(refusal_times(server, 100), 0.95) < 0.010


@pytest.mark.timing
def test_under_load_sequences_are_shortened_and_deadlines_kept(server: Server) -> None:
    """The long form is `anytime bench serving`."""
    base = Load(host="127.0.0.1", port=server.port, body={"n": 8}, clients=16, seconds=1.0)
    capacity = len(run(base))
    body = {"n": 8, "deadline_ms": 500}
    sent = run(replace(base, body=body, arrivals=poisson(1.6 * capacity, 2.0, 0), clients=0))
    answers = [each for each in sent if each.status == 200]
    assert {each.status for each in sent} <= {200, 429}
    assert len(answers) > 0.7 * len(sent)
    assert sum(each.seconds <= 0.5 for each in answers) >= 0.95 * len(answers)
    assert min(each.codes for each in answers) < 16


def test_models_health_metrics_and_description(server: Server) -> None:
    (info,) = server.get("/v1/models").document["data"]
    assert (info["id"], info["length"], info["shape"]) == ("mnist", 16, [1, 28, 28])
    assert server.get("/livez").status == server.get("/readyz").status == 200
    text = server.get("/metrics").content.decode()
    for name in ("queue", "slots_used", "step_seconds", "deadline_slack_seconds", "codes_per_answer", "cancelled", "refused"):
        assert f"anytime_{name}" in text
    assert 'anytime_requests_total{route="/v1/samples",status="200"}' in text
    paths = server.get("/openapi.json").document["paths"]
    assert {"/v1/samples", "/v1/refine", "/v1/images/generations", "/v1/models", "/livez"} <= paths.keys()


MISTAKES: list[tuple[Any, dict[str, str], int]] = [
    (b"{", {}, 400),
    (b"[" * 50_000, {}, 400),
    ({"nn": 1}, {}, 422),
    ({"n": "8"}, {}, 422),
    ({"n": 0}, {}, 422),
    ({"n": 10**9}, {}, 422),
    ({"deadline_ms": -5}, {}, 422),
    ({"deadline_ms": 1e18}, {}, 422),
    ({"seed": 1 << 70}, {}, 422),
    ({"prefix": [[999]]}, {}, 422),
    ({"prefix": [[1] * 17]}, {}, 422),
    ({"quality": 2.0}, {}, 422),
    ({"model": "cifar10"}, {}, 404),
    ({}, {"Accept": "video/mp4"}, 406),
    ({}, {"Accept": "image/png;q=0"}, 406),
    ({"format": "exe"}, {}, 422),
    ({"model": "a" * 60_000}, {}, 404),
    ({"a" * 60_000: 1}, {}, 422),
    ({}, {"Content-Type": "text/plain"}, 415),
    (b"{" + b" " * 70_000 + b"}", {}, 413),
]


@pytest.mark.parametrize(("body", "headers", "status"), MISTAKES)
def test_mistakes_are_answered_in_one_sentence(server: Server, body: Any, headers: dict[str, str], status: int) -> None:
    answer = server.request("POST", "/v1/samples", body, headers)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    problem = answer.document
    assert problem["status"] == status and problem["id"]
    assert "\n" not in problem["detail"] and "Traceback" not in problem["detail"] and "site-packages" not in problem["detail"]
    assert len(problem["detail"]) < 500 and "typing" not in problem["detail"]
    assert server.get("/livez").status == 200


def post(headers: str) -> bytes:
    """The head of a raw request."""
    return f"POST /v1/samples HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}\r\n\r\n".encode()


def test_a_chunked_body_has_the_same_limit(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:
        raw.sendall(post("Transfer-Encoding: chunked"))
        piece = b"2000\r\n" + b" " * 0x2000 + b"\r\n"
        try:
            for _ in range(40):
                raw.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it does not read what is too much
        assert b" 413 " in raw.recv(1000)


def test_wrong_paths_and_methods(server: Server) -> None:
    assert server.get("/v1/nothing").status == 404
    assert server.get("/v1/samples").status == 405
    assert server.post("/v1/samples/", {}).status == 404, "no redirect"
    assert server.get("/../../etc/passwd").status == 404


def test_every_answer_is_guarded(server: Server) -> None:
    for path in ("/", "/page.js", "/v1/models", "/v1/nothing"):
        headers = server.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"] and "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
    assert server.get("/v1/models", Host="evil.example").status == 421, "a name of another site that points here"


def test_work_stops_when_the_clients_go_away(server: Server) -> None:
    """200 clients give up after half a second; all of their requests would take many seconds."""
    server.wait_idle()
    body = json.dumps({"n": 256, "seed": 1, "deadline_ms": 600_000}).encode()  # time for all, however slow the machine is
    clients = []
    for _ in range(200):
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(post(f"Content-Length: {len(body)}") + body)
        clients.append(client)
    time.sleep(0.5)
    server.wait_until(lambda stats: stats["queue"] > 100)
    for client in clients:
        client.close()
    time.sleep(0.1)
    began = time.monotonic()
    assert server.post("/v1/samples", {"n": 1}).status == 200
    assert time.monotonic() - began < 5.0
    assert server.wait_idle() < 5.0, "all slots are free"


def test_a_slow_reader_holds_no_slot(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        body = json.dumps({"n": 64, "every": 1, "format": "npz"}).encode()
        client.sendall(post(f"Accept: text/event-stream\r\nContent-Length: {len(body)}") + body)
        server.wait_idle(20.0)  # though nothing of the answer was read


def test_half_a_request_holds_no_slot(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(
            b"POST /v1/samples HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
        )
        time.sleep(0.2)
        assert server.stats()["queue"] == 0
        assert server.post("/v1/samples", {}).status == 200


def test_the_client_has_the_interface_of_a_local_model(server: Server, model: AnytimeModel) -> None:
    client = Client(server.url)
    assert (client.length, client.codebook_size, client.hash) == (model.length, model.codebook_size, model.hash)
    sample, local = client.sample(4, seed=1), model.sample(4, seed=1)
    assert torch.equal(sample.codes, local.codes) and sample.model == local.model
    torch.testing.assert_close(sample.data, local.data, atol=1e-4, rtol=0)
    short = client.sample(4, seed=1, codes=5)
    assert torch.equal(client.refine(short).codes, local.codes)
    picked = short.pick([3, 1])
    assert torch.equal(client.refine(picked, codes=9).codes, local.codes[[3, 1], :9])
    prefix = torch.tensor([[7, 8]])
    assert torch.equal(client.sample(2, seed=4, prefix=prefix).codes, model.sample(2, seed=4, prefix=prefix).codes)
    for same in ([7, 8], [[7, 8]], prefix.numpy()):
        assert torch.equal(
            client.sample(2, seed=torch.tensor(4), prefix=same).codes, client.sample(2, seed=4, prefix=prefix).codes
        )
    assert client.refine(client.sample(1, codes=2), within="5s").codes.shape[1] == model.length
    streamed = list(client.stream(2, seed=6, every=4))
    assert torch.equal(streamed[-1].codes, model.sample(2, seed=6).codes)
    assert all(torch.equal(each.codes, streamed[-1].codes[:, : each.codes.shape[1]]) for each in streamed)
    assert client.sample(2, quality=0.5).codes.shape[1] == model.code_count(quality=0.5)
    client.close()


def test_the_client_keeps_its_deadline_and_says_what_is_wrong(server: Server, model: AnytimeModel) -> None:
    client = Client(server.url)
    for _ in range(3):
        assert client.sample(2, within=5.0).seconds < 5.0
    assert client.sample(2, within="5s").seconds < 5.0
    for wrong in ("soon", -1, float("nan")):
        with pytest.raises(UserError, match="`within`"):
            client.sample(2, within=wrong)
    with pytest.raises(UserError, match="n must be between 1 and 256, not 0"):
        client.sample(0)
    with pytest.raises(ServerError, match="the deadline cannot be kept") as refused:
        client.sample(64, within=0.004)
    assert refused.value.status == 429 and refused.value.possible_after is not None
    with pytest.raises(UserError, match="is not served at"):
        Client(server.url, model="cifar10")
    with pytest.raises(UserError, match="is not the address of a server"):
        Client("localhost:8000")
    with pytest.raises(ServerError, match="cannot be reached"):
        Client("http://127.0.0.1:9")
    other = AnytimeModel(model.config).eval().sample(1, codes=2)
    with pytest.raises(UserError, match="belongs to another model"):
        client.refine(other)
    client.close()


def test_leaving_a_stream_stops_the_work(server: Server) -> None:
    with Client(server.url) as client:
        for sample in client.stream(64, every=1):
            assert sample.codes.shape[1] < 16
            break
        assert server.wait_idle() < 2.0


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_openais_own_client_gets_images_and_partial_images(server: Server, model: AnytimeModel) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    made = client.images.generate(prompt="a digit", model="mnist", n=2, extra_body={"seed": 9, "deadline_ms": 5000})
    assert made.data is not None and len(made.data) == 2
    expected = (model.sample(2, seed=9).data * 255).round().numpy()
    for image, pixels in zip(made.data, expected, strict=True):
        found = np.asarray(Image.open(io.BytesIO(base64.b64decode(image.b64_json or ""))))
        assert abs(found.astype(float) - pixels[0]).max() <= 1
    assert made.size == "28x28" and made.usage is not None and made.usage.output_tokens == 32
    stream = client.images.generate(prompt="a digit", model="mnist", stream=True, partial_images=3, extra_body={"seed": 9})
    kinds = [event.type for event in stream]
    assert kinds[-1] == "image_generation.completed"
    assert set(kinds[:-1]) <= {"image_generation.partial_image"} and len(kinds) <= 4
    with pytest.raises(openai.BadRequestError, match="size must be auto or 28x28"):
        client.images.generate(prompt="a digit", model="mnist", size="1024x1024")
    with pytest.raises(openai.NotFoundError, match="no model 'dall-e-3'"):
        client.images.generate(prompt="a digit", model="dall-e-3")
    with pytest.raises(openai.BadRequestError, match="unknown key"):
        client.images.generate(prompt="a digit", extra_body={"steps": 3})
    with pytest.raises(openai.RateLimitError, match="the deadline cannot be kept"):
        client.images.generate(prompt="a digit", n=10, extra_body={"deadline_ms": 0.5})
    assert [each.id for each in client.models.list()] == ["mnist"]
    client.close()


@pytest.mark.timing
def test_the_commands_of_the_page_on_serving_work_as_written(server: Server, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    lines = [line.replace(":8000", f":{server.port}") for line in page.splitlines() if line.startswith("curl ")]
    assert len(lines) >= 4
    outputs = [subprocess.run(shlex.split(line), cwd=tmp_path, capture_output=True, check=True).stdout for line in lines]
    with Image.open(tmp_path / "grid.png") as grid:
        assert grid.width > 4 * 28
    assert b'"code_rows"' in outputs[1] and outputs[2].count(b"event: ") == 4 and b'"mnist"' in outputs[3]


def test_requests_beyond_the_queue_are_refused_with_429() -> None:
    with serving("--queue", 2) as small:
        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda seed: small.post("/v1/samples", {"n": 64, "seed": seed}), range(12)))
        statuses = [answer.status for answer in answers]
        assert set(statuses) == {200, 429}
        assert all(answer.headers["retry-after"] == "1" for answer in answers if answer.status == 429)


def test_a_token_is_needed_on_every_route_but_the_open_ones(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text(f"{TOKEN}\n")
    with serving("--token", secret) as guarded:
        assert [guarded.get(path).status for path in ("/livez", "/", "/page.js", "/page.css")] == [200] * 4
        for path in ("/v1/models", "/v1/stats", "/readyz", "/metrics", "/openapi.json"):
            assert guarded.get(path).status == 401
        assert guarded.post("/v1/samples", {}).status == 401
        assert guarded.post("/v1/samples", {}, Authorization=f"Bearer {TOKEN}x").status == 401
        assert guarded.post("/v1/samples", {}, Authorization=f"Bearer {TOKEN}").status == 200
        with pytest.raises(UserError, match="401"):
            Client(guarded.url)
        client = Client(guarded.url, token=TOKEN)
        assert client.sample(1).codes.shape == (1, 16)
        client.close()


def test_sigterm_finishes_what_is_in_flight() -> None:
    with serving() as ending:
        started = threading.Event()

        def ask() -> int:
            started.set()
            return ending.post("/v1/samples", {"n": 256, "seed": 1}).status

        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask)
            started.wait()
            while ending.stats()["queue"] == 0 and not answer.done():
                time.sleep(0.002)
            ending.process.send_signal(signal.SIGTERM)
            began, refused = time.monotonic(), 0
            while not answer.done() and ending.process.poll() is None:
                try:
                    refused += ending.get("/readyz").status == 503
                except OSError:
                    break
            assert answer.result() == 200
        assert ending.process.wait(20) == 0
        assert time.monotonic() - began < 20


def wait_for(condition: Any, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_dead_engine_is_replaced_and_requests_in_flight_are_answered() -> None:
    with serving(spare=True) as hardy:
        wait_for(lambda: b"anytime_spare_ready 1.0" in hardy.get("/metrics").content)
        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(hardy.post, "/v1/samples", {"n": 256, "seed": seed}) for seed in range(4)]
            wait_for(lambda: hardy.stats()["queue"] > 0)
            os.kill(min(hardy.engines()), signal.SIGKILL)
            assert [answer.result().status for answer in answers] == [200] * 4
        assert hardy.post("/v1/samples", {}).status == 200
        assert "anytime_engine_restarts 1.0" in hardy.get("/metrics").content.decode()


def test_without_a_spare_livez_is_red_until_the_engine_is_back() -> None:
    with serving() as plain:
        (engine,) = plain.engines()
        os.kill(engine, signal.SIGKILL)
        wait_for(lambda: plain.get("/livez").status == 503)
        wait_for(lambda: plain.get("/livez").status == 200)
        assert plain.post("/v1/samples", {}).status == 200


CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection"
)


def fuzz(server: Server, examples: int) -> str:
    """Send what the OpenAPI description allows and what it does not, with schemathesis; return its summary."""
    program = Path(sys.executable).with_name("schemathesis")
    command = [program, "run", f"{server.url}/openapi.json", "--checks", CHECKS, "--max-examples", str(examples)]
    phases = ["--phases", "examples,coverage,fuzzing", "--generation-deterministic", "--no-color"]
    done = subprocess.run([*command, *phases], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def test_every_route_survives_fuzzing(server: Server) -> None:
    assert "Tested: 8" in fuzz(server, 20)
    assert server.get("/livez").status == 200
    server.wait_idle()


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/samples HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/samples HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 9\r\n\r\n{}",
        post("Transfer-Encoding: chunked") + b"zz\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /%00%ff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_broken_http_does_no_harm(server: Server, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        try:
            client.sendall(raw)
            client.shutdown(socket.SHUT_WR)
            answer = client.recv(10_000)
        except OSError:  # closed while we were sending
            answer = b""
    assert not answer.startswith(b"HTTP/1.1 5") and b"Traceback" not in answer
    assert server.get("/livez").status == 200


def failing(*words: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "anytime", "serve", *map(str, words)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and done.stderr.startswith("anytime: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_mistakes_when_starting(server: Server, tmp_path: Path) -> None:
    assert "choose another port" in failing("mnist", "--port", server.port)
    assert "did you mean 'mnist'" in failing("mnits", "--port", 0)
    assert "needs at least one model" in failing()
    assert "--port must be between 0 and 65535" in failing("mnist", "--port", 99999)
    (tmp_path / "short").write_text("abc")
    assert "at least 16 printable" in failing("mnist", "--token", tmp_path / "short")
    assert "cannot be read" in failing("mnist", "--token", tmp_path / "missing")
