"""Requests drawn from the OpenAPI description, and answers held against it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import checks
from schemathesis.core.result import Ok

from queuey.api import routes
from tests.support.client import Server, authorization
from tests.support.trusting import TrustingServer

DESCRIPTION: dict[str, Any] = json.loads((Path(routes.__file__).parent / "openapi.json").read_text())
OPERATIONS = {
    found.ok().label: found.ok()
    for found in schemathesis.openapi.from_dict(DESCRIPTION).get_all_operations()
    if isinstance(found, Ok)
}
AS_DESCRIBED = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture
def running(trusting_shipped_server: TrustingServer) -> TrustingServer:
    """One that can do all that is described. Over Cassandra the answers are the same, as ``test_alike`` says."""
    return trusting_shipped_server


@pytest.fixture
def trusting_server(trusting_shipped_server: TrustingServer) -> TrustingServer:
    """The operator's key is of the same server."""
    return trusting_shipped_server


@pytest.mark.parametrize("label", OPERATIONS)
def test_answers_are_as_described(server: Server, operator: str, label: str) -> None:
    operation = OPERATIONS[label]
    statuses: set[int] = set()
    key = operator if label == "GET /v1" else server.key

    @settings(
        max_examples=20,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(case=operation.as_strategy())
    def ask(case: schemathesis.Case[Any]) -> None:
        places = {"application": server.application, "queue": name, "ids": identity, "group": "mail", "task": "purge"}
        case.path_parameters = {place: places[place] for place in case.path_parameters or {}}
        if "wait" in (case.query or {}):
            case.query["wait"] = 0  # a poll may be as long as the tests' patience
        wanted = case.body.get("receive") if isinstance(case.body, dict) else None
        if isinstance(wanted, dict):
            wanted["wait"] = 0
        answer = case.call(base_url=server.url, headers=authorization(key))
        statuses.add(answer.status_code)
        case.validate_response(answer, checks=AS_DESCRIBED)

    name = server.queue(partitions=3)
    added = server.add(name)
    identity = f"{added['partition']}:{added['key']}"
    if label.startswith("GET") or label.endswith(("/reset", "/redrive")):
        assert server.call("POST", name, "leases", "mail", json={"receive": {}}).status_code == 200
    if label.endswith("/redrive"):
        assert server.call("POST", name, "leases", "mail", "redrive", json={}).status_code == 202
    if "/tasks" in label:
        assert server.call("DELETE", name, "messages").status_code == 202
    ask()

    assert statuses & {200, 201, 202}
