"""Set-up fails with a sentence where a CUDA build of torch came to a machine without a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import anytime

SCRIPT = Path(anytime.__file__).parents[2] / "scripts" / "check_torch.py"


def test_numpy_is_not_missed_yet(tmp_path: Path) -> None:
    """torch comes first and alone, and warns when it does not find numpy: nothing that a user should read."""
    fake = "import warnings\nwarnings.warn('Failed to initialize NumPy: No module named numpy')\n"
    (tmp_path / "torch.py").write_text(f"{fake}__version__ = '9'\nclass version: cuda = None\n")
    environment = {"PYTHONPATH": str(tmp_path), "PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("cuda", "gpu", "status"), [("13.0", False, 1), ("13.0", True, 0), (None, False, 0)])
def test_a_build_that_does_not_fit(tmp_path: Path, cuda: str | None, gpu: bool, status: int) -> None:
    fake = f"__version__ = '9'\nclass version: cuda = {cuda!r}\nclass cuda:\n    is_available = staticmethod(lambda: {gpu})\n"
    (tmp_path / "torch.py").write_text(fake)
    environment = {"PYTHONPATH": str(tmp_path), "PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True)
    assert done.returncode == status
    assert ("no NVIDIA GPU" in done.stderr) is bool(status)
    assert "Traceback" not in done.stderr
