"""One HTML page for the results of a job.

It has headings, tables and plots, in one file that needs nothing else.

All values are text and are escaped: the name of a queue, a reason or a body cannot become markup.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, filterwarnings

from queuey.whole_files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["HtmlPage", "draw_by_hour", "legend", "plain", "plot", "shown", "utc", "write_page"]

_INCHES = (9, 3.2)
_HOUR = timedelta(hours=1)
_STYLE = """
:root { color-scheme: light }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; margin: 2rem auto; max-width: 72rem; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
table { border-collapse: collapse; font-size: .87rem } .wide { overflow-x: auto }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
td.n, td.t { white-space: nowrap } th { vertical-align: bottom }
td { overflow-wrap: break-word; max-width: 26rem } figure { margin: 1rem 0 } figure img { max-width: 100% }
figcaption, footer, .lead { color: #555 } code { font-size: .85rem }
"""


@dataclass
class HtmlPage:
    """A page, built from top to bottom."""

    title: str
    lead: str = ""
    _parts: list[str] = field(default_factory=list)

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, text: str) -> None:
        self._parts.append(f"<p>{escape(text)}</p>")

    def table(self, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, code: Sequence[str] = ()) -> None:
        """Rows by member, in the order of ``columns``. Numbers are aligned to the right.

        :param code: columns that readers copy as they are.
        """
        rows = list(rows)
        right = {name for name in columns if any(_is_number(row.get(name)) for row in rows)}
        head = "".join(f"<th{_side(name in right)}>{escape(title_of(name))}</th>" for name in columns)
        lines = [
            "".join(_cell(row.get(name), right=name in right, code=name in code) for name in columns) for row in rows
        ]
        body = "".join(f"<tr>{line}</tr>\n" for line in lines)
        self._parts.append(
            f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'
        )

    def figure(self, figure: Figure, caption: str) -> None:
        """Add a figure as an image, so that nothing in it is markup of the page."""
        from matplotlib import rc_context

        drawn = io.BytesIO()
        with rc_context({"svg.fonttype": "none"}), catch_warnings():
            # The reader's browser draws the text, with fonts of its own.
            filterwarnings("ignore", "Glyph .* missing from font")
            figure.savefig(drawn, format="svg", metadata={"Date": None})
        data = base64.b64encode(drawn.getvalue()).decode()
        self._parts.append(
            f'<figure><img alt="{escape(caption)}" src="data:image/svg+xml;base64,{data}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )

    def html(self, now: datetime) -> str:
        """The whole page.

        :param now: when the page was made; its last line says so.
        """
        title = escape(self.title)
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style></head>\n'
            f'<body><h1>{title}</h1>\n<p class="lead">{escape(self.lead)}</p>\n'
            + "\n".join(self._parts)
            + f"\n<footer><p>Made {shown(now)} by qdo pipeline.</p></footer></body></html>\n"
        )


def write_page(page: HtmlPage, path: str) -> None:
    """Write a page to a file of this machine, as a whole.

    Folders above the file are made.
    """
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, page.html(datetime.now(UTC)).encode())


def plot(title: str, x: str = "", y: str = "") -> tuple[Figure, Axes]:
    """An empty plot as wide as the page."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    axes = figure.subplots()
    axes.set_title(plain(title), loc="left", fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def draw_by_hour(axes: Axes, lines: Mapping[str, Mapping[datetime, int]]) -> None:
    """Draw a line for each name, with a mark for each of its hours.

    The axis has an hour more at both ends: around a single one matplotlib would show four years.
    """
    for name, values in lines.items():
        hours: Any = sorted(values)
        axes.plot(hours, [values[hour] for hour in hours], marker="o", markersize=3, label=plain(name))
    together: Any = sorted(set().union(*lines.values()))
    axes.set_xlim(together[0] - _HOUR, together[-1] + _HOUR)
    axes.set_ylim(bottom=0)
    legend(axes)


def legend(axes: Axes) -> None:
    """Show the names of lines and bars beside them."""
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def plain(text: str) -> str:
    r"""The text as matplotlib shows it.

    It takes what stands between two ``$`` for a formula, and leaves a name out of a legend that begins with ``_``. An image
    with an unprintable character is none to a browser.

    >>> plain("a $x$"), plain("_hidden"), plain("\x1b[31mred"), plain("two\u3000words")
    ('a \\$x\\$', ' _hidden', '\ufffd[31mred', 'two words')
    """
    # The wide blank of Chinese and Japanese is not printable, either.
    blank = re.sub(r"\s", " ", text.replace("$", r"\$"))
    found = "".join(each if each.isprintable() else "\ufffd" for each in blank)
    return f" {found}" if found.startswith("_") else found


def utc(value: datetime) -> datetime:
    """The time with its zone.

    Spark gives Python times without a zone, in the zone of the process.
    """
    return value.astimezone(UTC)


def title_of(column: str) -> str:
    """A column's name as the head of a table shows it.

    >>> title_of("delivery_p99_9_ms")
    'delivery p99.9 ms'
    """
    return column.replace("p99_9", "p99.9").replace("_", " ")


def shown(value: Any) -> str:
    """A value in the form that people read.

    >>> shown(1234567), shown(0.0123456), shown(None), shown(datetime(2026, 11, 21, 10, 5, 3, 250000, UTC))
    ('1,234,567', '0.01235', '', '2026-11-21 10:05:03.250')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, datetime):
        value = utc(value)
        return f"{value:%Y-%m-%d %H:%M:%S}" + (f".{value.microsecond // 1000:03d}" if value.microsecond else "")
    if isinstance(value, date):
        return value.isoformat()
    return ", ".join(map(shown, value)) if isinstance(value, (list, tuple)) else str(value)


def _cell(value: Any, *, right: bool, code: bool) -> str:
    text = escape(shown(value))
    side = ' class="t"' if isinstance(value, datetime) else _side(right)
    return f"<td{side}>{f'<code>{text}</code>' if code and text else text}</td>"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _side(right: bool) -> str:
    return ' class="n"' if right else ""
