"""Options of workers and tasks that are numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from qdo.tasks.declaring import TaskOptions
from qdo.worker.job import RetryPolicy
from qdo.worker.options import WorkerOptions
from queuey.errors import ConfigurationError

WHOLE = ("threads", "processes", "batch", "by_key", "prefetch_messages", "prefetch_bytes")
SECONDS = ("commit_seconds", "drain_seconds", "hung_seconds")


@pytest.mark.parametrize("value", [math.nan, "5", None, True, -1])
@pytest.mark.parametrize("name", [*WHOLE, *SECONDS])
def test_a_worker_takes_numbers_alone(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} is "):
        WorkerOptions.of({name: value})


@pytest.mark.parametrize("value", [math.nan, "5", None, True, -1])
@pytest.mark.parametrize("name", ["attempts", "first_seconds", "factor", "most_seconds", "jitter"])
def test_a_policy_of_retries_takes_numbers_alone(name: str, value: Any) -> None:
    """A pause that is no number would never end, and a text would have the job run again and again."""
    with pytest.raises(ConfigurationError, match=f"^retry: {name} is "):
        RetryPolicy(**{name: value})


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", [2.5, math.inf])
def test_what_is_counted_is_whole(name: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match="expected a whole number"):
        WorkerOptions.of({name: value})


@pytest.mark.parametrize("name", SECONDS)
def test_a_time_may_be_endless(name: str) -> None:
    assert getattr(WorkerOptions.of({name: math.inf}), name) == math.inf


@pytest.mark.parametrize("weight", [math.nan, "3", None, True, 0, 1001, 1.5])
def test_a_weight_is_a_whole_number(weight: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^weight of queue mail is "):
        WorkerOptions(lease=True, weights={"mail": weight})


@pytest.mark.parametrize("name", ["retries", "timeout", "backoff"])
@pytest.mark.parametrize("value", [math.nan, "5", True, -1])
def test_a_task_takes_numbers_alone(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} is "):
        TaskOptions(**{name: value})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"retry": 5}, "retry is 5: expected a RetryPolicy"),
        ({"weights": None}, "weights is None: expected numbers by queue"),
        ({"strategy": []}, r"strategy is \[\]: expected a text"),
        ({"lease": 5}, "lease is 5: expected True or False"),
        ({"exit_at_end": "no"}, "exit_at_end is 'no': expected True or False"),
        ({"at_most_once": None}, "at_most_once is None: expected True or False"),
        ({"wants": 5}, "wants is 5: expected a function of a partition"),
        ({"on_failure": 5}, "the job is 5: expected a function"),
    ],
)
def test_an_option_of_another_type_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        WorkerOptions.of(given)
