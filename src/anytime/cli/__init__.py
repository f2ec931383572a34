"""The command line: one file per verb.

Parsing needs neither torch nor the rest of the library; a verb imports what it uses when it runs, so `--help` answers at once.
"""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import sys
from typing import NoReturn

from anytime.core.errors import UserError, did_you_mean, out_of_memory

VERBS = {
    "data": "known data sets, their state, verified download",
    "train": "train a model: pretrain, ordered, prior; the same command again resumes",
    "sample": "draw samples from any number of codes",
    "reconstruct": "encode pictures or sounds and decode them from their first codes",
    "evaluate": "FID, error, bits and speed by number of codes; a report",
    "reproduce": "the paper's figures: train, measure, decide, draw; without a name, the list",
    "bench": "measure this machine: samples a second by engine, batch and codes",
    "info": "what a model is and whether it is whole",
}


def main(argv: list[str] | None = None) -> NoReturn:
    """Run one verb; a user's mistake is one sentence on stderr and exit status 2."""
    # Threads that spin while they wait bring a shared machine to its knees; read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that does not know a sign shows a question mark
    try:
        status = _run(sys.argv[1:] if argv is None else argv)
        _flush()
        _quit(status)
    except UserError as error:
        print(f"anytime: {error}", file=sys.stderr)
        _quit(2)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        print("anytime: this does not fit into memory; ask for fewer or smaller things at a time", file=sys.stderr)
        _quit(2)
    except KeyboardInterrupt:
        print("anytime: interrupted", file=sys.stderr)
        _quit(130)
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        _discard_output()
        _quit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(f"anytime: the output cannot be written ({error.strerror}); make room", file=sys.stderr)
        _discard_output()
        _quit(2)


def _discard_output() -> None:
    """Send what is still to be flushed nowhere: the interpreter would try again at its exit, and complain."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _quit(status: int) -> NoReturn:
    """End the process. One of several ranks does so at once, before anything is taken down, an error's traceback included:
    gloo's threads may hang in that, or in the interpreter's own exit, and the others wait for us.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        _flush()
        os._exit(status)
    sys.exit(status)


def _run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if argv[0] == "--version":
        from anytime import __version__

        print(__version__)
        return 0
    verb, rest = argv[0], argv[1:]
    if verb not in VERBS:
        raise UserError(f"{verb!r} is no verb; {did_you_mean(verb, VERBS)}")
    from anytime.cli.options import parse

    module = importlib.import_module(f"anytime.cli.{verb}")
    arguments = parse(module.Arguments, rest, f"anytime {verb}", VERBS[verb])
    result = module.run(arguments)
    if arguments.json and result is not None:  # None: another rank answers
        print(json.dumps(result))
    return 0


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by who called us
            stream.flush()


def _overview() -> str:
    lines = [
        "Generative models that you can stop at any moment.",
        "",
        "usage: anytime VERB … ; anytime VERB --help says more",
        "",
    ]
    return "\n".join(lines + [f"  {verb:<12} {text}" for verb, text in VERBS.items()])
