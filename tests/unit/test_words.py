"""The code and its pages use the field's words: no private word is left in identifiers, file names, flags, help and docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = (
    "src/**/*.py",
    "tests/**/*.py",
    "scripts/**/*.py",
    "benchmarks/*.py",
    "docs/**/*.md",
    "*.md",
    "pyproject.toml",
    "Makefile",
)
FILES = sorted(
    {path for place in PLACES for path in ROOT.glob(place) if path.name not in ("CHANGELOG.md", Path(__file__).name)}
)

INSTEAD = {
    "judges?": "discriminator",
    "told": "conditioned on, given",
    "warmth": "temperature",
    "yardsticks?": "FID check",
    "schooling": "training of the classifier",
    "ears?|hearing|unheard|recogni[sz]ers?": "audio classifier",
    "albums?|catalog(ue)?s?": "dataset registry",
    "waves": "audio_io",
    "pictures?": "image",
    "sounds?": "audio",
    "shelf|shelves": "model registry",
    "swapped codes?|swapped_codes?": "code corruption",
    "mirrored": "hflip",
    "workbench": "runner",
    "peers": "HF baseline",
    "pace": "latency estimate",
    "so many": "N",
    "behind the [a-z0-9]+ codes?|codes? behind": "after",
    "just so": "identical",
    "by heart": "memorised",
    "drawn (at|from the prior)|drawn_(codes?|rows?|samples?)": "sampled",
    "taken over|takes? over (what|the|stages)": "reuse",
    "where nothing else is said": "by default",
}
"""Private words, as patterns of whole words, and what to say instead."""
ALLOWED = (
    r"told apart",
    r"soundfile\.SoundFile",  # the library that reads audio
)


def words(text: str) -> str:
    """The text in lower case, with the parts of CamelCase names apart and allowed uses removed."""
    for pattern in ALLOWED:
        text = re.sub(pattern, "", text)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()


def find(pattern: str, text: str) -> list[str]:
    """The uses of a private word, each with some text around it."""
    uses = re.finditer(rf"(?<![a-z])(?:{pattern})(?![a-z])", words(text))
    return [words(text)[max(0, use.start() - 30) : use.end() + 30].replace("\n", " ") for use in uses]


@pytest.mark.parametrize("pattern", INSTEAD)
def test_no_private_word_is_left(pattern: str) -> None:
    uses = [f"{path.relative_to(ROOT)}: …{use}…" for path in FILES for use in find(pattern, path.read_text(encoding="utf-8"))]
    uses += [f"{path.relative_to(ROOT)}" for path in FILES if find(pattern, str(path.relative_to(ROOT)))]
    assert not uses, f"say {INSTEAD[pattern]}:\n" + "\n".join(uses)


def test_a_notebook_is_jupyters_and_never_the_cache_of_experiments() -> None:
    files = [path for path in FILES if "experiments" in path.parts]
    assert files and not [path for path in files if find("notebooks?", path.read_text(encoding="utf-8"))]


def test_words_are_found_in_identifiers_and_prose() -> None:
    assert find("pictures?", "class PictureGrid: pass") and find("pictures?", "for held_picture in pictures:")
    assert not find("ears?", "years of training") and not find("told", "a tolerance")
    assert find("judge", 'x = random.derive(seed, "judge")')
    assert len(FILES) > 200
