"""anytime completion bash | zsh | fish: a script that completes verbs, options, choices, bundled models and files"""

from __future__ import annotations

import dataclasses
import importlib
import re
import shlex
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from anytime.cli.options import Common, flags, option

EXAMPLES = ("anytime completion bash",)


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    """Arguments of `anytime completion`."""

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional, option("bash|zsh|fish")]
    """The shell. For bash and zsh, add `eval "$(anytime completion bash)"` (or zsh) to ~/.bashrc or ~/.zshrc, after compinit.
    For fish, write the script to ~/.config/fish/completions/anytime.fish."""


def run(arguments: Arguments) -> dict[str, str]:
    """Print the script."""
    script = {"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell]()
    if not arguments.json:
        print(script)
    return {"shell": arguments.shell, "script": script}


@dataclass(frozen=True, slots=True)
class Word:
    """An option or a positional argument of a verb."""

    flag: str  # empty for a positional argument
    choices: tuple[str, ...]
    takes_value: bool


def verbs() -> dict[str, list[Word]]:
    """Return the options and positional arguments of every verb."""
    from anytime.cli import VERBS

    return {verb: list(_words(importlib.import_module(f"anytime.cli.{verb}").Arguments)) for verb in VERBS}


def _words(cls: type) -> Iterator[Word]:
    yield Word("--help", (), False)
    names, hints = flags(cls), typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        metavar = next((item.metavar for item in hint.__metadata__ if getattr(item, "metavar", None)), "")
        flag = names[field.name] if names[field.name].startswith("-") else ""
        yield Word(flag, _choices(metavar), typing.get_args(hint)[0] is not bool)


def _choices(metavar: str) -> tuple[str, ...]:
    """Return the choices that a metavar lists.

    >>> _choices("eager|packed"), _choices("FILE|DIR"), "mnist" in _choices("MODEL")
    (('eager', 'packed'), (), True)
    """
    if metavar == "MODEL":
        from anytime.models.registry import bundled_names

        return tuple(bundled_names())
    return tuple(metavar.split("|")) if re.fullmatch(r"[a-z0-9|-]+", metavar) else ()


def bash() -> str:
    """Return a function for bash. File names are completed wherever a word is not an option."""
    known = verbs()
    values = [
        f'    "{verb} {word.flag}") words="{" ".join(word.choices)}" ;;'
        for verb, words in known.items()
        for word in words
        if word.flag and word.takes_value
    ]
    return "\n".join(
        [
            "_anytime() {",
            '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" verb="${COMP_WORDS[1]}" words options',
            "  if (( COMP_CWORD == 1 )); then",
            f'    COMPREPLY=( $(compgen -W "{" ".join(known)} --help --version" -- "$cur") )',
            "    return",
            "  fi",
            '  case "$verb" in',
            *(_bash_verb(verb, words) for verb, words in known.items()),
            "  esac",
            '  case "$verb $prev" in',
            *values,
            "  esac",
            '  [[ $cur == -* ]] && words="$options"',
            '  COMPREPLY=( $(compgen -W "$words" -- "$cur") )',
            "  local IFS=$'\\n'",  # a file name may hold spaces
            '  [[ $cur == -* ]] || COMPREPLY+=( $(compgen -f -- "$cur") )',
            "}",
            "complete -o filenames -F _anytime anytime",
        ]
    )


def _bash_verb(verb: str, words: list[Word]) -> str:
    options = " ".join(word.flag for word in words if word.flag)
    positional = " ".join(choice for word in words if not word.flag for choice in word.choices)
    return f'    {verb}) options="{options}"; words="{positional}" ;;'


def zsh() -> str:
    """Return the function for bash, which zsh's own bashcompinit runs."""
    return f"autoload -U +X bashcompinit && bashcompinit\n{bash()}"


def fish() -> str:
    """Return fish's `complete` commands."""
    from anytime.cli import VERBS

    first = "complete -c anytime -n __fish_use_subcommand -f -a"
    lines = [f"{first} {verb} -d {shlex.quote(text)}" for verb, text in VERBS.items()]
    for verb, words in verbs().items():
        lines += [f"complete -c anytime -n '__fish_seen_subcommand_from {verb}' {_fish_word(word)}" for word in words]
    return "\n".join(line for line in lines if not line.endswith(" "))


def _fish_word(word: Word) -> str:
    choices = f"-a '{' '.join(word.choices)}'" if word.choices else ""
    if not word.flag:
        return choices
    name = f"-l {word.flag[2:]}" if word.flag.startswith("--") else f"-s {word.flag[1:]}"
    if not word.takes_value:
        return name
    return f"{name} -x {choices}" if choices else f"{name} -r"
