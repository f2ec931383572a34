"""anytime bench sampling | serving"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from anytime.cli.options import Common, flags, option, parse_ints, typed_command
from anytime.cli.stdout import say
from anytime.core.errors import UserError, did_you_mean
from anytime.core.times import parse_seconds

if TYPE_CHECKING:
    from anytime.evaluation.benchmark import Candidate, SamplingSpeed
    from anytime.metrics.start_up import StartUp
    from anytime.model import AnytimeModel

SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32), "celeba": (3, 64, 64), "audiomnist": (1, 15_360)}
ENGINES = {"cpu": "eager:fp32,packed:fp32,packed:bf16,onnx:fp32", "cuda": "cuda:bf16"}
EXAMPLES = ("anytime bench sampling mnist --engines eager:fp32 --batches 1 --every 100 --repeats 1 --hf-baseline none --out .",)
HF_PRECISIONS = {"cpu": "fp32,bf16", "cuda": "bf16"}
START_UPS = 10
"""Largest number of processes that measure the start-up."""
BATCHES, REPEATS, SERVING_SAMPLES, SERVING_SECONDS = "1,100", 20, 8, 4.0
"""Defaults, which the help names too."""
MAX_DEADLINE = 60.0
SAMPLING_OPTIONS = ("recipe", "batches", "every", "engines", "hf_baseline", "hf_batches", "repeats", "threads")
SERVING_OPTIONS = ("n", "seconds", "deadlines")


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    """Arguments of `anytime bench`."""

    benchmark: Annotated[Literal["sampling", "serving"], tyro.conf.Positional, option("sampling|serving")]
    """sampling: latency by engine, batch size and number of codes, decoding included, and the start-up on a CPU. serving:
    deadlines kept, codes and latency of `anytime serve` by load, with adaptation and without."""
    model: Annotated[str | None, tyro.conf.Positional, option("MODEL")] = None
    """sampling: the directory of a model; or mnist, cifar10 (the default), celeba or audiomnist for a recipe's networks with
    random weights. serving: a model as `anytime serve` takes it, by default mnist."""
    recipe: Annotated[Literal["paper", "best"] | None, option("paper|best")] = None
    """Recipe of the networks with random weights; by default paper."""
    batches: Annotated[str | None, option("N,N,…")] = None
    """Batch sizes; by default 1,100."""
    every: Annotated[int | None, option("K")] = None
    """Measure every K codes; by default at tenths of the full length."""
    engines: Annotated[str | None, option("NAME:PRECISION,…")] = None
    """Engines to measure; by default eager:fp32,packed:fp32,packed:bf16,onnx:fp32 on a CPU, as far as they can run there, and
    cuda:bf16 on a GPU."""
    hf_baseline: Annotated[str | None, option("PRECISION,…")] = None
    """Precisions of the Hugging Face `generate` baseline, or none. The default is fp32,bf16 on a CPU, bf16 on a GPU,
    and none if transformers is not installed."""
    hf_batches: Annotated[str | None, option("N,N,…")] = None
    """Batch sizes of the baseline; by default those of --batches."""
    repeats: Annotated[int | None, option("N")] = None
    """Largest number of repeats of a measurement, by default 20; slow ones are repeated less often."""
    threads: Annotated[int | None, option("N")] = None
    """Number of CPU threads for all measurements."""
    n: Annotated[int | None, option("N", aliases=("-n",))] = None
    """serving: samples of each request, by default 8."""
    seconds: Annotated[float | None, option("S")] = None
    """serving: least seconds of each of 86 measurements, by default 4; those with long deadlines take longer."""
    deadlines: Annotated[str | None, option("S,S,…")] = None
    """serving: deadlines of the loads, by default 100ms,250ms,500ms,1s,2s."""
    verbose: Annotated[bool, option()] = False
    """Say on stderr why a faster way of an engine was not taken, if so."""
    out: Annotated[Path, option("DIR")] = Path("benchmarks/results")
    """Directory for sampling/MODEL-DEVICE.json or serving/MODEL-DEVICE.json."""


def run(arguments: Arguments) -> dict[str, Any]:
    """Run the benchmark and write its results."""
    from anytime.cli.console import shown_log
    from anytime.cli.output import check_out_dir

    other, names = SAMPLING_OPTIONS if arguments.benchmark == "serving" else SERVING_OPTIONS, flags(Arguments)
    for name in other:
        if getattr(arguments, name) is not None:
            raise UserError(f"{names[name]} does not apply to `anytime bench {arguments.benchmark}`; leave it out")
    for name in ("threads", "every", "repeats", "n", "seconds"):
        if (given := getattr(arguments, name)) is not None and not given >= 1:
            raise UserError(f"{names[name]} must be at least 1, not {given}")
    check_out_dir(arguments.out)
    with shown_log(arguments.verbose):
        return _run_serving(arguments) if arguments.benchmark == "serving" else _run_sampling(arguments)


def _run_serving(arguments: Arguments) -> dict[str, Any]:
    """Serve a model and measure it under load."""
    from anytime.cli.serve import check_packages
    from anytime.core.environment import environment
    from anytime.core.plots import can_plot, plot_png
    from anytime.core.results import HOLDS, Results
    from anytime.core.storage import write_atomic
    from anytime.evaluation.model_card import redact_paths
    from anytime.model import load
    from anytime.server.benchmark import ServingSettings, decide, draw, measure
    from anytime.server.engine import quality_by_codes

    check_packages()
    name = arguments.model or "mnist"
    model = load(name, arguments.device)
    options = () if arguments.device is None else ("--device", arguments.device)
    n, seconds = arguments.n or SERVING_SAMPLES, arguments.seconds or SERVING_SECONDS
    deadlines = _deadlines(arguments.deadlines)
    settings = ServingSettings(model=name, n=n, seconds=seconds, options=options, deadlines=deadlines)
    rows = measure(settings, model.length, quality_by_codes(model), _print_serving)
    verdicts = decide(rows)
    for verdict in verdicts:
        print(f"{HOLDS[verdict.holds]}: {verdict.claim}: {verdict.evidence}")
    schedule = f"{settings.n} samples a request, at least {settings.seconds:g} s a measurement, client in a process of its own"
    title = f"{Path(name).name}-{model.device.type}"
    command = redact_paths(typed_command())
    results = Results("serving", title, command, environment(model.device), schedule, rows, verdicts)
    path = results.write(arguments.out)
    if can_plot():
        write_atomic(path.with_suffix(".png"), plot_png(draw(rows, title)))
    say(str(path))
    return {"out": str(path), "rows": rows}


def _deadlines(text: str | None) -> tuple[float, ...]:
    """Read times such as 100ms,2s."""
    from anytime.server.benchmark import DEADLINES

    deadlines = DEADLINES if text is None else tuple(sorted({parse_seconds(part, "--deadlines") for part in text.split(",")}))
    if not 0 < deadlines[0] <= deadlines[-1] <= MAX_DEADLINE:
        raise UserError(f"--deadlines must be between 0 and {MAX_DEADLINE:g} s, not {text!r}; write 100ms,2s")
    return deadlines


def _print_serving(row: dict[str, Any]) -> None:
    if row["series"] == "capacity":
        full, one = (f"{row[key]:.0f} requests/s" for key in ("full", "one_code"))
        print(f"alone {1000 * row['alone']:.1f} ms; capacity {full} with all codes, {one} with one code")
        print(f"{'':<10} load  deadline  in time  refused  codes  p50 ms  p99 ms")
        return
    times = [f"{1000 * row[key]:>8.0f}" if row[key] is not None else f"{'-':>8}" for key in ("seconds_p50", "seconds_p99")]
    codes = f"{row['codes']:>7.1f}" if row["codes"] is not None else f"{'-':>7}"
    deadline = f"{1000 * row['deadline']:>7.0f} ms"
    shares = f"{row['attainment']:>9.1%}{row['refused']:>9.1%}"
    arrivals = "" if row["arrivals"] == "poisson" else row["arrivals"]
    print(f"{row['series']:<10}{row['load']:>5.2f}{deadline}{shares}{codes}{''.join(times)}  {arrivals}".rstrip(), flush=True)


def _run_sampling(arguments: Arguments) -> dict[str, Any]:
    """Measure every engine and the baseline, and write the results."""
    from importlib.metadata import distributions

    import torch

    from anytime.core.environment import environment
    from anytime.core.results import Results
    from anytime.evaluation.benchmark import CPU_RATIOS, START_UP, decide, decide_start_up, engine_series, measure
    from anytime.evaluation.model_card import redact_paths
    from anytime.sampling.engines.registry import choose_engine

    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    name = arguments.model or "cifar10"
    model = _model(name, arguments)
    print(f"{'':<28} batch codes     p50 ms     p95 ms  ms/step  samples/s  decode  × limit")
    speeds: list[SamplingSpeed] = []
    for candidates in _groups(model, arguments):
        speeds += measure(candidates, model, arguments.repeats or REPEATS, _print_speed)
        torch.cuda.empty_cache()
    default = engine_series(*choose_engine(None, None, model.prior, model.device))
    on_cpu = model.device.type == "cpu"
    rows, verdicts = [asdict(speed) for speed in speeds], decide(speeds, default, CPU_RATIOS if on_cpu else None)
    if on_cpu:
        started = _start_up(name, model, arguments)
        rows.append({"series": START_UP, "batch": 1, **asdict(started)})
        verdicts += decide_start_up(started)
    for verdict in verdicts:
        print(f"{'holds' if verdict.holds else 'does not hold'}: {verdict.claim}: {verdict.evidence}")
    versions = {found.name: found.version for found in distributions() if found.name in ("transformers", "triton")}
    facts = environment(model.device) | versions
    schedule = f"{'random weights, ' if name in SHAPES else ''}up to {arguments.repeats or REPEATS} repeats"
    title = "-".join([Path(name).name, *(["best"] if arguments.recipe == "best" else []), model.device.type])
    results = Results("sampling", title, redact_paths(typed_command()), facts, schedule, rows, verdicts)
    path = results.write(arguments.out)
    say(str(path))
    return {"out": str(path), "rows": rows}


def _groups(model: AnytimeModel, arguments: Arguments) -> Iterator[list[Candidate]]:
    """Yield the samplers that take turns: on a CPU all of them, whose ratios then hold on a busy machine too; on a GPU one
    after the other, so that each has all memory.
    """
    from anytime.evaluation.benchmark import Candidate, engine_series, hf_baseline
    from anytime.evaluation.hf_baseline import CACHES
    from anytime.metrics.latency import TimedSampler
    from anytime.model import AnytimeModel

    device = model.device.type
    batches = parse_ints(arguments.batches or BATCHES, "--batches", BATCHES, minimum=1)
    hf_batches = parse_ints(arguments.hf_batches or arguments.batches or BATCHES, "--hf-batches", BATCHES, minimum=1)
    every = arguments.every or max(1, model.length // 10)
    counts = sorted({*range(every, model.length + 1, every), model.length})
    engines = [_engine(text) for text in (arguments.engines or ENGINES[device]).split(",")]
    if arguments.engines is None:
        engines = [pair for pair in engines if _can_run(model, *pair)]
    baselines = list(product(_hf_precisions(arguments.hf_baseline, device), CACHES))

    def candidates() -> Iterator[Candidate]:
        for engine, precision in engines:
            ours = AnytimeModel(model.config)  # an engine of its own, with the same networks
            ours.prior, ours.autoencoder = model.prior, model.autoencoder
            sampler = TimedSampler(ours.use(engine, precision))
            yield Candidate(engine_series(engine, precision), precision, sampler, batches, counts)
        model.use(*engines[-1])  # decodes for the baseline
        for precision, cache in baselines:
            # On a GPU, `generate` compiles its step with a static cache again for every length: measure the full one only.
            lengths = [model.length] if (device, cache) == ("cuda", "static") else counts
            yield hf_baseline(model, precision, cache, hf_batches, lengths)

    if device == "cpu":
        yield list(candidates())
    else:
        yield from ([candidate] for candidate in candidates())


def _start_up(name: str, model: AnytimeModel, arguments: Arguments) -> StartUp:
    """Measure how fast a model starts: the one named, the bundled one of the recipe, or else these networks, saved."""
    import torch

    from anytime.metrics.start_up import start_up
    from anytime.models.registry import find_bundled

    print("start-up, in processes of their own", flush=True)
    repeats, threads = min(arguments.repeats or REPEATS, START_UPS), torch.get_num_threads()
    bundled = find_bundled(name) if arguments.recipe == "best" else None
    if given := (Path(name) if Path(name).exists() else bundled):
        return start_up(given, repeats=repeats, threads=threads)
    with TemporaryDirectory() as folder:
        return start_up(model.save(Path(folder) / "model"), repeats=repeats, threads=threads)


def _model(name: str, arguments: Arguments) -> AnytimeModel:
    import torch

    from anytime.core.device import pick_device
    from anytime.model import AnytimeModel, load
    from anytime.priors.transformer import TransformerConfig
    from anytime.recipes.presets import preset

    device = pick_device(arguments.device)
    if Path(name).exists():
        if arguments.recipe is not None:
            raise UserError(f"--recipe chooses networks with random weights, but {name} is a trained model; leave it out")
        model = load(name, device)
    elif name in SHAPES:
        torch.manual_seed(0)
        model = AnytimeModel(preset(name, arguments.recipe or "paper", SHAPES[name]).model).to(device).eval()
    else:
        raise UserError(f"{name} is neither the directory of a model nor a dataset; {did_you_mean(name, SHAPES)}")
    if not isinstance(model.config.prior, TransformerConfig):
        raise UserError(f"{name}: bench measures Transformer priors, and this model has another")
    return model


def _engine(text: str) -> tuple[str, str]:
    from anytime.sampling.engines.base import DTYPES
    from anytime.sampling.engines.registry import default_precision

    name, _, precision = text.partition(":")
    if precision not in ("", *DTYPES):
        raise UserError(f"--engines {text!r}: {precision!r} is not a precision; use fp32 or bf16")
    return name, precision or default_precision(name)


def _can_run(model: AnytimeModel, engine: str, precision: str) -> bool:
    from anytime.sampling.engines.registry import choose_engine

    try:
        choose_engine(engine, precision, model.prior, model.device)
    except UserError:  # a package or an instruction of the processor is missing
        return False
    return True


def _hf_precisions(text: str | None, device: str) -> Sequence[str]:
    from anytime.evaluation.hf_baseline import has_huggingface
    from anytime.sampling.engines.base import DTYPES

    if text == "none" or (text is None and not has_huggingface()):
        return []
    if not has_huggingface():
        raise UserError(
            "--hf-baseline needs Hugging Face transformers; run `pip install transformers` or use --hf-baseline none"
        )
    precisions = (text or HF_PRECISIONS[device]).split(",")
    for precision in precisions:
        if precision not in DTYPES:
            raise UserError(f"--hf-baseline {precision!r} is not a precision; use fp32, bf16 or none")
    return precisions


def _print_speed(speed: SamplingSpeed) -> None:
    print(
        f"{speed.series:<28}{speed.batch:>6}{speed.codes:>6}{1000 * speed.p50:>11.2f}{1000 * speed.p95:>11.2f}"
        f"{speed.ms_per_step:>9.3f}{speed.per_second:>11.1f}{speed.decode_fraction:>8.1%}{speed.times_roofline:>9.1f}",
        flush=True,
    )
