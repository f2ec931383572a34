"""Links of the documentation that leave docs/, as the site shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

import site_hook

DOCS = site_hook.DOCS


def rewritten(markdown: str, source: Path = DOCS / "page.md", uri: str = "page.md", repository: str | None = None) -> str:
    return site_hook.rewrite(markdown, source, uri, repository)


@pytest.mark.parametrize(
    ("markdown", "site"),
    [
        ("![FID](../results/fid/cifar10.png)", "![FID](files/results/fid/cifar10.png)"),
        ("[rows](../results/fid/cifar10.json)", "[rows](files/results/fid/cifar10.json)"),
        ("[contributing](../CONTRIBUTING.md#release)", "[contributing](project/contributing.md#release)"),
        ("[mnist](../src/anytime/models/mnist/README.md)", "[mnist](models/mnist.md)"),
        ("[home](../README.md)", "[home](index.md)"),
        ("[the model](../src/anytime/model.py)", "the model (`src/anytime/model.py`)"),
        ("[`src/anytime/model.py`](../src/anytime/model.py)", "`src/anytime/model.py`"),
        ("[sampling](sampling.md#temperature)", "[sampling](sampling.md#temperature)"),
        ("[install.md](install.md)", "[Install](install.md)"),
        ("[web](https://example.org/a.md)", "[web](https://example.org/a.md)"),
        ("[gone](../nowhere.md)", "[gone](../nowhere.md)"),
        ("<!-- table: x -->\n| `a\\|b` |\n<!-- end -->\n", "| `a|b` |\n"),
        ("- a\n  b\n\n  <!-- x -->\n  | a |\n  |---|\n  <!-- end -->\n\n- c\n", "- a\n  b\n\n    | a |\n    |---|\n\n- c\n"),
        ("```md\n[a](../README.md)\n```", "```md\n[a](../README.md)\n```"),
    ],
)
def test_links(markdown: str, site: str) -> None:
    assert rewritten(markdown) == site


def test_source_files_are_linked_if_the_project_has_an_address() -> None:
    text = rewritten("[the model](../src/anytime/model.py)", repository="https://example.org/anytime")
    assert text == "[the model](https://example.org/anytime/blob/main/src/anytime/model.py)"


def test_links_of_pages_from_outside_docs() -> None:
    source = site_hook.ROOT / "CONTRIBUTING.md"
    assert (
        rewritten("[laws](docs/method.md#7-ten-laws)", source, "project/contributing.md") == "[laws](../method.md#7-ten-laws)"
    )


def test_copied_files_are_those_that_pages_link_to() -> None:
    text = "![a](../results/fid/cifar10.png) [b](../src/anytime/model.py) ![c](page.png)\n"
    text += "```md\n![d](../results/fid/celeba.png)\n```\n"
    assert list(site_hook.outside_files(text, DOCS / "page.md")) == [site_hook.ROOT / "results/fid/cifar10.png"]
