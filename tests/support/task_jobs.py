"""Tasks for tests. What they did stands in :data:`NOTES`, of this process."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import date

from qdo import RejectMessage, RetryLater, current_context, task

NOTES: list[str] = []
GO = threading.Event()


@dataclass
class Order:
    number: int
    due: date


@task(queue="mail")
def note(text: str) -> None:
    NOTES.append(text)


@task(queue="mail")
def note_number(number: int) -> None:
    NOTES.append(str(number))


@task(queue="numbers", results=True)
def count_notes() -> int:
    """Another number each time."""
    NOTES.append("counted")
    return len(NOTES)


@task(queue="numbers")
def pass_on(text: str, times: int) -> None:
    """Send what sends more, from queue to queue."""
    if times:
        pass_on_back.send(text, times - 1)
    NOTES.append(f"{times} {text}")


@task(queue="mail")
def pass_on_back(text: str, times: int) -> None:
    pass_on.send(text, times)


@task(queue="mail", unique=True)
def note_once(text: str) -> None:
    NOTES.append(text)


@task(queue="mail")
def ship(order: Order) -> None:
    assert isinstance(order, Order)
    NOTES.append(f"{order.number} due {order.due.isoformat()}")


@task(queue="mail", retries=2, backoff=0, results=True)
def fail(text: str, until: int = 100) -> str:
    attempt = current_context().attempt
    NOTES.append(f"{attempt} {text}")
    if attempt < until:
        raise ValueError(f"{text} is bad")
    return text


@task(queue="mail", retries=1, backoff=0, results=True)
def too_large() -> str:
    """What it returns is more than a message may have."""
    NOTES.append(f"{current_context().attempt} large")
    return "x" * (2 << 20)


@task(queue="mail", results=True)
def refuse(text: str) -> None:
    NOTES.append(text)
    raise RejectMessage(f"{text} is none")


@task(queue="mail", retries=1)
def later(text: str) -> None:
    NOTES.append(f"{current_context().attempt} {text}")
    raise RetryLater(0)


@task(queue="mail", retries=0, timeout=0.1, results=True)
def endless() -> None:
    while True:
        time.sleep(0.001)


@task(queue="numbers", results=True)
def add(x: int, y: int) -> int:
    return x + y


@task(queue="numbers", results=True)
def double(number: int) -> int:
    return 2 * number


@task(queue="numbers", results=True)
def order_of(number: int) -> Order:
    return Order(number, date(2026, 11, 26))


@task(queue="numbers", results=True, retries=0)
def no_json() -> object:
    return object()


@task(queue="slow")
def hold(text: str) -> None:
    NOTES.append(f"begun {text}")
    GO.wait(60)
    NOTES.append(text)


@task(queue="urgent")
def urgent(text: str) -> None:
    NOTES.append(text)
