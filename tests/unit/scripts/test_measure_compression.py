"""The program that measures compressed files."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from anytime import data
from anytime.core.results import read, select
from anytime.core.storage import write_json
from anytime.model import AnytimeModel
from measure_compression import Distortion, _jpeg, _save, _webp, main, training_facts


def test_it_writes_rows_and_a_figure(tiny: AnytimeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = data.load("digits").subset(200, 100)
    monkeypatch.setattr("anytime.data.load", lambda name, data: dataset)
    folder = copy.deepcopy(tiny).save(tmp_path / "model")
    assert main([str(folder), "--images", "5", "--out", str(tmp_path / "out")]) == 0
    (path,) = (tmp_path / "out" / "compression").glob("*.json")
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    results = read(path)
    assert "first 5" in results.schedule and results.command.startswith("python scripts/measure_compression.py PATH")
    parameters = sum(p.numel() for p in tiny.parameters())
    training = results.environment["training"]
    assert training["autoencoder_parameters"] + training["prior_parameters"] == parameters and "command" not in training
    (rate,) = select(results.rows, series="rate")
    assert rate["images"] == 5 and rate["file_bits"] == rate["payload_bits"] + 32
    assert rate["exact_bits"] <= rate["payload_bits"] < rate["exact_bits"] + 17, "whole bytes cost two at most"
    assert abs(rate["extra_fraction"]) < 1e-3
    ours = select(results.rows, series="anytime")
    assert ours[0]["codes"] == 0 and ours[-1]["codes"] == tiny.length
    for name in ("JPEG", "WebP"):
        assert all(0 < row["bytes_without_header"] < row["bytes"] for row in select(results.rows, series=name))


def test_a_run_says_how_it_was_trained(tiny: AnytimeModel, tmp_path: Path) -> None:
    write_json(
        tmp_path / "config.json",
        {"pretrain": {"epochs": 2}, "ordered": {"epochs": 7}, "prior": {"epochs": 5}, "finetune": None},
    )
    starts = [{"command": "anytime train celeba"}, {"command": "anytime train celeba --data /home/me/faces.zip --reuse ../run"}]
    write_json(tmp_path / "environment.json", {"starts": starts})
    facts = training_facts(str(tmp_path), tiny)
    assert facts["command"] == "anytime train celeba --data PATH --reuse PATH"
    assert facts["epochs"] == {"pretrain": 2, "ordered": 7, "prior": 5}


@pytest.mark.parametrize("quality", [1, 10, 75])
def test_constant_headers_are_constant(quality: int) -> None:
    """What is not counted has the same size for an image of one colour and for noise."""
    noise = torch.randint(0, 256, (3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    headers = {"JPEG": set[int](), "WebP": set[int]()}
    for image in (torch.zeros_like(noise), noise):
        _, (whole, bare) = _webp(image, quality)
        headers["WebP"].add(whole - bare)
        standard, pixels = _save(image, format="JPEG", quality=quality)
        decoded, (_, scan) = _jpeg(image, quality)
        headers["JPEG"].add(len(standard) - scan)
        assert (decoded == pixels).all() and standard[-2:] == b"\xff\xd9"
    assert headers["WebP"] == {30} and len(headers["JPEG"]) == 1


def test_equal_images_have_no_distortion() -> None:
    x = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    row = Distortion(x, None, 0)(x.clamp_min(1))
    assert row["ssim"] > 0.999 and row["psnr"] > 60


def test_a_mistake_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing-here"]) == 2
    error = capsys.readouterr().err
    assert "nothing-here" in error and error.count("\n") == 1
