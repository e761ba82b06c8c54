"""The parts of the documentation that a program writes, so that the repository has them without a build.

``make pages`` writes them anew: reference text in pages (:mod:`.blocks`), the pages of the Python API (:mod:`.api`), and the
diagrams (:mod:`.diagrams`). A test says which of them are not current.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .api import api_pages
from .blocks import expand
from .diagrams import DIAGRAMS

__all__ = ["ROOT", "written"]

ROOT = Path(__file__).parents[2]


def written() -> Iterator[tuple[Path, str]]:
    """Each file that is written, or has a part that is, with the text that it must have."""
    docs = ROOT / "docs"
    for path in sorted(docs.glob("*.md")):
        text = path.read_text()
        if (new := expand(text)) is not None:
            yield path, new
    for name, text in api_pages().items():
        yield docs / "api" / f"{name}.md", text
    for name, draw in DIAGRAMS.items():
        yield docs / "images" / f"{name}.svg", draw()
