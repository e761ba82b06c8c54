"""A browser without a script: it keeps its cookie, sends forms from pages, and follows no redirect by itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Self

import requests

from tests.support.servers import RunningServer

TIMEOUT_SECONDS = 60
_CSRF = re.compile(r'name="csrf" value="([^"]+)"')


@dataclass(frozen=True)
class OpenConsole:
    """A server with a console, and its folder."""

    running: RunningServer
    folder: Path

    @property
    def url(self) -> str:
        return self.running.url

    @property
    def environment(self) -> dict[str, str]:
        """For commands beside the server."""
        return {"QUEUEY_CONFIG": str(self.folder / "queuey.ini")}

    def log(self) -> list[dict[str, Any]]:
        """What the server has logged, in lines that are whole."""
        lines = (self.folder / "said.txt").read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]


class Visitor:
    """Somebody at the console."""

    def __init__(self, url: str, **headers: str) -> None:
        self.url = url
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.headers.update({"Accept": "text/html", **headers})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()

    def request(self, method: str, path: str, **given: Any) -> requests.Response:
        return self.session.request(method, self.url + path, timeout=TIMEOUT_SECONDS, allow_redirects=False, **given)

    def get(self, path: str, status: int = 200) -> str:
        """The text of a page."""
        answer = self.request("GET", path)
        assert answer.status_code == status, (path, answer.status_code, answer.text)
        return answer.text

    def csrf(self, path: str = "/console/sign-in") -> str:
        """What a form of a page brings."""
        found = _CSRF.search(self.get(path))
        assert found is not None
        return found[1]

    def send(self, path: str, status: int = 303, **fields: Any) -> requests.Response:
        """A form, from a page of this session."""
        answer = self.request("POST", path, data={"csrf": self.csrf(), **fields})
        assert answer.status_code == status, (path, answer.status_code, answer.text)
        return answer

    def goes(self, path: str, **fields: Any) -> str:
        """The path of the page that follows a form."""
        return str(self.send(path, **fields).headers["location"]).removeprefix(self.url)

    def signs_in(self, credential: str, **fields: Any) -> Self:
        self.send("/console/sign-in", credential=credential, **fields)
        return self


@contextmanager
def signed_in(url: str, credential: str) -> Iterator[Visitor]:
    with Visitor(url) as visitor:
        yield visitor.signs_in(credential)


class Markup(HTMLParser):
    """Elements and attributes of a page, for what a text must never become."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def scripts(self) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == "script"]

    def handlers(self) -> list[str]:
        """Attributes that would run as scripts, or that a strict policy refuses."""
        return [
            name for _, attributes in self.elements for name in attributes if name.startswith("on") or name == "style"
        ]

    def addresses(self) -> list[str]:
        """What the page loads, sends to, or leads to."""
        named = ("href", "src", "action", "formaction", "data-stream", "data-tail")
        return [value for _, attributes in self.elements for name in named if (value := attributes.get(name))]
