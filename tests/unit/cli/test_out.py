"""Where commands write: never into a run or a model, through links, and without leaving temporary files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from anytime.cli.console import TrainingConsole
from anytime.cli.output import follow
from anytime.core.progress import LineReporter, NotebookReporter

Command = Callable[..., Any]
Refused = Callable[..., str]
LEFT = ".x.png.0123abcd.partial"


@pytest.fixture
def run(model: Path, tmp_path: Path) -> Path:
    """A directory that looks like a finished run of digits."""
    shutil.copytree(model, tmp_path / "run" / "model")
    shutil.copy(model / "config.json", tmp_path / "run")
    (tmp_path / "run" / "checkpoints").mkdir()
    (tmp_path / "run" / "environment.json").write_text("{}")
    return tmp_path / "run"


@pytest.mark.parametrize("words", [["--out", ""], ["--out", " "], ["--out="], ["--prefix", ""], ["--refine", ""]])
def test_an_empty_value_is_refused(words: list[str], refused: Refused, model: Path) -> None:
    """`--out "$UNSET"` would write into the current directory."""
    assert f"{words[0].rstrip('=')} is empty" in refused("sample", model, *words)


@pytest.mark.parametrize("verb", ["sample", "info", "evaluate", "export", "bench", "train", "reproduce", "data"])
def test_an_empty_argument_is_refused(verb: str, refused: Refused) -> None:
    assert "an argument is empty" in refused(verb, "")
    assert "--out is empty" in refused(verb, "mnist", "--out", "")


@pytest.mark.parametrize("part", [".", "model", "checkpoints"])
@pytest.mark.parametrize(
    "words",
    ["sample MODEL", "reconstruct MODEL x.png", "evaluate MODEL --dataset digits --scale smoke", "bench sampling MODEL"],
)
def test_a_run_is_no_place_for_output(words: str, part: str, refused: Refused, run: Path, model: Path) -> None:
    sentence = refused(*words.replace("MODEL", str(model)).split(), "--out", run / part)
    assert f"--out {run / part} is " in sentence
    assert "choose another place" in sentence


def test_a_run_is_no_place_for_results_and_bundles(refused: Refused, run: Path, tmp_path: Path) -> None:
    for flag in ("--out", "--runs-dir"):
        sentence = refused("reproduce", "theorem", flag, run)
        assert f"{flag} {run} is the directory of a run" in sentence
    assert "is the directory of a run" in refused("export", run, "--to", "bundle", "--out", run)
    sentence = refused("export", run, "--to", "bundle", "--out", tmp_path, "--name", "run")
    assert f"{run} is the directory of a run" in sentence


def test_the_working_directory_may_be_a_run(refused: Refused, command: Command, run: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(run)
    assert "--out . is the directory of a run" in refused("sample", ".", "--out", ".")
    assert command("sample", ".", "-n", 1, "--out", "mine").status == 0, "a directory of the user's own"


@pytest.mark.parametrize("suffix", [".png", ".npz", ".gif"])
def test_a_link_is_followed(suffix: str, command: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "target", tmp_path / f"link{suffix}"
    target.write_bytes(b"old")
    link.symlink_to(Path("there") / "target")
    assert command("sample", model, "-n", 2, "--out", link).status == 0
    assert link.readlink() == Path("there") / "target"
    content = target.read_bytes()
    assert len(content) > 100
    target.unlink()
    outcome = command("sample", model, "-n", 2, "--out", link)
    assert outcome.out.endswith(f": {link}\n"), "named as it was typed"
    assert target.read_bytes()[:4] == content[:4], "a dangling link too"


def test_links_that_lead_nowhere(refused: Refused, model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.png").symlink_to("b.png")
    (tmp_path / "b.png").symlink_to("a.png")
    assert "loop" in refused("sample", model, "--out", "a.png")
    (tmp_path / "c.png").symlink_to("/proc/none/x.png")
    assert "cannot be written" in refused("sample", model, "--out", "c.png")
    assert follow(tmp_path / "plain.png") == tmp_path / "plain.png"


def test_what_a_killed_command_left_is_removed(command: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for folder in (tmp_path, tmp_path / "many"):
        (folder / LEFT).write_bytes(b"part")
        (folder / ".mine.partial").write_bytes(b"not ours")
    assert command("sample", model, "-n", 2, "--out", "x.png").status == 0
    assert not (tmp_path / LEFT).exists()
    assert command("sample", model, "-n", 2, "--out", "many").status == 0
    assert {path.name for path in (tmp_path / "many").iterdir()} == {"x-0000.png", "x-0001.png", ".mine.partial"}
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / LEFT).write_bytes(b"part")
    assert command("reconstruct", model, "many/x-0000.png", "--out", "back").status == 0
    assert {path.name for path in (tmp_path / "back").iterdir()} == {"x-0000.png"}


def test_what_a_killed_command_left_in_the_cache_is_removed(command: Command, model: Path) -> None:
    for folder in ("decoded", "features", "classifiers", "mnist"):
        path = Path(os.environ["ANYTIME_CACHE"]) / folder / LEFT
        path.parent.mkdir(parents=True)
        path.write_bytes(b"part")
    assert command("evaluate", model, "--dataset", "mnist").status == 2  # it is not downloaded
    assert [path.parent.name for path in Path(os.environ["ANYTIME_CACHE"]).rglob(LEFT)] == ["mnist"]


def test_names_that_are_not_utf8(command: Command, refused: Refused, model: Path, tmp_path: Path) -> None:
    for name in ("x\udcff.npz", "x\udcff.png", "folder\udcff"):
        outcome = command("sample", model, "-n", 2, "--out", name, "--json")
        assert outcome.status == 0, outcome.err
        assert (tmp_path / name).exists()
    assert command("sample", model, "--refine", "x\udcff.npz", "--out", "y.npz").status == 0
    outcome = command("reconstruct", model, "folder\udcff/x-0000.png", "--out", "out\udcff")
    assert outcome.status == 0, outcome.err
    shutil.copytree(model, tmp_path / "model\udcff")
    assert "is not a UTF-8 path" in refused("info", "model\udcff")
    assert "is not a UTF-8 path" in refused("train", "digits", "--scale", "smoke", "--out", "run\udcff")
    assert "not a model" in refused("sample", "nothing\udcff")


def test_a_name_that_no_library_takes_is_one_sentence(refused: Refused, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever cannot encode a name raises the same error."""
    monkeypatch.setattr("anytime.model.load", lambda path, *_: str(path).encode())
    assert r"a file name is not UTF-8 ('some/\udcff'); rename it" in refused("info", "some/\udcff")


def test_suffixes_in_capitals_and_directories_with_a_dot(command: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "my.samples").mkdir()
    for out in ("x.PNG", "x.Npz", "samples-0.7", "my.samples", "new.folder"):
        assert command("sample", model, "-n", 2, "--out", out).status == 0
    assert (tmp_path / "x.PNG").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "x.Npz").read_bytes().startswith(b"PK")
    assert (tmp_path / "samples-0.7" / "x-0001.png").is_file()
    assert (tmp_path / "my.samples" / "x-0001.png").is_file()
    assert (tmp_path / "new.folder" / "x-0001.png").is_file()


@pytest.mark.parametrize("out", ["x.jpg", "x.mp3", "x.MP4", "x.tiff", "x.safetensors"])
def test_other_formats_are_refused(out: str, refused: Refused, model: Path) -> None:
    assert f"the suffix .{out[2:]} is not known" in refused("sample", model, "--out", out)


ESCAPE = "\x1b]0;title\x07\x1b[31m"


def test_escape_sequences_in_names_are_never_printed(command: Command, model: Path, tmp_path: Path) -> None:
    """A directory of somebody else's files: `anytime reconstruct MODEL their/*`."""
    image, folder = Image.new("L", (28, 28), 9), tmp_path / "data"
    folder.mkdir()
    for number in range(12):
        image.save(folder / f"{number}.png")
    (folder / f"{ESCAPE}.png").write_text("not an image")
    image.save(tmp_path / f"{ESCAPE}.png")
    shutil.copytree(model, tmp_path / f"model{ESCAPE}")
    for words in (
        ("reconstruct", model, f"{ESCAPE}.png", "--out", "back"),
        ("compress", f"{ESCAPE}.png", f"{ESCAPE}.any", "--model", model),
        ("decompress", f"{ESCAPE}.any", f"{ESCAPE}.back.png", "--model", model),
        ("sample", f"model{ESCAPE}", "-n", 1, "--out", f"{ESCAPE}.npz"),
        ("sample", f"model{ESCAPE}", "-n", 1, "--shards", "npz", "--out", f"shards{ESCAPE}"),
        ("info", f"model{ESCAPE}"),
        ("train", "folder", "--data", folder, "--size", 28, "--scale", "smoke", "--skip-bad", "--out", f"run{ESCAPE}"),
    ):
        outcome = command(*words)
        assert outcome.status == 0, outcome.err
        assert "\x1b" not in outcome.out + outcome.err and "\x07" not in outcome.out + outcome.err, words[0]
        assert "title" in outcome.out + outcome.err or words[0] == "info"


@pytest.mark.parametrize("kind", [TrainingConsole, LineReporter, NotebookReporter])
def test_reporters_print_names_as_they_are_but_no_escape_sequences(
    kind: Callable[[], Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rich` reads [/red] as markup and :smile: as an emoji."""
    monkeypatch.setattr("anytime.cli.console._is_terminal", lambda console: True)
    kind().say(f"skipped [/red][bold]:smile:{ESCAPE}.png")
    said = capsys.readouterr()
    assert (said.out + said.err).replace("\n", "") == r"skipped [/red][bold]:smile:\x1b]0;title\x07\x1b[31m.png"
