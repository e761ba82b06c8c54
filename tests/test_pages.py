"""The parts of the documentation that a program writes are current, whole and readable."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

import qdo
from qdo.aio import AsyncClient, AsyncDelivery
from qdo.client import Client, Delivery, Message, NewMessage
from qdo.tasks import DeclaredTask, TaskResult
from qdo.worker import Context, Worker
from scripts.pages import ROOT, written
from scripts.pages.api import LEFT_OUT, pages
from scripts.pages.blocks import expand, named_promises
from scripts.pages.diagrams import DIAGRAMS
from scripts.pages.docstrings import markdown
from scripts.pages.drawing import PALETTES
from tests.support import browsers

API = ROOT / "docs/api"
LEAST_CONTRAST = 4.5
"""Of a text and what lies behind it: WCAG 2, level AA."""


def headings(page: str) -> set[str]:
    return set(re.findall(r"^#+ (\S+)$", (API / f"{page}.md").read_text(), re.MULTILINE))


def test_nothing_is_left_of_what_is_written_no_more() -> None:
    known = {path for path, _ in written()}

    assert {*API.glob("*.md"), *(ROOT / "docs/images").glob("*.svg")} - known == {API / "index.md"}


class TestParts:
    """Parts of a page, between two comments."""

    def test_a_part_is_written_anew(self) -> None:
        page = "before\n<!-- error: QueueNotFound -->\nold\n<!-- end -->\nafter\n"

        new = expand(page)

        assert new is not None
        assert new.startswith('before\n<!-- error: QueueNotFound -->\n\n<span id="QueueNotFound"></span>\n')
        assert new.endswith("\n\n<!-- end -->\nafter\n")
        assert "old" not in new
        assert expand(new) == new

    def test_a_page_without_parts_is_left_alone(self) -> None:
        assert expand("# A page\n") is None

    def test_a_part_without_an_end_is_refused(self) -> None:
        with pytest.raises(ValueError, match="<!-- metrics --> has no end"):
            expand("<!-- metrics -->\n\n<!-- error: QueueNotFound -->\n<!-- end -->\n")

    @pytest.mark.parametrize(
        ("head", "promises"),
        [
            ("G1, G22, G25", [1, 22, 25]),
            ("G21, G22 and G28 by boto3", [21, 22, 28]),
            ("G21 to G24", [21, 22, 23, 24]),
            ("G1, G3 to G5", [1, 3, 4, 5]),
        ],
    )
    def test_a_file_of_faults_has_the_promises_that_it_names(self, head: str, promises: list[int]) -> None:
        assert named_promises(head) == promises


class TestApi:
    """Pages of the Python API."""

    @pytest.mark.parametrize("page", pages())
    def test_every_public_name_has_its_heading(self, page: str) -> None:
        assert {name for name, _ in pages()[page].names()} - headings(page) == set()

    def test_every_name_of_the_package_is_on_a_page(self) -> None:
        described = {heading for page in pages() for heading in headings(page)}

        assert set(qdo.__all__) - described == set()

    @pytest.mark.parametrize(
        ("page", "cls"),
        [
            ("client", Client),
            ("client", Delivery),
            ("client", Message),
            ("client", NewMessage),
            ("aio", AsyncClient),
            ("aio", AsyncDelivery),
            ("tasks", DeclaredTask),
            ("tasks", TaskResult),
            ("worker", Worker),
            ("worker", Context),
        ],
        ids=lambda given: given if isinstance(given, str) else given.__name__,
    )
    def test_every_public_member_is_described(self, page: str, cls: type) -> None:
        members = {name for name in dir(cls) if not name.startswith("_")} - LEFT_OUT
        text = (API / f"{page}.md").read_text()

        described = {name for name in members if f"{cls.__name__}.{name}\n" in text or f"| `{name}` |" in text}
        assert members - described == set()

    def test_a_call_is_awaited_where_the_client_is_one_for_asyncio(self) -> None:
        shown = {page: (API / f"{page}.md").read_text() for page in ("client", "aio")}

        assert "\ndelete_queue(queue: str) -> None\n" in shown["client"]
        assert "\nasync delete_queue(queue: str) -> None\n" in shown["aio"]
        assert "async with receive_one(" in shown["aio"]
        assert "As [Client.delete_queue](client.md#clientdelete_queue)." in shown["aio"]

    def test_a_docstring_becomes_markdown(self) -> None:
        text = """Sends ``it``; see :meth:`get`.

        ::

            send(1)

        :param size: of <it>,
            in bytes.
        :raises ValueError: too large.
        """

        assert markdown(text, {"get": "#get"}.get) == (
            "Sends `it`; see [`get`](#get).\n\n```python\nsend(1)\n```\n\n"
            "- **`size`**: of \\<it\\>,\n  in bytes.\n- **raises** `ValueError`: too large."
        )


class TestDiagrams:
    """The pictures, in light and in dark colours."""

    @pytest.mark.parametrize("theme", PALETTES)
    def test_what_is_written_stands_out(self, theme: str) -> None:
        paper = PALETTES[theme]["paper"]
        behind = {name: {look.fill, paper.fill} for name, look in PALETTES[theme].items()}

        faint = {
            (name, fill): contrast(PALETTES[theme][name].ink, fill)
            for name, fills in behind.items()
            for fill in fills
            if contrast(PALETTES[theme][name].ink, fill) < LEAST_CONTRAST
        }
        assert faint == {}

    @pytest.mark.parametrize("name", DIAGRAMS)
    def test_a_page_shows_it_with_words_for_those_that_do_not_see_it(self, name: str) -> None:
        shown = [
            found
            for path in (ROOT / "docs").glob("*.md")
            for found in re.findall(rf"!\[([^\]]*)\]\(images/{name}\.svg\)", path.read_text())
        ]

        assert shown
        assert all(len(words) > 40 for words in shown)
        assert ET.fromstring(DIAGRAMS[name]()).findtext("{http://www.w3.org/2000/svg}title")  # noqa: S314 -- ours

    def test_no_text_leaves_the_picture_or_covers_another_one(self) -> None:
        with browsers.chromium() as browser:
            page = browser.new_page()
            for name in DIAGRAMS:
                page.goto((ROOT / f"docs/images/{name}.svg").as_uri())
                assert page.evaluate(_MISPLACED) == [], name


def contrast(one: str, other: str) -> float:
    """The ratio of two colours' luminance, 1 to 21 (WCAG 2)."""
    dark, light = sorted(luminance(colour) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


_MISPLACED = """
() => {
  const { width, height } = document.documentElement.viewBox.baseVal;
  const boxes = [...document.querySelectorAll("text")].map(text => [text.textContent, text.getBBox()]);
  const outside = boxes.filter(([, b]) => b.x < 0 || b.y < 0 || b.x + b.width > width || b.y + b.height > height);
  const covered = boxes.flatMap(([text, a], number) => boxes.slice(number + 1)
    .filter(([, b]) => a.x < b.x + b.width && b.x < a.x + a.width && a.y + 2 < b.y + b.height && b.y + 2 < a.y + a.height)
    .map(([other]) => `${text} / ${other}`));
  return [...outside.map(([text]) => text), ...covered];
}
"""
