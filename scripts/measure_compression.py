"""Measure compressed files: bits against the plain codes, and distortion against bytes beside JPEG and WebP.

python scripts/measure_compression.py cifar10 --data DIR [--images 1000] [--inception FILE --features 200]

Writes benchmarks/results/compression/NAME.json and a figure of its rows. Takes any model of images whose dataset is there.
"""

from __future__ import annotations

import argparse
import io
import math
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int, UInt8
from torch import Tensor

from anytime import data
from anytime.compression.file_format import HEADER_BYTES
from anytime.compression.progressive import BATCH, Compressor
from anytime.compression.range_coder import PrefixDecoder, encode_payload
from anytime.core.config import read_json
from anytime.core.environment import environment
from anytime.core.errors import UserError
from anytime.core.plots import plot_png
from anytime.core.progress import track
from anytime.core.results import Results, Row, Verdict, read, select
from anytime.core.storage import write_atomic
from anytime.data.loader import to_uint8
from anytime.evaluation.evaluate import check_shape
from anytime.evaluation.model_card import redact_paths
from anytime.metrics.inception import Inception, find_inception
from anytime.metrics.ssim import ssim
from anytime.model import AnytimeModel, load
from anytime.models.registry import CONFIG

QUALITIES = {"JPEG": (1, 3, 4, 5, 10, 20, 30, 50, 75), "WebP": (0, 5, 10, 20, 30, 50, 75)}
WEBP_HEADER = 30  # bytes: RIFF and WEBP 12, the chunk's name and size 8, the frame's tag, start code and size 10
OURS = "anytime"
CUTS = 12
STAGES = ("pretrain", "ordered", "prior", "finetune")
ENVIRONMENT = "environment.json"  # of a run directory: commands and versions of its starts
KEYS = {"psnr": "PSNR, dB", "ssim": "SSIM", "feature_distance": "distance of Inception features"}

Image = UInt8[Tensor, "channel height width"]
Images = UInt8[Tensor, "n channel height width"]


class Distortion:
    """Compares images with the originals."""

    def __init__(self, x: Images, inception: Path | None, features: int) -> None:
        self.x, self.features = x, features
        self.network = None if inception is None else Inception(find_inception(inception), torch.device("cpu"))
        self.originals = None if self.network is None else self.network(x[:features])

    def __call__(self, x_hat: Images) -> Row:
        """Return the mean squared error, its PSNR, the mean SSIM and the mean distance of features."""
        before, after = self.x.float() / 255, x_hat.float() / 255
        errors = (before - after).square().mean((1, 2, 3)).double()
        psnr = -10 * math.log10(float(errors.mean()))
        row: Row = {"mse": float(errors.mean()), "psnr": psnr, "ssim": float(ssim(before, after).double().mean())}
        if self.network is not None and self.originals is not None:
            similar = F.cosine_similarity(self.originals, self.network(x_hat[: self.features]))
            row |= {"feature_distance": float((1 - similar).mean()), "feature_images": self.features}
        return row


@dataclass(frozen=True, slots=True)
class Coded:
    """All images as codes and payloads."""

    codes: Int[np.ndarray, "n length"]
    payloads: list[bytes]
    exact_bits: float  # mean of −log2 of the exact probabilities
    prefix_codes: Int[np.ndarray, "n cuts"]  # codes that the first 0, 1, … bytes of each payload determine


def code_images(compressor: Compressor, x: Images) -> Coded:
    """Code the images; cuts are decoded with the probabilities of the encoder."""
    model = compressor.model
    codes = torch.cat([model.encode(image[None]) for image in x]).cpu().numpy()
    payloads, exact_bits, counts, cuts = [], 0.0, [], -(-model.length * 24 // 8)
    for start in track(range(0, len(x), BATCH), -(-len(x) // BATCH), "coding"):
        part = codes[start : start + BATCH]
        for row, tables in zip(part, compressor.tables(part), strict=True):
            payload = encode_payload(row, tables)
            exact_bits += float((24 - np.log2(tables[np.arange(len(row)), row])).sum())
            counts.append([_determined(payload[:cut], row, tables) if cut <= len(payload) else len(row) for cut in range(cuts)])
            payloads.append(payload)
    return Coded(codes, payloads, exact_bits / len(x), np.array(counts))


def _determined(payload: bytes, codes: Int[np.ndarray, " length"], tables: Int[np.ndarray, "length size"]) -> int:
    decoder, found = PrefixDecoder(payload, len(codes)), 0
    while found < len(codes) and decoder.next(tables[found]) == codes[found]:
        found += 1
    return found


def rate_row(model: AnytimeModel, coded: Coded) -> Row:
    """Return mean bits of an image: plain codes, by the float and the exact prior, in files with and without header."""
    plain = model.length * math.log2(model.codebook_size)
    bits = 8 * float(np.mean([len(payload) for payload in coded.payloads]))
    exact, by_float = coded.exact_bits, float_bits(model, coded.codes)
    row = {"plain_bits": plain, "float_bits": by_float, "exact_bits": exact, "extra_fraction": exact / by_float - 1}
    return {"series": "rate", **row, "payload_bits": bits, "file_bits": bits + 8 * HEADER_BYTES, "images": len(coded.payloads)}


@torch.no_grad()
def float_bits(model: AnytimeModel, codes: Int[np.ndarray, "n length"]) -> float:
    """Return the mean bits of the codes by the prior in float32."""
    total = 0.0
    for part in torch.from_numpy(codes).split(BATCH):
        logits = model.prior(part.to(model.device)).double().log_softmax(-1).cpu()
        total -= float(logits.gather(-1, part[..., None]).sum()) / math.log(2)
    return total / len(codes)


def our_rows(model: AnytimeModel, coded: Coded, distortion: Distortion) -> Iterator[Row]:
    """Yield bytes and distortion of files cut at about 12 places, two bytes apart or more, until all are whole."""
    codes = torch.from_numpy(coded.codes)
    images = torch.stack([to_uint8(model.decode(codes[:, :count]).cpu()) for count in range(model.length + 1)])
    sizes = np.array([len(payload) for payload in coded.payloads])
    longest = int(sizes.max())
    for cut in [*range(0, longest, max(2, longest // CUTS)), longest]:
        counts = coded.prefix_codes[:, cut]
        size = float(np.minimum(sizes, cut).mean())
        row = distortion(images[torch.from_numpy(counts), torch.arange(len(counts))])
        facts = {"cut": cut, "codes": float(counts.mean()), "bytes": size + HEADER_BYTES, "bytes_without_header": size}
        yield {"series": OURS, **facts, **row}


def codec_rows(name: str, x: Images, distortion: Distortion) -> Iterator[Row]:
    """Yield bytes and distortion of another codec by quality."""
    for quality in QUALITIES[name]:
        coded = [_jpeg(image, quality) if name == "JPEG" else _webp(image, quality) for image in x]
        whole, bare = (float(np.mean([size[which] for _, size in coded])) for which in (0, 1))
        row = distortion(torch.stack([pixels for pixels, _ in coded]))
        yield {"series": name, "quality": quality, "bytes": whole, "bytes_without_header": bare, **row}


def _jpeg(image: Image, quality: int) -> tuple[Image, tuple[int, int]]:
    """Return the pixels, the bytes of a file with its own Huffman tables, and the scan's bytes with the standard tables.

    The standard tables are constants of the format, and so are all other segments for one quality and size.
    """
    own, _ = _save(image, format="JPEG", quality=quality, optimize=True)
    standard, pixels = _save(image, format="JPEG", quality=quality)
    scan = standard.index(b"\xff\xda")
    start = scan + 2 + int.from_bytes(standard[scan + 2 : scan + 4])
    return pixels, (len(own), len(standard) - start - 2)  # 2: the end of image


def _webp(image: Image, quality: int) -> tuple[Image, tuple[int, int]]:
    """Return the pixels, and the bytes of the file with and without the constant header."""
    content, pixels = _save(image, format="WEBP", quality=quality, method=6)
    assert content[12:16] == b"VP8 ", "a simple lossy file has one chunk"
    return pixels, (len(content), int.from_bytes(content[16:20], "little") - WEBP_HEADER + 20)


def _save(image: Image, **settings: Any) -> tuple[bytes, Image]:
    from PIL import Image as Pillow

    stream, pixels = io.BytesIO(), image.permute(1, 2, 0).numpy()
    Pillow.fromarray(pixels.squeeze(-1) if len(image) == 1 else pixels).save(stream, **settings)
    read_back = np.asarray(Pillow.open(stream).convert("L" if len(image) == 1 else "RGB")).reshape(pixels.shape)
    return stream.getvalue(), torch.from_numpy(read_back.copy()).permute(2, 0, 1)


def speed_row(compressor: Compressor, x: Images, repeats: int = 10) -> Row:
    """Return the median seconds of one file, the model being loaded."""
    seconds: dict[str, list[float]] = {"compress": [], "decompress": []}
    for image in x[:repeats]:
        started = time.perf_counter()
        files = compressor.compress(image[None])
        middle = time.perf_counter()
        compressor.decompress(files)
        seconds["compress"].append(middle - started)
        seconds["decompress"].append(time.perf_counter() - middle)
    return {"series": "speed", **{f"{name}_seconds": float(np.median(values)) for name, values in seconds.items()}}


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Return what the rows say about size and distortion."""
    (rate,) = select(rows, series="rate")
    percent, plain = 100 * rate["extra_fraction"], rate["plain_bits"]
    found = [
        Verdict(claim, rate[key] < plain, f"{rate[key]:.1f} bits an image against {plain:.1f}")
        for key, claim in (
            ("payload_bits", "payloads are smaller than the plain codes"),
            ("file_bits", "files with their header are smaller than the plain codes without one"),
        )
    ]
    evidence = f"{percent:.5f} % more bits"
    found.append(Verdict("exact arithmetic costs less than 1 % against the float prior", percent < 1, evidence))
    return found + [_against(rows, name, key) for name in QUALITIES for key in ("bytes", "bytes_without_header")]


def _against(rows: list[Row], name: str, key: str) -> Verdict:
    """Compare whole files with the smallest file of another codec that is not worse in SSIM."""
    whole = select(rows, series=OURS)[-1]
    as_good = [row for row in select(rows, series=name) if row["ssim"] >= whole["ssim"]]
    claim = f"the smallest measured {name} of at least the same SSIM is larger ({key.replace('_', ' ')})"
    if not as_good:
        return Verdict(claim, None, f"no measured quality of {name} reaches an SSIM of {whole['ssim']:.3f}")
    least = min(row[key] for row in as_good)
    return Verdict(claim, least > whole[key], f"{least:.0f} against {whole[key]:.0f} bytes at an SSIM of {whole['ssim']:.3f}")


def draw(path: Path) -> Path:
    """Draw distortion against bytes from a results file, headers counted and not counted."""
    from matplotlib.figure import Figure

    rows = read(path).rows
    keys = {key: title for key, title in KEYS.items() if any(key in row for row in rows)}
    figure = Figure(figsize=(4.6 * len(keys), 4.2), layout="constrained")
    for axes, (key, title) in zip(figure.subplots(1, len(keys)), keys.items(), strict=True):
        for number, name in enumerate((OURS, *QUALITIES)):
            own = select(rows, series=name)
            for bytes_key, style, note in (("bytes", "-", ""), ("bytes_without_header", "--", ", header not counted")):
                places = [(row[bytes_key], row[key]) for row in own if row[bytes_key] > 0]
                axes.plot(*zip(*places, strict=True), style, color=f"C{number}", marker=".", label=name + note)
        axes.set(xscale="log", xlabel="bytes", ylabel=title)
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=7)
    write_atomic(path.with_suffix(".png"), plot_png(figure))
    return path.with_suffix(".png")


def training_facts(name: str, model: AnytimeModel) -> dict[str, Any]:
    """Return what the model is: its numbers of parameters and, for a run directory, its last command and its epochs."""
    parts = {"autoencoder": model.autoencoder, "prior": model.prior}
    facts: dict[str, Any] = {f"{part}_parameters": sum(p.numel() for p in net.parameters()) for part, net in parts.items()}
    if (path := Path(name) / ENVIRONMENT).is_file():
        config = read_json(Path(name) / CONFIG)
        facts["command"] = redact_paths(read_json(path)["starts"][-1]["command"])
        facts["epochs"] = {stage: config[stage]["epochs"] for stage in STAGES if config.get(stage)}
    return facts


def measure(arguments: argparse.Namespace, command: str) -> Results:
    """Measure one model on the test set of its dataset."""
    model = load(arguments.model, "cpu")
    if model.is_audio:
        raise UserError(f"{arguments.model} is a model of audio; name a model of images")
    dataset = data.load(model.config.name, data=arguments.data)
    check_shape(model, dataset)
    x = (dataset.validation if dataset.test is None else dataset.test)[: arguments.images]
    distortion, compressor = Distortion(x, arguments.inception, arguments.features), Compressor(model)
    coded = code_images(compressor, x)
    rows = [rate_row(model, coded), speed_row(compressor, x), *our_rows(model, coded, distortion)]
    for name in QUALITIES:
        rows += codec_rows(name, x, distortion)
    split = "validation" if dataset.test is None else "test"
    schedule = f"the first {len(x):,} {split} images of {dataset.source}"
    facts = {**environment(model.device), "model": model.hash, "training": training_facts(arguments.model, model)}
    return Results("compression", dataset.name, command, facts, schedule, rows, verdicts(rows))


def main(argv: Sequence[str] | None = None) -> int:
    """Write the results and the figure; status 2 for a mistake."""
    parser = argparse.ArgumentParser(description="bits, distortion and speed of compressed files")
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, help="a local copy of the dataset that the model was trained on")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--inception", type=Path, help="the FID network, for the distance of its features")
    parser.add_argument("--features", type=int, default=200, help="images for that distance")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = sys.argv[1:] if argv is None else argv
    command = redact_paths(shlex.join(["python", "scripts/measure_compression.py", *given]))
    arguments = parser.parse_args(given)
    try:
        path = measure(arguments, command).write(arguments.out)
    except UserError as error:
        print(f"measure_compression: {error}", file=sys.stderr)
        return 2
    print(path, draw(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
