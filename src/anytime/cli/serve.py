"""anytime serve MODEL..."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from anytime.cli.options import Common, option
from anytime.core.errors import UserError, reason

if TYPE_CHECKING:
    from anytime.server.ray_serve import Scale

EXAMPLES = (
    "anytime serve mnist",
    "anytime serve mnist cifar10 --port 8080",
    "anytime serve mnist --host 0.0.0.0 --token FILE",
    "anytime serve mnist --ray --replicas 1-4",
)
PACKAGES = ("starlette", "uvicorn", "httptools", "prometheus_client")
MAX_PORT = 65535
MAX_TOKEN = 4096  # bytes of the file that are read


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    """Arguments of `anytime serve`."""

    models: Annotated[tuple[str, ...], tyro.conf.Positional, option("MODEL")]
    """Run directories, directories of saved models, or names of bundled models."""
    host: Annotated[str, option("ADDRESS")] = "127.0.0.1"
    """Address to listen on. Other machines reach any address but the default; protect it with --token."""
    port: Annotated[int, option("N")] = 8000
    """Port to listen on; 0 for a free one."""
    token: Annotated[Path | None, option("FILE")] = None
    """File with a secret that every client must send; without it, everybody who reaches the address may use the server."""
    engine: Annotated[Literal["eager", "packed", "onnx", "cuda"] | None, option("eager|packed|onnx|cuda")] = None
    """Sampling engine; the default depends on the device."""
    precision: Annotated[Literal["fp32", "bf16"] | None, option("fp32|bf16")] = None
    """Precision of the packed and cuda engines; fp32 by default on a CPU, bf16 on a GPU."""
    slots: Annotated[int | None, option("N")] = None
    """Samples in memory at once; by default 256 on a CPU and 2048 on a GPU."""
    queue: Annotated[int, option("N")] = 512
    """Requests in flight; more are refused with status 429."""
    no_spare: Annotated[bool, option()] = False
    """Do not keep a second engine process loaded, which takes over at once if the first one dies."""
    fixed: Annotated[bool, option()] = False
    """Do not shorten sequences under load: serve in order of arrival and drop what is late. For comparisons."""
    ray: Annotated[bool, option()] = False
    """Serve with Ray Serve: several replicas, in the cluster that RAY_ADDRESS names or in a new one on this machine."""
    replicas: Annotated[str | None, option("N|MIN-MAX")] = None
    """With --ray: number of replicas, by default 1; or a range such as 1-4, to scale with the requests in flight."""
    target_requests: Annotated[int | None, option("N")] = None
    """With --replicas MIN-MAX: requests in flight that each replica should have, by default 16."""


def run(arguments: Arguments) -> dict[str, Any]:
    """Serve until Ctrl-C or SIGTERM."""
    check_packages()
    if not arguments.models:
        raise UserError("serve needs at least one model, such as `anytime serve mnist`")
    for flag, value, most in (("port", arguments.port, MAX_PORT), ("queue", arguments.queue, 1 << 20)):
        if not (0 if flag == "port" else 1) <= value <= most:
            raise UserError(f"--{flag} must be between {0 if flag == 'port' else 1} and {most}, not {value}")
    if arguments.slots is not None and not 1 <= arguments.slots <= 1 << 16:
        raise UserError(f"--slots must be between 1 and {1 << 16}, not {arguments.slots}")
    from anytime.server.messages import EngineSettings
    from anytime.server.run import ServerSettings, serve

    scale = read_scale(arguments)
    engine = EngineSettings(
        models=arguments.models, device=arguments.device, engine=arguments.engine, precision=arguments.precision,
        slots=arguments.slots, adaptive=not arguments.fixed,
    )  # fmt: skip
    settings = ServerSettings(
        engine=engine, host=arguments.host, port=arguments.port, token=read_token(arguments.token),
        max_requests=arguments.queue, spare=not arguments.no_spare,
    )  # fmt: skip
    if scale is None:
        serve(settings, say)
    else:
        from anytime.server.ray_serve import serve_with_ray

        serve_with_ray(settings, scale, say)
    return {"served": list(arguments.models)}


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def read_scale(arguments: Arguments) -> Scale | None:
    """Return how many replicas to run; None without Ray."""
    from anytime.server.ray_serve import TARGET_REQUESTS, Scale, parse_replicas

    if not arguments.ray:
        for flag, value in (("replicas", arguments.replicas), ("target-requests", arguments.target_requests)):
            if value is not None:
                raise UserError(f"--{flag} needs --ray")
        return None
    least, most = parse_replicas(arguments.replicas or "1")
    target, queue = arguments.target_requests, arguments.queue
    if target is not None and not 1 <= target <= queue:
        raise UserError(f"--target-requests must be between 1 and {queue} (--queue), not {target}")
    return Scale(least=least, most=most, target_requests=target or min(TARGET_REQUESTS, queue))


def check_packages() -> None:
    """Refuse to serve without the packages that it needs."""
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise UserError(f"serving needs {', '.join(missing)}; run `pip install {' '.join(missing)}`")


def read_token(path: Path | None) -> str | None:
    """Read a secret of at least 16 characters from a file."""
    if path is None:
        return None
    from anytime.core.files import open_regular

    try:
        with open_regular(path) as stream:
            token = stream.read(MAX_TOKEN).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--token {path} cannot be read ({reason(error)}); name a file with the secret") from None
    if len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(f"--token {path} must hold at least 16 printable ASCII characters without spaces")
    return token
