"""Cells of tables, as markup: moments, numbers and sizes.

A page has a hundred of them, so they are filters: a macro takes several times as long.
"""

from __future__ import annotations

from markupsafe import Markup, escape

from queuey.console.shown import absolute, ago, as_count, as_size, iso

__all__ = ["number", "size", "when"]

_NEVER = Markup('<span class="quiet">never</span>')
_NOT_COUNTED = Markup('<span class="quiet" title="Not counted">-</span>')
_NO_SIZE = Markup('<span class="quiet">-</span>')


def when(timestamp: str | float | None, now: float) -> Markup:
    """A moment in relative form, with the absolute one on hover.

    >>> print(when("1795236650.5", 1795236740.5))
    <time datetime="2026-11-21T04:50:50.500+00:00" title="2026-11-21 04:50:50.500 UTC">1 min ago</time>
    """
    if timestamp is None:
        return _NEVER
    times = escape(iso(timestamp)), escape(absolute(timestamp)), escape(ago(timestamp, now))
    return Markup('<time datetime="%s" title="%s">%s</time>' % times)  # noqa: S704, UP031 - each part is escaped


def number(value: float | None) -> Markup:
    """A number of things, with all its digits on hover.

    >>> print(number(12_345), number(None))
    <span title="12,345">12.3 k</span> <span class="quiet" title="Not counted">-</span>
    """
    if value is None:
        return _NOT_COUNTED
    return Markup(f'<span title="{value:,}">{as_count(value)}</span>')  # noqa: S704 - digits


def size(value: float | None) -> Markup:
    """A number of bytes.

    >>> print(size(2048), size(None))
    <span title="2,048 bytes">2.0 KiB</span> <span class="quiet">-</span>
    """
    if value is None:
        return _NO_SIZE
    return Markup(f'<span title="{value:,} bytes">{as_size(value)}</span>')  # noqa: S704 - digits
