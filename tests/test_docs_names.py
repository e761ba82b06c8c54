"""What the pages and examples make on a server has names of its own, so a reader may try one after the other."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.support.source import ROOT

_FENCE = re.compile(r"^```(?:sh|bash|python|js)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_WORD = r"'?([a-z][\w.-]*)"
_TEXT = r'"([a-z][\w.-]*)"'
MAKES_A_QUEUE = [
    re.compile(pattern)
    for pattern in (
        rf"\bqueue add {_WORD}",
        rf"\bqueuey put {_WORD}",
        rf"--queue {_WORD}",
        rf"\bqueue_name={_WORD}",
        rf"\$url/(?!v1/|tokens/){_WORD}",
        rf"/v1/demo/{_WORD}",
        rf"\b(?:create_queue|createQueue|append|append_batch)\({_TEXT}",
        rf"\b(?:queue|queue_name|results|QueueName|QUEUE) ?= ?{_TEXT}",
        rf"\boutbox\.add\((?:session, )?{_TEXT}",
        rf"\bWorker\(\w+, \[{_TEXT}",
    )
]
"""Ways of a page or an example to name a queue that it makes or works on."""
MAKES_A_FILE = re.compile(r"^cat > (\w+\.py)", re.MULTILINE)

SHOP = "examples/web: one shop in three frameworks"
TRIED = {
    "README.md": "README.md",
    "docs/quickstart.md": "README.md",  # the tour of the README is the short form of it
    "docs/live.md": "README.md",  # goes on with the queue of the quick start
    "docs/tutorial.md": None,
    "docs/client.md": None,
    "docs/javascript.md": None,
    "docs/tasks.md": None,
    "docs/workers.md": None,
    "docs/outbox.md": None,
    "docs/dramatiq.md": None,
    "docs/sqs.md": None,
    "docs/coming-from-sqs.md": None,
    "docs/coming-from-celery.md": None,
    "docs/identity.md": None,
    "examples/crashes": None,
    "examples/clocks": None,
    "examples/web/fastapi_shop.py": SHOP,
    "examples/web/flask_shop.py": SHOP,
    "examples/web/django_shop": SHOP,
}
"""What a reader types or starts, and with what it shares its names on purpose."""


def texts(place: Path) -> Iterable[str]:
    if place.suffix == ".md":
        return _FENCE.findall(place.read_text())
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return [path.read_text() for path in files] + [text for path in place.rglob("*.md") for text in texts(path)]


def found(patterns: Iterable[re.Pattern[str]], place: str) -> set[str]:
    return {name for text in texts(ROOT / place) for pattern in patterns for name in pattern.findall(text)}


def shared(names: dict[str, set[str]]) -> dict[str, list[str]]:
    """Names of several places that do not share them on purpose."""
    places = defaultdict(set)
    for place, made in names.items():
        for name in made:
            places[name].add(TRIED.get(place) or place)
    return {name: sorted(of) for name, of in places.items() if len(of) > 1}


def test_no_two_pages_or_examples_make_queues_of_one_name() -> None:
    names = {place: found(MAKES_A_QUEUE, place) for place in TRIED}

    assert [place for place, made in names.items() if not made] == [], "none found: is there another way to make one?"
    assert shared(names) == {}


def test_no_two_pages_make_programs_of_one_name() -> None:
    names = {place: found([MAKES_A_FILE], place) for place in TRIED}

    assert "shop.py" in names["docs/tasks.md"]
    assert shared(names) == {}


def test_a_name_of_two_pages_is_found() -> None:
    made = {"docs/tasks.md": {"mail"}, "docs/sqs.md": {"mail", "jobs"}}
    made |= {"README.md": {"greetings"}, "docs/quickstart.md": {"greetings"}}

    assert shared(made) == {"mail": ["docs/sqs.md", "docs/tasks.md"]}
