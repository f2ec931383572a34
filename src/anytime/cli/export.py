"""anytime export MODEL --to bundle|onnx|aoti|web"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from anytime.cli.options import Common, option
from anytime.cli.stdout import say
from anytime.core.errors import UserError

if TYPE_CHECKING:
    from anytime.export.exported import Exported

EXAMPLES = (
    "anytime train digits --recipe paper --scale smoke --out runs/digits",
    "anytime export runs/digits --to bundle --codes 8 --temperature 0.9 --out bundles",
    "anytime export mnist --to onnx --out mnist-onnx",
    "anytime export mnist cifar10 --to web --out page",
)
BUNDLE_OPTIONS = ("name", "codes", "temperature", "weights", "autoencoder", "evaluation")


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    """Arguments of `anytime export`."""

    models: Annotated[tuple[str, ...], tyro.conf.Positional, option("MODEL")]
    """Run directories, directories of saved models, or names of bundled models; several with --to web only."""
    to: Annotated[Literal["bundle", "onnx", "aoti", "web"], option("bundle|onnx|aoti|web")]
    """bundle: a directory with quantised weights and a model card, which `anytime.load` reads by path, or by name if it lies in
    the package; MODEL is a run directory, and a bundle as MODEL only gets the figures of --evaluation. onnx: ONNX files with a
    runner that needs only numpy and onnxruntime. aoti: the same, compiled by AOTInductor for this machine; this needs a C++
    compiler, and the runner needs torch. web: a static page that samples inside the browser."""
    name: Annotated[str | None, option("NAME")] = None
    """Name of the bundle; by default the dataset of the model."""
    codes: Annotated[int | None, option("N")] = None
    """Keep only the first N codes; all by default."""
    temperature: Annotated[float | None, option("T")] = None
    """Default sampling temperature of the bundle; by default the run's."""
    weights: Annotated[Literal["fp32", "bf16", "int8"] | None, option("fp32|bf16|int8")] = None
    """Format of the prior's matrices; by default int8."""
    autoencoder: Annotated[Literal["fp32", "bf16", "int8"] | None, option("fp32|bf16|int8")] = None
    """Format of the autoencoder's kernels; by default bf16."""
    evaluation: Annotated[tyro.conf.UseAppendAction[tuple[Path, ...]], option("FILE")] = ()
    """An evaluation.json of the bundle, for the figures on its card; give it again for another temperature."""
    out: Annotated[Path | None, option("DIR")] = None
    """Directory to write, new or empty. A bundle is written to DIR/NAME, by default in the models of the package."""

    @property
    def model(self) -> str:
        """The one model."""
        if len(self.models) != 1:
            raise UserError(f"--to {self.to} takes one MODEL, not {len(self.models)}; only --to web takes several")
        return self.models[0]


def run(arguments: Arguments) -> dict[str, Any]:
    """Export the model in the format of --to."""
    return _bundle(arguments) if arguments.to == "bundle" else _export(arguments)


def _export(arguments: Arguments) -> dict[str, Any]:
    """Write networks that run without this package."""
    from anytime.cli.output import check_out_dir
    from anytime.export.exported import COMMAND

    for name in BUNDLE_OPTIONS:
        if getattr(arguments, name) not in (None, ()):
            raise UserError(f"--{name} is for --to bundle; leave it out, or export a bundle first and then name it as MODEL")
    if arguments.out is None:
        raise UserError(f"--to {arguments.to} needs --out DIR, a new or empty directory")
    check_out_dir(arguments.out)
    if arguments.to == "web":
        return _export_web(arguments, arguments.out)
    made = _exporter(arguments.to)(arguments.model, arguments.out)
    say(f"{made.folder}: " + ", ".join(f"{name} {size / 1e6:.2f} MB" for name, size in made.files.items()))
    say(f"try: python {made.folder / COMMAND} -n 16 --within 50ms --out samples.npz")
    return {**asdict(made), "folder": str(made.folder)}


def _export_web(arguments: Arguments, out: Path) -> dict[str, Any]:
    """Write a static page."""
    from anytime.export.web import export_web

    made = export_web(arguments.models, out, progress=not arguments.json)
    models = ", ".join(f"{name} {size / 1e6:.2f} MB" for name, size in made.models.items())
    say(f"{made.folder}: {models}, ONNX Runtime {made.runtime / 1e6:.1f} MB")
    say(f"try: python -m http.server --directory {made.folder}")
    return {**asdict(made), "folder": str(made.folder)}


def _exporter(to: str) -> Callable[[str, Path], Exported]:
    """Return the function that writes this format."""
    if to == "aoti":
        from anytime.export.aoti import export_aoti

        return export_aoti
    from anytime.export.onnx import export_onnx

    return export_onnx


def _bundle(arguments: Arguments) -> dict[str, Any]:
    """Write a bundle, or add figures to the card of one."""
    from anytime.core.config import read_json
    from anytime.evaluation.model_card import TRAINING, add_evaluation
    from anytime.export.bundle import Bundle, WeightFormats, bundle
    from anytime.models import registry

    source = Path(arguments.model)
    if (source / TRAINING).is_file():
        if not arguments.evaluation:
            raise UserError(f"{source} is a bundle already; name a run directory, or add figures with --evaluation FILE")
        for name in ("name", "codes", "temperature", "weights", "autoencoder", "out"):
            if getattr(arguments, name) is not None:
                raise UserError(f"--{name} is for a run, and {source} is a bundle, which only gets figures; leave it out")
        for path in arguments.evaluation:
            add_evaluation(source, path)
        made = Bundle(source, read_json(source / registry.CONFIG)["hash"], registry.total_bytes(source))
    else:
        formats = WeightFormats(prior=arguments.weights or "int8", autoencoder=arguments.autoencoder or "bf16")
        name = arguments.name or str(read_json(registry.locate(source) / registry.CONFIG)["name"])
        if arguments.out is not None:
            _check_out(arguments.out, name)
        made = bundle(
            source,
            name,
            formats,
            codes=arguments.codes,
            temperature=arguments.temperature,
            evaluations=arguments.evaluation,
            out=arguments.out,
        )
    say(f"{made.folder}: {made.bytes / 1e6:.2f} MB")
    if made.folder.parent == registry.BUNDLED_DIR:
        total, most = registry.total_bytes(registry.BUNDLED_DIR) / 1e6, registry.MAX_BYTES / 1e6
        print(f"all bundled models: {total:.2f} of {most:.0f} MB")
    return {**asdict(made), "folder": str(made.folder)}


def _check_out(out: Path, name: str) -> None:
    """Refuse a directory that cannot be written or is a run; a bundle may be replaced."""
    from anytime.cli.output import check_out_dir, is_run
    from anytime.core.storage import is_utf8

    check_out_dir(out)
    if not is_utf8(out):
        raise UserError(f"--out {out} is not a UTF-8 path, which a model needs; choose another place")
    if is_run(out / name):
        raise UserError(f"--out {out}: {out / name} is the directory of a run; choose another --out or --name")
