"""What is noted of requests that were refused, and of those that took long."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import pytest

from queuey.api.face import V1
from queuey.errors import Forbidden, QueueNotFound, StorageFull, TooManyWaiters
from queuey.http.exchange import Answer, Call
from queuey.http.finishing import MAX_DETAIL, MAX_NAME, Finisher
from queuey.monitor.notable import KEPT, SLOW_SECONDS
from queuey.service import Service
from queuey.settings import load_settings


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service.open(load_settings(None, {"QUEUEY_STORAGE_BACKEND": "memory"}, {}))
    yield service
    service.close()


@pytest.fixture
def finisher(service: Service) -> Finisher:
    return Finisher(service, [V1()])


def call(request_id: str, application: str = "demo") -> Call:
    made = Call("GET", f"/v1/{application}", "", {})
    made.request_id, made.application = request_id, application
    return made


def test_the_last_refusals_are_noted_with_what_they_said(service: Service, finisher: Finisher) -> None:
    for number in range(KEPT):
        finisher.refuse(call(f"id-{number}"), Forbidden())
    finisher.refuse(call("last", "x" * 500), QueueNotFound("y" * 500))

    noted = service.notable.refused
    assert len(noted) == KEPT
    assert noted[0].call.request_id == "id-1"
    last = noted[-1]
    assert (last.call.request_id, last.status, last.code) == ("last", 404, "QueueNotFound")
    assert (len(last.call.application), len(last.detail)) == (MAX_NAME, MAX_DETAIL)


def test_what_breaks_off_is_noted_and_what_a_full_server_says_to_all_is_not(
    service: Service, finisher: Finisher
) -> None:
    finisher.broken_off(call("cut"), Forbidden())
    finisher.alike("/v1/demo", {})
    finisher.full(call("full"))

    finisher.refuse(call("waiting"), TooManyWaiters())

    assert [one.call.request_id for one in service.notable.refused] == ["cut", "waiting"]


def test_a_slow_request_is_noted_without_the_time_it_waited(service: Service, finisher: Finisher) -> None:
    began = perf_counter() - 2 * SLOW_SECONDS

    finisher.finish(call("slow"), "queue", Answer(200), began)
    finisher.finish(call("quick"), "queue", Answer(200), perf_counter())

    (noted,) = service.notable.slow
    assert (noted.call.request_id, noted.operation, noted.status) == ("slow", "queue", 200)
    assert noted.seconds >= 2 * SLOW_SECONDS


def test_a_full_disk_has_few_lines_in_the_log_and_each_refusal_is_noted(
    service: Service, finisher: Finisher, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        finisher.refuse(call(f"id-{number}"), StorageFull())
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == f"refused GET id-0: {StorageFull()}"
    assert len(lines) < 500, "one a second, however slow the machine is"
    assert service.notable.refused[-1].call.request_id == "id-999"
