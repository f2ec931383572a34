"""The command line: one file per verb.

A verb imports torch and the library only when it runs, so that `--help` answers at once.
"""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import sys
from contextlib import suppress
from typing import NoReturn

from anytime.core.errors import UserError, did_you_mean, nearest, out_of_memory
from anytime.core.openmp import set_waiting
from anytime.core.ranks import several_ranks

VERBS = {
    "data": "List the known datasets, or download one and verify it.",
    "train": "Train a model in stages: pretrain, ordered, prior. The same command again resumes the run.",
    "sample": "Generate samples from any number of codes.",
    "reconstruct": "Encode images or audio files and decode them from their first codes.",
    "compress": "Compress images to a few bytes: a file cut at any byte is still a complete image.",
    "decompress": "Decompress such files, whole or cut, to PNG images.",
    "evaluate": "Measure FID, error, bits and speed by number of codes, and write a report.",
    "reproduce": "Reproduce a figure or table of the paper. Without a name, list the experiments.",
    "serve": "Serve models over HTTP: every answer is ready by its deadline, with fewer codes under load.",
    "export": "Export a model: a bundle with quantised weights, ONNX files, compiled networks or a page for browsers.",
    "bench": "Measure sampling speed, or how a server keeps deadlines under load, on this machine.",
    "info": "Describe a model and check its files.",
    "completion": "Print a script that completes verbs, options and models in bash, zsh or fish.",
}


def main(argv: list[str] | None = None) -> NoReturn:
    """Run one verb; for a user's mistake, print one sentence on stderr and exit with status 2."""
    set_waiting()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without a character shows a question mark
    try:
        _run(sys.argv[1:] if argv is None else argv)
        _flush()
        _quit(0)
    except UserError as error:
        _quit(2, str(error))
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        _quit(2, "this does not fit into memory; ask for less at a time")
    except KeyboardInterrupt as interrupt:
        _quit(130, str(interrupt) or "interrupted")
    except BrokenPipeError:  # the reader of our output has exited, as `head` does
        _discard_output()
        _quit(1)
    except UnicodeEncodeError as error:
        if not any("\ud800" <= character <= "\udfff" for character in error.object):
            raise
        _quit(2, f"a file name is not UTF-8 ({_around(error)}); rename it")
    except OSError as error:
        if error.errno == errno.EIO and not _is_terminal_alive():
            _discard_output()
            _quit(1)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _discard_output()
        _quit(2, f"the output cannot be written ({error.strerror}); make room")


def _around(error: UnicodeEncodeError) -> str:
    """Return the word with the character that cannot be encoded, escaped for any terminal.

    >>> _around(UnicodeEncodeError("utf-8", "read\\n/data/\\udcff.png now", 11, 12, "surrogates not allowed"))
    "'/data/\\\\udcff.png'"
    """
    before, after = error.object[: error.start].split()[-1:], error.object[error.start :].split()[:1]
    return ascii("".join(before) + "".join(after))


def _is_terminal_alive() -> bool:
    """Return whether stdout still takes output; a terminal that hung up does not."""
    try:
        print(end="", flush=True)
    except OSError:
        return False
    return True


def _discard_output() -> None:
    """Send the rest of stdout to the null device: the interpreter flushes it at exit and would report an error."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _quit(status: int, message: str = "") -> NoReturn:
    """End the process. One of several ranks ends at once: gloo's threads may hang in the interpreter's exit."""
    if message:
        with suppress(OSError):  # the terminal has hung up
            print(f"anytime: {message}", file=sys.stderr)
    if several_ranks():
        _flush()
        os._exit(status)
    sys.exit(status)


def _run(argv: list[str]) -> None:
    if argv[:1] == ["help"] and len(argv) > 1:
        argv = [argv[1], "--help"]
    if not argv or argv[0] in ("-h", "--help", "help"):
        print("Generative models that you can stop at any moment.\n")
        print("usage: anytime VERB [OPTIONS]; anytime help VERB lists the options\n")
        print(*(f"  {verb:<12} {text}" for verb, text in VERBS.items()), sep="\n")
        return
    if argv[0] == "--version":
        from anytime import __version__

        print(__version__)
        return
    verb, rest = argv[0], argv[1:]
    if verb.startswith("-"):
        raise UserError(_not_an_option(verb))
    if verb not in VERBS:
        raise UserError(f"{verb!r} is not a verb; {did_you_mean(verb, VERBS)}")
    from anytime.cli.options import parse, with_flags

    module = importlib.import_module(f"anytime.cli.{verb}")
    arguments = parse(module.Arguments, rest, verb, VERBS[verb], getattr(module, "EXAMPLES", ()))
    try:
        result = module.run(arguments)
    except UserError as error:
        raise UserError(with_flags(str(error), module.Arguments)) from error
    if arguments.json and result is not None:  # None: another rank prints it
        print(json.dumps(result))


def _not_an_option(word: str) -> str:
    """Return what is wrong with an option before the verb.

    >>> _not_an_option("--device")
    '--device is not an option of `anytime` itself; options follow the verb, as in `anytime sample mnist --codes 4`'
    """
    close = nearest(word, ("--help", "--version"))
    hint = f"did you mean {close}?" if close else "options follow the verb, as in `anytime sample mnist --codes 4`"
    return f"{word} is not an option of `anytime` itself; {hint}"


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by the caller
            stream.flush()
