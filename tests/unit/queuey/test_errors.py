"""The tree of errors: as drawn, as told, as listed."""

from __future__ import annotations

import inspect
import pkgutil
import re
from importlib import import_module
from typing import NamedTuple

import pytest

from queuey import errors, storage
from queuey.errors import (
    BadRequest,
    ConfigurationError,
    InvalidMessageId,
    InvalidParameter,
    QueueNotFound,
    QueueyError,
    StorageUnavailable,
    Throttled,
    error_classes,
)

CLASSES = error_classes()
_LINE = re.compile(r"^ {4}(?P<branches>[│├└─ ]*)(?P<name>[A-Z]\w+)(?: +(?P<status>\d{3}))?(?: +(?P<said>.*))?$")


class Drawn(NamedTuple):
    parent: str | None
    status: int | None
    said: str


def drawn() -> dict[str, Drawn]:
    """The tree in the module's docstring."""
    tree: dict[str, Drawn] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        depth = len(match["branches"]) // 4
        del above[depth:]
        status = int(match["status"]) if match["status"] else None
        tree[match["name"]] = Drawn(above[-1] if above else None, status, match["said"] or "")
        above.append(match["name"])
    return tree


TREE = drawn()


def ours(cls: type[QueueyError]) -> bool:
    """Not a class that another module, or a test, derived."""
    return cls.__module__ == errors.__name__


def test_the_tree_is_drawn_as_it_is() -> None:
    classes = {name: cls.__bases__[0].__name__ for name, cls in CLASSES.items() if ours(cls)}

    assert {name: one.parent or "Exception" for name, one in TREE.items()} == classes
    assert len(TREE) > 30


@pytest.mark.parametrize("name", TREE)
def test_a_class_has_the_status_it_is_drawn_with(name: str) -> None:
    one = TREE[name]
    while one.status is None and one.parent is not None:
        one = TREE[one.parent]

    assert CLASSES[name].status == one.status


@pytest.mark.parametrize("name", TREE)
def test_a_class_is_retriable_if_it_or_a_parent_is_drawn_so(name: str) -> None:
    said, one = [TREE[name].said], TREE[name]
    while one.parent is not None:
        one = TREE[one.parent]
        said.append(one.said)

    assert CLASSES[name].retriable == any(text.startswith("retriable") for text in said)


def test_every_class_is_exported_and_nothing_else_is_but_the_list_of_them() -> None:
    defined = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and value.__module__ == errors.__name__
    }

    assert set(errors.__all__) == defined | {"error_classes"}
    assert len(errors.__all__) == len(set(errors.__all__))


@pytest.mark.parametrize("name", TREE)
def test_every_error_can_speak_for_itself(name: str) -> None:
    """A class made without words says its docstring's first line, a sentence."""
    error = CLASSES[name]()

    assert len(str(error).split()) >= 4
    assert "\n" not in str(error)
    assert error.code == name
    assert error.problems == {error.key or name: str(error)}


def derived_from(root: type[QueueyError]) -> list[type[QueueyError]]:
    return [cls for child in root.__subclasses__() for cls in (child, *derived_from(child))]


def test_an_error_that_a_store_derives_has_a_code_that_is_drawn() -> None:
    """One for the store's own use would show the name of its class, once it got out."""
    for module in pkgutil.walk_packages(storage.__path__, f"{storage.__name__}."):
        import_module(module.name)
    derived = [cls for cls in derived_from(QueueyError) if cls.__module__.startswith(storage.__name__)]

    assert derived
    assert {cls: cls().code for cls in derived if cls().code not in TREE} == {}


def test_an_error_says_what_it_was_given() -> None:
    error = QueueNotFound("no queue 'q'", headers={"Retry-After": "1"})

    assert str(error) == "no queue 'q'"
    assert error.problems == {"InvalidQueueName": "no queue 'q'"}
    assert error.headers == {"Retry-After": "1"}


def test_the_words_of_the_first_queueys_clients_stand() -> None:
    assert InvalidMessageId().problems.keys() == {"InvalidMessageID"}
    assert QueueNotFound().problems.keys() == {"InvalidQueueName"}
    assert errors.PartitionsCannotShrink().problems.keys() == {"InvalidUpdate"}


def test_a_bad_request_tells_all_its_fields_together() -> None:
    error = InvalidParameter(problems={"ttl": "not a number", "0.body": "Required"})

    assert error.problems == {"ttl": "not a number", "0.body": "Required"}
    assert str(error) == "ttl: not a number; 0.body: Required"
    assert InvalidParameter("nothing in it").problems == {"InvalidParameter": "nothing in it"}


def test_no_client_mistake_and_no_unknown_outcome_is_retriable() -> None:
    """G10: what may have been stored, or will be refused again, is not to be repeated blindly."""
    retriable = {name for name, cls in CLASSES.items() if cls.retriable}

    assert not any(issubclass(CLASSES[name], BadRequest | ConfigurationError) for name in retriable)
    assert "OutcomeUnknown" not in retriable
    assert issubclass(CLASSES["ClockUnsafe"], StorageUnavailable)
    assert Throttled.retriable


def test_classes_are_found_by_code() -> None:
    assert error_classes()["QueueNotFound"] is QueueNotFound
    assert error_classes(BadRequest).keys() < error_classes().keys()
    assert "QueueNotFound" not in error_classes(BadRequest)


def test_nothing_derives_from_base_exception() -> None:
    assert all(issubclass(cls, Exception) for cls in CLASSES.values())
