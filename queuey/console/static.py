"""The files of the console: its style and its script, and the headers that keep pages to them."""

from __future__ import annotations

from functools import cache
from hashlib import sha256

from queuey.errors import NotFound
from queuey.http.exchange import Answer, Headers
from queuey.packaged import packaged

__all__ = ["address", "answer", "check", "page_headers"]

_TYPES = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_FOLDER = "files/"
_YEAR_SECONDS = 365 * 24 * 3600


def check(name: str) -> None:
    """:raises NotFound: there is no such file."""
    if name not in _TYPES:
        raise NotFound


@cache
def _content(name: str) -> bytes:
    return packaged("queuey.console", _FOLDER + name)


@cache
def address(name: str) -> str:
    """Where a page finds a file. Another content has another address."""
    return f"/console/static/{name}?{sha256(_content(name)).hexdigest()[:12]}"


def answer(name: str) -> Answer:
    """A file that :func:`check` knows. Browsers keep it."""
    headers = [
        ("content-type", _TYPES[name]),
        ("cache-control", f"public, max-age={_YEAR_SECONDS}, immutable"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ]
    return Answer(200, _content(name), headers)


def page_headers(nonce: str = "") -> Headers:
    """What a page may load, and what its address may become: nothing of another host, no script but its own.

    :param nonce: names the page's one script, made for this answer; empty for a page without.
    """
    script = f"'nonce-{nonce}'" if nonce else "'none'"
    policy = (
        f"default-src 'none'; script-src {script}; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return [
        ("content-security-policy", policy),
        ("cache-control", "no-store"),
        ("referrer-policy", "same-origin"),
        ("x-frame-options", "DENY"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ]
