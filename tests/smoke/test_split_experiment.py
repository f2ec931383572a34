"""An experiment split over machines: each measures some runs, and the merged measurements decide without any run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anytime.core import results

RunCLI = Callable[..., Any]
SCRIPTS = Path(__file__).parents[2] / "scripts"
VAE = ("reproduce", "vae", "--dataset", "digits", "--scale", "smoke")


def test_measurements_of_two_machines_decide_without_their_runs(run_cli: RunCLI, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import merge_measurements

    machines, out = [tmp_path / "first", tmp_path / "second"], tmp_path / "results"
    for runs, suffix in zip(machines, ("", "-0.002"), strict=True):
        only = f"ordered-vae{suffix},standard-vae{suffix}"
        done = run_cli(*VAE, "--only", only, "--runs-dir", runs, "--out", out)
        assert done.status == 0, done.err
        assert f"{only.replace(',', ', ')} measured, other variants left" in done.out
    folders = [runs / "measured" for runs in machines]
    assert merge_measurements.main([*map(str, folders), "--into", str(out / "measured")]) == 0
    for runs in machines:
        shutil.rmtree(runs)
    missing = run_cli(*VAE, "--cached", "--seeds", "0,1", "--runs-dir", tmp_path / "third", "--out", out).sentence
    assert "vae has no cached measurement of digits-vae-smoke-ordered-vae-1, " in missing
    assert missing.endswith("measure it, or leave --cached out")
    decided = run_cli(*VAE, "--cached", "--runs-dir", tmp_path / "third", "--out", out)
    assert decided.status == 0, decided.err
    assert "training digits" not in decided.err
    assert [path.name for path in (tmp_path / "third").iterdir()] == ["measured"], "no run was trained"
    found = results.read(out / "vae" / "digits.json")
    assert sorted({(row["series"], row["variance"]) for row in found.rows}) == [
        ("ordered", 0.002), ("ordered", 0.01), ("standard", 0.002), ("standard", 0.01),
    ]  # fmt: skip
    assert set(found.environment["training"]) == {
        f"{name}-vae{suffix} 0" for name in ("ordered", "standard") for suffix in ("", "-0.002")
    }
