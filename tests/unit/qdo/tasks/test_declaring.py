"""What may be declared as a task, and what a message of one says."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import nan
from typing import Any

import pytest

from qdo import task
from qdo.tasks import DeclaredTask, TaskOptions
from queuey.errors import ConfigurationError, InvalidParameter


@task(queue="mail", unique=True)
def greet(to: str, words: str = "hello") -> str:
    return f"{words} {to}"


@task(results=True)
def shout(text: str, mark: str = "!") -> str:
    return text.upper() + mark


@task
def plain(number: int) -> int:
    return number + 1


def test_a_call_runs_the_function_in_place() -> None:
    assert (greet("ann"), plain(1), repr(plain)) == ("hello ann", 2, f"<task {plain.name} of queue tasks>")


def test_a_message_says_what_to_call() -> None:
    message = greet.message("ann", words="good morning")

    assert json.loads(message.body) == {"to": "ann", "words": "good morning"}
    assert message.content_type == "application/json"
    assert message.headers == {"queuey-task": b"tests.unit.qdo.tasks.test_declaring.greet"}
    assert (plain.name, plain.queue) == ("tests.unit.qdo.tasks.test_declaring.plain", "tasks")


def test_a_unique_task_has_the_same_idempotency_key_for_the_same_arguments() -> None:
    keys = [one.idempotency_key for one in (greet.message("ann"), greet.message(to="ann"), greet.message("bob"))]

    assert keys[0] == keys[1] != keys[2]
    assert plain.message(1).idempotency_key is None
    assert greet.schedule(unique="mine").message("ann").idempotency_key == "mine"


def test_a_message_has_the_time_and_the_key_it_is_given() -> None:
    at = datetime(2026, 11, 26, tzinfo=UTC)

    assert plain.schedule(in_=timedelta(minutes=1), key="k").message(1).delay_seconds == 60
    assert plain.schedule(in_=60, key="k").message(1).key == "k"
    assert plain.schedule(at=at).message(1).deliver_at == at
    with pytest.raises(InvalidParameter, match="give in_ or at"):
        plain.schedule(in_=1, at=at)
    with pytest.raises(InvalidParameter, match="has no time zone"):
        plain.schedule(at=at.replace(tzinfo=None))


def test_a_chain_says_what_follows_and_where_the_value_goes() -> None:
    message = greet.then(shout, mark="?").then(plain).message("ann")

    assert json.loads(message.headers["queuey-task-then"]) == [
        {"task": shout.name, "queue": "tasks", "arguments": {"mark": "?"}, "into": "text"},
        {"task": plain.name, "queue": "tasks", "arguments": {}, "into": "number"},
    ]
    assert "queuey-task-results" not in message.headers
    assert greet.then(shout).message("ann").headers["queuey-task-results"] == b"tasks-results"


def test_a_chain_that_cannot_be_called_is_refused() -> None:
    @task
    def needs_two(first: int, second: int) -> None: ...

    with pytest.raises(InvalidParameter, match="second: give each parameter but the first"):
        greet.then(needs_two)
    with pytest.raises(InvalidParameter, match="unexpected keyword argument 'marks'"):
        greet.then(shout, marks="?")
    with pytest.raises(InvalidParameter, match="mark: Expected `str`"):
        greet.then(shout, mark=3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retry": 3}, "a task has no option 'retry': is it retries"),
        ({"retries": -1}, "retries is -1: expected 0 or more"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": float("inf")}, "timeout is inf: expected 0.001 to 31536000"),
        ({"backoff": -1}, "backoff is -1"),
        ({"queue": "two words"}, "queue 'two words': expected 1 to 50 letters"),
        ({"queue": "q" * 45, "results": True}, "q-results': expected 1 to 50 letters, digits, _ . -; results=NAME"),
        ({"missed": "some"}, "missed is 'some': expected one of one, all, none"),
        ({"cron": "* *"}, "cron is '"),
        ({"tz": "Europe/Berlin"}, "tz is of a task that workers send by themselves: give cron as well"),
        ({"missed": "all"}, "missed is of a task that workers send by themselves: give cron as well"),
        ({"cron": "0 6 * * *"}, "has a cron line: number needs a default"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        task(**options)(lambda number: None)


def test_what_cannot_be_a_task_is_refused() -> None:
    def lazy(number: int) -> Any:
        yield number

    with pytest.raises(ConfigurationError, match="is a generator"):
        task(lazy)
    with pytest.raises(ConfigurationError, match=r"such as @task\(queue='mail'\)"):
        task("mail")  # type: ignore[call-overload]


def test_words_of_other_libraries_lead_to_those_of_this_one() -> None:
    anything: Any = greet
    with pytest.raises(AttributeError, match=r"no attribute 'delay': here it is send\(\.\.\.\)"):
        anything.delay("ann")
    with pytest.raises(AttributeError, match=r"no attribute 'colour'$"):
        anything.colour  # noqa: B018


def test_pauses_double_up_to_an_hour_or_are_what_a_function_says() -> None:
    doubling, own = TaskOptions(backoff=10), TaskOptions(backoff=lambda attempt: attempt * 7)

    assert [doubling.pause(attempt) for attempt in (1, 2, 3, 100)] == [10, 20, 40, 3600]
    assert [own.pause(attempt) for attempt in (1, 2)] == [7, 14]


def test_an_id_of_another_queue_is_no_task_to_cancel() -> None:
    with pytest.raises(InvalidParameter, match="is no id of a task of queue mail"):
        greet.cancel("tasks/1:" + "0" * 32)
    assert isinstance(greet, DeclaredTask)


ID = "tasks/1:a0f25cf1ead211f18b925514500d33ba"


@task(results=True)
def lasting(number: int = 1) -> int:
    return number


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"cron": 5}, "cron is 5: expected a text"),
        ({"cron": ["* * * * *"]}, r"cron is \['\* \* \* \* \*'\]: expected a text"),
        ({"cron": b"* * * * *"}, "cron is b'.*': expected a text"),
        ({"cron": "* * * * *", "tz": 5}, "tz is 5: expected a text"),
        ({"cron": "* * * * *", "tz": None}, "tz is None: expected a text"),
        ({"queue": 5}, "queue 5: expected 1 to 50 letters"),
        ({"queue": None}, "queue None: expected 1 to 50 letters"),
        ({"name": 5}, "name is 5: expected a text"),
        ({"name": ""}, "name is '': expected a text"),
        ({"unique": "invoice-17"}, "unique is 'invoice-17': expected True or False; schedule"),
        ({"unique": None}, "unique is None: expected True or False"),
        ({"results": 5}, "results is 5: expected True, False or the name of a queue"),
    ],
)
def test_an_option_of_another_type_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        TaskOptions(**options)


@pytest.mark.parametrize("given", [5, ["f"], b"f"])
def test_what_is_no_function_is_no_task(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="a task is a function"):
        task(given)


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("calls", lambda: lasting.send_many(5)),  # type: ignore[arg-type]
        ("calls", lambda: lasting.send_many({"number": 1})),  # type: ignore[dict-item]
        ("calls", lambda: lasting.send_many([5])),  # type: ignore[list-item]
        ("calls", lambda: lasting.send_many([(1,)])),  # type: ignore[list-item]
        ("following", lambda: lasting.then(5)),  # type: ignore[arg-type]
        ("in_", lambda: lasting.schedule(in_="10")),  # type: ignore[arg-type]
        ("in_", lambda: lasting.schedule(in_=nan)),
        ("in_", lambda: lasting.schedule(in_=-1)),
        ("in_", lambda: lasting.schedule(in_=timedelta(seconds=-1))),
        ("at", lambda: lasting.schedule(at=5)),  # type: ignore[arg-type]
        ("at", lambda: lasting.schedule(at="tomorrow")),
        ("key", lambda: lasting.schedule(key=5)),  # type: ignore[arg-type]
        ("unique", lambda: lasting.schedule(unique=5)),  # type: ignore[arg-type]
        ("id", lambda: lasting.cancel(None)),  # type: ignore[arg-type]
        ("id", lambda: lasting.result(5)),  # type: ignore[arg-type]
        ("timeout", lambda: lasting.result(ID).get(timeout="10")),  # type: ignore[arg-type]
        ("timeout", lambda: lasting.result(ID).get(timeout=nan)),
    ],
)
def test_an_argument_of_another_type_is_refused_by_its_name(name: str, ask: Callable[[], object]) -> None:
    with pytest.raises(InvalidParameter, match=f"^{name}: "):
        ask()
