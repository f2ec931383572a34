"""Hook of the documentation site: links that leave docs/ work in the site as they do in the repository.

A page such as CHANGELOG.md becomes a page of the site, an image or a results file is copied into it, and a source file is
linked if the project has an address, or else named. Marks of generated tables are removed, and blocks inside lists are indented
as Python-Markdown needs it.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
HOME = "index.md"
PAGES = {
    "project/changelog.md": "CHANGELOG.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/security.md": "SECURITY.md",
    "models/mnist.md": "src/anytime/models/mnist/README.md",
    "models/cifar10.md": "src/anytime/models/cifar10/README.md",
    HOME: "README.md",
}
"""Files outside docs/ that are pages of the site, by their place in it. The home page stands for README.md."""
COPIED = {".png", ".gif", ".json"}
"""Suffixes of files outside docs/ that are copied into the site."""

_FENCE = re.compile(r"(^```.*?^```)", flags=re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?P<mark>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
_COMMENT = re.compile(r"^ *<!--.*?-->\n", flags=re.DOTALL | re.MULTILINE)
_LIST_BLOCK = re.compile(r"(?<=\n\n)(?:  \S.*\n?)+")
_ESCAPED_PIPE = re.compile(r"`[^`\n]*\\\|[^`\n]*`")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/, and the images and results files that pages name."""
    for uri, name in PAGES.items():
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    for file in files.documentation_pages():
        for path in outside_files(file.content_string, Path(str(file.abs_src_path))):
            if files.get_file_from_path(uri := copied_uri(path)) is None:
                files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change a page from what GitHub shows to what MkDocs shows."""
    if page.file.src_uri == HOME:
        page.meta["hide"] = ["navigation", "toc"]
    source = Path(str(page.file.abs_src_path))
    return rewrite(markdown, source, page.file.src_uri, repository())


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let images load when they come into view: some pages have megabytes of them."""
    return html.replace("<img ", '<img loading="lazy" ')


def outside_files(markdown: str, source: Path) -> Iterator[Path]:
    """Yield the files outside docs/ that a page links to and that are copied."""
    for part in _FENCE.split(markdown)[::2]:
        for link in _LINK.finditer(part):
            path = target(source, link["target"])
            if path.suffix in COPIED and path.is_file() and not path.is_relative_to(DOCS):
                yield path


def rewrite(markdown: str, source: Path, uri: str, repository: str | None) -> str:
    """Return the text of the page at `uri`, read from `source`, as the site needs it."""

    def change(text: str) -> str:
        text = _LIST_BLOCK.sub(
            lambda block: block[0].replace("  ", "    ", 1).replace("\n  ", "\n    "), _COMMENT.sub("", text)
        )
        text = _ESCAPED_PIPE.sub(lambda code: code[0].replace("\\|", "|"), text)
        return _LINK.sub(lambda link: new_link(link, source, uri, repository), text)

    return outside_code(change, markdown)


def outside_code(change: Callable[[str], str], markdown: str) -> str:
    """Return the text with everything but its fenced code changed."""
    parts = _FENCE.split(markdown)
    return "".join(part if index % 2 else change(part) for index, part in enumerate(parts))


def new_link(link: re.Match[str], source: Path, uri: str, repository: str | None) -> str:
    """Return a link as the site needs it."""
    path, text = target(source, link["target"]), link["text"]
    place = place_of(path)
    if place is not None:
        text = title(path) if text == path.name else text
        return f"{link['mark']}[{text}]({os.path.relpath(place, Path(uri).parent)}{link['anchor'] or ''})"
    if not path.is_relative_to(ROOT) or not path.exists():
        return link[0]  # MkDocs says that it is broken
    name = path.relative_to(ROOT).as_posix()
    if repository:
        return f"[{text}]({repository}/blob/main/{name})"
    return text if text.strip("`") == name else f"{text} (`{name}`)"


def place_of(path: Path) -> str | None:
    """Return the place of a file in the site, or None if it is not part of it."""
    pages = {ROOT / name: uri for uri, name in PAGES.items()}
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    if path in pages:
        return pages[path]
    return copied_uri(path) if path.suffix in COPIED and path.is_file() else None


def title(page: Path) -> str:
    """Return the heading of a page: a better name for a link than its file's."""
    heading = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE) if page.is_file() else None
    return heading[1] if heading else page.name


def target(source: Path, link: str) -> Path:
    """Return the file that a link of a page points at."""
    return Path(os.path.normpath(source.parent / link))


def copied_uri(path: Path) -> str:
    """Return where a file outside docs/ lies in the site."""
    return f"files/{path.relative_to(ROOT).as_posix()}"


def repository() -> str | None:
    """Return the project's address, if pyproject.toml has one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = project.get("urls", {}).get("Repository")
    return address.rstrip("/") if address else None
