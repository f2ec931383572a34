"""anytime reconstruct MODEL FILES..."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from anytime.cli.arguments import Common
from anytime.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run's folder, a saved model's, or the name of a model of the package."""
    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILES")]
    """Pictures, cropped at the centre and resized to the model's size."""
    codes: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Decode from the first N codes; all by default."""
    fraction: Annotated[float | None, tyro.conf.arg(metavar="F")] = None
    """Decode from this share of the codes."""
    quality: Annotated[float | None, tyro.conf.arg(metavar="Q")] = None
    """Decode from the fewest codes of this quality, by the table that `anytime evaluate` made."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("reconstructions")
    """Folder for the pictures, one of the same name each."""


def run(arguments: Arguments) -> dict[str, Any]:
    import torch

    from anytime.cli.output import check_writable
    from anytime.data.loader import to_float
    from anytime.data.pictures import grid, read_image, write_png
    from anytime.model import load

    if not arguments.files:
        raise UserError("reconstruct needs at least one picture after the model")
    check_writable(arguments.out)
    names = _names(arguments.files)
    inputs = {path.resolve() for path in arguments.files}
    for name in names:
        if (arguments.out / name).resolve() in inputs:
            raise UserError(f"{arguments.out / name} would be replaced by its reconstruction; choose another --out")
    model = load(arguments.model, arguments.device)
    count = model.code_count(arguments.codes, arguments.fraction, arguments.quality)
    channels, height, _ = model.config.autoencoder.shape
    x = torch.stack([to_float(read_image(path, channels, height)) for path in arguments.files])
    codes = model.encode(x)
    x_hat = model.decode(codes[:, :count]).cpu()
    rows = []
    for path, name, before, after, code in zip(arguments.files, names, x, x_hat, codes[:, :count].tolist(), strict=True):
        write_png(arguments.out / name, grid(after[None], gap=0))
        error = float((before - after).square().mean())
        rows.append({"file": str(path), "out": str(arguments.out / name), "codes": code, "error": error})
        print(f"{arguments.out / name}  mean squared error {error:.5f} from {count} of {model.length} codes")
    return {"files": rows}


def _names(files: tuple[Path, ...]) -> list[str]:
    """A name for each output, told apart where two inputs share theirs."""
    names = [f"{path.stem}.png" for path in files]
    return [name if names.count(name) == 1 else f"{index:04d}-{name}" for index, name in enumerate(names)]
