from __future__ import annotations

import base64

from anytime.evaluation.html import facts_table, html_page, image, table


def test_what_is_written_cannot_break_the_page() -> None:
    text = html_page("<a & b>", [facts_table({"<name>": "<script>x</script>"}), table(["<h>"], [["<c>"]])])
    assert text.startswith("<!doctype html>")
    assert "<title>&lt;a &amp; b&gt;</title>" in text
    assert "<script>" not in text
    assert "&lt;c&gt;" in text


def test_an_image_is_embedded_in_the_page() -> None:
    text = image("gif", b"content", 'a "caption"')
    assert f"data:image/gif;base64,{base64.b64encode(b'content').decode()}" in text
    assert 'alt="a &quot;caption&quot;"' in text
