"""The rules of the house, each a function from a tree of source to the violations in it.

A violation is one line of text without line numbers; its first word names what breaks the rule. What may break it for
good stands in :data:`EXCEPTIONS`, with the reason. What was there when the rule was written and waits to be mended stands in
``tests/known_violations.txt``, which only shrinks; ``python -m tests.support.house`` prints it as it would be now.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tests.support.source import (
    ROOT,
    Function,
    circles,
    classes,
    functions,
    import_graph,
    imports,
    modules,
    prose,
    tree_of,
)

CODE = ("queuey", "qdo")
MOST_PARAMETERS = 6
MOST_LINES = 500
MOST_METHODS = 20

Rule = Callable[[Path], Iterator[str]]

INTERFACE = "a public call: its keyword arguments are the documented interface"
ONE_STATE_MACHINE = "one state machine: each method is one step, and all of them share its state"

EXCEPTIONS: Mapping[str, Mapping[str, str]] = {
    "parameters": {
        "qdo.aio.AsyncClient.__init__": INTERFACE,
        "qdo.client.Client.__init__": INTERFACE,
        "qdo.client.reading.ReadCalls.follow": INTERFACE,
        "qdo.client.reading.ReadCalls.read": INTERFACE,
        "qdo.client.reading.ReadCalls.stream_ndjson": INTERFACE,
        "qdo.client.reading.ReadCalls.survey": INTERFACE,
        "qdo.groups.zookeeper.ZooKeeperCoordinator.__init__": "a public constructor with keyword arguments",
    },
    "sizes": {
        "queuey.server.connection": ONE_STATE_MACHINE,
        "queuey.server.connection.Connection": ONE_STATE_MACHINE,
    },
    "phrases": {
        "tests/support/house.py": "the rule itself",
        "tests/test_house.py": "the planted violations",
    },
    "mirror": {
        "tests/unit/queuey/test_failures.py": "threads of several packages: one failure ends none of them",
        "tests/unit/support/test_fault_checks.py": "the judges of several modules of tests/support",
    },
}
"""By rule and name: what breaks a rule for good, and why. One that breaks its rule no more fails the test."""


def under(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


# Rooms

BESIDE_BACKENDS = {
    "queuey.storage.checksums": "shared by backends",
    "queuey.storage.observing": "shared by backends",
    "queuey.storage.peers": "shared by backends",
    "queuey.storage.leasing": "shared by backends",
    "queuey.storage.statements": "shared by backends",
    "queuey.storage.tasks": "shared by backends",
    "queuey.storage.opening": "chooses the backend",
    "queuey.storage.contract": "the suite that every backend passes",
}


def backends(root: Path) -> Iterator[str]:
    """A backend is a package, and no backend imports another."""
    graph = import_graph(root, ("queuey",))
    rooms = {".".join(module.split(".")[:3]) for module in graph if module.startswith("queuey.storage.")}
    for room in sorted(rooms - BESIDE_BACKENDS.keys()):
        if not (root / room.replace(".", "/")).is_dir():
            yield f"{room} is a module: a backend is a package"
    found = rooms - BESIDE_BACKENDS.keys()
    for module, targets in sorted(graph.items()):
        mine = next((room for room in found if under(module, room)), None)
        for target in sorted(targets):
            if mine and any(under(target, other) for other in found - {mine}):
                yield f"{module} imports {target}: a backend imports no other"


def import_circles(root: Path) -> Iterator[str]:
    """Imports point down: no circle of modules, and none of packages (``queuey.X``, ``qdo.X``)."""
    graph = import_graph(root, CODE)
    yield from (f"circle of modules: {', '.join(circle)}" for circle in circles(graph))
    packages: dict[str, set[str]] = defaultdict(set)
    for module, targets in graph.items():
        mine = _package(module)
        packages[mine] |= {_package(target) for target in targets} - {mine}
    yield from (f"circle of packages: {', '.join(circle)}" for circle in circles(packages))


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2])


FACES = ("queuey.api", "queuey.sqs", "queuey.console")
PUTS_TOGETHER = {"queuey.server.faces": "names the faces that a server has"}


def protocols(root: Path) -> Iterator[str]:
    """A transport moves bytes, a face speaks a protocol, the pipeline knows neither; a face imports no other face."""
    for module, targets in sorted(import_graph(root, ("queuey",)).items()):
        forbidden = _forbidden_to(module)
        for target in sorted(targets):
            if any(under(target, other) for other in forbidden):
                yield f"{module} imports {target}"


def _forbidden_to(module: str) -> tuple[str, ...]:
    if module in PUTS_TOGETHER:
        return ()
    if under(module, "queuey.server"):
        return FACES
    if under(module, "queuey.http"):
        return (*FACES, "queuey.server")
    mine = next((face for face in FACES if under(module, face)), None)
    return tuple(face for face in FACES if face != mine) if mine else ()


# Names

OTHER_SIDE = ("qdo.client.values", "qdo.client.lease_groups", "qdo.client.lease_values")
"""What the client gives has the names that the server uses."""


def class_names(root: Path) -> Iterator[str]:
    """A public class name stands once."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, path in modules(root, CODE):
        if module not in OTHER_SIDE:
            for one in classes(path):
                found[one.name].append(module)
    for name, places in sorted(found.items()):
        if not name.startswith("_") and len(places) > 1:
            yield f"{name} is a class of {' and of '.join(places)}"


FORMER_WORDS = frozenset(
    [
        "Promise",
        "Errand",
        "Desk",
        "Gate",
        "Feed",
        "Arrivals",
        "News",
        "Keeper",
        "Guard",
        "Lookups",
        "Live",
        "Heed",
        "Place",
        "Places",
        "Fill",
        "Fills",
        "Lot",
        "Stamped",
        "Lately",
        "Activity",
        "Told",
        "Groups",
        "Lane",
        "Lanes",
        "Strand",
        "Once",
        "Look",
        "Placed",
        "PlacedId",
        "Located",
        "Seen",
        "Standing",
        "Wanted",
        "ReadParams",
        "Survey",
        "Door",
        "Doors",
        "Party",
        "Crew",
        "Hand",
        "Misfit",
        "Mishap",
        "Wall",
    ]
)
"""The left column of the table of words: the field has a better one for each."""


def former_words(root: Path) -> Iterator[str]:
    """No class has a name that the table of words replaces."""
    for module, path in modules(root, (*CODE, "tests")):
        # To take a file apart costs more than to look for the words in all of it.
        if FORMER_WORDS.intersection(re.findall(r"\bclass\s+(\w+)", path.read_text())):
            yield from (f"{module}.{one.name} has a former name" for one in classes(path) if one.name in FORMER_WORDS)


# Sizes


def parameters(root: Path) -> Iterator[str]:
    """At most 6 parameters, then a value; a command of click has one for each option."""
    for module, path in modules(root, CODE):
        for name, function, in_class in functions(tree_of(path)):
            if _parameter_count(function, in_class=in_class) > MOST_PARAMETERS and not _is_command(function):
                yield f"{module}.{name} has more than {MOST_PARAMETERS} parameters"


def _parameter_count(function: Function, *, in_class: bool) -> int:
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if one]
    return len(names) - (in_class and names[:1] in (["self"], ["cls"]))


def _is_command(function: Function) -> bool:
    """Whether click calls it, with one parameter for each option."""
    return any(re.search(r"\bcommand\(|\.command\b", ast.unparse(one)) for one in function.decorator_list)


def sizes(root: Path) -> Iterator[str]:
    """A module has at most 500 lines, a class at most 20 methods, dunder methods not counted."""
    for module, path in modules(root, (*CODE, "pyspark_queuey", "examples", "tests")):
        if len(path.read_text().splitlines()) > MOST_LINES:
            yield f"{module} has more than {MOST_LINES} lines"
        if not under(module, "tests"):
            for one in classes(path):
                names = {name for name, _, _ in functions(one) if "." not in name and not _is_dunder(name)}
                if len(names) > MOST_METHODS:
                    yield f"{module}.{one.name} has more than {MOST_METHODS} methods"


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


# Tests


def tests_mirror_the_source(root: Path) -> Iterator[str]:
    """``tests/unit/<package>/test_<module>.py`` names a module that there is; helpers live in ``tests/support``.

    Tests of a module may be several files: ``test_<module>_<subject>.py`` names it as well.
    """
    known = {module for module, _ in modules(root, (*CODE, "tests"))}
    for module, path in modules(root, ("tests",)):
        where = path.relative_to(root)
        name = path.stem
        if under(module, "tests.unit") and name.startswith("test_"):
            room = module.split(".")[2:-1]
            package = ".".join([*(["tests"] if room[:1] == ["support"] else []), *room])
            mirrored = name.removeprefix("test_")
            if not any(f"{package}.{each}" in known for each in _beginnings(mirrored)):
                yield f"{where} mirrors no module: there is no {package}.{mirrored}"
        elif not name.startswith("test_") and name not in {"__init__", "conftest"} and not _holds_helpers(module):
            yield f"{where} is a helper outside tests/support"


def _beginnings(name: str) -> Iterator[str]:
    """A name, and what is left of it without its last words: ``a_b_c``, ``a_b`` and ``a``."""
    words = name.split("_")
    return ("_".join(words[:count]) for count in range(len(words), 0, -1))


def _holds_helpers(module: str) -> bool:
    return under(module, "tests.support") or under(module, "tests.bench")


_NAMES_A_TEST = re.compile(r"\b(?:from|import)\b(?:[^\n(]|\\\n)*(?:\([^)]*)?\b(?:test_|conftest\b)")
"""``from`` or ``import`` in code or prose, and the name of a test in the same line or in the brackets that it opens."""


def imported_tests(root: Path) -> Iterator[str]:
    """No test module and no conftest is imported."""
    found = list(modules(root, ("tests",)))
    known = frozenset(module for module, _ in found)
    for module, path in found:
        # As above: few files have such a line.
        targets = set(imports(module, path, known)) & known if _NAMES_A_TEST.search(path.read_text()) else set()
        for target in sorted(targets):
            last = target.rpartition(".")[2]
            if last.startswith("test_") or last == "conftest":
                yield f"{module} imports {target}"


# Prose

PHRASES = {
    "so many": re.compile(r"\bso\s+many\b", re.IGNORECASE),
    "is told": re.compile(r"\bis\s+told\b", re.IGNORECASE),
    "who": re.compile(r"\bwho\s", re.IGNORECASE),
}


def phrases(root: Path) -> Iterator[str]:
    """A number or a name instead of "so many", "is told" and "who": in comments, docstrings, help, errors and docs."""
    texts = [path for _, path in modules(root, (*CODE, "tests"))] + sorted((root / "docs").rglob("*.md"))
    texts += sorted(root.glob("queuey/api/openapi.json"))
    for path in texts:
        text = path.read_text()
        # To take a file apart costs more than to look for the words in all of it.
        for phrase, pattern in PHRASES.items() if any(each.search(text) for each in PHRASES.values()) else ():
            if times := len(pattern.findall(prose(path))):
                yield f'{path.relative_to(root)} says "{phrase}": {times}'


RULES: Mapping[str, Rule] = {
    "backends": backends,
    "circles": import_circles,
    "protocols": protocols,
    "class names": class_names,
    "former words": former_words,
    "parameters": parameters,
    "sizes": sizes,
    "mirror": tests_mirror_the_source,
    "imported tests": imported_tests,
    "phrases": phrases,
}
KNOWN = ROOT / "tests" / "known_violations.txt"


def known() -> dict[str, list[str]]:
    """The violations that wait to be mended, by rule."""
    found: dict[str, list[str]] = {rule: [] for rule in RULES}
    for line in KNOWN.read_text().splitlines():
        rule, _, violation = line.partition(" | ")
        found[rule].append(violation)
    return found


def divided(violations: Iterable[str], exceptions: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """The violations of a rule that no exception allows, and the exceptions that allow nothing."""
    by_name: dict[str, set[str]] = defaultdict(set)
    for violation in violations:
        by_name[violation.partition(" ")[0]].add(violation)
    left = {one for name, found in by_name.items() if name not in exceptions for one in found}
    return left, exceptions.keys() - by_name.keys()


def listed(root: Path = ROOT) -> str:
    """All violations as the list of known ones holds them."""
    lines = []
    for name, rule in RULES.items():
        left, _ = divided(rule(root), EXCEPTIONS.get(name, {}))
        lines += [f"{name} | {violation}\n" for violation in sorted(left)]
    return "".join(lines)


if __name__ == "__main__":
    print(listed(), end="")
