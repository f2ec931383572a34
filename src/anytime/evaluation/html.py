"""Reports as one HTML file, with all images inside."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
img { max-width: 100% } figure { margin: 1.5rem 0 } figcaption { color: #555 }
table { border-collapse: collapse } td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top }
td { font-variant-numeric: tabular-nums } .facts td { overflow-wrap: anywhere }
"""


def html_page(title: str, parts: Iterable[str]) -> str:
    """Return the whole file: a title and its parts."""
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style>'
    body = "\n".join([f"<h1>{html.escape(title)}</h1>", *parts])
    return f"<!doctype html>\n<html lang=en><head>{head}</head><body>\n{body}\n</body></html>\n"


def image(kind: str, content: bytes, caption: str) -> str:
    """Return an image (`kind` is png or gif) with its caption."""
    source = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return f'<figure><img src="{source}" alt="{html.escape(caption)}"><figcaption>{html.escape(caption)}</figcaption></figure>'


def facts_table(facts: Mapping[str, str]) -> str:
    """Return a table of names and texts."""
    cells = "\n".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in facts.items())
    return f'<table class="facts">{cells}</table>'


def table(names: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table with a head."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "\n".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
    return f"<table><tr>{head}</tr>\n{body}</table>"
