"""From a run to a bundled model: quantised, loaded by its name, evaluated, its card written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from anytime.core import storage
from anytime.core.config import to_dict
from anytime.core.quantized_weights import FILE_KIND
from anytime.evaluation import model_card
from anytime.evaluation.model_card import TRAINING
from anytime.export.bundle import WeightFormats, bundle
from anytime.model import load
from anytime.models import registry
from anytime.models.registry import CONFIG, WEIGHTS

RunCLI = Callable[..., Any]
SMOKE = ("--scale", "smoke", "--samples", 40, "--fractions", "0.25,1.0")


@pytest.fixture
def bundle_dir(finished: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a finished run, beside an empty registry."""
    monkeypatch.setattr(registry, "BUNDLED_DIR", tmp_path / "bundled")
    (tmp_path / "desk").mkdir()
    monkeypatch.chdir(tmp_path / "desk")
    shutil.copytree(finished("best"), "run")
    return tmp_path / "desk"


def test_an_exported_run_is_sampled_by_name(bundle_dir: Path, run_cli: RunCLI) -> None:
    assert "is not a model" in run_cli("sample", "mnist").sentence
    outcome = run_cli("export", "run", "--to", "bundle", "--name", "mnist", "--json")
    assert outcome.status == 0, outcome.err
    assert json.loads(outcome.out.splitlines()[-1])["folder"] == str(registry.BUNDLED_DIR / "mnist")
    outcome = run_cli("sample", "mnist", "--within", "20ms", "--json")
    assert outcome.status == 0, outcome.err
    assert (bundle_dir / "samples.png").is_file()
    assert json.loads(outcome.out.splitlines()[-1])["model"] == load("mnist").hash
    assert "Known: mnist" in run_cli("sample", "mnits").sentence
    assert "did you mean 'mnist'?" in run_cli("sample", "mnits").sentence
    assert "mnist/README.md" in run_cli("info", "mnist").out
    assert run_cli("reconstruct", "mnist", "samples.png").status == 0


def test_a_bundle_is_a_smaller_model(bundle_dir: Path) -> None:
    """A quarter of the prior's bytes and half of the autoencoder's, and nearly the same model."""
    made = bundle(Path("run"), "little")
    assert made.folder == registry.BUNDLED_DIR / "little"
    assert {path.name for path in made.folder.iterdir()} == {CONFIG, WEIGHTS, model_card.FILE, TRAINING}
    tensors, facts, _ = storage.read_tensors(made.folder / WEIGHTS)
    assert facts == {"kind": FILE_KIND}
    assert tensors["prior.blocks.0.up.weight"].dtype == torch.int8
    assert tensors["prior.blocks.0.up.bias"].dtype == torch.float32
    assert tensors["autoencoder.encoder.0.weight"].dtype == torch.bfloat16
    assert tensors["autoencoder.quantizer.codebook"].dtype == torch.float32
    assert (made.folder / WEIGHTS).stat().st_size < 0.6 * Path("run/model", WEIGHTS).stat().st_size
    whole, small = load("run"), load("little")
    assert small.hash == made.hash == storage.digest(small.state_dict()) != whole.hash
    assert small.config == whole.config
    assert torch.equal(small.autoencoder.quantizer.codebook, whole.autoencoder.quantizer.codebook)
    codes = torch.randint(126, (64, 16), generator=torch.Generator().manual_seed(0))
    assert (small.decode(codes) - whole.decode(codes)).abs().max() < 0.02
    with torch.no_grad():
        drift = (small.prior(codes).log_softmax(-1) - whole.prior(codes).log_softmax(-1)).abs().max()
    assert 0 < drift < 0.2


def test_saved_again_it_is_the_same_model(bundle_dir: Path, tmp_path: Path) -> None:
    made = bundle(Path("run"), "little")
    again = load(load("little").save(tmp_path / "again"))
    assert again.hash == made.hash
    assert torch.equal(again.sample(3).codes, load("little").sample(3).codes)


def test_formats(bundle_dir: Path, tmp_path: Path) -> None:
    sizes = {}
    for prior, autoencoder in (("fp32", "fp32"), ("bf16", "bf16"), ("int8", "int8")):
        made = bundle(Path("run"), prior, WeightFormats(prior=prior, autoencoder=autoencoder), out=tmp_path / "out")  # type: ignore[arg-type]
        sizes[prior] = made.bytes
        assert made.folder == tmp_path / "out" / prior
    assert sizes["int8"] < sizes["bf16"] < sizes["fp32"]
    assert load(tmp_path / "out" / "fp32").hash == load("run").hash
    assert not registry.BUNDLED_DIR.exists()


def test_a_bundle_of_the_first_codes(bundle_dir: Path, tmp_path: Path) -> None:
    """In float32, a bundle of the first codes samples and decodes as the run does."""
    exact = WeightFormats(prior="fp32", autoencoder="fp32")
    made = bundle(Path("run"), "first", exact, codes=5, out=tmp_path)
    first, whole = load(made.folder), load("run")
    assert first.length == 5
    sample = first.sample(6, seed=1)
    assert torch.equal(sample.codes, whole.sample(6, seed=1, codes=5).codes)
    torch.testing.assert_close(sample.data, whole.sample(6, seed=1, codes=5).data, atol=1e-5, rtol=1e-5)
    page = (made.folder / model_card.FILE).read_text()
    assert "| codes | 5, most important first; 16 were learned, the last 11 are dropped |" in page
    assert "| codebook size | 126 |" in page
    assert "`anytime export PATH --to bundle --name first --codes 5 --temperature 1 --weights fp32 --autoencoder fp32`" in page
    assert "from 1 to 5 gives" in page
    assert "dropped" not in (bundle(Path("run"), "whole", out=tmp_path).folder / model_card.FILE).read_text()


def test_bundle_with_default_temperature(bundle_dir: Path, tmp_path: Path, run_cli: RunCLI) -> None:
    made = bundle(Path("run"), "cool", temperature=0.7, out=tmp_path)
    model = load(made.folder)
    assert torch.equal(model.sample(3).codes, model.sample(3, temperature=0.7).codes)
    assert run_cli("evaluate", made.folder, *SMOKE, "--temperature", 1.0, "--out", "figures").status == 0
    assert not (made.folder / "quality.json").exists(), "--quality needs samples at the model's temperature"
    assert run_cli("evaluate", made.folder, *SMOKE, "--out", "figures").status == 0
    assert load(made.folder).code_count(quality=0.5) >= 1
    again = bundle(Path("run"), "cool", temperature=0.7, evaluations=[Path("figures/evaluation.json")], out=tmp_path)
    page = (again.folder / model_card.FILE).read_text()
    assert "| temperature | 0.7 by default |" in page
    assert "40 samples at temperature 0.7 (seed 0)" in page
    assert json.loads(run_cli("info", made.folder, "--json").out.splitlines()[-1])["temperature"] == 0.7


def test_bundle_evaluation_and_model_card(bundle_dir: Path, run_cli: RunCLI) -> None:
    made = bundle(Path("run"), "little")
    page = (made.folder / model_card.FILE).read_text()
    assert model_card.UNMEASURED in page
    for words in ("recipe", "best, scale smoke", "6 + 6 + 6", "anytime train digits", "CC BY-SA 3.0", "MIT", made.hash):
        assert words in page
    assert str(bundle_dir.parent) not in page, "no path of this machine"
    assert run_cli("evaluate", made.folder, *SMOKE, "--out", "figures").status == 0
    table = (made.folder / "quality.json").read_bytes()
    again = bundle(Path("run"), "little", evaluations=[Path("figures/evaluation.json")])
    assert again.hash == made.hash
    assert (made.folder / "quality.json").read_bytes() == table, "a table of the same weights stays"
    assert load("little").code_count(quality=0.5) >= 1
    page = (made.folder / model_card.FILE).read_text()
    assert model_card.UNMEASURED not in page
    assert "| 0.25 | 4 |" in page
    assert "40 samples at temperature 1 (seed 0)" in page
    code_stats = json.loads(run_cli("info", "little", "--json").out.splitlines()[-1])["code_stats"]
    assert len(code_stats["gain"]) == len(code_stats["entropy"]) == len(code_stats["bits"]) == 16, "of the bundle itself"
    kept = (made.folder / "evaluation.json").read_text()
    assert json.loads(kept)["rows"] == json.loads(Path("figures/evaluation.json").read_text())["rows"]
    assert str(bundle_dir.parent) not in page + kept
    other = bundle(Path("run"), "little", WeightFormats(prior="bf16"))
    assert other.hash != made.hash
    assert not (made.folder / "quality.json").exists(), "the table was of other weights"
    assert not list(made.folder.glob("evaluation*.json")), "and so were the figures"


def test_model_card_at_another_temperature(bundle_dir: Path, run_cli: RunCLI) -> None:
    def export(model: Path | str, evaluation: str) -> Any:
        return run_cli("export", model, "--to", "bundle", "--evaluation", evaluation)

    made = bundle(Path("run"), "little")
    page = (made.folder / model_card.FILE).read_text()
    assert run_cli("evaluate", made.folder, *SMOKE, "--temperature", 0.8, "--out", "cooler").status == 0
    assert run_cli("evaluate", made.folder, *SMOKE, "--out", "figures").status == 0
    assert export(made.folder, "figures/evaluation.json").status == 0
    for _ in range(2):  # the second replaces the first
        assert export(made.folder, "cooler/evaluation.json").status == 0
    more = (made.folder / model_card.FILE).read_text()
    assert more.count("### At temperature 0.8\n") == more.count("40 samples at temperature 0.8 (seed 0)") == 1
    assert more.index("40 samples at temperature 1 (seed 0)") < more.index("### At temperature 0.8")
    assert more.startswith(page.split("## Figures")[0])
    assert all(row["series"] != "speed" for row in json.loads((made.folder / "evaluation-0.8.json").read_text())["rows"])
    bare = json.loads(Path("cooler/evaluation.json").read_text())
    bare["rows"] = [row for row in bare["rows"] if row["series"] != "samples"]
    Path("bare.json").write_text(json.dumps(bare))
    assert "bare.json holds no FID by code count" in export(made.folder, "bare.json").sentence
    assert (made.folder / model_card.FILE).read_text() == more
    files = ["figures/evaluation.json", "cooler/evaluation.json"]
    flags = [word for file in files for word in ("--evaluation", file)]
    assert run_cli("export", "run", "--to", "bundle", "--name", "little", *flags).status == 0
    assert (made.folder / model_card.FILE).read_text() == more, "the same in one command"
    bundle(Path("run"), "little", WeightFormats(prior="bf16"))
    assert not list(made.folder.glob("evaluation*.json")), "they were of other weights"
    assert "is of another model" in export(made.folder, "cooler/evaluation.json").sentence
    assert "is a bundle already" in run_cli("export", made.folder, "--to", "bundle").sentence


def test_evaluating_by_name_leaves_the_package_alone(bundle_dir: Path, run_cli: RunCLI) -> None:
    made = bundle(Path("run"), "little")
    before = {path.name: path.read_bytes() for path in made.folder.iterdir()}
    outcome = run_cli("evaluate", "little", *SMOKE, "--json")
    assert outcome.status == 0, outcome.err
    assert json.loads(outcome.out.splitlines()[-1])["out"] == "little-evaluation"
    assert "little keeps its bundled table" in outcome.out
    assert {path.name: path.read_bytes() for path in made.folder.iterdir()} == before


def test_mistakes(bundle_dir: Path, run_cli: RunCLI) -> None:
    def refused(model: str, *words: object) -> str:
        outcome = run_cli("export", model, "--to", "bundle", "--name", "little", *words)
        assert outcome.status == 2
        return str(outcome.sentence)

    for model in ("run/model", "nowhere"):
        assert f"{model} is not a run directory" in refused(model)
    assert "--name 'Little One' must be lower-case letters" in refused("run", "--name", "Little One")
    for codes in (0, 17):
        assert f"between 1 and 16, the model's length, not {codes}" in refused("run", "--codes", codes)
    assert "must be between 0.001 and 100" in refused("run", "--temperature", 0)
    assert "'painting'" in run_cli("export", "run", "--to", "painting").sentence
    assert run_cli("evaluate", "run", *SMOKE).status == 0
    sentence = refused("run", "--evaluation", "run/evaluation/evaluation.json")
    assert "is of another model" in sentence and "evaluate the bundle itself" in sentence
    assert f"anytime evaluate {registry.BUNDLED_DIR / 'little'}" in sentence
    assert not registry.BUNDLED_DIR.exists()


def test_altered_files_are_refused(bundle_dir: Path, run_cli: RunCLI) -> None:
    made = bundle(Path("run"), "little")
    other = bundle(Path("run"), "other", WeightFormats(prior="bf16"))
    weights = (made.folder / WEIGHTS).read_bytes()
    (made.folder / WEIGHTS).write_bytes((other.folder / WEIGHTS).read_bytes())
    assert f"{WEIGHTS} does not match the hash in {CONFIG}" in run_cli("sample", "little").sentence
    (made.folder / WEIGHTS).write_bytes(weights[:-3] + b"abc")
    assert f"{WEIGHTS} was altered" in run_cli("sample", "little").sentence
    (made.folder / WEIGHTS).write_bytes(weights)
    config = load("little").config
    storage.write_json(
        made.folder / CONFIG, {"hash": made.hash, **to_dict(replace(config, prior=replace(config.prior, layers=3)))}
    )
    assert f"does not fit its {CONFIG}" in run_cli("sample", "little").sentence
