"""Tables of scripts/measure_compression.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from anytime.core.results import HOLDS, Row, select
from pages.markdown import table

FILE, FACES = (f"benchmarks/results/compression/{name}.json" for name in ("cifar10", "celeba"))
QUALITIES = {"JPEG": (1, 5, 10, 30, 75), "WebP": (0, 5, 10, 30, 75)}


def rates(root: Path, file: str = FILE) -> str:
    """Mean bits of an image."""
    (row,) = select(_rows(root, file), series="rate")
    names = {
        "plain_bits": "plain codes, log2 of the codebook's size each",
        "float_bits": "−log2 of the prior's probability, float32",
        "exact_bits": "the same in exact arithmetic",
        "payload_bits": "payload of a file, whole bytes",
        "file_bits": "file, header included",
    }
    return table(["mean of the images", "bits"], [[name, f"{row[key]:.2f}"] for key, name in names.items()])


def distortion(root: Path, file: str = FILE) -> str:
    """Distortion by bytes of our files, JPEG and WebP."""
    rows = _rows(root, file)
    ours = select(rows, series="anytime")
    shown = [*ours[:3], *ours[4:-2:2]]  # the first bytes change most
    chosen = [(f"cut after {row['cut']} bytes, {row['codes']:.1f} codes", row) for row in shown]
    chosen.append(("whole", ours[-1]))
    lines = [_line("anytime", label, row) for label, row in chosen]
    for name, qualities in QUALITIES.items():
        own = [row for row in select(rows, series=name) if row["quality"] in qualities]
        lines += [_line(name, f"quality {row['quality']}", row) for row in own]
    header = ["format", "file", "bytes", "without header", "PSNR, dB", "SSIM", "feature distance"]
    return table(header, lines)


def verdicts(root: Path, file: str = FILE) -> str:
    """What the rows decide."""
    data = _read(root / file)
    return table(["claim", "", "evidence"], [[v["claim"], HOLDS[v["holds"]], v["evidence"]] for v in data["verdicts"]])


def _line(name: str, label: str, row: Row) -> list[str]:
    sizes = [f"{row['bytes']:.1f}", f"{row['bytes_without_header']:.1f}"]
    return [name, label, *sizes, f"{row['psnr']:.2f}", f"{row['ssim']:.3f}", f"{row['feature_distance']:.3f}"]


def faces_model(root: Path) -> str:
    """What the model of faces is, and on what its files were measured."""
    data = _read(root / FACES)
    training = data["environment"]["training"]
    (rate,) = select(data["rows"], series="rate")
    facts = {
        "epochs": ", ".join(f"{stage} {epochs}" for stage, epochs in training["epochs"].items()),
        "parameters": ", ".join(f"{part} {training[f'{part}_parameters'] / 1e6:.2f} M" for part in ("autoencoder", "prior")),
        "trained by": f"`{training['command']}`",
        "measured on": f"{data['schedule']} ({rate['images']:,} images)",
        "hash": f"`{data['environment']['model'][:8]}`",
    }
    return table(["", "the model of faces"], [[name, text] for name, text in facts.items()])


def _rows(root: Path, file: str) -> list[Row]:
    rows: list[Row] = _read(root / file)["rows"]
    return rows


def _read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data
