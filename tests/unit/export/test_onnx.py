"""ONNX files give the library's codes and data, without torch; weights stay as small as they are stored."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from anytime.autoencoders.vqvae import VQVAE, AutoencoderConfig
from anytime.core import random, storage
from anytime.core.quantized_weights import SCALE_PREFIX
from anytime.export import onnx as onnx_export
from anytime.export import runner as runner_file
from anytime.export.exported import DESCRIPTION
from anytime.export.onnx import export_onnx
from anytime.export.runner import Runner, Sample, filter_logits, gumbel
from anytime.export.sample import CheckedRunner, load_sample, save_sample
from anytime.model import AnytimeModel, ModelConfig, load
from anytime.models.registry import WEIGHTS, locate, total_bytes
from anytime.priors.lstm import LSTMConfig
from anytime.sampling import gumbel as library
from anytime.sampling.gumbel import SamplingSettings
from anytime.sampling.onnx.decoder import decoder_graph
from anytime.sampling.onnx.graph import FLOAT, Graph
from anytime.sampling.sample_file import read_npz


@pytest.fixture(scope="module")
def folder(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_onnx(saved, tmp_path_factory.mktemp("export") / "tiny").folder


@pytest.fixture(scope="module")
def runner(folder: Path) -> Runner:
    return Runner(folder, threads=1)


@pytest.fixture(scope="module")
def checked(folder: Path) -> CheckedRunner:
    return CheckedRunner(folder, threads=1)


@pytest.fixture(scope="module")
def model(saved: Path) -> AnytimeModel:
    return load(saved, "cpu")


def run_graph(graph: Graph, *inputs: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(graph.serialize())
    return session.run(None, {one.name: array for one, array in zip(session.get_inputs(), inputs, strict=True)})


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**40 + 3, 2**63 - 1])
def test_the_noise_is_the_library_s(seed: int) -> None:
    """The hashed numbers are equal to the last bit, their logarithms to the last place or two."""
    rows = torch.tensor([0, 1, 77, 2**31 - 1])
    ours = gumbel(seed, rows.numpy(), 5, 300)
    expected = random.uniform(seed, rows[:, None], 5, torch.arange(300)[None]).numpy()
    for _ in range(2):
        expected = -np.log(expected.astype(np.float64)).astype(np.float32)
    assert np.array_equal(ours, expected) and len(np.unique(ours)) > 1190
    assert np.abs(ours - library.gumbel(seed, rows, 5, 300).numpy()).max() < 2e-6


@pytest.mark.parametrize(
    "settings", [{}, {"top_k": 3}, {"top_p": 0.7}, {"top_k": 9, "top_p": 0.4}, {"top_k": 99, "top_p": 1.0}]
)
def test_logits_are_filtered_as_the_library_does(settings: dict[str, float]) -> None:
    logits = torch.randn(50, 16, generator=torch.Generator().manual_seed(0)).mul(3).round()  # rounded: with equal logits
    expected = library.filter_logits(logits, SamplingSettings(temperature=0.7, **settings))  # type: ignore[arg-type]
    both: dict[str, float | None] = {"top_k": None, "top_p": None, **settings}
    assert np.array_equal(filter_logits(logits.numpy(), 0.7, **both), expected.numpy())  # type: ignore[arg-type]


def test_codes_and_data_are_the_library_s(runner: Runner, model: AnytimeModel) -> None:
    settings = {"temperature": 0.8, "top_k": 9, "top_p": 0.95}
    for n in (1, 5, 70):
        expected, found = model.sample(n, seed=3, **settings), runner.sample(n, seed=3, **settings)
        assert np.array_equal(found.codes, expected.codes.numpy())
        assert np.abs(found.data - expected.data.numpy()).max() < 1e-5
    assert (found.model, found.settings) == (model.hash, settings)
    assert np.array_equal(runner.sample(3, seed=3, first=67, **settings).codes, found.codes[67:])


def test_a_budget_only_stops_and_refining_continues(runner: Runner, model: AnytimeModel) -> None:
    whole = runner.sample(4, seed=1)
    for count in (1, 3, 8):
        draft = runner.sample(4, seed=1, codes=count)
        assert np.array_equal(draft.codes, whole.codes[:, :count])
        assert draft.data.shape == whole.data.shape
        assert np.array_equal(runner.refine(draft).codes, whole.codes)
    stop = threading.Event()
    stop.set()
    assert np.array_equal(runner.sample(4, seed=1, stop=stop).codes, whole.codes[:, :1])


def test_a_prefix_is_kept_and_continued(runner: Runner, model: AnytimeModel) -> None:
    prefix = np.array([[3, 15]])
    found = runner.sample(6, seed=2, prefix=prefix)
    assert np.array_equal(found.codes, model.sample(6, seed=2, prefix=torch.from_numpy(prefix)).codes.numpy())
    assert (found.codes[:, :2] == prefix).all()
    several = np.arange(12).reshape(6, 2)
    assert np.array_equal(runner.sample(6, prefix=several, codes=2).codes, several)


def test_any_prefix_decodes(runner: Runner, model: AnytimeModel) -> None:
    codes = model.sample(67, seed=4).codes
    for count in range(model.length + 1):
        expected = model.decode(codes[:, :count]).numpy()
        assert np.abs(runner.decode(codes[:, :count].numpy()) - expected).max() < 1e-5


def test_steps_prefixes_and_the_parallel_pass_agree(runner: Runner, model: AnytimeModel) -> None:
    """One graph is all three: it is fed one token at a time, in two parts, and in one go."""
    codes = model.sample(5, seed=6).codes
    with torch.no_grad():
        expected = model.prior(codes).numpy()
    assert np.abs(runner.logits(codes.numpy()) - expected).max() < 1e-5
    tokens = np.insert(codes.numpy()[:, :-1], 0, model.codebook_size, axis=1)
    for parts in ([1] * 8, [5, 3], [1, 6, 1]):
        cache, position, found = runner._cache(5, 8), 0, []
        cache += 7.0  # entries that are not written yet must not matter
        for count in parts:
            part = np.ascontiguousarray(tokens[:, position : position + count])
            logits, new = runner._prior(part, np.array([position]), *cache)
            cache[:, :, :, position : position + count] = new
            found.append(logits)
            position += count
        assert np.abs(np.concatenate(found, 1) - expected).max() < 1e-5


def test_a_deadline_is_kept(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that advances by 1 ms with every network: steps and the decode fit into the deadline."""
    now = [0.0]

    def tick(network: Callable[..., object]) -> Callable[..., object]:
        def call(*arrays: np.ndarray) -> object:
            now[0] += 1e-3
            return network(*arrays)

        return call

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    slow = Runner.__new__(Runner)
    vars(slow).update(vars(runner), _prior=tick(runner._prior), _decoder=tick(runner._decoder), _seconds={})
    whole = runner.sample(3, seed=5)
    for within, count in ((0.0011, 1), (0.0041, 3), (0.0051, 4), (1.0, 8)):
        sample = slow.sample(3, seed=5, within=within)
        assert np.array_equal(sample.codes, whole.codes[:, :count])
        assert sample.seconds <= max(within, 0.002) + 1e-9


def test_files_are_read_by_the_library_and_the_other_way_round(runner: Runner, model: AnytimeModel, tmp_path: Path) -> None:
    save_sample(runner.sample(3, seed=2**63 - 1, codes=2, top_k=5), tmp_path / "draft.npz")
    draft = read_npz(tmp_path / "draft.npz", "draft.npz")
    assert draft.model == model.hash
    finer = runner.refine(load_sample(tmp_path / "draft.npz"))
    assert np.array_equal(finer.codes, model.refine(draft).codes.numpy())


def test_the_programs_need_only_numpy_and_onnxruntime(folder: Path, model: AnytimeModel, tmp_path: Path) -> None:
    def run(*words: object) -> subprocess.CompletedProcess[str]:
        code = (
            "import sys; sys.modules.update(dict.fromkeys(('torch', 'anytime', 'onnx', 'jaxtyping')));"
            f"sys.path.insert(0, {str(folder)!r}); sys.argv[0] = 'sample.py'; import sample; sample.main()"
        )
        command = [sys.executable, "-P", "-c", code, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)

    made = run("-n", 4, "--seed", 7, "--prefix", "3,1", "--codes", 5, "--within", "10s", "--temperature", 0.9, "--out", "a.npz")
    assert made.returncode == 0, made.stderr
    assert "a.npz: 4 x 5 codes of 8" in made.stdout
    expected = model.sample(4, seed=7, prefix=torch.tensor([[3, 1]]), codes=5, temperature=0.9)
    assert np.array_equal(load_sample(tmp_path / "a.npz").codes, expected.codes.numpy())
    assert run("--refine", "a.npz", "--out", "b").returncode == 0, "a name without a suffix is kept"
    assert np.array_equal(load_sample(tmp_path / "b").codes, model.refine(expected).codes.numpy())
    for words, sentence in (
        (("--codes", 9), "codes must be in 1 … 8, not 9"),
        (("--prefix", "1,16"), "codes must be between 0 and 15"),
        (("--prefix", "x"), "argument --prefix: invalid codes value: 'x'"),
        (("--within", "0ms"), "within must be above 0"),
        (("--within", "5hours"), "argument --within: invalid seconds value: '5hours'"),
        (("-n", 0), "n must be at least 1, not 0"),
        (("--threads", 0), "threads must be at least 1, not 0"),
        (("--out", "nowhere/a.npz"), "nowhere/a.npz cannot be written: there is no directory nowhere"),
        (("--refine", "a.npz", "--seed", 1), "seed is that of the samples"),
        (("--refine", "nowhere.npz"), "nowhere.npz"),
        (("--out", "."), ". is a directory; name a file, such as samples.npz"),
        (("-n", 10**13), "not enough memory for that many rows; generate them in parts"),
    ):
        refused = run(*words)
        assert refused.returncode == 2 and sentence in refused.stderr and refused.stderr.count("\n") == 1, refused.stderr
    assert not (tmp_path / "samples.npz").exists()
    by_runner = [sys.executable, str(folder / "runner.py"), "--seed", "7", "--codes", "2", "--out", "c.npz"]
    done = subprocess.run(by_runner, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0 and "c.npz: 1 x 2 codes of 8" in done.stdout, done.stderr


@pytest.mark.parametrize("name", ["prior.onnx", "decoder.onnx", "model.json"])
@pytest.mark.parametrize("change", ["cut", "removed"])
def test_a_damaged_export_is_named(folder: Path, tmp_path: Path, name: str, change: str) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    content = (damaged / name).read_bytes()
    (damaged / name).unlink()
    if change == "cut":
        (damaged / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=rf"^{damaged}/{name} cannot be (read|loaded); export the model again \("):
        CheckedRunner(damaged)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"settings": {"temperature": 0.0, "top_k": None, "top_p": None}}, "temperature must be"),
        ({"settings": {"temperature": 1.0, "top_k": 0, "top_p": None}}, "top_k must be"),
        ({"settings": {"temperature": 1.0, "top_k": None, "top_p": 0.0}}, "top_p must be"),
        ({"seed": -1}, "seed must be"),
        ({"model": "another"}, "of another model"),
        ({"model": "another", "codes": np.zeros((2, 9), np.int64)}, "of another model"),
        ({"rows": np.arange(3)}, "rows must be 2 numbers"),
        ({"rows": np.array([0.0, 1.0])}, "rows must be integers"),
        ({"codes": np.zeros((2, 9), np.int64)}, "codes must be integers"),
        ({"codes": np.zeros((2, 2))}, "codes must be integers"),
        ({"codes": np.full((2, 2), -1)}, "codes must be between 0 and 15"),
    ],
)
def test_a_wrong_sample_is_refused(checked: CheckedRunner, changes: dict[str, object], sentence: str) -> None:
    draft: Sample = checked.sample(2, codes=2)
    with pytest.raises(ValueError, match=sentence):
        checked.refine(replace(draft, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"n": 0}, "n must be at least 1, not 0"),
        ({"prefix": np.zeros((2, 1), np.int64)}, "prefix must have 1 row or 3 rows, not 2"),
        ({"prefix": np.array([[16]])}, "codes must be between 0 and 15"),
        ({"codes": 9}, "codes must be in 1 … 8, not 9"),
        ({"codes": 1, "prefix": np.array([3, 1])}, "codes must be in 2 … 8, not 1"),
        ({"within": 0.0}, "within must be above 0 seconds, not 0.0"),
        ({"temperature": 0.0}, "temperature must be in 0.001 … 100, not 0.0"),
        ({"seed": 2**63}, "seed must be in 0"),
    ],
)
def test_wrong_arguments_are_refused(checked: CheckedRunner, arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        checked.sample(**{"n": 3, **arguments})  # type: ignore[arg-type]


def test_the_algorithm_alone_refuses_what_would_give_other_codes(runner: Runner) -> None:
    draft = runner.sample(2, codes=2)
    for changes, sentence in (
        ({"model": "another"}, "of another model"),
        ({"codes": np.full((2, 2), 16)}, "codes must be between 0 and 15"),
        ({"codes": np.zeros((2, 2))}, "codes must be integers"),
        ({"codes": np.zeros((2, 9), np.int64)}, "codes must be integers"),
    ):
        with pytest.raises(ValueError, match=sentence):
            runner.refine(replace(draft, **changes))  # type: ignore[arg-type]


def test_the_algorithm_alone_stays_short() -> None:
    assert len(Path(runner_file.__file__).read_text(encoding="utf-8").splitlines()) < 150


def test_checks_change_no_sample(runner: Runner, checked: CheckedRunner) -> None:
    prefix = np.array([3, 15])
    for arguments in ({}, {"prefix": prefix, "top_k": 4, "within": 10.0}, {"first": 5, "temperature": 0.5, "codes": 3}):
        found, expected = (one.sample(6, seed=9, **arguments) for one in (checked, runner))  # type: ignore[arg-type]
        assert np.array_equal(found.codes, expected.codes) and np.array_equal(found.data, expected.data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("settings", "{}"),
        ("settings", "[1]"),
        ("settings", '{"temperature": "1", "top_k": null, "top_p": null}'),
        ("codes", 3),
        ("rows", 0),
        ("seed", "0"),
        ("model", np.arange(2)),
    ],
)
def test_a_damaged_file_of_samples_is_named(runner: Runner, field: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "damaged.npz"
    save_sample(runner.sample(2, codes=2), path)
    with np.load(path) as file:
        fields = {name: file[name] for name in file.files}
    np.savez(path, **{**fields, field: value})
    with pytest.raises(ValueError, match=r"damaged\.npz is not an \.npz file of samples"):
        load_sample(path)


def test_stored_weights_expand_to_the_library_s() -> None:
    """int8 and bfloat16 weights of the bundled models, computed by ONNX Runtime, are the loaded floats to the last bit."""
    for name in ("mnist", "cifar10"):
        tensors, _, _ = storage.read_tensors(locate(name) / WEIGHTS)
        graph, expected = Graph("weights", tensors), load(name, "cpu").state_dict()
        names = [key for key, tensor in tensors.items() if tensor.ndim > 1 and not key.startswith(SCALE_PREFIX)]
        for index, key in enumerate(names):
            graph.output(f"out_{index}", graph.weight(key), FLOAT, tensors[key].shape)
        assert {tensors[key].dtype for key in names} > {torch.int8}
        for key, found in zip(names, run_graph(graph), strict=True):
            assert np.array_equal(found, expected[key].numpy()), key


def test_the_bundled_models_stay_small_and_their_weights_are_expanded_once(tmp_path: Path) -> None:
    for name in ("mnist", "cifar10"):
        made = export_onnx(name, tmp_path / name)
        assert made.bytes == total_bytes(made.folder) < locate(name).joinpath(WEIGHTS).stat().st_size
        assert json.loads((made.folder / DESCRIPTION).read_text())["model"] == made.hash == load(name, "cpu").hash
        for network in ("prior", "decoder"):
            assert expansions(made.folder / f"{network}.onnx", tmp_path / "optimised.onnx") == 0
    assert total_bytes(tmp_path) < 20_000_000 + (tmp_path / "optimised.onnx").stat().st_size


def expansions(file: Path, optimised: Path) -> int:
    """Return how many conversions of weights ONNX Runtime leaves for every call."""
    import onnx

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(optimised), 3
    onnxruntime.InferenceSession(str(file), options)
    return sum(node.op_type in ("Cast", "DequantizeLinear") for node in onnx.load(str(optimised)).graph.node)


AUTOENCODERS = {
    "image": {"shape": (1, 28, 28), "length": 8, "dim": 49, "widths": (4, 8), "kernels": (4, 4, 3), "strides": (2, 2, 1)},
    "image with blocks, spatial": {
        "shape": (3, 16, 16), "length": 16, "dim": 6, "widths": (4,), "kernels": (4, 4), "strides": (2, 2), "blocks": 2,
        "layout": "spatial",
    },
    "residual-image": {
        "shape": (3, 16, 16), "length": 5, "dim": 16, "widths": (4, 6), "kernels": (4, 4, 3), "strides": (2, 2, 1), "blocks": 1,
        "network": "residual-image",
    },
    "audio": {
        "shape": (1, 128), "length": 4, "dim": 8, "widths": (4,), "kernels": (25, 25), "strides": (4, 4), "network": "audio",
    },
    "residual-audio": {
        "shape": (1, 128), "length": 4, "dim": 8, "widths": (4,), "kernels": (9, 9), "strides": (4, 4), "blocks": 2,
        "network": "residual-audio",
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", AUTOENCODERS)
def test_every_decoder_has_an_onnx_form(kind: str, tiny: AnytimeModel) -> None:
    config = AutoencoderConfig(quantizer=tiny.config.autoencoder.quantizer, **AUTOENCODERS[kind])  # type: ignore[arg-type]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        autoencoder = VQVAE(config)
        for tensor in autoencoder.state_dict().values():
            if tensor.is_floating_point():  # running variances too
                torch.nn.init.uniform_(tensor, 0.1, 0.5) if tensor.ndim == 1 else torch.nn.init.normal_(tensor, std=0.2)
        codes = torch.randint(16, (3, config.length))
    autoencoder.eval()
    graph = decoder_graph(autoencoder, {f"autoencoder.{name}": t for name, t in autoencoder.state_dict().items()})
    for count in (0, 2, config.length):
        (found,) = run_graph(graph, codes[:, :count].numpy())
        expected = autoencoder.decode(codes[:, :count]).numpy()
        assert expected.std() > 1e-3
        assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


def test_the_same_model_gives_the_same_bytes_and_may_be_written_again(saved: Path, tmp_path: Path) -> None:
    first = export_onnx(saved, tmp_path / "a")
    before = {path.name: path.read_bytes() for path in first.folder.iterdir()}
    (first.folder / DESCRIPTION).unlink()  # as a killed export leaves it
    export_onnx(saved, first.folder)
    assert {path.name: path.read_bytes() for path in first.folder.iterdir()} == before


def test_what_cannot_be_exported_is_refused(
    saved: Path, tiny: AnytimeModel, tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lstm = ModelConfig(name="tiny", autoencoder=tiny.config.autoencoder, prior=LSTMConfig(length=8, codebook_size=16, width=8))
    AnytimeModel(lstm).save(tmp_path / "lstm")
    assert "has a prior of type LSTM" in refused(export_onnx, tmp_path / "lstm", tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    assert "holds letter.txt" in refused(export_onnx, saved, tmp_path / "full")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "README.md").write_text("mine")
    assert "holds README.md" in refused(export_onnx, saved, tmp_path / "other")
    (tmp_path / "other" / "README.md").rename(tmp_path / "other" / "sample.py")
    assert "holds sample.py" in refused(export_onnx, saved, tmp_path / "other")
    assert "is a file" in refused(export_onnx, saved, tmp_path / "full" / "letter.txt")
    monkeypatch.setattr(onnx_export.importlib.util, "find_spec", lambda name: None)
    assert "run `pip install onnx onnxruntime`" in refused(export_onnx, saved, tmp_path / "out")
    assert not (tmp_path / "out").exists()
