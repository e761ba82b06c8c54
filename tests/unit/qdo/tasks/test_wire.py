"""A task in a message, as any HTTP client may have sent it."""

from __future__ import annotations

from qdo import Message
from qdo.tasks.wire import NAME, RESULTS, THEN, NextStep, header, next_steps
from queuey.ids import MessageId

STEPS = b'[{"task": "shop.double", "queue": "shop", "arguments": {}, "into": "number"}]'


def test_the_headers_of_a_task_are_found_in_any_case() -> None:
    """Clients of HTTP in Go, Ruby and Python's own library write each word with a capital."""
    message = Message(MessageId(1, 1), 1, b"{}", headers={"Queuey-Task": b"shop.add", "Queuey-Task-Then": STEPS})

    assert (header(message, NAME), header(message, RESULTS)) == ("shop.add", None)
    assert next_steps(message) == [NextStep("shop.double", "shop", {}, "number")]


def test_the_exact_name_comes_first() -> None:
    message = Message(MessageId(1, 1), 1, b"{}", headers={"Queuey-Task": b"other", NAME: b"mine", THEN: STEPS})

    assert header(message, NAME) == "mine"
