"""anytime sample MODEL"""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from anytime.cli.duration import seconds
from anytime.cli.options import Common
from anytime.core.errors import UserError, warn

if TYPE_CHECKING:
    from torch import Tensor

    from anytime.model import AnytimeModel
    from anytime.sampling.sample import Sample


DEFAULT_SAMPLES = 64
"""Samples that are drawn where nobody says how many."""
MAX_FIRST_CODE_SHARE = 0.5
"""Of a deadline, that a single code of all of them may take: there should be time for more than one."""


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run's folder, a saved model's, or the name of a model of the package."""
    n: Annotated[int | None, tyro.conf.arg(aliases=("-n",), metavar="N")] = None
    """How many samples: 64 where nothing is said, or as many fewer as --within has time for."""
    codes: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Draw so many codes of each; all by default."""
    fraction: Annotated[float | None, tyro.conf.arg(metavar="F")] = None
    """Draw this share of the codes, above 0 and at most 1."""
    quality: Annotated[float | None, tyro.conf.arg(metavar="Q")] = None
    """Draw the fewest codes of this quality, above 0 and at most 1, by the table that `anytime evaluate` made."""
    within: Annotated[str | None, tyro.conf.arg(metavar="TIME")] = None
    """Draw as many codes as fit into this time, decoding included: 50ms, 2s or plain seconds."""
    prefix: Annotated[str | None, tyro.conf.arg(metavar="CODES")] = None
    """Begin every sample with these codes, such as 3,17: more like this."""
    temperature: Annotated[float | None, tyro.conf.arg(metavar="T")] = None
    """Below 1 safer, above 1 more varied; by default the model's own."""
    top_k: Annotated[int | None, tyro.conf.arg(metavar="K")] = None
    """Draw among the K likeliest codes only."""
    top_p: Annotated[float | None, tyro.conf.arg(metavar="P")] = None
    """Draw among the likeliest codes that hold this share of the probability."""
    refine: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Go on with the samples of an .npz file from where they stopped."""
    pick: Annotated[str | None, tyro.conf.arg(metavar="ROWS")] = None
    """With --refine, only these rows, such as 3,17."""
    engine: Literal["eager", "compiled", "cuda"] | None = None
    """What computes: eager anywhere, compiled on a CPU (slow to start, then faster), cuda on a GPU. By default by device."""
    precision: Literal["fp32", "bf16"] | None = None
    """Of the compiled and cuda engines; fp32 gives the eager engine's codes."""
    seed: int = 0
    """Same seed, same codes."""
    out: Path = Path("samples.png")
    """.png a grid, .gif the samples sharpening code by code, .npz arrays, .wav sound, a folder one file each."""


def run(arguments: Arguments) -> dict[str, Any]:
    from anytime.cli.output import check_format, check_writable, write_sample
    from anytime.model import load
    from anytime.sampling.budget import DeadlineWarning, MemoryWarning

    if arguments.pick is not None and arguments.refine is None:
        raise UserError("--pick chooses rows of a draft; name it with --refine FILE.npz")
    check_writable(arguments.out)
    model = load(arguments.model, arguments.device, arguments.engine, arguments.precision)
    check_format(arguments.out, model)
    if model.engine.name == "compiled":  # what cannot be is said here, before any work
        print("compiling; this takes a while", file=sys.stderr)
    with stop_on_interrupt() as stop, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sample, requested = _sample(arguments, model, stop)
    location = write_sample(arguments.out, model, sample)
    count = sample.codes.shape[1]
    for warning in caught:
        if issubclass(warning.category, DeadlineWarning | MemoryWarning):  # others are libraries' own affairs
            print(f"note: {warning.message}")
    if arguments.quality is not None:
        print(model.required_quality_table.explain(arguments.quality))
    reason = ", stopped by Ctrl-C" if stop.is_set() else ""
    rows = len(sample.rows)
    made = f"{rows}" if rows == requested else f"{rows} of {requested}"
    made += " sample" if requested == 1 else " samples"
    print(f"{made} of {count} of {model.length} codes in {sample.seconds:.3f} s{reason}: {location}")
    return {
        "out": str(arguments.out),
        "n": rows,
        "codes": count,
        "quality": arguments.quality,
        "length": model.length,
        "seconds": sample.seconds,
        "stopped": stop.is_set(),
        "seed": sample.seed,
        "model": sample.model,
        "engine": model.engine.name,
    }


def _sample(arguments: Arguments, model: AnytimeModel, stop: threading.Event) -> tuple[Sample, int]:
    """The sample, and how many rows were asked for: when it is stopped, some may not have been begun."""
    from anytime.cli.console import SamplingConsole
    from anytime.cli.output import read_sample

    within = None if arguments.within is None else seconds(arguments.within, "--within")
    length: dict[str, Any] = {"codes": arguments.codes, "fraction": arguments.fraction, "quality": arguments.quality}
    budget: dict[str, Any] = {**length, "within": within, "stop": stop}
    with SamplingConsole(model.code_count(**length), within) as console:
        if arguments.refine is not None:
            coarse = read_sample(arguments.refine)
            if arguments.pick is not None:
                coarse = coarse.pick(_parse_ints(arguments.pick, "--pick"))
            return model.refine(coarse, **budget, progress=console.progress), len(coarse.rows)
        settings: dict[str, Any] = {name: getattr(arguments, name) for name in ("temperature", "top_k", "top_p")}
        model.settings(**settings)  # what is wrong with them is said before any work
        n = arguments.n if arguments.n is not None else DEFAULT_SAMPLES if within is None else rows_within(model, within)
        result = model.sample(
            n,
            seed=arguments.seed,
            **budget,
            prefix=_prefix(arguments.prefix),
            **settings,
            progress=console.progress,
        )
        return result, n


def rows_within(model: AnytimeModel, within: float) -> int:
    """The usual number of samples, or a power of two of fewer where this deadline is too short for as many."""
    from anytime.sampling.budget import Budget, DeadlineWarning

    Budget(codes=1, within=within)  # says what is wrong with it
    for _ in range(2):  # the first one finds everything cold
        took = model.sample(DEFAULT_SAMPLES, codes=1).seconds
    fit = int(DEFAULT_SAMPLES * MAX_FIRST_CODE_SHARE * within / took)
    if fit >= DEFAULT_SAMPLES:
        return DEFAULT_SAMPLES
    fewer = 1 << max(0, fit.bit_length() - 1)
    rows = "1 sample" if fewer == 1 else f"{fewer} samples"
    text = f"{rows}, as one code of {DEFAULT_SAMPLES} takes {took:.3g} s here, too much of --within; -n N draws another number"
    warn(text, DeadlineWarning)
    return fewer


@contextmanager
def stop_on_interrupt() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; a second one aborts."""
    stop = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def interrupted(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield stop
        return
    signal.signal(signal.SIGINT, interrupted)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _parse_ints(text: str, flag: str) -> list[int]:
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or max(map(abs, numbers)) >= 1 << 63:  # more than a tensor holds
        raise UserError(f"{flag} {text!r} must be whole numbers with commas between, such as 3,17")
    return numbers


def _prefix(text: str | None) -> Tensor | None:
    if text is None:
        return None
    import torch

    return torch.tensor([_parse_ints(text, "--prefix")])
