"""A drawing in SVG, for light and for dark pages: the reader's setting chooses the colours.

It brings its own paper, so it stays readable on a page that is light where the reader's setting is dark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

__all__ = ["PALETTES", "Drawing", "Look"]


@dataclass(frozen=True)
class Look:
    """How a kind of box is filled, outlined and written on."""

    fill: str
    line: str
    ink: str


PALETTES: Mapping[str, Mapping[str, Look]] = {
    "light": {
        "paper": Look("#ffffff", "#d5dbe3", "#1f2933"),
        "plain": Look("#eef2f7", "#8895a5", "#1f2933"),
        "done": Look("#dff3e6", "#2f8a5b", "#175236"),
        "held": Look("#fdeccb", "#b06f00", "#6b4300"),
        "sure": Look("#dceafb", "#2467b0", "#164275"),
        "gone": Look("#ffffff", "#a9b3bf", "#5c6875"),
    },
    "dark": {
        "paper": Look("#161a20", "#333b46", "#e6eaf0"),
        "plain": Look("#252c36", "#76839a", "#e6eaf0"),
        "done": Look("#173626", "#4fb583", "#b5e6cb"),
        "held": Look("#3d2d0e", "#d39a35", "#f5d9a3"),
        "sure": Look("#17304d", "#5f9fe0", "#bfdcfa"),
        "gone": Look("#161a20", "#596577", "#a3aebd"),
    },
}
"""By the reader's setting and the kind of box. What is written on the paper itself has the ink of ``paper`` or of a kind."""

FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"


def _rules(palette: Mapping[str, Look]) -> str:
    return "".join(
        f".{kind} {{ fill: {look.fill}; stroke: {look.line} }} "
        f".{kind}-line {{ stroke: {look.line}; fill: none }} "
        f".{kind}-tip {{ fill: {look.line} }} "
        f".{kind}-text {{ fill: {look.ink} }}\n"
        for kind, look in palette.items()
    )


class Drawing:
    """Shapes from the first one to the last one, the later ones on top."""

    def __init__(self, width: int, height: int, title: str) -> None:
        """:param title: what the picture shows, for readers who do not see it."""
        self.width, self.height, self._title = width, height, title
        self._shapes: list[str] = []
        self._add(f'<rect class="paper" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>')

    def _add(self, shape: str) -> None:
        self._shapes.append(shape)

    def box(
        self, x: float, y: float, width: float, height: float, kind: str = "plain", *, dashed: bool = False
    ) -> None:
        """A rectangle with round corners."""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self._add(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"{dashes}/>')

    def labelled(self, x: float, y: float, width: float, height: float, text: str, kind: str = "plain") -> None:
        """A box with lines of text in its middle."""
        self.box(x, y, width, height, kind)
        lines = text.split("\n")
        for number, line in enumerate(lines):
            self.text(x + width / 2, y + height / 2 + 5 + 17 * (number - (len(lines) - 1) / 2), line, kind, at="middle")

    def text(self, x: float, y: float, text: str, kind: str = "paper", *, at: str = "start", style: str = "") -> None:
        """One line. ``at`` says which part of it stands at x: start, middle or end."""
        more = f" {style}" if style else ""
        self._add(f'<text class="{kind}-text{more}" x="{x:g}" y="{y:g}" text-anchor="{at}">{escape(text)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "plain", *, dashed: bool = False) -> None:
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._add(f'<line class="{kind}-line" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"{dashes}/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float, kind: str = "plain", *, dashed: bool = False) -> None:
        """A line with a tip at its second end."""
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        self.line(x1, y1, x2 - 6 * dx, y2 - 6 * dy, kind, dashed=dashed)
        left = (x2 - 10 * dx - 4.5 * dy, y2 - 10 * dy + 4.5 * dx)
        right = (x2 - 10 * dx + 4.5 * dy, y2 - 10 * dy - 4.5 * dx)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in ((x2, y2), left, right))
        self._add(f'<polygon class="{kind}-tip" points="{points}"/>')

    def svg(self) -> str:
        """The whole file."""
        dark = _rules(PALETTES["dark"]).replace("\n", "\n  ").rstrip()
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
                f'<title id="title">{escape(self._title)}</title>',
                "<style>",
                f"text {{ font: 14px {FONT} }} .head {{ font-size: 17px; font-weight: 600 }} .small {{ font-size: 12.5px }}",
                "rect, line { stroke-width: 1.3 }",
                _rules(PALETTES["light"]).rstrip(),
                f"@media (prefers-color-scheme: dark) {{\n  {dark}\n}}",
                "</style>",
                *self._shapes,
                "</svg>\n",
            ]
        )
