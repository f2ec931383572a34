"""The scripts of an exported page, run by Node.js: noise, files, checks of a request, and the sampling loop by a fake clock."""

from __future__ import annotations

import base64
import io
import json
import shutil
import subprocess
import wave
from importlib.resources import as_file, files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from anytime.core import random
from anytime.sampling.gumbel import SamplingSettings, gumbel, gumbel_argmax

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="the scripts need Node.js: apt-get install nodejs")

SEEDS = [0, 1, 2**31, 2**32 - 1, 2**32, 2**40 + 3, 2**53 - 1]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scripts")
    for part in ("server", "export"):
        with as_file(files("anytime") / part / "static") as static:
            shutil.copytree(static, folder, dirs_exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def run(scripts: Path, script: str, given: object = None) -> Any:
    """Run a script, which prints JSON; it finds what is given as `given`."""
    (scripts / "given.json").write_text(json.dumps(given))
    read = 'import { readFileSync } from "node:fs";\nconst given = JSON.parse(readFileSync("given.json"));\n'
    (scripts / "main.js").write_text(read + script)
    done = subprocess.run([str(NODE), "main.js"], cwd=scripts, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_noise_is_python_s(scripts: Path) -> None:
    """The uniform numbers are equal bit for bit, and the noise up to the rounding of its logarithms."""
    rows, positions, categories = [0, 1, 99, 2**31 - 1], [0, 7, 255], 1000
    script = """
    import { gumbel, key, streamKey, uniform } from "./gumbel.js";
    const each = (work) => given.seeds.map((seed) => given.rows.map((row) => given.positions.map((position) => {
      const stream = streamKey(key(seed), row, position);
      return Array.from({ length: given.categories }, (_, category) => work(stream, category));
    })));
    console.log(JSON.stringify({ uniform: each(uniform), gumbel: each(gumbel) }));
    """
    found = run(scripts, script, {"seeds": SEEDS, "rows": rows, "positions": positions, "categories": categories})
    category = torch.arange(categories)
    for seed, uniforms, noises in zip(SEEDS, found["uniform"], found["gumbel"], strict=True):
        expected = random.uniform(seed, torch.tensor(rows)[:, None, None], torch.tensor(positions)[:, None], category)
        assert np.array_equal(np.array(uniforms), expected.double().numpy())
        noise = torch.stack([gumbel(seed, torch.tensor(rows), position, categories) for position in positions], 1)
        assert np.array_equal(np.array(noises), np.array(noises).astype(np.float32))  # they are float32 numbers
        np.testing.assert_allclose(np.array(noises), noise.numpy(), rtol=3e-7, atol=3e-7)


def test_codes_are_python_s(scripts: Path) -> None:
    """Codes of random logits. Some are equal, and the noise decides; a difference would have to be a tie."""
    rows, categories = 300, 126
    logits = torch.randn(rows, categories, generator=torch.Generator().manual_seed(0)).mul(2)
    logits[:, 1] = logits[:, 0]
    script = """
    import { gumbelArgmax, key, streamKey } from "./gumbel.js";
    const codes = (temperature) => given.map((logits, row) =>
      gumbelArgmax(Float32Array.from(logits), temperature, streamKey(key(5), row, 3)));
    console.log(JSON.stringify([0.001, 0.7, 1, 100].map(codes)));
    """
    for temperature, found in zip((0.001, 0.7, 1.0, 100.0), run(scripts, script, logits.tolist()), strict=True):
        noise = gumbel(5, torch.arange(rows), 3, categories)
        assert found == gumbel_argmax(logits, SamplingSettings(temperature=temperature), noise).tolist()


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 30), (3, 5, 7)])
def test_images_are_rounded_to_bytes(scripts: Path, shape: tuple[int, ...]) -> None:
    data = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)) * 1.2 - 0.1
    script = """
    import { encodeFiles } from "./files.js";
    console.log(JSON.stringify(encodeFiles(Float32Array.from(given.data), { shape: given.shape, sample_rate: null })));
    """
    found = run(scripts, script, {"data": data.flatten().tolist(), "shape": shape})
    expected = (data.clamp(0, 1) * 255).round().expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy()
    for file, image in zip(found, expected, strict=True):
        assert np.abs(np.asarray(Image.open(io.BytesIO(base64.b64decode(file))), int) - image).max() <= 1


def test_audio_is_a_wav_file(scripts: Path) -> None:
    data = torch.linspace(-1.1, 1.1, 40000)  # long enough to be encoded in parts
    script = """
    import { encodeFiles, mediaType } from "./files.js";
    const model = { shape: [1, given.length], sample_rate: 16000 };
    console.log(JSON.stringify([...encodeFiles(Float32Array.from(given), model), mediaType(model)]));
    """
    file, media = run(scripts, script, data.tolist())
    with wave.open(io.BytesIO(base64.b64decode(file))) as audio:
        assert (audio.getframerate(), audio.getnchannels(), audio.getsampwidth()) == (16000, 1, 2) and media == "audio/wav"
        found = np.frombuffer(audio.readframes(1 << 20), "<i2")
    assert np.abs(found - np.clip(data.numpy(), -1, 1) * 32767).max() <= 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"n": 257}, "n must be between 1 and 256, not 257"),
        ({"n": 0}, "n must be between 1 and 256, not 0"),
        ({"n": None}, "n must be between 1 and 256, not null"),
        ({"seed": -1}, "seed must be between 0 and 2^53 - 1, not -1"),
        ({"prefix": [[3, 126]]}, "prefix must have codes of this model: 0 to 125"),
        ({"prefix": [[None]]}, "prefix must have codes of this model: 0 to 125"),
        ({"prefix": [[1] * 17]}, "prefix has 17 codes, more than the model's 16"),
        ({"temperature": 0}, "temperature must be between 0.001 and 100, not 0"),
        ({"deadline_ms": 0}, "deadline must be above 0 and at most 600000 ms, not 0"),
        ({"model": "mnits"}, "there is no model 'mnits'; choose one of mnist, other"),
    ],
)
def test_a_wrong_request_gets_a_sentence(scripts: Path, change: dict[str, Any], sentence: str) -> None:
    request = {"model": None, "n": 4, "seed": 0, "prefix": None, "temperature": None, "deadline_ms": None}
    script = """
    import { Problem } from "./problem.js";
    import { checkRequest, findModel } from "./request.js";
    const models = [{ id: "mnist", length: 16, codebook_size: 126 }, { id: "other" }];
    const outcome = (request) => {
      try {
        return checkRequest(request, findModel(models, request.model));
      } catch (error) {
        return error instanceof Problem ? error.message : String(error);
      }
    };
    console.log(JSON.stringify(given.map(outcome)));
    """
    right, wrong = run(scripts, script, [{**request, "prefix": [[3, 125]]}, {**request, **change}])
    assert wrong == sentence
    assert right == {"n": 4, "seed": 0, "prefix": [3, 125], "temperature": None, "deadline_ms": None}


LOOP = """
import { Sampler } from "./sampler.js";

/** A model of 10 codes whose steps and decodes take as long as the script says, by a clock of its own. */
let time = 1000;
const calls = [];
const model = {
  length: 10, codebook_size: 8, temperature: 1,
  start: (n) => ({ n }),
  step: async ({ n }) => ((time += given.step(n)), new Float32Array(8 * n)),
  decode: async (rows) => ((time += given.decode(rows.length)), calls.push(rows[0].length), rows.map(String)),
};
const sampler = new Sampler(model, () => time);
async function sample(request) {
  const [started, refinements] = [time, []];
  const whole = { n: 4, seed: 1, prefix: [], temperature: null, deadline_ms: null, ...request };
  for await (const { rows, count, samples, final } of sampler.sample(whole, started, async () => {})) {
    refinements.push({ rows: structuredClone(rows), count, shown: samples.length, final, took: time - started });
  }
  return refinements;
}
"""


def loop(scripts: Path, step: str, decode: str, *requests: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Sample requests one after another; steps and decodes take milliseconds, as functions of n."""
    clock = f"Object.assign(given, {{ step: (n) => {step}, decode: (n) => {decode} }});"
    end = "for (const request of given.requests) all.push(await sample(request)); console.log(JSON.stringify(all));"
    found: list[list[dict[str, Any]]] = run(scripts, f"{LOOP}{clock} const all = []; {end}", {"requests": requests})
    return found


def test_samples_sharpen_and_a_budget_only_stops(scripts: Path) -> None:
    all_codes, short, prefixed = loop(scripts, "5", "20", {}, {"deadline_ms": 66}, {"prefix": [3, 1], "n": 2})
    assert [one["count"] for one in all_codes] == list(range(1, 11))
    assert [one["final"] for one in all_codes] == [False] * 9 + [True]
    assert all(a["rows"][0] == b["rows"][0][: a["count"]] for a, b in pairwise(all_codes))
    # 66 ms less the margin of 8: seven steps of 5 ms and one decode of 20 ms.
    assert [(one["count"], one["final"], one["took"]) for one in short] == [(7, True, 55)]
    assert [row[:7] for row in all_codes[-1]["rows"]] == short[-1]["rows"]
    assert [one["count"] for one in prefixed] == list(range(3, 11)) and prefixed[-1]["rows"][1][:2] == [3, 1]


def test_large_grids_show_fewer_refinements(scripts: Path) -> None:
    (grid,) = loop(scripts, "5", "200", {})
    assert [one["count"] for one in grid] == [1, 2, 4, 6, 8, 10]  # 10 decodes of 200 ms would take 2 s: every second
    (large,) = loop(scripts, "5", "4000", {})
    assert [one["count"] for one in large] == [1, 3, 6, 9, 10] and large[-1]["rows"] == grid[-1]["rows"]


def test_with_time_for_all_codes_a_deadline_allows_refinements(scripts: Path) -> None:
    _, generous, tight = loop(scripts, "5", "20", {}, {"deadline_ms": 500}, {"deadline_ms": 110})
    assert generous[-1]["count"] == 10 and generous[-1]["took"] <= 492
    assert len(generous) == 10
    assert tight[-1]["count"] == 10 and tight[-1]["took"] <= 102 and 1 < len(tight) < 4


def test_the_first_deadline_measures(scripts: Path) -> None:
    """Nothing is known before: the first complete sample is the answer if there is no time for more."""
    (only,) = loop(scripts, "50", "80", {"deadline_ms": 100})
    assert [(one["count"], one["final"], one["took"]) for one in only] == [(1, True, 130)]


def test_a_deadline_without_time_for_all_rows_gets_fewer(scripts: Path) -> None:
    _, cut, single, grown = loop(scripts, "10 * n", "40 * n", {}, *[{"deadline_ms": ms} for ms in (150, 1, 300)])
    assert [(one["shown"], one["count"], one["final"]) for one in cut] == [(2, 1, True)] and cut[-1]["took"] <= 142
    assert single[-1]["shown"] == 1 and single[-1]["final"]
    assert grown[-1]["shown"] == 4 and grown[-1]["took"] <= 292
    assert cut[-1]["rows"] == [row[:1] for row in grown[-1]["rows"][:2]]


def test_a_superseded_request_ends(scripts: Path) -> None:
    script = f"""{LOOP}
    Object.assign(given, {{ step: () => 1, decode: () => 1 }});
    let pauses = 0;
    const pause = async () => {{ if (++pauses === 5) throw new Error("superseded"); }};
    const request = {{ n: 1, seed: 0, prefix: [], temperature: null, deadline_ms: null }};
    try {{
      for await (const _ of sampler.sample(request, time, pause));
    }} catch (error) {{
      console.log(JSON.stringify([error.message, calls.length]));
    }}"""
    message, decodes = run(scripts, script, {})
    assert message == "superseded" and 1 <= decodes <= 3
