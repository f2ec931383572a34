"""Imports go one way, and the core stands on torch, numpy, safetensors and jaxtyping alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import anytime

SOURCE = Path(anytime.__file__).parent
MODULES = {
    ".".join(("anytime", *path.relative_to(SOURCE).with_suffix("").parts)): path for path in sorted(SOURCE.rglob("*.py"))
}

TIERS = [
    {"core"},
    {"data", "autoencoders", "priors"},
    {"sampling"},
    {"model", "models"},
    {"metrics"},  # above the model: several metrics measure one
    {"training"},
    {"baselines"},
    {"recipes"},  # above the baselines: their configs are built there too
    {"evaluation"},
    {"bulk", "experiments", "export", "compression", "server"},
    {"cli"},
]
TIER = {package: number for number, packages in enumerate(TIERS) for package in packages}
ENTRANCES = {"anytime.__init__", "anytime.__main__"}  # they name parts of every tier
CORE = {"torch", "numpy", "safetensors", "jaxtyping"}
KERNELS = "anytime.sampling.kernels.triton_kernels"  # imported only by the cuda engine, on a GPU
OUTSIDE_THE_CORE = {"cli", "server"}


def package(module: str) -> str:
    return module.split(".")[1]


def imported(node: ast.AST) -> Iterator[str]:
    """The modules that a statement imports; `from anytime import core` is anytime.core."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0 and node.module is not None, "imports are absolute"
        if node.module == "anytime":
            yield from (f"anytime.{alias.name}" for alias in node.names if alias.name in TIER)
        else:
            yield node.module


def imports(path: Path) -> Iterator[str]:
    """Everything imported anywhere in a file, in functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        yield from imported(node)


def top_level_imports(path: Path) -> Iterator[str]:
    """What importing the file imports: all but the bodies of functions and what only type checkers read."""
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield from imported(node)
        pending.extend(ast.iter_child_nodes(node))


def packages_imported(module: str) -> set[str]:
    return {package(name) for name in imports(MODULES[module]) if name.startswith("anytime.")} - {package(module)}


def test_every_module_has_a_tier() -> None:
    assert len(MODULES) > 40
    assert {package(module) for module in MODULES if module not in ENTRANCES} <= TIER.keys()


@pytest.mark.parametrize("module", sorted(MODULES.keys() - ENTRANCES))
def test_no_module_imports_from_a_higher_tier(module: str) -> None:
    higher = {name for name in packages_imported(module) if TIER[name] > TIER[package(module)]}
    assert not higher, f"{module} imports {higher}"


def test_packages_of_one_tier_do_not_import_each_other_in_circles() -> None:
    graph: dict[str, set[str]] = {}
    for module in MODULES.keys() - ENTRANCES:
        graph.setdefault(package(module), set()).update(packages_imported(module))
    TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("module", [m for m in sorted(MODULES) if package(m) not in OUTSIDE_THE_CORE])
def test_the_core_runs_on_a_bare_machine(module: str) -> None:
    allowed = CORE | {"anytime"} | sys.stdlib_module_names | ({"triton"} if module == KERNELS else set())
    foreign = {name for name in top_level_imports(MODULES[module]) if name.split(".")[0] not in allowed}
    assert not foreign, f"{module} imports {foreign} at its top; import it where it is used"


def test_imports_are_read_from_statements_functions_and_type_checking_blocks() -> None:
    source = "import torch.nn\nfrom anytime import core, load\nif TYPE_CHECKING:\n    import PIL\ndef f():\n    import pooch\n"
    tree = ast.parse(source)
    assert [name for node in ast.walk(tree) for name in imported(node)] == ["torch.nn", "anytime.core", "PIL", "pooch"]


def modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return set(run.stdout.split())


def test_importing_anytime_alone_does_not_import_torch() -> None:
    loaded = modules_after("import anytime; anytime.__version__; dir(anytime)")
    assert "anytime" in loaded
    assert not loaded & {"torch", "numpy", "anytime.model"}


def test_importing_anytime_is_quick() -> None:
    """In CPU seconds: others may be using the machine."""
    code = "import time, anytime; print(time.process_time())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert float(run.stdout) < 0.2


def test_dir_lists_the_public_names() -> None:
    assert dir(anytime) == sorted(anytime.__all__)


def test_the_public_names_are_found_on_first_use() -> None:
    assert {"torch", "anytime.model"} <= modules_after("from anytime import load")
    for name in anytime.__all__:
        assert getattr(anytime, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        anytime.lode  # noqa: B018


def test_the_public_names_and_the_bundled_models_are_listed() -> None:
    assert dir(anytime) == sorted(anytime.__all__)
    models = anytime.models()
    assert {"mnist", "cifar10"} <= set(models) and models == sorted(models)
    assert "torch" not in modules_after("import anytime; anytime.models(); anytime.models(); dir(anytime)")


def test_the_first_sample_does_not_import_the_compiler() -> None:
    """It takes about as long as torch itself."""
    loaded = modules_after("import anytime; anytime.load('mnist').sample(2, codes=2)")
    assert "torch" in loaded
    assert not loaded & {"torch._dynamo", "torch._inductor", "sympy"}
