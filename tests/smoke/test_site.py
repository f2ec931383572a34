"""The documentation site builds without warnings, names everything public, has no dead link and loads nothing elsewhere."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from browsing import NEEDS_CHROMIUM, BrowserTab, chromium
from playwright.sync_api import expect

import anytime

ROOT = Path(anytime.__file__).parents[2]
LOADING = {"script": "src", "img": "src", "link": "href", "source": "src", "audio": "src", "iframe": "src"}
MODULES = (
    "anytime.bulk.run.sample_to_shards",
    "anytime.compression.compress",
    "anytime.compression.decompress",
    "anytime.export.onnx.export_onnx",
    "anytime.export.web.export_web",
    "anytime.export.aoti.export_aoti",
    "anytime.export.bundle.bundle",
    "anytime.training.run.train",
    "anytime.recipes.build.build_config",
    "anytime.data.registry.load",
)
"""What users call beyond the names of `anytime`."""


@dataclass
class Html(HTMLParser):
    """What a page refers to, what can be referred to in it, and its text."""

    path: Path
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._hidden = 0
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADING and LOADING[tag] in values:
            self.loads.append(values[LOADING[tag]])
        self._hidden += tag in ("script", "style", "pre", "code")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style", "pre", "code")

    def handle_data(self, data: str) -> None:
        self.text += "" if self._hidden else data

    def handle_comment(self, data: str) -> None:
        self.text += f"<!--{data}-->"


@pytest.fixture(scope="session")
def site(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """The site, built as `make docs-site` builds it."""

    def build(folder: Path) -> None:
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
        environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
        assert run.returncode == 0 and not run.stdout + run.stderr, run.stdout + run.stderr

    return once("site", build)


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[Path, Html]:
    """All pages of the site but the one for missing pages, whose links are absolute."""
    return {path: Html(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def public_names() -> Iterator[str]:
    """Yield the names of `anytime`, and the fields, properties and methods of its classes."""
    for name in anytime.__all__:
        value: Any = getattr(anytime, name)
        if name == "__version__":
            continue
        yield f"anytime.{name}"
        if inspect.isclass(value):
            own = [member for member, code in vars(value).items() if not member.startswith("_") and is_code(code)]
            fields = [each.name for each in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
            yield from (f"anytime.{name}.{member}" for member in [*own, *fields])


def is_code(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)


def test_every_public_name_is_documented(pages: dict[Path, Html]) -> None:
    documented = {name for path, page in pages.items() if path.parent.name == "api" for name in page.ids}
    names = {*public_names(), *MODULES}
    assert {"anytime.AnytimeModel.refine", "anytime.Sample.codes", "anytime.Session.run", "anytime.Client.stream"} <= names
    assert {"anytime.Budget.within", "anytime.load", "anytime.models", "anytime.ServerError"} <= names
    assert not names - documented


def test_headings_and_signatures_have_the_same_name(pages: dict[Path, Html]) -> None:
    shown = r'class="doc doc-heading">((?:(?!</h\d).)*?)<a [^\n]*</h\d>\s*<div class="doc-signature highlight">(.*?)</div>'
    count = 0
    for path in (path for path in pages if path.parent.name == "api"):
        for heading, signature in re.findall(shown, path.read_text(encoding="utf-8"), flags=re.DOTALL):
            public, name = (re.sub("<.*?>", "", text).strip() for text in (heading, signature))
            count += 1
            assert re.split(r"[(:\s]", name)[0] == public.removesuffix("()").rpartition(".")[2], f"{path.name}: {public}"
    assert count > 50


def test_every_link_and_anchor_exists(site: Path, pages: dict[Path, Html]) -> None:
    dead, count = [], 0
    for path, page in pages.items():
        for link in [*page.links, *page.loads]:
            if urlsplit(link).scheme:
                continue
            address, anchor = urldefrag(link)
            file = Path(os.path.normpath(path.parent / unquote(address))) if address else path
            count += 1
            known = pages[file].ids if file in pages else None
            if (
                not file.is_file()
                or not file.is_relative_to(site)
                or (anchor and known is not None and unquote(anchor) not in known)
            ):
                dead.append(f"{path.relative_to(site)}: {link}")
    assert not dead and count > 2000


def test_pages_load_nothing_from_other_hosts(site: Path, pages: dict[Path, Html]) -> None:
    assert not [load for page in pages.values() for load in page.loads if urlsplit(load).netloc]
    assert not [path for path in site.rglob("*.css") if "url(http" in path.read_text(encoding="utf-8").replace('"', "")]


def test_pages_show_no_markup(pages: dict[Path, Html]) -> None:
    for path, page in pages.items():
        for mark in ("<!-- table", "<!-- end", ":::", "](", "][", "```", ">>> ", "|---"):
            assert mark not in page.text, f"{path.name} shows {mark!r}"


def test_every_page_of_docs_is_in_the_site(pages: dict[Path, Html]) -> None:
    built = {path.name for path in pages}
    assert {page.with_suffix(".html").name for page in (ROOT / "docs").rglob("*.md")} <= built
    assert {"changelog.html", "contributing.html", "security.html", "mnist.html", "cifar10.html"} <= built


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Say nothing."""


@NEEDS_CHROMIUM
def test_the_site_works_on_a_phone(site: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        try:
            with chromium() as browser, browser.new_page(viewport={"width": 390, "height": 844}) as page:
                tab = BrowserTab(page)
                for name in ("index", "results", "reference", "api/model", "gallery"):
                    page.goto(f"{address}/{name}.html")
                    expect(page.locator("h1")).to_be_visible()
                    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide"
                page.set_viewport_size({"width": 1280, "height": 800})
                page.goto(f"{address}/results.html")
                tallest = page.evaluate("Math.max(...[...document.querySelectorAll('td')].map(cell => cell.offsetHeight))")
                assert tallest < 400, "a table is squeezed: its rows are as tall as a screen"
                page.goto(f"{address}/gallery.html")
                digits = page.locator(".by-code").first
                expect(digits.locator("output")).to_have_text("16 of 16 codes")
                whole = digits.locator("canvas").evaluate("canvas => canvas.toDataURL()")
                digits.locator("input").fill("4")
                expect(digits.locator("output")).to_have_text("4 of 16 codes")
                assert digits.locator("canvas").evaluate("canvas => canvas.toDataURL()") != whole
                assert not tab.errors and all(request.url.startswith(address) for request in tab.sent)
        finally:
            server.shutdown()
