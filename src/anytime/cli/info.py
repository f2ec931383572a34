"""anytime info MODEL"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from anytime.cli.arguments import Common
from anytime.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run's folder or a saved model's."""
    check: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Also draw a few samples and check the model against the laws it must keep."""


def run(arguments: Arguments) -> dict[str, Any]:
    from anytime.model import load

    model = load(arguments.model, arguments.device)
    autoencoder, prior = model.config.autoencoder, model.config.prior
    facts: dict[str, Any] = {
        "name": model.config.name,
        "shape": list(autoencoder.shape),
        "length": model.length,
        "codebook_size": model.codebook_size,
        "layout": autoencoder.layout,
        "parameters": {
            "autoencoder": sum(p.numel() for p in model.autoencoder.parameters()),
            "prior": sum(p.numel() for p in model.prior.parameters()),
        },
        "prior": prior.summary,
        "hash": model.hash,
    }
    if arguments.check:
        from anytime.evaluation.check import check_model

        facts["check"] = check_model(model)
    for name, value in facts.items():
        print(f"{name:<14} {value}")
    if broken := [law for law, kept in facts.get("check", {}).items() if not kept]:
        raise UserError(f"{arguments.model} is broken: {' and '.join(broken)} does not hold; train or download it again")
    return facts
