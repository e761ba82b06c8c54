"""Names that no queue and no group can have."""

from __future__ import annotations

from typing import Any

import pytest

from qdo.groups.names import check_group, check_member, check_queues, is_new_queue_name
from qdo.worker import Worker
from queuey.errors import ConfigurationError


def job(message: object, context: object) -> None:
    """It does nothing."""


@pytest.mark.parametrize("leases", [True, False])
@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "mail\n", "q" * 81, "mail=3", "ma il-*", 3, None])
def test_a_worker_begins_on_no_queue_that_cannot_be(name: str, leases: bool) -> None:
    with pytest.raises(ConfigurationError, match="expected 1 to 80 letters"):
        Worker(job, ["good", name], lease=leases)


@pytest.mark.parametrize("leases", [True, False])
@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "g" * 101, 3, None])
def test_a_worker_is_in_no_group_that_cannot_be(name: str, leases: bool) -> None:
    with pytest.raises(ConfigurationError, match="expected 1 to 100 letters"):
        Worker(job, ["good"], group=name, lease=leases)


@pytest.mark.parametrize("leases", [True, False])
@pytest.mark.parametrize("name", ["", "a/b", "é", "mail\n", "\0", "🙂", " mail", "mail ", "n" * 101, 3])
def test_a_worker_has_no_name_that_cannot_be(name: str, leases: bool) -> None:
    with pytest.raises(ConfigurationError, match="expected 1 to 100 printable ASCII characters"):
        Worker(job, ["good"], name=name, lease=leases)


@pytest.mark.parametrize("name", ["m", "celery@host-1.example", "mail worker 1", "..", "n" * 100])
def test_names_of_workers_that_can_be_pass(name: str) -> None:
    check_member(name)


def test_a_text_is_no_list_of_queues() -> None:
    """Its letters would be the names."""
    with pytest.raises(ConfigurationError, match=r"such as \['mail'\]"):
        Worker(job, "mail", lease=True)


@pytest.mark.parametrize("name", ["mail", "q" * 80, "mail.fifo", "mail-*", "[a-c]*", "mail-?", "[!a]x"])
def test_names_that_can_be_pass(name: str) -> None:
    check_queues([name])


def test_a_new_queue_has_a_shorter_name() -> None:
    check_group("g" * 100)

    assert [is_new_queue_name(each) for each in ("q" * 50, "q" * 51, ".", "")] == [True, False, False, False]


@pytest.mark.parametrize("queues", [None, 5, b"mail"])
def test_queues_are_a_list(queues: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected a list of names"):
        Worker(job, queues, lease=True)


@pytest.mark.parametrize("given", [None, 5, "jobs:process"])
def test_a_job_is_a_function(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"the job is .*: expected a function"):
        Worker(given, ["mail"], lease=True)


def test_a_name_for_dead_letters_is_a_text() -> None:
    with pytest.raises(ConfigurationError, match="dead letters' queue 5: expected a text"):
        Worker(job, ["mail"], dead_letters=5)
