"""The rules of the house hold, but for exceptions and known violations, and each rule finds what is planted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.house import EXCEPTIONS, MOST_LINES, MOST_METHODS, RULES, divided, known
from tests.support.source import ROOT

SEVEN = "a, b, c, d, e, f, g"
METHODS = "\n".join(f"    def m{number}(self): ..." for number in range(MOST_METHODS + 1))


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_broken_only_where_it_is_known(rule: str) -> None:
    """A violation that is gone leaves the list too, so that the list only shrinks; so does an exception."""
    found, needless = divided(RULES[rule](ROOT), EXCEPTIONS.get(rule, {}))
    listed = set(known()[rule])

    assert sorted(found - listed) == [], "new violations: mend them"
    assert sorted(listed - found) == [], "mended: take them out of tests/known_violations.txt"
    assert sorted(needless) == [], "no exceptions any more: take them out of tests.support.house.EXCEPTIONS"


def test_each_exception_is_one_of_a_rule() -> None:
    assert EXCEPTIONS.keys() <= RULES.keys()


@pytest.mark.parametrize(
    ("rule", "files", "said"),
    [
        (
            "backends",
            {"queuey/storage/redis.py": ""},
            ["queuey.storage.redis is a module: a backend is a package"],
        ),
        (
            "backends",
            {
                "queuey/storage/sqlite/packs.py": "",
                "queuey/storage/cassandra/rows.py": "def f():\n    from ..sqlite import packs",
            },
            ["queuey.storage.cassandra.rows imports queuey.storage.sqlite.packs: a backend imports no other"],
        ),
        (
            "circles",
            {"queuey/model/a.py": "import queuey.model.b", "queuey/model/b.py": "def f():\n    from . import a"},
            ["circle of modules: queuey.model.a, queuey.model.b"],
        ),
        (
            "circles",
            {
                "qdo/groups/a.py": "import qdo.worker.b",
                "qdo/worker/b.py": "",
                "qdo/worker/c.py": "if TYPE_CHECKING:\n    from qdo.groups.a import X",
            },
            ["circle of packages: qdo.groups, qdo.worker"],
        ),
        (
            "protocols",
            {"queuey/server/loop.py": "from queuey.api.routes import OPERATIONS", "queuey/api/routes.py": ""},
            ["queuey.server.loop imports queuey.api.routes"],
        ),
        (
            "protocols",
            {"queuey/http/pipeline.py": "import queuey.sqs.face", "queuey/sqs/face.py": "import queuey.api.routes"}
            | {"queuey/api/routes.py": ""},
            ["queuey.http.pipeline imports queuey.sqs.face", "queuey.sqs.face imports queuey.api.routes"],
        ),
        (
            "class names",
            {"queuey/ids.py": "class Clock: ...", "qdo/worker/job.py": "def f():\n    class Clock: ..."},
            ["Clock is a class of queuey.ids and of qdo.worker.job"],
        ),
        ("former words", {"queuey/server/loop.py": "class Door: ..."}, ["queuey.server.loop.Door has a former name"]),
        (
            "parameters",
            {"queuey/ids.py": f"def f({SEVEN}): ..."},
            ["queuey.ids.f has more than 6 parameters"],
        ),
        (
            "parameters",
            {"queuey/ids.py": "class A:\n    async def f(self, a, b, /, c, d, *e, f, **g): ..."},
            ["queuey.ids.A.f has more than 6 parameters"],
        ),
        ("sizes", {"queuey/ids.py": "\n" * (MOST_LINES + 1)}, ["queuey.ids has more than 500 lines"]),
        ("sizes", {"tests/test_ids.py": "\n" * (MOST_LINES + 1)}, ["tests.test_ids has more than 500 lines"]),
        ("sizes", {"qdo/job.py": f"class A:\n{METHODS}"}, ["qdo.job.A has more than 20 methods"]),
        (
            "mirror",
            {"tests/unit/queuey/test_clocks.py": "", "queuey/clock.py": ""},
            ["tests/unit/queuey/test_clocks.py mirrors no module: there is no queuey.clocks"],
        ),
        (
            "mirror",
            {
                "tests/unit/queuey/test_clock_steps.py": "",
                "tests/unit/queuey/test_clocks_steps.py": "",
                "tests/unit/queuey/test_steps_clock.py": "",
                "queuey/clock.py": "",
            },
            [
                "tests/unit/queuey/test_clocks_steps.py mirrors no module: there is no queuey.clocks_steps",
                "tests/unit/queuey/test_steps_clock.py mirrors no module: there is no queuey.steps_clock",
            ],
        ),
        (
            "mirror",
            {"tests/unit/support/test_order.py": "", "queuey/order.py": ""},
            ["tests/unit/support/test_order.py mirrors no module: there is no tests.support.order"],
        ),
        (
            "mirror",
            {"tests/functional/helpers.py": ""},
            ["tests/functional/helpers.py is a helper outside tests/support"],
        ),
        (
            "imported tests",
            {"tests/test_a.py": "", "tests/unit/test_b.py": "from tests.test_a import Helper"},
            ["tests.unit.test_b imports tests.test_a"],
        ),
        (
            "imported tests",
            {"tests/conftest.py": "", "tests/support/a.py": "def f():\n    import tests.conftest"},
            ["tests.support.a imports tests.conftest"],
        ),
        (
            "imported tests",
            {"tests/test_a.py": "", "tests/support/a.py": "from tests import (\n    support,\n    test_a,\n)"},
            ["tests.support.a imports tests.test_a"],
        ),
        (
            "phrases",
            {"queuey/ids.py": 'def f():\n    """Who asks is told so\n    many times."""\n    # so many, so many'},
            [
                f'queuey/ids.py says "{phrase}": {times}'
                for phrase, times in (("so many", 3), ("is told", 1), ("who", 1))
            ],
        ),
        ("phrases", {"qdo/cli/a.py": 'option(help=f"So many of {x}.")'}, ['qdo/cli/a.py says "so many": 1']),
        ("phrases", {"tests/a.py": '"""Those who ask."""'}, ['tests/a.py says "who": 1']),
        ("phrases", {"queuey/api/openapi.json": '{"a": "so many"}'}, ['queuey/api/openapi.json says "so many": 1']),
        ("phrases", {"docs/decisions/a.md": "Those who ask."}, ['docs/decisions/a.md says "who": 1']),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, rule: str, files: dict[str, str], said: list[str]) -> None:
    write(tmp_path, files)

    assert list(RULES[rule](tmp_path)) == said


def test_an_exception_allows_what_it_names_and_one_that_allows_nothing_is_found(tmp_path: Path) -> None:
    write(tmp_path, {"queuey/ids.py": f"def f({SEVEN}): ...\ndef ff({SEVEN}): ..."})
    exceptions = {"queuey.ids.f": "a reason", "queuey.ids.g": "another one"}

    left, needless = divided(RULES["parameters"](tmp_path), exceptions)

    assert left == {"queuey.ids.ff has more than 6 parameters"}
    assert needless == {"queuey.ids.g"}


def test_what_the_rules_allow_passes(tmp_path: Path) -> None:
    fine = {
        "queuey/storage/opening.py": "from queuey.storage import memory\nimport queuey.storage.sqlite.packs",
        "queuey/storage/memory/__init__.py": "",
        "queuey/storage/sqlite/packs.py": "import queuey.storage.checksums",
        "queuey/storage/checksums.py": "",
        "queuey/server/faces.py": "from queuey.api import routes",
        "queuey/api/routes.py": "import queuey.http.pipeline",
        "queuey/http/pipeline.py": "class _Begun: ...\nwhole = so = many = 'whose'",
        "queuey/http/access.py": "class _Begun: ...",
        "qdo/client/values.py": "class Message: ...",
        "queuey/model.py": "class Message:\n    def f(self, a, b, c, d, *, e, f): ...",
        "qdo/cli/a.py": f"@click.command('a')\ndef a({SEVEN}): ...\n@group.command\ndef b({SEVEN}): ...",
        "qdo/job.py": f"class A:\n    def __init__(self): ...\n{METHODS.rpartition(chr(10))[0]}" + "\n" * 400,
        "tests/unit/queuey/test_model.py": "from tests.support import help",
        "tests/unit/queuey/api/test_routes.py": "",
        "tests/unit/queuey/api/test_routes_of_queues.py": "",
        "tests/unit/conftest.py": "",
        "tests/support/help.py": "",
        "tests/bench/help.py": "",
    }
    write(tmp_path, fine)

    assert {name: list(rule(tmp_path)) for name, rule in RULES.items()} == {name: [] for name in RULES}


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
