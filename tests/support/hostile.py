"""Texts made to run a script, and what a page has to be that shows them."""

from __future__ import annotations

from tests.support.visitors import Markup

EVIL = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'-alert(1)-'",
    "javascript:alert(1)",
    "{{ 7 * 7 }}<b>{% include 'layout.html' %}",
    "\u202e</pre><svg/onload=alert(1)>",
)
STYLE, SCRIPT = "/console/static/console.css?", "/console/static/console.js?"


def is_clean(page: str) -> None:
    """A page with no element, handler or address but those of the console."""
    seen = Markup(page)
    scripts = seen.scripts()
    assert [(found.get("src") or "").startswith(SCRIPT) and bool(found.get("nonce")) for found in scripts] == [True]
    assert seen.handlers() == []
    assert [found for found in seen.addresses() if not found.startswith(("/", "?", "#", "messages"))] == []
    assert not {"b", "base", "iframe", "object", "embed", "meta-refresh"} & {tag for tag, _ in seen.elements}
