"""anytime info MODEL"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from anytime.cli.options import Common, Model, option
from anytime.core.errors import UserError

EXAMPLES = ("anytime info mnist", "anytime info mnist --check")
NOT_RECORDED = "no hashes are recorded beside this model; a run records its own in files.json"


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    """Arguments of `anytime info`."""

    model: Model
    check: Annotated[bool, option()] = False
    """Also hash the files of a run again and say what changed since its training. Check on a few samples that every prefix
    decodes, that a budget only stops sampling, that one step equals the full pass, and that all weights are finite."""


def run(arguments: Arguments) -> dict[str, Any]:
    """Print the facts about a model; raise a `UserError` if a check fails."""
    from anytime.core import results
    from anytime.core.errors import printable
    from anytime.evaluation import code_stats_view
    from anytime.evaluation.model_card import EVALUATION, FILE
    from anytime.metrics.code_stats import read_code_stats
    from anytime.model import load
    from anytime.models.registry import locate
    from anytime.sampling import quality_table
    from anytime.sampling.engines.registry import choose_engine
    from anytime.training.run_dir import is_smoke

    files = _check_files(Path(arguments.model)) if arguments.check else None
    model = load(arguments.model, arguments.device)
    config = model.config
    facts: dict[str, Any] = {
        "name": config.name,
        "shape": list(config.autoencoder.shape),
        "length": model.length,
        "codebook_size": model.codebook_size,
        "layout": config.autoencoder.layout,
        "parameters": {
            part: sum(p.numel() for p in model.get_submodule(part).parameters()) for part in ("autoencoder", "prior")
        },
        "prior": config.prior.summary,
        "temperature": config.temperature,
        "engine": " ".join(choose_engine(None, None, model.prior, model.device)),
        "hash": model.hash,
    }
    multiline: dict[str, list[str]] = {}  # facts printed on several lines
    if arguments.check:
        from anytime.evaluation.check_laws import check_model

        facts["files"] = files
        multiline["files"] = [NOT_RECORDED if files is None else f"{len(files)} unchanged since training: {', '.join(files)}"]
        facts["check"] = check_model(model)
        multiline["check"] = [f"{'holds' if passed else 'FAILS'}: {name}" for name, passed in facts["check"].items()]
    folder = locate(arguments.model)
    if (folder / FILE).is_file():
        facts["model_card"] = str(folder / FILE)
    if model.quality_table is not None:
        facts["quality"], multiline["quality"] = asdict(model.quality_table), quality_table.lines(model.quality_table)
    code_stats, split = read_code_stats(Path(arguments.model)), "validation"
    if code_stats is None and (folder / EVALUATION).is_file():
        evaluation, split = results.read(folder / EVALUATION), "held-out"
        if evaluation.environment.get("model") == model.hash:
            code_stats = code_stats_view.stats_from_evaluation(evaluation.rows)
    if code_stats is not None:
        smoke = is_smoke(Path(arguments.model))
        head = f"of the codes, on {code_stats.examples:,} {split} examples"
        facts["code_stats"], multiline["code_stats"] = (
            code_stats.to_dict(),
            [head, *code_stats_view.lines(code_stats, smoke=smoke)],
        )
    for name, value in facts.items():
        first, *rest = multiline.get(name, [value])
        lines = [f"{name:<14} {first}", *(f"{'':<14} {line}" for line in rest)]
        print(*map(printable, lines), sep="\n")  # files of the model may hold anything
    if broken := [name for name, passed in facts.get("check", {}).items() if not passed]:
        raise UserError(f"{arguments.model} is broken: {' and '.join(broken)} does not hold; train or download it again")
    return facts


def _check_files(run_dir: Path) -> list[str] | None:
    """Hash the files of a run again and return their names; refuse a run whose files changed. None without a record."""
    from anytime.training.run_files import check_files

    found = check_files(run_dir)
    if found is None:
        return None
    if found.problem:
        raise UserError(f"{run_dir} changed since its training: {found.problem}; restore the files or train it again")
    return list(found.unchanged)
