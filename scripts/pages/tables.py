"""Tables of figures in README and docs. Each stands between `<!-- table: NAME -->` and `<!-- end -->` and comes from JSON."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from textwrap import indent
from typing import Any

import queue_allocations
import run_queue
from anytime.core.errors import UserError, did_you_mean
from anytime.core.results import curve
from anytime.experiments.registry import EXPERIMENTS
from anytime.sampling.engines.registry import ENGINES
from pages import compression, export, trust
from pages.markdown import table
from pages.serving import SERVING_GPU, deadlines, serving, slo

FRACTIONS = (0.2, 0.4, 0.6, 0.8, 1.0)
MARKED = re.compile(r"(?P<indent> *)<!-- table: (?P<name>[a-z0-9-]+) -->\n.*?<!-- end -->", re.DOTALL)
FIGURE = re.compile(r"[−–-]?[\d.,]+( ?%| / [\d. /]+)?")

Rows = Sequence[Mapping[str, Any]]


def fill(text: str, root: Path) -> str:
    """Return a page with every marked table replaced by what the JSON files under `root` say."""

    def replaced(match: re.Match[str]) -> str:
        lines = f"<!-- table: {match['name']} -->\n{build(match['name'], root)}\n<!-- end -->"
        return indent(lines, match["indent"])

    return MARKED.sub(replaced, text)


def build(name: str, root: Path) -> str:
    """Return one table by name."""
    if name not in TABLES:
        raise UserError(f"there is no table {name!r}; {did_you_mean(name, TABLES)}")
    return TABLES[name](root)


def unmarked_figures(text: str) -> list[str]:
    """Return the table lines outside markers in which some cell is a figure.

    >>> unmarked_figures("| a | b |\\n|---|---|\\n| FID | 28.9 |\\n| option | `--codes 8` |\\n")
    ['| FID | 28.9 |']
    """
    lines = [line.strip() for line in MARKED.sub("", text).splitlines()]
    cells = {line: [part.strip().strip("*") for part in line.strip("|").split("|")] for line in lines if line.startswith("|")}
    return [line for line, parts in cells.items() if any(FIGURE.fullmatch(part) and re.search(r"\d", part) for part in parts)]


def bundled(root: Path) -> str:
    """FID of the bundled models and of the paper's recipe."""
    evaluations = {name: root / f"src/anytime/models/{name}/evaluation.json" for name in ("cifar10", "mnist")}
    measured = [
        ("CIFAR-10", "paper", "ordered", root / "results/fid/cifar10.json"),
        ("CIFAR-10", "best", "samples", evaluations["cifar10"]),
        ("MNIST", "best", "samples", evaluations["mnist"]),
    ]
    lines = []
    for dataset, recipe, series, path in measured:
        rows = [row for row in _rows(path) if row["series"] == series and "fid" in row]
        codes, temperature = max(row["codes"] for row in rows), rows[0].get("temperature", 1.0)
        fid = curve(rows, series, "fraction", "fid")
        lines.append([dataset, f"`{recipe}`", str(codes), f"{temperature:g}", *(f"{fid[f]:.1f}" for f in FRACTIONS)])
    return table(["dataset", "recipe", "codes", "temperature", *map(_fraction, FRACTIONS)], lines)


def memorisation(root: Path) -> str:
    """How many samples of the bundled models are nearer to training than to held-out images."""
    lines = []
    for name in ("mnist", "cifar10"):
        rows = _rows(root / f"src/anytime/models/{name}/evaluation.json")
        (row,) = (row for row in rows if row["series"] == "memorisation")
        lines.append([name, *(f"{row[key]:.1%}".replace("%", " %") for key in ("nearer_to_seen", "validation_nearer_to_seen"))])
    return table(["model", "samples nearer to a training image", "validation images nearer to a training image"], lines)


def experiments(root: Path) -> str:
    """The experiments of `anytime reproduce`."""
    lines = []
    for one in EXPERIMENTS.values():
        needs = ["the Inception network"] if one.inception else []
        needs += ["the extra `audio`"] if one.is_audio else []
        needs += ["an otherwise idle machine"] if one.name in ("speed", "audio") else []
        lines.append(
            [f"`{one.name}`", one.figure, ", ".join(one.datasets), ", ".join(one.runs) or "–", ", ".join(needs) or "–"]
        )
    return table(["name", "figure", "datasets of the paper", "runs", "also needs"], lines)


def engines(root: Path) -> str:
    """Time of all 70 codes of the paper's CIFAR-10 networks, by engine."""
    lines = []
    for device in ("cuda", "cpu"):
        results = _read(root / f"benchmarks/results/sampling/cifar10-{device}.json")
        full = [row for row in results["rows"] if row.get("fraction") == 1.0]
        for series in dict.fromkeys(row["series"] for row in full):
            p50 = {row["batch"]: row["p50"] for row in full if row["series"] == series}
            cells = [f"{1000 * p50[batch]:.1f}" if batch in p50 else "–" for batch in (1, 100, 8192)]
            lines.append([results["environment"]["hardware"], series, *cells])
    return table(["hardware", "engine", "batch 1, ms", "batch 100, ms", "batch 8192, ms"], lines) + _gone(lines)


def _gone(lines: Sequence[Sequence[str]]) -> str:
    """Return a sentence on engines that a record names and the package does not have; nothing without one."""
    named = [series.split()[1] for _, series, *_ in lines if series.startswith("anytime")]
    gone = [f"`{engine}`" for engine in dict.fromkeys(named) if engine not in ENGINES]
    return f"\n\nOf an earlier version, to be measured again: {', '.join(gone)}." if gone else ""


CPU_NETWORKS = {
    "cifar10": "CIFAR-10, `paper`, 70 codes",
    "cifar10-best": "CIFAR-10, `best`, 20 codes",
    "mnist-best": "MNIST, `best`, 16 codes",
}


def cpu(root: Path) -> str:
    """Our engines on a CPU beside Hugging Face at its fastest, with the share of the limit, and the start-up."""
    lines = []
    for name, title in CPU_NETWORKS.items():
        rows = _rows(root / f"benchmarks/results/sampling/{name}-cpu.json")
        full = [row for row in rows if row.get("fraction") == 1.0]
        start = next((f"{row['seconds']:.2f}" for row in rows if row["series"] == "start-up"), "–")
        for series in dict.fromkeys(row["series"] for row in full if row["series"].startswith("anytime")):
            cells = [cell for batch in (1, 100) for cell in _beside_huggingface(full, series, batch)]
            lines.append([title, series, *cells, start if series == CPU_DEFAULT else "–"])
    batches = [f"{what}, batch {batch}" for batch in (1, 100) for what in ("times Hugging Face", "share of limit")]
    return table(["networks", "engine", *batches, "start-up, s"], lines) + _gone(lines)


CPU_DEFAULT = "anytime packed fp32"


def _beside_huggingface(rows: Rows, series: str, batch: int) -> list[str]:
    """Return the speed beside Hugging Face at its fastest, and the share of the speed that the roofline allows."""
    here = [row for row in rows if row["batch"] == batch]
    ours = next((row for row in here if row["series"] == series), None)
    theirs = min((row["p50"] for row in here if row["series"].startswith("huggingface")), default=None)
    if ours is None:
        return ["–", "–"]
    return ["–" if theirs is None else f"{theirs / ours['p50']:.2f}", f"{1 / ours['times_roofline']:.0%}".replace("%", " %")]


AUDIO_TITLES = {
    "ordered": "`paper`, ordered",
    "unordered": "`paper`, unordered",
    "best": "`best`, ordered",
    "best-unordered": "`best`, unordered",
}


def queue(root: Path) -> str:
    """The pieces of the GPU queue, with estimated minutes."""
    lines = []
    for piece in run_queue.PIECES:
        command = shlex.join(["anytime", *piece.command("FOLDER", "FILE")])
        about = f"{piece.minutes} min" + (f" in {piece.calls} calls" if piece.calls > 1 else "")
        lines.append([piece.name, about, piece.after or "–", f"`{command}`"])
    total = sum(piece.minutes for piece in run_queue.PIECES)
    return table(["piece", f"about (all: {total} min)", "on the machine of", "command"], lines)


def allocations(root: Path) -> str:
    """The pieces of the GPU queue packed into allocations."""
    lines, done, known = [], list[run_queue.Piece](), list[str]()
    for number, allocation in enumerate(queue_allocations.allocations(), 1):
        done += allocation.pieces
        fresh = [name for name in queue_allocations.decided(done) if name not in known]
        known += fresh
        alone, beside = (" ".join(piece.name for piece in pieces) or "–" for pieces in (allocation.alone, allocation.beside))
        lines.append([str(number), alone, beside, f"{allocation.minutes:.0f} min", "; ".join(fresh) or "–"])
    return table(["allocation", "first, alone", "then with `--jobs 2`", "about", "can then be decided"], lines)


def audio(root: Path) -> str:
    """Distances, classified samples and speed of the audio models (Appendix B)."""
    rows = _rows(root / "results/audio/audiomnist.json")
    fractions = (1 / 16, 1 / 4, 1 / 2, 1.0)
    lines = []
    for series, title in AUDIO_TITLES.items():
        at = curve([row for row in rows if row.get("measure") == "error"], series, "fraction", "log_mel")
        lines.append([f"log-mel distance: {title}", *(f"{at[f]:.2f}" for f in fractions)])
    for series, title in [*AUDIO_TITLES.items(), ("best", "`best`, ordered, temperature 0.8")]:
        temperature = 0.8 if "0.8" in title else 1.0
        at = curve([row for row in rows if row.get("temperature") == temperature], series, "fraction", CLASSIFIED)
        lines.append([f"samples classified as a digit: {title}", *(f"{100 * at[f]:.1f} %" for f in fractions)])
    for series, title in (("ordered", "`paper`"), ("best", "`best`")):
        at = curve([row for row in rows if row.get("device") == "cuda"], series, "fraction", "real_time_factor")
        lines.append([f"real-time factor on the GPU: {title}", *(f"{at[f]:.4f}" for f in fractions)])
    return table(["fraction of the codes", "1/16", "1/4", "1/2", "1"], lines)


CLASSIFIED = "classified"
"""The key of the fraction of clips that the audio classifier classifies as a digit."""


def audio_classifier(root: Path) -> str:
    """What the audio classifier classifies as a digit."""
    rows = _rows(root / "tests/records/audio-classifier.json")
    lines = []
    for row in rows:
        share = f"{100 * row[CLASSIFIED]:.1f} %"
        if row["series"] == "speakers":
            lines.append([f"digits, {row['part']} speakers", f"{100 * row['accuracy']:.1f} %", share])
        elif row["series"] == "non-digits":
            lines.append([row["kind"] + ("" if row["in_training"] else " (not in its training)"), "–", share])
    return table(["1,200 clips each", "classified correctly", "classified as a digit"], lines)


def audio_noise(root: Path) -> str:
    """How white noise moves the Fréchet distance of real clips on the audio classifier's features."""
    rows = [row for row in _rows(root / "tests/records/audio-classifier.json") if row["series"] == "noise"]
    lines = [[_fraction(row["level"]), f"{row['frechet_digits']:,.0f}", f"{100 * row[CLASSIFIED]:.1f} %"] for row in rows]
    return table(["noise RMS", "`frechet_digits`", "classified as a digit"], lines)


def audio_bands(root: Path) -> str:
    """Number of codes that halves the error of each frequency band."""
    rows = [row for row in _rows(root / "results/audio/audiomnist.json") if row.get("measure") == "half-way"]
    lines = []
    for series, title in AUDIO_TITLES.items():
        codes = {row["band"]: row["codes"] for row in rows if row["series"] == series}
        lines.append([title, *(str(codes[band] or "never") for band in ("low", "middle", "high"))])
    return table(["model", "low", "middle", "high"], lines)


def audio_first_clip(root: Path) -> str:
    """Time of a clip from a sixteenth of the codes, as a fraction of the time of all codes."""
    rows = _rows(root / "results/audio/audiomnist.json")
    lines = []
    for series, name in (("ordered", "audiomnist"), ("best", "audiomnist-best")):
        at = [curve([r for r in rows if r.get("device") == d], series, "fraction", "seconds_p50") for d in ("cuda", "cpu")]
        bench = [r for r in _rows(root / f"benchmarks/results/sampling/{name}-cuda.json") if r.get("batch") == 1]
        at.append(curve(bench, "anytime cuda bf16", "fraction", "p50"))
        lines.append([AUDIO_TITLES[series], *(f"{seconds[1 / 16] / seconds[1.0]:.3f}" for seconds in at)])
    return table(["model", "GPU", "CPU", "GPU, current engine, random weights"], lines)


def tuning(
    trials: Sequence[tuple[str, int]], against: str = "training", temperature: float | None = None
) -> Callable[[Path], str]:
    """Return a builder of FID by fraction of the codes for the named trials and seeds of benchmarks/results/tuning.json."""

    def build_table(root: Path) -> str:
        data = _read(root / "benchmarks/results/tuning.json")
        tried = {trial["name"]: trial["tried"] for trial in data["trials"]}
        lines = []
        for name, seed in trials:
            own = [row for row in data["rows"] if (row["trial"], row["seed"]) == (name, seed)]
            own = [row for row in own if row.get("compared_with") == f"{against} images"]
            samples = [row for row in own if row["series"] == "samples" and temperature in (None, row["temperature"])]
            fid = {row["fraction"]: row["fid"] for row in samples}
            numbers = [f"{fid[f]:.1f}" if f in fid else "–" for f in FRACTIONS]
            lines.append(
                [f"`{name}`: {tried[name]}", str(seed), f"{samples[0]['samples']:,}", *numbers, _last(own, fid, against)]
            )
        last = "reconstructions at 1 (images)" if against == "training" else "largest rise"
        return table(["trial", "seed", "samples", *map(_fraction, FRACTIONS), last], lines)

    return build_table


def _last(rows: Rows, fid: Mapping[float, float], against: str) -> str:
    if against == "training":
        full = [row for row in rows if row["series"] == "reconstructions" and row["fraction"] == 1.0]
        return "".join(f"{row['fid']:.1f} ({row['samples']:,})" for row in full)
    return f"{largest_rise([fid[f] for f in FRACTIONS]):.1f}".replace("-", "−")


def largest_rise(values: Sequence[float]) -> float:
    """Return the largest increase from a value to a later one; negative where values fall throughout.

    >>> largest_rise([5.0, 3.0, 4.0]), largest_rise([5.0, 3.0, 2.5])
    (1.0, -0.5)
    """
    return max(later - earlier for i, earlier in enumerate(values) for later in values[i + 1 :])


def extra_codes(root: Path) -> str:
    """Four ways to fine-tune the decoder: mean FID over fractions and seeds, and the larger rise of the two seeds."""
    rows = _rows(root / "benchmarks/results/tuning.json")
    header, lines = ["fine-tuned"], []
    ways = {"as before": "", "9 augmentations, 200,000 samples": "-more-augmentations"}
    ways |= {"uniform lengths": "-uniform", "samples at 0.85": "-cooler"}
    for way, suffix in ways.items():
        line = [way]
        for codes in (28, 24):
            for temperature in (0.75, 0.85):
                own = [r for r in rows if r["trial"] == f"extra-codes-{codes}{suffix}" and r.get("temperature") == temperature]
                by_seed = [[row["fid"] for row in own if row["seed"] == seed] for seed in (0, 1)]
                rise = f"{max(map(largest_rise, by_seed)):.1f}".replace("-", "−")
                line.append(f"{mean(map(mean, by_seed)):.1f} / {rise}")
        lines.append(line)
    header += [f"{codes} codes, temperature {t}" for codes in (28, 24) for t in (0.75, 0.85)]
    return table(header, lines)


CIFAR10_TRIALS = [
    ("strided-70", 0), ("residual-70", 0), ("unconditional-48", 0), ("conditional-prior-samples-48", 0),
    ("conditional-40-quantised", 0), ("conditional-40", 1), ("conditional-40", 0), ("conditional-40-temperature-0.9", 0),
    ("conditional-40-fitted", 0), ("conditional-32", 0), ("truncated-24", 0), ("truncated-24", 1),
    ("extra-codes-28-cooler-quantised", 0), ("extra-codes-28-cooler-quantised", 1), ("finetuned-28", 0), ("finetuned-28", 1),
    ("first-20-repeat", 0), ("first-20", 1),
]  # fmt: skip
TRUNCATED_TRIALS = [
    ("truncated-28-two-augmentations", 0), ("truncated-28", 0), ("truncated-28", 1), ("truncated-28-global-head", 0),
    ("truncated-28-global-head", 1), ("truncated-24", 0), ("truncated-24", 1),
]  # fmt: skip
LONGER_TRIALS = [(name, seed) for seed in (0, 1) for name in ("extra-codes-28-cooler", "longer-28")]
TABLES: dict[str, Callable[[Path], str]] = {
    "bundled": bundled,
    "memorisation": memorisation,
    "experiments": experiments,
    "queue": queue,
    "allocations": allocations,
    "engines": engines,
    "cpu": cpu,
    "audio": audio,
    "audio-classifier": audio_classifier,
    "audio-noise": audio_noise,
    "audio-bands": audio_bands,
    "audio-first-clip": audio_first_clip,
    "tuning-cifar10": tuning(CIFAR10_TRIALS),
    "tuning-celeba": tuning([("celeba-10-epochs", 0), ("celeba-40-epochs", 0), ("celeba-first-40", 0)]),
    "tuning-truncated": tuning(TRUNCATED_TRIALS, "validation", 0.85),
    "tuning-longer": tuning(LONGER_TRIALS, "validation", 0.75),
    "tuning-extra-codes": extra_codes,
    "serving": serving,
    "serving-slo": slo,
    "serving-gpu": partial(serving, file=SERVING_GPU),
    "serving-gpu-slo": partial(slo, file=SERVING_GPU),
    "deadlines": deadlines,
    "compression-rates": compression.rates,
    "compression-distortion": compression.distortion,
    "compression-verdicts": compression.verdicts,
    "faces-model": compression.faces_model,
    "faces-rates": partial(compression.rates, file=compression.FACES),
    "faces-distortion": partial(compression.distortion, file=compression.FACES),
    "faces-verdicts": partial(compression.verdicts, file=compression.FACES),
    "export-rows": export.rows,
    "export-sizes": export.sizes,
    "export-steps": export.steps,
    "browser": export.browser,
    "fuzzing": trust.fuzzing,
    "kills": trust.kills,
}


def _read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def _rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _read(path)["rows"]
    return rows


def _fraction(fraction: float) -> str:
    return f"{fraction:g}"
