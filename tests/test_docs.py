"""The documentation under test: it builds, its links lead somewhere, and nothing that exists is missing from it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import unquote, urlsplit

import click
import pytest

from qdo.cli import main as qdo_main
from qdo.compat.cli import main as qdo_worker_main
from qdo.worker.metrics import WORKER_METRICS
from queuey.api.routes import ROUTES
from queuey.cli import main
from queuey.errors import error_classes
from queuey.monitor.metrics import SERVER_METRICS
from queuey.settings import CLIENT_VARIABLES, SETTINGS
from queuey.settings.issuers import ISSUER_SETTINGS
from scripts.pages import written
from tests.support import browsers

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
README = ROOT / "README.md"
PROGRAMS = {"queuey": main, "qdo": qdo_main, "qdo-worker": qdo_worker_main}
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Page(HTMLParser):
    """Anchors and links of one HTML page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            if tag == "a" and name == "href" and value:
                self.links.add(value)


_BUILD = """
import sys
from sphinx.cmd.build import main

code = main(sys.argv[1:])
print(*sorted(sys.modules), sep="\\n")
sys.exit(code)
"""
"""Sphinx, and then the modules that it has loaded."""


class Built(NamedTuple):
    folder: Path
    modules: frozenset[str]
    """What the build has loaded."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("html")
    command = [sys.executable, "-c", _BUILD, "-W", "-n", "-q", "--keep-going", "-b", "html", "docs", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Built(folder, frozenset(done.stdout.splitlines()))


@pytest.fixture(scope="module")
def html(built: Built) -> Path:
    """The documentation as HTML."""
    return built.folder


def anchors(html: Path, page: str) -> set[str]:
    return Page(html / f"{page}.html").anchors


def command_names() -> Iterator[str]:
    for name, program in PROGRAMS.items():
        yield from names_below(click.Context(program, info_name=name))


def names_below(context: click.Context) -> Iterator[str]:
    yield context.command_path
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            child = context.command.get_command(context, name)
            assert child is not None
            yield from names_below(click.Context(child, context, name))


def shell_lines(path: Path) -> Iterator[str]:
    """Lines of the shell blocks of a page, and of its inline code that begins with ``queuey``, ``qdo`` or ``make``."""
    text = path.read_text()
    for language, block in _FENCE.findall(text):
        if language in ("sh", "text"):
            yield from block.splitlines()
    yield from re.findall(r"`((?:queuey|qdo|make) [^`]+)`", text)


def test_what_a_program_writes_is_current() -> None:
    """Settings, commands, metrics, errors, the Python API and the diagrams: whole without a build."""
    stale = [str(path.relative_to(ROOT)) for path, text in written() if not path.exists() or path.read_text() != text]

    assert stale == [], "run: make pages"


def test_the_build_needs_no_requirement_of_queuey(built: Built) -> None:
    """So ``make docs`` installs those of the documentation alone."""
    ours = {name for name in built.modules if name.partition(".")[0] in ("queuey", "qdo")}

    assert ours == {"queuey", "queuey._version"}
    assert built.modules.isdisjoint({"apsw", "click", "orjson", "prometheus_client", "pyramid", "pyspark", "uvloop"})


@pytest.mark.parametrize("landing", [README, ROOT / "docs/index.md"], ids=lambda path: path.name)
def test_a_landing_page_links_to_every_page(landing: Path) -> None:
    linked = {
        (landing.parent / found).resolve() for found in re.findall(r"\]\(([\w/.-]+\.md)[#)]", landing.read_text())
    }
    pages = {path for path in PAGES if path.parent.name == "docs" or path.name == "index.md"} - {ROOT / "docs/index.md"}

    assert pages - linked == set()


def test_links_have_words_without_a_build() -> None:
    """Sphinx would find some by itself; a page as it stands in the repository shows nothing. In the changelog they end a line."""
    empty = {path.stem: found for path in PAGES if (found := re.findall(r"\[\]\(.*?\)", path.read_text()))}

    assert empty.keys() <= {"changelog"}, "write [words](page.md)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_landing_page_is_one_screen_and_no_page_is_wider_than_a_telephone(
    html: Path, scheme: Literal["light", "dark"]
) -> None:
    with browsers.chromium() as browser:
        page = browser.new_page(color_scheme=scheme, viewport={"width": 1440, "height": 900})
        page.goto((html / "index.html").as_uri())
        last = page.locator("#queuey > section").last.bounding_box()
        assert last is not None
        assert last["y"] + last["height"] <= 900
        page.set_viewport_size({"width": 390, "height": 844})
        for name in ("index", "cli", "settings", "choosing", "api/client"):
            page.goto((html / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, name


def test_every_link_leads_somewhere(html: Path) -> None:
    pages = {path: Page(path) for path in html.rglob("*.html")}

    broken = [
        f"{path.relative_to(html)} -> {link}"
        for path, page in pages.items()
        for link in page.links
        if not leads_somewhere(link, path, pages)
    ]

    assert broken == []


def leads_somewhere(link: str, path: Path, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return parts.scheme == "https"
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target in pages:
        return not parts.fragment or unquote(parts.fragment) in pages[target].anchors
    return target.exists()


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text('<a id="there"></a><a href="#there">1</a><a href="#gone">2</a><a href="b.html">3</a>')
    pages = {path: Page(path)}

    found = {link: leads_somewhere(link, path, pages) for link in pages[path].links}

    assert found == {"#there": True, "#gone": False, "b.html": False}


def test_every_setting_has_its_entry(html: Path) -> None:
    assert {f"{row.section}.{row.key}" for row in (*SETTINGS, *ISSUER_SETTINGS)} <= anchors(html, "settings")


def test_settings_that_pages_name_exist() -> None:
    known = {(row.section, row.key) for row in SETTINGS}
    named = {
        (section, key)
        for path in (README, *PAGES)
        for section, keys in re.findall(r"`\[([a-z]+)\] ([a-z_ ]+)", path.read_text())
        for key in keys.split()
    }

    assert named
    assert named <= known


def test_every_variable_has_its_entry() -> None:
    text = (ROOT / "docs/settings.md").read_text()

    assert [name for name in CLIENT_VARIABLES if f"`{name}`" not in text] == []


def test_every_error_code_has_its_anchor(html: Path) -> None:
    assert set(error_classes()) <= anchors(html, "errors")


def test_every_metric_has_its_entry(html: Path) -> None:
    names = {metric.exposed for metric in (*SERVER_METRICS.metrics, *WORKER_METRICS.metrics)}

    assert names
    assert names <= anchors(html, "metrics")


def test_pages_name_only_metrics_that_exist(html: Path) -> None:
    known = anchors(html, "metrics")
    named = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for path in PAGES
        for name in re.findall(r"\b(?:queuey|qdo)_[a-z_]+[a-z]\b", path.read_text())
        if name not in ("qdo_status", "qdo_error", "queuey_conn")  # words of qdo 0.1
        and name not in ("queuey_outbox", "queuey_tasks")  # commands of Django, and a table
    }

    assert named
    assert named <= known


def test_every_command_has_its_entry(html: Path) -> None:
    assert {name.replace(" ", "-") for name in command_names()} <= anchors(html, "cli")


def test_every_route_has_its_heading() -> None:
    text = (ROOT / "docs/rest.md").read_text()
    headings = re.findall(r"^### .*?: ([A-Z]+) (\S+)", text, re.MULTILINE)
    service = re.findall(r"^\| `(/\S+)` \|", text, re.MULTILINE)
    described = {(method, path.partition("?")[0]) for method, path in headings} | {("GET", path) for path in service}

    served = {(method, route.pattern) for route, method in ROUTES.methods()}
    assert described == {(method, path) for method, path in served if method == "GET" or "{" in path}


@pytest.mark.parametrize("path", [README, *PAGES], ids=lambda path: path.stem)
def test_commands_in_examples_exist(path: Path) -> None:
    known = set(command_names())
    groups = {name.rpartition(" ")[0] for name in known}
    unknown = []
    for line in shell_lines(path):
        for program, words in re.findall(r"(?:^|[|;&(] ?|(?:do|until) |\./bin/)(queuey|qdo)((?: [a-z][a-z-]*)+)", line):
            first, *more = words.split()
            found = f"{program} {first}"
            deepest = f"{found} {more[0]}" if more else found
            if found not in known or (found in groups and deepest not in known):
                unknown.append(line)

    assert unknown == []


def test_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        found
        for path in (README, *PAGES)
        for line in shell_lines(path)
        for found in re.findall(r"\bmake ([a-z]+)", line)
    }

    assert {"serve", "test"} <= named <= targets


def test_no_page_installs_the_first_queuey() -> None:
    """By name the public index gives releases of 2012."""
    by_name = re.compile(r"pip (?:install|wheel|download) (?:-\S+ )*'?(?:queuey|qdo)\b")
    texts = [README, *PAGES, *(ROOT / "etc").glob("*.service")]
    assert {path.name: found for path in texts if (found := by_name.findall(path.read_text()))} == {}
    assert by_name.search("pip install --upgrade queuey")


def test_the_two_commands_of_the_readme_come_first() -> None:
    first = _FENCE.search(README.read_text())

    assert first is not None
    assert [line.split("#")[0].strip() for line in first[2].splitlines()] == ["make serve", "make test"]


def test_ci_runs_the_test_command_of_the_readme() -> None:
    lines = (ROOT / ".ci/run").read_text().splitlines()

    assert lines[-1] == "exec make test"


def test_files_that_pages_name_exist() -> None:
    named = {
        (path.name, found)
        for path in (README, *PAGES)
        for found in re.findall(
            r"(?<![\w/])(?:tests|etc|docs|queuey|qdo|scripts|examples)/[\w/.@-]*\w", path.read_text()
        )
    }

    assert sorted((page, found) for page, found in named if not exists(found)) == []


def exists(found: str) -> bool:
    return (ROOT / found).exists() or bool(list(ROOT.glob(f"{found}*.md")))


def test_every_promise_has_a_command_that_tries_it(html: Path) -> None:
    promises = re.findall(r"^### (G\d+):", (ROOT / "docs/guarantees.md").read_text(), re.MULTILINE)
    rows = re.findall(r"<tr.*?</tr>", (html / "guarantees.html").read_text(), re.DOTALL)
    tried = {name for row in rows if "TESTS=tests" in row for name in re.findall(r"\bG\d+\b", row)}

    assert promises
    assert [promise for promise in promises if promise not in tried] == []
