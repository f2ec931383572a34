"""Coverage-guided fuzzing of one parser with atheris, in a process of its own: `atheris_target.py NAME RUNS CORPUS`.

Any exception but a refusal, a second per input, or 1 GB of memory ends the process with an error.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from contextlib import nullcontext, suppress
from pathlib import Path

if __name__ == "__main__":
    import atheris

    instrumented = atheris.instrument_imports(include=["anytime"])
else:  # collected for its doctests, where atheris need not be installed
    instrumented = nullcontext()

with instrumented:
    from anytime.core.config import from_dict, parse_json
    from anytime.core.errors import UserError
    from anytime.core.storage import read_tensors
    from anytime.model import ModelConfig, _tiny
    from anytime.core.config import to_dict  # isort: skip
    from anytime.sampling.sample_file import read_npz
    from anytime.server.protocol import ProblemError, SampleRequest, parse

SCRATCH = Path(tempfile.gettempdir()) / f"atheris-{os.getpid()}"


def config(content: bytes) -> None:
    """A model's config.json."""
    with suppress(UserError, ValueError, RecursionError):
        from_dict(ModelConfig, parse_json(content))


def body(content: bytes) -> None:
    """The body of a request."""
    with suppress(ProblemError):
        parse(content, SampleRequest)


def draft(content: bytes) -> None:
    """A file of samples."""
    with suppress(UserError):
        read_npz(io.BytesIO(content), "draft")


def tensors(content: bytes) -> None:
    """A file of tensors."""
    SCRATCH.write_bytes(content)
    with suppress(UserError):
        read_tensors(SCRATCH)


TARGETS = {"config": config, "body": body, "draft": draft, "tensors": tensors}


def main() -> None:
    """Fuzz a parser; libFuzzer prints the number of runs, and ends the process."""
    name, runs, corpus = sys.argv[1:]
    (Path(corpus) / "seed").write_bytes(
        json.dumps(to_dict(_tiny())).encode() if name == "config" else b'{"n": 2, "rows": [0, 1]}'
    )
    options = [f"-runs={runs}", "-max_len=4096", "-timeout=10", "-rss_limit_mb=2500", "-malloc_limit_mb=1024", "-seed=1"]
    atheris.Setup([sys.argv[0], *options, corpus], TARGETS[name])
    try:
        atheris.Fuzz()
    finally:
        SCRATCH.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
