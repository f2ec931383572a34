"""Check a model for memorisation: are its samples nearer to training images than to images that it never saw?

python scripts/check_memorisation.py MODEL --data DIR        needs no FID network; `anytime evaluate` measures the same
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from anytime import data
from anytime.core.device import pick_device
from anytime.core.environment import environment
from anytime.core.errors import UserError
from anytime.evaluation.evaluate import EvaluationSettings, check_shape
from anytime.evaluation.image import MEMORISATION_SAMPLES, memorisation_row
from anytime.evaluation.model_card import redact_paths
from anytime.model import load


def main(argv: Sequence[str] | None = None) -> int:
    """Print the row and its circumstances as JSON; status 2 for a mistake."""
    parser = argparse.ArgumentParser(description="whether samples are nearer to training images than to held-out images")
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, help="a local copy of the dataset that the model was trained on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", help="cpu or cuda")
    arguments = parser.parse_args(argv)
    try:
        settings = EvaluationSettings(samples=MEMORISATION_SAMPLES, fractions=(1.0,), seed=arguments.seed)
        model = load(arguments.model, pick_device(arguments.device))
        if model.is_audio:
            raise UserError(f"{arguments.model} generates audio; name a model of images")
        dataset = data.load(model.config.name, data=arguments.data)
        check_shape(model, dataset)
        row = memorisation_row(model, dataset, replace(settings, temperature=model.config.temperature))
    except UserError as error:
        print(f"check_memorisation: {error}", file=sys.stderr)
        return 2
    given = sys.argv[1:] if argv is None else argv
    command = redact_paths(shlex.join(["python", "scripts/check_memorisation.py", *given]))
    facts = {"dataset": dataset.name, "data": dataset.source, "model": model.hash, "command": command}
    print(json.dumps({**facts, "row": row, "environment": environment(model.device)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
