"""Damaged files of models, sessions and runs, and damaged bodies of requests: each is read, or refused in one sentence.

The short form runs in the default suite; the long form, marked `slow`, records its counts, times and findings. The readers of
datasets are fuzzed in data/test_fuzz.py.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as tensors_bytes

from anytime.bulk.request import BulkRequest, bulk_request
from anytime.bulk.shard_folder import ShardFolder
from anytime.compression.progressive import Compressor
from anytime.core import results, storage
from anytime.core.config import to_dict
from anytime.core.errors import UserError
from anytime.core.results import Results, Verdict
from anytime.evaluation import code_stats_view
from anytime.experiments.cache import Measurement, MeasurementCache, TrainingRecord
from anytime.metrics.code_stats import CodeStats, read_code_stats
from anytime.model import AnytimeModel, _tiny, load
from anytime.recipes.presets import preset
from anytime.sampling.budget import Budget
from anytime.sampling.quality_table import QualityRow, QualityTable
from anytime.sampling.sample_file import npz_bytes, read_npz
from anytime.server.messages import ModelInfo
from anytime.server.openai import ImagesRequest
from anytime.server.protocol import ProblemError, RefineRequest, SampleRequest, find_model, parse, to_submit
from anytime.training import checkpoint, log, run_files
from anytime.training.run_dir import START_KEYS, read_config, read_starts

from .data.limits import Limits
from .data.test_fuzz import damaged
from .hostile import damaged_arrays, damaged_document, encoded, npz

SHORT = 60  # inputs for each parser in the default suite
Inputs = st.SearchStrategy[bytes]
QUIET = settings(database=None, suppress_health_check=list(HealthCheck), deadline=None)


@cache
def model() -> AnytimeModel:
    torch.manual_seed(0)
    return AnytimeModel(_tiny()).eval()


@dataclass(frozen=True)
class Parser:
    """A reader of one file in a directory, the damaged files it gets, and how many of them the long form tries."""

    name: str
    file: str
    read: Callable[[Path], object]
    inputs: Callable[[Path], Inputs]
    whole: Callable[[Path], bytes]
    long: int


def json_inputs(whole: Callable[[Path], bytes]) -> Callable[[Path], Inputs]:
    """Damage to the bytes of a JSON file, and damage that leaves it whole."""

    def inputs(folder: Path) -> Inputs:
        content = whole(folder)
        return damaged_document(json.loads(content)).map(encoded) | damaged([content])

    return inputs


def resealed(tensors: dict[str, torch.Tensor], header: dict[str, Any]) -> bytes:
    """A file of tensors whose checksum is right, so that damage to its contents comes further than that."""
    facts = header.get("facts", {})
    with suppress(RuntimeError, TypeError, ValueError):  # what has no checksum
        header = {**header, "seal": storage._checksum(storage.digest(tensors), facts)}
    return tensors_bytes(tensors, {"anytime": json.dumps(header)})


@st.composite
def damaged_tensors(draw: st.DrawFn, content: bytes) -> bytes:
    """A file of tensors with other types, shapes, values, names or metadata, and a right checksum."""
    tensors, header = parse_tensors(content), storage_header(content)
    name = draw(st.sampled_from(sorted(tensors)))
    match draw(st.sampled_from(["type", "shape", "value", "remove", "rename", "metadata"])):
        case "type":
            kinds = [torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.uint8, torch.bool, torch.int64]
            tensors[name] = tensors[name].to(draw(st.sampled_from([*kinds, torch.complex64, torch.float8_e4m3fn])))
        case "shape":
            shape = draw(st.sampled_from([(-1,), (1, -1), (-1, 1)]))
            tensors[name] = tensors[name].reshape(shape) if tensors[name].numel() else tensors[name]
        case "value":
            values = [float("nan"), float("inf"), -1.0] if tensors[name].is_floating_point() else [-1, 99, -(2**40)]
            tensors[name] = torch.full_like(tensors[name], draw(st.sampled_from(values)))
        case "remove":
            del tensors[name]
        case "rename":
            tensors[draw(st.sampled_from(["", "\x1b[2J", "../x", "a/b/c", "scale/" + name]))] = tensors.pop(name)
        case "metadata":
            return resealed(tensors, draw(damaged_document(header)))
    return resealed(tensors, header)


def storage_header(content: bytes) -> dict[str, Any]:
    size = int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["anytime"])
    return header


def saved_model(folder: Path) -> Path:
    """A model directory with a quality table."""
    hardware = {"engine": "eager", "hardware": "CPU", "date": "2026-11-18"}
    rows = tuple(QualityRow(codes=k, fraction=k / 8, error=1 / k, fid=None) for k in range(1, 9))
    table = {"model": model().hash, "scale": "full", "rows": rows, "data": "digits", "examples": 9, "samples": 9, "batch": 1}
    model().quality_table = QualityTable(**table, **hardware)  # type: ignore[arg-type]
    return model().save(folder)


def model_file(name: str) -> Callable[[Path], bytes]:
    def whole(folder: Path) -> bytes:
        if not (folder / "config.json").exists():
            saved_model(folder)
        return (folder / name).read_bytes()

    return whole


def load_and_sample(path: Path) -> None:
    load(path.parent, "cpu").sample(1, codes=1)


def session_file(folder: Path) -> bytes:
    session = model().session(2, seed=3)
    session.run(Budget(codes=2))
    session.save(folder / "session")
    return (folder / "session").read_bytes()


def draft() -> bytes:
    return npz_bytes(model().sample(2, seed=1, codes=2))


def draft_inputs(folder: Path) -> Inputs:
    with np.load(io.BytesIO(draft())) as arrays:
        return damaged_arrays(dict(arrays)).map(npz) | damaged([draft()])


def refine(path: Path) -> None:
    model().refine(read_npz(path, "--refine"), codes=model().length)


EPOCH = {"stage": "prior", "epoch": 1, "step": 9, "seconds": 0.5, "train": {"loss": 1.0}, "validation": {"loss": 2.0}}
START = {**dict.fromkeys(START_KEYS, "text"), "examples": 9, "commit": None}
INFO = ModelInfo("tiny", "tiny", "0" * 64, 8, 16, (1, 28, 28), None, 1.0, (0.5,) * 8, 1.0, 1.0, 64)
FILES = {"format": 1, "sha256": {"config.json": "0"}}
BODY = {"model": "tiny", "n": 2, "rows": [0, 5], "codes": 4, "deadline_ms": 100.0, "seed": 1, "prefix": [[1, 2]]}
BODY |= {"temperature": 1.0, "top_p": 0.9, "every": 2, "format": "png"}


def checkpoint_file(folder: Path) -> bytes:
    position = checkpoint.Position("prior", 3, 9, 0.5)
    made = checkpoint.Checkpoint(
        position, {"w": torch.ones(2)}, {"w": torch.zeros(2)}, {"0/step": torch.ones(())}, torch.zeros(1)
    )
    return checkpoint.write(folder / "made", made).read_bytes()


def read_checkpoint(path: Path) -> None:
    said: list[str] = []
    if checkpoint.read_latest(path.parent, said.append) is None:
        path.with_suffix(".damaged").unlink()
        raise UserError(said[0])


def evaluation_file(folder: Path) -> bytes:
    rows: list[dict[str, Any]] = [{"series": "error", "error": 1.0, "examples": 5, "codes": 0}]
    rows += [{"series": "error", "error": 0.5, "gain": 0.5, "examples": 5, "codes": k} for k in (1, 2)]
    rows += [{"series": "bits", "bits": 1.0, "entropy": 1.0, "examples": 5, "codes": k} for k in (1, 2)]
    made = Results("evaluation", "digits", "anytime", {"model": "0"}, "none", rows, [Verdict("c", True, "e")])
    return encoded({"format": 1, **asdict(made)})


def read_evaluation(path: Path) -> None:
    stats = code_stats_view.stats_from_evaluation(results.read(path).rows)
    if stats is not None:
        code_stats_view.lines(stats)


def code_stats_file(folder: Path) -> bytes:
    stats = CodeStats(examples=3, bits=[1.0, 2.0], entropy=[1.0, 2.0], error_examples=3, error=[3.0, 2.0, 1.0], gain=[1.0, 1.0])
    return encoded({"format": 1, "ordered": stats.to_dict(), "prior": {"examples": 3, "bits": [1.0, 2.0]}})


def read_stats(path: Path) -> None:
    stats = read_code_stats(path.parent)
    if stats is not None:
        code_stats_view.lines(stats)


def cache_file(folder: Path) -> bytes:
    record = TrainingRecord("anytime", 9, "CPU", None, "2026-11-18", "fp32")
    MeasurementCache(folder / "made.json").store("a", Measurement({"seed": 0}, [{"fid": 1.0}], {"torch": "2"}, record))
    return (folder / "made.json").read_bytes()


def submit(body: bytes) -> None:
    """Check a body as each route does."""
    refusals = []
    for kind in (SampleRequest, RefineRequest, ImagesRequest):
        try:
            request = parse(body, kind)
            if isinstance(request, SampleRequest):
                to_submit(request, find_model([INFO], request.model), 1, 0.0)
        except ProblemError as problem:
            json.dumps(problem.detail, ensure_ascii=False).encode()
            refusals.append(problem.detail)
    if len(refusals) == 3:
        raise UserError(refusals[0])


@cache
def compressor() -> Compressor:
    return Compressor(model())


def compressed_file(folder: Path) -> bytes:
    torch.manual_seed(0)
    return compressor().compress(torch.rand(1, *model().config.autoencoder.shape))[0]


@cache
def shards_request() -> BulkRequest:
    return bulk_request(model(), 1500, seed=1)


def manifest_file(folder: Path) -> bytes:
    shards = ShardFolder(folder, shards_request())
    shards.open()
    shards.write(0, b"a shard")
    shards.collect(now=True)
    shards.check([0])
    return (folder / "manifest.json").read_bytes()


def run_config_file(folder: Path) -> bytes:
    return encoded({"format": 1, **to_dict(preset("digits", "best", (1, 28, 28)))})


def in_json(name: str, file: str, read: Callable[[Path], object], whole: Callable[[Path], bytes], long: int) -> Parser:
    return Parser(name, file, read, json_inputs(whole), whole, long)


def in_tensors(name: str, file: str, read: Callable[[Path], object], whole: Callable[[Path], bytes], long: int) -> Parser:
    return Parser(name, file, read, lambda folder: damaged_tensors(whole(folder)) | damaged([whole(folder)]), whole, long)


def constant(document: dict[str, Any], end: bytes = b"") -> Callable[[Path], bytes]:
    return lambda folder: encoded(document) + end


PARSERS = [
    in_json("model config", "config.json", load_and_sample, model_file("config.json"), 12_000),
    in_tensors("model weights", "model.safetensors", load_and_sample, model_file("model.safetensors"), 6_000),
    in_json("quality table", "quality.json", load_and_sample, model_file("quality.json"), 4_000),
    in_tensors("session", "a.session", lambda path: model().load_session(path), session_file, 8_000),
    Parser("draft", "a.npz", refine, draft_inputs, lambda folder: draft(), 8_000),
    in_json("metrics", "metrics.jsonl", log.read, constant(EPOCH, b"\n"), 6_000),
    in_json("environment", "environment.json", read_starts, constant({"format": 1, "starts": [START]}), 4_000),
    in_tensors("checkpoint", "step-000000009.safetensors", read_checkpoint, checkpoint_file, 6_000),
    in_json("evaluation", "evaluation.json", read_evaluation, evaluation_file, 6_000),
    in_json("code statistics", "code_stats.json", read_stats, code_stats_file, 4_000),
    in_json("run files", "files.json", lambda path: run_files.check_files(path.parent), constant(FILES), 3_000),
    in_json("measurement cache", "cache.json", lambda p: MeasurementCache(p).find("a", {"seed": 0}), cache_file, 4_000),
    in_json("shard manifest", "manifest.json", lambda p: ShardFolder(p.parent, shards_request()).open(), manifest_file, 5_000),
    in_json("run config", "config.json", lambda path: read_config(path.parent), run_config_file, 5_000),
    Parser(
        "compressed file",
        "a.any",
        lambda path: compressor().decompress([path.read_bytes()]),
        lambda folder: damaged([compressed_file(folder)]),
        compressed_file,
        5_000,
    ),
    in_json("request body", "body", lambda path: submit(path.read_bytes()), constant(BODY), 15_000),
]


def fuzz(parser: Parser, tmp_path: Path, count: int) -> Limits:
    """Read that many damaged files, in a directory where nothing else may change."""
    folder, limits = tmp_path / "in", Limits()
    folder.mkdir()
    content, inputs = parser.whole(folder), parser.inputs(folder)
    path = folder / parser.file
    path.write_bytes(content)
    before = {each: each.stat().st_size for each in tmp_path.rglob("*") if each.is_file() and each != path}

    @settings(QUIET, max_examples=count)
    @given(inputs)
    def read(damage: bytes) -> None:
        path.write_bytes(damage)
        limits.run(lambda: parser.read(path))

    limits.run(lambda: parser.read(path))
    assert limits.accepted == 1, "the undamaged file must be read"
    read()
    limits.check_memory()
    assert before == {each: each.stat().st_size for each in tmp_path.rglob("*") if each.is_file() and each != path}
    return limits


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Library warnings are not errors here, as for a user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_damaged_files_are_read_or_refused(parser: Parser, tmp_path: Path) -> None:
    assert fuzz(parser, tmp_path, SHORT).inputs >= SHORT


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_many_damaged_files_are_read_or_refused(
    parser: Parser, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    start = time.perf_counter()
    limits = fuzz(parser, tmp_path, parser.long)
    record_property("inputs", limits.inputs)
    record_property("accepted", limits.accepted)
    record_property("fuzzing_seconds", round(time.perf_counter() - start, 1))
    record_property("slowest_input_ms", round(1000 * limits.slowest, 1))
    record_property("memory_mib", limits.memory >> 20)
    assert limits.inputs >= parser.long


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("target", "runs"), [("config", 200_000), ("body", 200_000), ("draft", 100_000), ("tensors", 20_000)])
def test_coverage_guided_fuzzing(
    target: str, runs: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:  # fmt: skip
    """With atheris, where it is installed."""
    pytest.importorskip("atheris")
    (tmp_path / "corpus").mkdir()
    if target in ("draft", "tensors"):
        (tmp_path / "corpus" / "whole").write_bytes(draft() if target == "draft" else session_file(tmp_path))
    command = [sys.executable, str(Path(__file__).with_name("atheris_target.py")), target, str(runs), str(tmp_path / "corpus")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.search(r"Done (\d+) runs in (\d+) second", done.stderr)
    assert found is not None
    peak = max(map(int, re.findall(r"rss: (\d+)Mb", done.stderr)))
    record_property("inputs", int(found[1]))
    record_property("fuzzing_seconds", int(found[2]))
    record_property("peak_process_mib", peak)
    assert int(found[1]) >= runs
