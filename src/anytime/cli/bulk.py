"""`anytime sample` into shards: by one process, by the ranks of torchrun, or by Ray."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from anytime.cli.options import parse_ints
from anytime.cli.signals import stop_on_signals
from anytime.cli.stdout import say
from anytime.core.errors import UserError
from anytime.core.ranks import Ranks, read_ranks, several_ranks

if TYPE_CHECKING:
    from anytime.bulk.request import BulkRequest
    from anytime.bulk.run import BulkResult
    from anytime.cli.sample import Arguments
    from anytime.core.progress import Reporter
    from anytime.model import AnytimeModel

FROM_SAMPLE = ("seed", "codes", "fraction", "quality", "temperature", "top_k", "top_p", "shards", "rows_per_shard")
"""Arguments that a bulk request takes as they are, if they are given."""


def is_bulk(arguments: Arguments) -> bool:
    """Return whether shards are asked for; refuse options that only shards have, or that they do not have."""
    from anytime.cli.output import MAX_FILES
    from anytime.sampling.sample_view import file_suffix

    asked = next((flag for flag, value in _flags(arguments).items() if value), None)
    is_directory = not file_suffix(arguments.out)
    if not asked and not (is_directory and (arguments.n or 0) > MAX_FILES):
        return False
    if not is_directory:
        raise UserError(f"{asked} makes shards, which need a directory; choose another --out than {arguments.out}")
    if arguments.refine is not None:
        raise UserError(f"{asked or '-n'} does not go with --refine, which continues the samples of a file; leave it out")
    if arguments.within is not None:
        raise UserError(
            "--within does not go with shards, which must not depend on the clock; use --codes, --fraction or --quality"
        )
    return True


def _flags(arguments: Arguments) -> dict[str, Any]:
    """Return the options that only shards have; several ranks are one of them."""
    ranks = several_ranks()
    if arguments.ray and ranks:
        raise UserError("--ray does not go with torchrun; start one process")
    rows = arguments.rows_per_shard is not None
    return {"--ray": arguments.ray, "--shards": arguments.shards, "--rows-per-shard": rows, "torchrun": ranks}


def run_bulk(arguments: Arguments) -> dict[str, Any] | None:
    """Write shards with a manifest; return None on all ranks but the first."""
    from anytime.cli.console import BulkConsole
    from anytime.cli.output import check_writable
    from anytime.core.device import pick_device
    from anytime.core.distributed import rank_device
    from anytime.core.progress import SilentReporter
    from anytime.model import load

    ranks = read_ranks()
    check_writable(arguments.out)
    model = load(arguments.model, rank_device(pick_device(arguments.device)), arguments.engine, arguments.precision)
    request = _request(arguments, model)
    with (
        BulkConsole(_advice(arguments, request, ranks))
        if ranks.rank == 0
        else contextlib.nullcontext(SilentReporter()) as reporter
    ):
        result = _make(arguments, model, request, ranks, reporter)
    return _summary(arguments, model, result) if ranks.rank == 0 else None


def _request(arguments: Arguments, model: AnytimeModel) -> BulkRequest:
    from anytime.bulk.request import bulk_request
    from anytime.cli.sample import DEFAULT_SAMPLES

    given = {name: value for name in FROM_SAMPLE if (value := getattr(arguments, name)) is not None}
    prefix = () if arguments.prefix is None else tuple(parse_ints(arguments.prefix, "--prefix", "41,97"))
    n = DEFAULT_SAMPLES if arguments.n is None else arguments.n
    return bulk_request(model, n, prefix=prefix, **given)


def _advice(arguments: Arguments, request: BulkRequest, ranks: Ranks) -> str:
    """Return how to use all cores, if only one of them works."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if arguments.ray or ranks.world_size > 1 or request.device != "cpu" or cores == 1 or request.count == 1:
        return ""
    return f"one thread computes; for all {cores} cores: torchrun --nproc-per-node {cores} -m anytime sample …"


def _make(arguments: Arguments, model: AnytimeModel, request: BulkRequest, ranks: Ranks, reporter: Reporter) -> BulkResult:
    """Make the shards; a signal raises `KeyboardInterrupt` with a sentence that says how to continue."""
    from anytime.bulk.run import run_rank
    from anytime.cli.output import follow

    again = f"finished shards are in {arguments.out}; run the same command again to continue"
    out = follow(arguments.out)
    with stop_on_signals() as stop:
        try:
            if arguments.ray:
                from anytime.bulk.ray_job import sample_with_ray

                result = sample_with_ray(model, request, out, reporter, stop)
            else:
                result = run_rank(model, request, out, ranks, reporter, stop)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted: {again}") from None
    if stop.is_set():
        raise KeyboardInterrupt(f"stopped by {stop.signal_name} after {result.rows:,} of {request.n:,} samples: {again}")
    return result


def _summary(arguments: Arguments, model: AnytimeModel, result: BulkResult) -> dict[str, Any]:
    request = result.request
    if arguments.quality is not None:
        say(model.required_quality_table.explain(arguments.quality))
    shards = "1 shard" if request.count == 1 else f"{request.count:,} shards"
    made = f"{result.made:,} made in {result.seconds:.1f} s" if result.made else "all of them were there already"
    say(f"{request.n:,} samples of {request.codes} of {model.length} codes in {shards}, {made}: {arguments.out}")
    return {
        "out": str(arguments.out),
        "n": request.n,
        "made": result.made,
        "codes": request.codes,
        "quality": arguments.quality,
        "length": model.length,
        "shards": request.count,
        "seconds": result.seconds,
        "seed": request.seed,
        "model": request.model,
        "engine": request.engine,
    }
