"""Options that verbs share, their parsing, values that are typed as text, and error messages that name flags."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import shlex
import sys
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import tyro

from anytime.core.errors import UserError, nearest

Arguments = TypeVar("Arguments")
ARGUMENT = re.compile(r"`([a-z][a-z0-9_.]*)`")
"""An argument that a library error names in backticks, such as `codes` or `prior.layers`."""


def option(metavar: str | None = None, **settings: Any) -> Any:
    """Return the tyro annotation of an option; help shows its default only if there is one."""

    def hint(default: str) -> str:
        return "" if default in ("None", "False", "") else f"(default: {default})"

    return tyro.conf.arg(metavar=metavar, help_behavior_hint=hint, **settings)


Model = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="MODEL", help="A run directory, the directory of a saved model, or the name of a bundled model."),
]


@dataclass(frozen=True, kw_only=True)
class Common:
    """Options that every verb takes."""

    json: Annotated[bool, option()] = False
    """Print one JSON document as the last line of stdout."""
    device: Annotated[str | None, option("cpu|cuda")] = None
    """The device; by default cuda if there is a GPU."""


def typed_command() -> str:
    """Return the command as it was typed, for files that hold its results."""
    return shlex.join(["anytime", *sys.argv[1:]])


def parse(cls: type[Arguments], argv: list[str], verb: str, description: str, examples: Sequence[str] = ()) -> Arguments:
    """Parse `argv` into `cls`; raise a `UserError` of one sentence for a mistake."""
    program, known = f"anytime {verb}", {"-h", "--help", *flags(cls).values()}
    _refuse_empty(argv, program)
    for word in argv:
        flag = word.partition("=")[0].replace("_", "-")
        if _looks_like_a_flag(flag) and flag not in known and flag[:2] not in known:
            close = nearest(flag, known)
            hint = f"did you mean {close}? See" if close else "see"
            raise UserError(f"{flag} is not an option of `{program}`; {hint} `{program} --help`")
    stderr = io.StringIO()
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone)
    try:
        with contextlib.redirect_stderr(stderr):
            return tyro.cli(cls, args=argv, prog=program, description=description, config=config)
    except SystemExit as end:
        if end.code not in (0, None):
            raise UserError(f"{_reworded(stderr.getvalue(), cls)}; see `{program} --help`") from None
        if examples:
            print("examples:", *(f"  {example}" for example in examples), sep="\n")
        raise


def _looks_like_a_flag(word: str) -> bool:
    """Return whether a word is meant as a flag; -1 and - are not.

    >>> [word for word in ("--codes", "-x", "-n16", "-1", "-", "mnist") if _looks_like_a_flag(word)]
    ['--codes', '-x', '-n16']
    """
    return word.startswith("--") or (word.startswith("-") and word[1:2].isalpha())


def _refuse_empty(argv: Sequence[str], program: str) -> None:
    """Refuse an empty argument: as a path it would be the current directory. A shell variable that is not set gives one."""
    for before, word in zip(["", *argv], argv, strict=False):
        flag, equals, value = word.partition("=")
        if flag.startswith("-") and equals and not value.strip():
            raise UserError(f"{flag} is empty; give it a value or leave it out")
        if not word.strip():
            subject = before if before.startswith("-") else "an argument"
            raise UserError(f"{subject} is empty; give it a value or leave it out, see `{program} --help`")


def flags(cls: type) -> dict[str, str]:
    """Return what each field of a verb's arguments is called on the command line.

    >>> flags(Common)
    {'json': '--json', 'device': '--device'}
    """
    hints, found = typing.get_type_hints(cls, include_extras=True), {}
    for name in (field.name for field in dataclasses.fields(cls)):
        metadata = getattr(hints[name], "__metadata__", ())
        settings = next((item for item in metadata if hasattr(item, "metavar")), tyro.conf.arg())
        if tyro.conf.Positional in metadata:
            found[name] = settings.metavar or name.upper()  # type: ignore[attr-defined]
        else:
            typed = settings.name or name.replace("_", "-")  # type: ignore[attr-defined]
            found[name] = f"-{typed}" if len(typed) == 1 else f"--{typed}"
    return found


def with_flags(message: str, cls: type) -> str:
    """Replace each `argument` by the flag of this verb, or by the plain name if the verb has no such option.

    >>> with_flags("`device` 'gpu' is not a device; set `prior.layers`", Common)
    "--device 'gpu' is not a device; set prior.layers"
    """
    known = flags(cls)
    return ARGUMENT.sub(lambda match: known.get(match[1], match[1]), message)


def parse_ints(text: str, flag: str, example: str, minimum: int = -(1 << 63) + 1) -> list[int]:
    """Return whole numbers written with commas between.

    >>> parse_ints("3,17", "--pick", "3,17")
    [3, 17]
    """
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < minimum or max(numbers) >= 1 << 63:  # a tensor holds no larger number
        at_least = f" of at least {minimum}" if minimum >= 0 else ""
        raise UserError(f"{flag} {text!r} must be whole numbers{at_least} with commas between, such as {example}")
    return numbers


REWORDED = (
    (r"Unrecognized options: (.*)", r"unexpected argument: \1"),
    (r"Missing from .*?: (\S+) .*", r"\1 is missing"),
    (
        r"invalid choice (.*) for argument '(.*)'\. Expected one of \((.*?),?\)",
        r"\2 has the unknown value \1; choose one of \3",
    ),
    (r"Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)", r"\1 must be a whole number, not \2"),
    (r"Error parsing (\S+): no type matching INT .*? \['(.*?)'\].*", r"\1 must be a whole number, not '\2'"),
    (r"Error parsing (\S+): no type matching FLOAT .*? \['(.*?)'\].*", r"\1 must be a number, not '\2'"),
    (r"Missing value for argument '(.*)'\. .*", r"\1 needs a value"),
)
"""Messages of tyro and what we say instead."""


def _reworded(message: str, cls: type) -> str:
    """Return the first paragraph inside tyro's box in our words; a positional argument is named as in the help."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", message)
    parts = [" ".join(part.replace("│", " ").split()) for part in re.split(r"\n?.*[─-]{5}.*\n", text)]
    sentence = parts[1].rstrip(". ") if len(parts) > 1 else ""  # the title is in the first rule, or in plain ASCII above it
    for pattern, words in REWORDED:
        if match := re.fullmatch(pattern, sentence):
            ours = re.sub("'None', |, 'None'", "", match.expand(words).replace("-n/--n", "-n"))
            return _with_nearest(re.sub(r"^\w+", lambda first: flags(cls).get(first[0], first[0]), ours))
    return sentence or "the command line cannot be read"


def _with_nearest(sentence: str) -> str:
    """Add the nearest choice to an error about an unknown value, if one is near.

    >>> _with_nearest("--scale has the unknown value 'smok'; choose one of 'smoke', 'full'")
    "--scale has the unknown value 'smok'; did you mean 'smoke'? Choose one of 'smoke', 'full'"
    """
    given, _, choices = sentence.partition("; choose one of ")
    close = nearest(given.rpartition(" ")[2].strip("'"), re.findall(r"'(.*?)'", choices)) if choices else None
    return f"{given}; did you mean {close!r}? Choose one of {choices}" if close else sentence
