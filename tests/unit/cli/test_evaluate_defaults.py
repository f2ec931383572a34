"""What `anytime evaluate` uses by default: the data of the run, and fewer samples on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from anytime.cli.evaluate import Arguments, _settings, _with_data_of_run
from anytime.core.storage import write_json


def record(folder: Path, command: str) -> None:
    text = dict.fromkeys(("command", "data", "data_digest", "hardware", "anytime", "torch", "date", "commit"), "")
    write_json(folder / "environment.json", {"starts": [{**text, "examples": 3, "command": command}]})


@pytest.mark.parametrize("flag", ["--data my/photos", "--data=my/photos", "--data other --data my/photos"])
@pytest.mark.parametrize("part", ["", "model"])
def test_the_data_of_the_run(flag: str, part: str, tmp_path: Path) -> None:
    record(tmp_path / "run", f"anytime train folder {flag} --skip-bad --out run")
    found = _with_data_of_run(Arguments(model=str(tmp_path / "run" / part)))
    assert (found.data, found.skip_bad) == (Path("my/photos"), True)


def test_given_data_and_runs_without_it(tmp_path: Path) -> None:
    record(tmp_path / "run", "anytime train folder --data mine")
    model = str(tmp_path / "run")
    assert _with_data_of_run(Arguments(model=model, data=Path("yours"))).data == Path("yours")
    assert _with_data_of_run(Arguments(model=model, dataset="mnist")).data is None
    record(tmp_path / "run", "anytime train digits")
    assert _with_data_of_run(Arguments(model=model)).data is None
    (tmp_path / "run" / "environment.json").write_text("{}")
    assert _with_data_of_run(Arguments(model=model)).data is None
    assert _with_data_of_run(Arguments(model="mnist")).data is None


def test_fewer_samples_on_a_cpu() -> None:
    assert _settings(Arguments(model="mnist"), False, "cpu").samples == 5000
    assert _settings(Arguments(model="mnist"), False, "cuda").samples == 50_000
    assert _settings(Arguments(model="mnist"), True, "cpu").samples == 1000
    assert _settings(Arguments(model="mnist", samples=70), False, "cpu").samples == 70
    assert _settings(Arguments(model="mnist", scale="smoke"), False, "cpu").samples == 256
