"""A fork has none of its parent's threads: it samples with one, rather than waiting for them for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys, threading
import torch
torch.set_num_threads(2)
import anytime
from anytime.sampling.budget import Budget
model = anytime.load(sys.argv[1])
full, coarse, session = model.sample(512), model.sample(512, codes=2), model.session(512)
assert torch.get_num_threads() == 2
session._lock.acquire()  # as if another thread were running it
child = os.fork()
if child == 0:
    answers = [
        model.sample(512), model.sample(512, within=600.0), model.refine(coarse), session.run(Budget(codes=8)),
        anytime.load(sys.argv[1]).sample(512),
    ]
    codes = model.encode(model.decode(full.codes))
    os._exit(0 if all(torch.equal(a.codes, full.codes) for a in answers) and torch.get_num_threads() == 1 else 3)
status = os.waitpid(child, 0)[1]
assert torch.get_num_threads() == 2 and torch.equal(model.sample(512).codes, full.codes)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_after_sampling_with_two_threads(saved: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(saved)], env=environment, timeout=120, check=False
    )
    assert done.returncode == 0
