"""A real browser for tests of the page: headless Chromium, and a tab that notes what the page requests and reports."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
SWITCHES = ("no-sandbox", "disable-background-networking", "disable-component-update", "disable-sync", "no-first-run")
ALL_CODES = re.compile(r"^All 16 codes in \d+ ms\.$")
NEEDS_CHROMIUM = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"the page needs {CHROMIUM}: apt-get install chromium")

WATCH_MOMENTS = """
window.seen = [];
addEventListener("securitypolicyviolation", (event) => console.error(`CSP: ${event.violatedDirective}`));
addEventListener("DOMContentLoaded", () => new MutationObserver(() => seen.push({
  text: document.getElementById("moment-text").textContent,
  image: document.querySelector("#grid img")?.src,
})).observe(document.getElementById("moment-text"), { childList: true }));
"""
"""Keep every moment that is shown; report what the content security policy blocks."""


@dataclass
class BrowserTab:
    """A page, and what it requested and reported."""

    page: Page
    sent: list[Request] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("request", lambda request: self.sent.append(request))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)

    def wait(self, text: str | re.Pattern[str] = ALL_CODES, seconds: float = 20) -> None:
        """Wait until the sampling has ended, with all codes by default."""
        expect(self.page.locator("#status")).to_have_text(text, timeout=1000 * seconds)

    def images(self) -> np.ndarray:
        """The images shown, [n, height, width]."""
        files = self.page.locator("#grid img").evaluate_all("images => images.map(image => image.src)")
        return np.stack([np.asarray(Image.open(io.BytesIO(base64.b64decode(file.partition(",")[2]))), int) for file in files])

    def focused(self) -> str:
        """The id of the focused element, or `sample N`."""
        script = "(e => e.id || 'sample ' + [...document.querySelectorAll('#grid button')].indexOf(e))(document.activeElement)"
        return str(self.page.evaluate(script))

    def tab_to(self, name: str) -> None:
        """Press Tab until an element has the focus."""
        for _ in range(40):
            if self.focused() == name:
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not reach {name}")


@contextmanager
def chromium(*switches: str) -> Iterator[Browser]:
    """A headless Chromium; one at a time in a process."""
    expect.set_options(timeout=20_000)  # milliseconds; other tests use the same cores
    with sync_playwright() as playwright:
        with_switches = [f"--{name}" for name in (*SWITCHES, *(switches or ["disable-gpu"]))]
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=with_switches)
        yield started
        started.close()
