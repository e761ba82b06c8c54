"""The table of actions is what the public description says."""

from __future__ import annotations

import pytest

from queuey.packaged import packaged
from queuey.sqs.errors import CODES, SqsError
from queuey.sqs.shapes import ACTIONS, Field, Structure, check_bounds
from tests.support.sqs_model import MODELS, SCRIPT


def test_the_table_is_what_the_script_makes_of_the_installed_description() -> None:
    assert packaged("queuey.sqs", "actions.json").decode() == SCRIPT["table"](), (
        "run: .venv/bin/python scripts/sqs_actions.py > queuey/sqs/actions.json"
    )


def test_all_actions_are_there() -> None:
    assert list(ACTIONS) == sorted(MODELS["json"].operation_names)
    assert len(ACTIONS) == 23


def test_each_error_of_an_action_has_its_code_and_status() -> None:
    assert {shape for action in ACTIONS.values() for shape in action.errors} <= CODES.keys()


def numbers(structure: Structure) -> list[Field]:
    deeper = [one for field in structure.values() if field.structure for one in numbers(field.structure)]
    return [field for field in structure.values() if field.kind in ("integer", "long")] + deeper


def test_each_number_of_a_request_has_bounds() -> None:
    found = [field for action in ACTIONS.values() for field in numbers(action.members)]

    assert {field.name for field in found} >= {"DelaySeconds", "VisibilityTimeout", "WaitTimeSeconds", "MaxResults"}
    assert [field for field in found if field.least is None or field.most is None] == []


@pytest.mark.parametrize(
    ("action", "name", "value", "said"),
    [
        ("SendMessage", "DelaySeconds", 901, "DelaySeconds must be >= 0 and <= 900."),
        ("ReceiveMessage", "WaitTimeSeconds", 21, "Must be >= 0 and <= 20, if provided."),
        ("ReceiveMessage", "MaxNumberOfMessages", 0, "Must be between 1 and 10, if provided."),
        ("ReceiveMessage", "VisibilityTimeout", -1, "Must be >= 0 and <= 43200, if provided."),
        ("ListMessageMoveTasks", "MaxResults", 11, "Must be >= 1 and <= 10, if provided."),
        ("ListQueues", "MaxResults", 1001, "Must be >= 1 and <= 1000, if provided."),
        ("StartMessageMoveTask", "MaxNumberOfMessagesPerSecond", 501, "Must be >= 1 and <= 500, if provided."),
    ],
)
def test_a_number_out_of_its_bounds_is_refused(action: str, name: str, value: int, said: str) -> None:
    with pytest.raises(SqsError) as caught:
        check_bounds(ACTIONS[action].members, {name: value})

    assert caught.value.shape == "InvalidParameterValueException"
    assert str(caught.value) == f"Value {value} for parameter {name} is invalid. Reason: {said}"


def test_each_bound_itself_is_allowed() -> None:
    for action in ACTIONS.values():
        for field in numbers(action.members):
            if field.name in action.members:
                check_bounds(action.members, {field.name: field.least})
                check_bounds(action.members, {field.name: field.most})
