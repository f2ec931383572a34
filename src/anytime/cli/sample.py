"""anytime sample MODEL"""

from __future__ import annotations

import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from anytime.cli.options import Common, Model, flags, option, parse_ints, with_flags
from anytime.cli.signals import raise_on_signals, stop_on_signals
from anytime.cli.stdout import say
from anytime.core.errors import UserError, warn
from anytime.core.times import to_seconds

if TYPE_CHECKING:
    from anytime.model import AnytimeModel
    from anytime.sampling.sample import Sample

EXAMPLES = (
    "anytime sample mnist",
    "anytime sample mnist -n 16 --codes 4 --out coarse.npz",
    "anytime sample mnist --refine coarse.npz --pick 3,7 --out finer.png",
    "anytime sample mnist -n 16 --within 200ms --out samples.npz",
    "anytime sample mnist -n 2000 --codes 4 --out shards",
)
DEFAULT_SAMPLES = 64
MAX_FIRST_CODE_SHARE = 0.5
"""Largest part of a deadline that the first code of all samples may take: there should be time for more than one."""
FIXED_BY_REFINE = ("n", "seed", "temperature", "top_k", "top_p", "prefix")
"""Arguments that a file to refine determines."""


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    """Arguments of `anytime sample`."""

    model: Model
    n: Annotated[int | None, option("N", aliases=("-n",))] = None
    """Number of samples. The default is 64, or fewer if --within is too short for 64."""
    codes: Annotated[int | None, option("N")] = None
    """Generate N codes of each sample; all by default."""
    fraction: Annotated[float | None, option("F")] = None
    """Generate this fraction of the codes, above 0 and at most 1."""
    quality: Annotated[float | None, option("Q")] = None
    """Generate the fewest codes that reach this quality, above 0 and at most 1, by the quality table of `anytime evaluate`."""
    within: Annotated[str | None, option("TIME")] = None
    """Generate as many codes as fit into this time, decoding included: 50ms, 2s or plain seconds."""
    prefix: Annotated[str | None, option("CODES")] = None
    """Begin every sample with these codes, such as 41,97."""
    temperature: Annotated[float | None, option("T")] = None
    """Sampling temperature: below 1 less varied, above 1 more varied; by default the model's."""
    top_k: Annotated[int | None, option("K")] = None
    """Sample among the K most likely codes only."""
    top_p: Annotated[float | None, option("P")] = None
    """Sample among the most likely codes that together hold this probability."""
    refine: Annotated[Path | None, option("FILE")] = None
    """Continue the samples of an .npz file from where they stopped, with their seed and settings."""
    pick: Annotated[str | None, option("ROWS")] = None
    """Refine only these rows of the file, such as 3,17; needs --refine."""
    engine: Annotated[
        Literal["eager", "packed", "onnx", "cuda", "megakernel"] | None, option("eager|packed|onnx|cuda|megakernel")
    ] = None
    """Sampling engine: packed or onnx (extra `onnx`) for CPUs, cuda for GPUs, eager for any device. By default packed on a
    CPU and cuda on a GPU, if the model allows it. megakernel is cuda with an experimental kernel for up to 8 samples."""
    precision: Annotated[Literal["fp32", "bf16"] | None, option("fp32|bf16")] = None
    """Precision of the packed engine (by default fp32) and the engines for GPUs (bf16); fp32 gives the codes of the eager
    engine."""
    seed: Annotated[int | None, option("S")] = None
    """Random seed, by default 0. It fixes the codes for one engine, precision and batch size."""
    shards: Annotated[Literal["npz", "tar"] | None, option("npz|tar")] = None
    """Format of the shards of a directory: npz arrays, by default, or tar files of PNG or WAV files as webdataset reads them.
    A directory has shards above 1,000 samples, or if this is given. The same command again resumes after a kill."""
    rows_per_shard: Annotated[int | None, option("N")] = None
    """Samples of each shard: a multiple of 512, by default 1024."""
    ray: Annotated[bool, option()] = False
    """Compute shards with Ray, on the cluster that RAY_ADDRESS names or on this machine."""
    verbose: Annotated[bool, option()] = False
    """Say on stderr why a faster way of the engine was not taken, if so."""
    out: Annotated[Path, option("FILE|DIR")] = Path("samples.png")
    """Output: .png a grid, .gif the samples refined code by code, .npz arrays, .wav audio, a directory one file per sample,
    or shards with a manifest above 1,000 samples."""


def run(arguments: Arguments) -> dict[str, Any] | None:
    """Generate samples and write them to `--out`; return None on all ranks but the first."""
    from anytime.cli.bulk import is_bulk, run_bulk
    from anytime.cli.console import shown_log

    with raise_on_signals(), shown_log(arguments.verbose):
        return run_bulk(arguments) if is_bulk(arguments) else _run(arguments)


def _run(arguments: Arguments) -> dict[str, Any]:
    from anytime.cli.output import check_writable, write_sample
    from anytime.model import load
    from anytime.sampling.budget import DeadlineWarning, MemoryWarning

    started = time.monotonic()
    if arguments.pick is not None and arguments.refine is None:
        raise UserError("--pick chooses rows of a file of samples; name it with --refine FILE.npz")
    _check_refine(arguments)
    check_writable(arguments.out)
    model = load(arguments.model, arguments.device, arguments.engine, arguments.precision)
    if arguments.out.suffix.lower() == ".wav" and not model.is_audio:
        raise UserError(f"--out {arguments.out}: this model makes images; use .png, .gif, .npz or a directory")
    _ = model.engine  # raises for an engine that does not fit, before any work
    with stop_on_signals() as stop, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sample, requested = _sample(arguments, model, stop)
    start_up = time.monotonic() - started - sample.seconds
    location = write_sample(arguments.out, model, sample)
    count = sample.codes.shape[1]
    for warning in caught:
        if issubclass(warning.category, DeadlineWarning | MemoryWarning):  # others come from libraries
            say(f"note: {with_flags(str(warning.message), Arguments)}")
    if arguments.quality is not None:
        say(model.required_quality_table.explain(arguments.quality))
    reason = f", stopped by {stop.signal_name}" if stop.is_set() else ""
    rows = len(sample.rows)
    made = f"{rows}" if rows == requested else f"{rows} of {requested}"
    made += " sample" if requested == 1 else " samples"
    latency = model.sampler.latencies.get(rows) if arguments.within is not None else None
    threads = None if latency is None or latency.threads is None else str(latency.threads)  # chosen by measurement
    by = f" with {threads}" if threads else ""
    if arguments.within is not None:
        print(f"{start_up:.1f} s of start-up (libraries, model, measuring this machine), before the time of --within began")
    say(f"{made} of {count} of {model.length} codes in {sample.seconds:.3f} s{by}{reason}: {location}")
    return {
        "out": str(arguments.out),
        "n": rows,
        "codes": count,
        "quality": arguments.quality,
        "length": model.length,
        "seconds": sample.seconds,
        "start_up_seconds": start_up,
        "stopped": stop.is_set(),
        "seed": sample.seed,
        "model": sample.model,
        "engine": model.engine.name,
        "threads": threads,
    }


def _check_refine(arguments: Arguments) -> None:
    """Refuse what a file to refine determines already."""
    if arguments.refine is None:
        return
    names = flags(Arguments)
    for name in FIXED_BY_REFINE:
        if getattr(arguments, name) is not None:
            raise UserError(f"{names[name]} does not go with --refine, which continues the samples of a file; leave it out")


def _sample(arguments: Arguments, model: AnytimeModel, stop: threading.Event) -> tuple[Sample, int]:
    """Return the sample and the number of rows asked for; a stopped sample may have fewer."""
    import torch

    from anytime.cli.console import SamplingConsole
    from anytime.cli.output import MAX_FILES
    from anytime.sampling.sample_file import read_npz

    within = to_seconds(arguments.within, "--within")
    length: dict[str, Any] = {"codes": arguments.codes, "fraction": arguments.fraction, "quality": arguments.quality}
    budget: dict[str, Any] = {**length, "within": within, "stop": stop}
    with SamplingConsole(model.code_count(**length), within) as console:
        if arguments.refine is not None:
            coarse = read_npz(arguments.refine, f"--refine {arguments.refine}")
            if arguments.pick is not None:
                coarse = coarse.pick(parse_ints(arguments.pick, "--pick", "3,17"))
            if not arguments.out.suffix and len(coarse.rows) > MAX_FILES:
                raise UserError(f"--out {arguments.out} takes up to {MAX_FILES} refined samples; use an .npz file, or --pick")
            return model.refine(coarse, **budget, progress=console.progress), len(coarse.rows)
        settings: dict[str, Any] = {name: getattr(arguments, name) for name in ("temperature", "top_k", "top_p")}
        model.settings(**settings)  # refuses wrong values before any work
        prefix = None if arguments.prefix is None else torch.tensor([parse_ints(arguments.prefix, "--prefix", "41,97")])
        n = arguments.n if arguments.n is not None else DEFAULT_SAMPLES if within is None else rows_within(model, within)
        return model.sample(n, seed=arguments.seed or 0, **budget, prefix=prefix, **settings, progress=console.progress), n


def rows_within(model: AnytimeModel, within: float) -> int:
    """Return the default number of samples, or a smaller power of two if the deadline is too short for it."""
    from anytime.sampling.budget import Budget, DeadlineWarning

    Budget(codes=1, within=within)  # refuses a wrong deadline
    for _ in range(2):  # the first is slower: caches are cold
        took = model.sample(DEFAULT_SAMPLES, codes=1).seconds
    fit = int(DEFAULT_SAMPLES * MAX_FIRST_CODE_SHARE * within / took)
    if fit >= DEFAULT_SAMPLES:
        return DEFAULT_SAMPLES
    fewer = 1 << max(0, fit.bit_length() - 1)
    rows = "1 sample" if fewer == 1 else f"{fewer} samples"
    text = f"{rows}, because the first code of {DEFAULT_SAMPLES} takes {took:.3g} s here; use -n N for another number"
    warn(text, DeadlineWarning)
    return fewer
