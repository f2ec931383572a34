"""A temperature for every position: what training fits on held-out codes and leaves beside the model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from anytime.core import storage
from anytime.core.config import from_dict, read_json
from anytime.core.errors import UserError

FILE = "temperatures.json"
FITTED = "fitted"
"""What --temperature is told for a model's own, position by position."""
Temperature = float | str | None
"""As it is asked for: a number, `FITTED`, or nothing said."""


@dataclass(frozen=True, kw_only=True)
class Warmth:
    """The temperatures under which held-out codes are likeliest, position by position, and what they are worth."""

    examples: int
    """Held-out examples behind all of it."""
    bits: tuple[float, ...]
    """Of a code at temperature 1."""
    temperature: tuple[float, ...]
    fitted_bits: tuple[float, ...]
    """Of a code at temperatures that were fitted without its example."""

    def __post_init__(self) -> None:
        if not len(self.bits) == len(self.temperature) == len(self.fitted_bits) >= 1:
            raise UserError("temperatures and bits must be given for the same positions, one or more")
        if not all(0 < value <= 100 for value in self.temperature):
            raise UserError("temperatures must be above 0 and at most 100")

    @property
    def text(self) -> str:
        """In one sentence."""
        least, most = (f"{value:.2f}" for value in (min(self.temperature), max(self.temperature)))
        before, after = (sum(bits) / len(bits) for bits in (self.bits, self.fitted_bits))
        worth = f"would lower the {before:.4f} bits of a held-out code by {before - after:.4f}"
        if after >= before:
            worth = f"would not lower the {before:.4f} bits of a held-out code"
        return f"fitted temperatures lie between {least} and {most} and {worth}"


def meant(temperature: Temperature, usual: float, warmth: Warmth | None) -> float | tuple[float, ...]:
    """What is asked for as numbers: nothing is the model's `usual` one, "fitted" one of its own for every position.

    A model without any is refused.
    """
    if temperature is None:
        return usual
    if not isinstance(temperature, str):
        return temperature
    if temperature != FITTED:
        raise UserError(f"--temperature must be a number or {FITTED!r}, not {temperature!r}")
    if warmth is None:
        raise UserError(
            f"--temperature {FITTED} needs the model's own temperatures, and this one has none: "
            f"give the `anytime train` command of its run again, which fits them, or a number"
        )
    return warmth.temperature


def temperature_text(temperature: float | str) -> str:
    """How samples were drawn, for sentences.

    >>> temperature_text(0.9), temperature_text(FITTED)
    ('temperature 0.9', 'fitted temperatures')
    """
    return "fitted temperatures" if temperature == FITTED else f"temperature {temperature:g}"


def write_warmth(folder: Path, model: str, warmth: Warmth | None) -> None:
    """Put temperatures beside the model that they belong to, named by its hash; without any, take away what lies there."""
    if warmth is None:
        (folder / FILE).unlink(missing_ok=True)
    else:
        storage.write_json(folder / FILE, {"model": model, **asdict(warmth)})


def read_warmth(folder: Path, model: str, length: int) -> Warmth | None:
    """The temperatures beside a model, if there are any; another model's are refused."""
    path = folder / FILE
    if not path.is_file():
        return None
    data = read_json(path)
    owner = str(data.pop("model", "unknown"))
    warmth = from_dict(Warmth, data, str(path))
    if owner != model or len(warmth.temperature) != length:
        raise UserError(
            f"{path} is of another model ({owner[:12]}…, this is {model[:12]}…); "
            f"remove it, and give the `anytime train` command again to fit this one's"
        )
    return warmth
