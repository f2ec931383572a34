"""docs/reference.md, generated: every command with its options, the public Python names, and every module."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import anytime
from anytime.cli import VERBS
from pages.markdown import table

HEADER = """# Reference

Generated from help texts and docstrings by `make docs`. The [tutorial](tutorial.md) is the place to begin.

## Commands

`anytime VERB --help` shows the same options. Every verb takes `--json` and `--device`.
"""
COMMON = ("json", "device")


def page(root: Path) -> str:
    """Return the whole page."""
    parts = [HEADER, *(_verb(verb, text) for verb, text in VERBS.items())]
    parts += ["## Python\n", *(_name(name) for name in anytime.__all__ if not name.startswith("_"))]
    parts += ["## Modules\n", "Paths are relative to `src/anytime/`. Names that begin with an underscore are left out.\n"]
    parts += [_package(folder, root / "src" / "anytime") for folder in _packages(root / "src" / "anytime")]
    return "\n".join(parts)


def _verb(verb: str, text: str) -> str:
    module = importlib.import_module(f"anytime.cli.{verb}")
    options = list(_options(module, verb))
    return f"### anytime {verb}\n\n{_sentence(text)}\n\n{table(['option', 'default', 'meaning'], options)}\n"


def _options(module: ModuleType, verb: str) -> Iterator[list[str]]:
    documented = attribute_docs(module.Arguments)
    hints = get_type_hints(module.Arguments, include_extras=True)
    for field in dataclasses.fields(module.Arguments):
        if field.name not in COMMON or verb == "":
            meaning = documented.get(field.name) or _help(hints[field.name])
            yield [f"`{_flag(field.name, hints[field.name])}`", _default(field), meaning]


def _help(hint: Any) -> str:
    """Return the help text in an annotation that several verbs share."""
    return next((extra.help for extra in get_args(hint)[1:] if getattr(extra, "help", None)), "")


def _flag(name: str, hint: Any) -> str:
    """Return an option as a user types it; positional arguments by their metavar."""
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    metavar = next((extra.metavar for extra in extras if getattr(extra, "metavar", None)), None)
    aliases = next((extra.aliases for extra in extras if getattr(extra, "aliases", None)), ())
    if any("Positional" in repr(extra) for extra in extras):
        return metavar or name.upper()
    name = next((extra.name for extra in extras if getattr(extra, "name", None)), name)
    flag = "/".join([*aliases, f"--{name.replace('_', '-')}"])
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return flag if plain is bool else f"{flag} {metavar or _values(plain, name)}"


def _values(hint: Any, name: str) -> str:
    choices = re.findall(r"'([^']+)'", str(hint)) if "Literal" in str(hint) else []
    return "|".join(choices) or name.upper()


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default
    if value is dataclasses.MISSING or value is None or value is False or value == ():
        return "–"
    return f"`{value}`"


def attribute_docs(cls: type) -> dict[str, str]:
    """Return the docstring, or the comment, that follows each attribute of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed([base for base in cls.__mro__ if base is not object]):
        source = inspect.cleandoc(inspect.getsource(base))
        (body,) = ast.parse(source).body
        assert isinstance(body, ast.ClassDef)
        for field, doc in zip(body.body, [*body.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                text = doc.value.value if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant) else None
                comment = source.splitlines()[field.lineno - 1].partition("  # ")[2]
                found[field.target.id] = " ".join(text.split()) if isinstance(text, str) else comment
    return found


def _name(name: str) -> str:
    value = getattr(anytime, name)
    lines = [f"### anytime.{name}\n", f"{_doc(value)}\n"]
    if inspect.isclass(value):
        if dataclasses.is_dataclass(value):
            docs = attribute_docs(value)
            lines += [f"- `{field.name}`: {docs[field.name]}".rstrip(": ") for field in dataclasses.fields(value)]
        lines += [_member(member, own) for member, own in vars(value).items() if not member.startswith("_") and _is_code(own)]
        lines += [""] if lines[-1].startswith("-") else []
    elif callable(value):
        lines.insert(1, f"```python\nanytime.{name}{_signature(value)}\n```\n")
    return "\n".join(lines)


def _is_code(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)


def _member(name: str, value: Any) -> str:
    if isinstance(value, property):
        return f"- `{name}`: {_first_line(inspect.getdoc(value))}"
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    return f"- `{name}{_signature(function)}`: {_first_line(inspect.getdoc(function))}"


def _signature(function: Any) -> str:
    """Return the signature without jaxtyping's and torch's module names, and without `self`."""
    text = re.sub(r"['\"]|\b(anytime|torch|threading|pathlib|typing)\.", "", str(inspect.signature(function)))
    text = re.sub(r"<built-in function (\w+)>", r"\1", text)
    return re.sub(r"\((self|cls)(, )?", "(", text, count=1)


def _doc(value: Any) -> str:
    """Return the docstring without its examples."""
    return (inspect.getdoc(value) or "").partition("\n>>>")[0].strip()


def _packages(source: Path) -> list[Path]:
    return [source, *sorted(path.parent for path in source.glob("*/**/__init__.py") if "static" not in path.parts)]


def _package(folder: Path, source: Path) -> str:
    title = "anytime" if folder == source else ".".join(["anytime", *folder.relative_to(source).parts])
    modules = [path for path in sorted(folder.glob("*.py")) if not path.name.startswith("__")]
    lines = [[f"`{path.relative_to(source)}`", *_module(path)] for path in modules]
    summary = _first_line(ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))))
    body = table(["file", "what it holds", "public names"], lines) + "\n" if lines else ""
    return f"### {title}\n\n{summary}\n\n{body}"


def _module(path: Path) -> tuple[str, str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = [node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]
    return _first_line(ast.get_docstring(tree)), ", ".join(f"`{name}`" for name in names) or "–"


def _first_line(doc: str | None) -> str:
    """Return the first paragraph in one line."""
    return " ".join((doc or "").partition("\n\n")[0].split())


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."
