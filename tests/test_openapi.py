"""The OpenAPI description says what the code does: same operations, same limits, same errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate

from queuey._version import __version__
from queuey.api import drafts, groups, lease_groups, lease_requests, lease_settings, params, queues, reading, routes
from queuey.api.face import V1
from queuey.api.forms import COLUMNS
from queuey.api.live import reading as reading_live
from queuey.api.params import MAX_NEW_NAME
from queuey.errors import (
    BrokenStream,
    ConfigurationError,
    CoordinatorUnavailable,
    DataLost,
    ServerUnreachable,
    error_classes,
)
from queuey.http.exchange import Call
from queuey.model import DEFAULT_TTL_SECONDS, MAX_GENERATION, MAX_PARTITIONS, MAX_TTL_SECONDS, Consistency, QueueKind
from queuey.model.lease_groups import AUTO, NO_ORDER, ORDER_BY_KEY, GroupSettings
from queuey.model.lease_spread import MOST_K
from queuey.security.permissions import VERBS, Permission
from queuey.service.queues import is_queue_name
from queuey.settings import Settings

API = Path(routes.__file__).parent
DESCRIPTION: dict[str, Any] = json.loads((API / "openapi.json").read_text())
COMPONENTS = DESCRIPTION["components"]
METHODS = ("get", "put", "post", "delete", "options", "patch")
SERVED = [(route.pattern, method) for route, method in routes.ROUTES.methods()]


def described() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in DESCRIPTION["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method.upper(), item[method]


def parameters(path: str, method: str) -> dict[str, dict[str, Any]]:
    """Parameters of an operation by name, references followed."""
    item = DESCRIPTION["paths"][path]
    listed = [*item.get("parameters", []), *item[method.lower()].get("parameters", [])]
    return {found["name"]: found for found in map(follow, listed)}


def follow(value: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in value:
        found: Any = DESCRIPTION
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        value = found
    return value


def source() -> str:
    return "\n".join(path.read_text() for path in sorted(API.glob("*.py")))


def test_it_is_valid_openapi() -> None:
    validate(DESCRIPTION)


def test_it_has_this_version() -> None:
    assert DESCRIPTION["info"]["version"] == __version__


def test_it_describes_every_operation_and_no_other() -> None:
    assert {(path, method) for path, method, _ in described()} == set(SERVED)


def test_operations_have_names_of_their_own() -> None:
    names = [operation["operationId"] for _, _, operation in described()]

    assert len(names) == len(set(names))


@pytest.mark.parametrize(("pattern", "method"), SERVED)
def test_what_needs_a_key_is_said(pattern: str, method: str) -> None:
    item = DESCRIPTION["paths"][pattern][method.lower()]
    operation = V1().resolve(Call(method, pattern.replace("{", "").replace("}", ""), "", {}))
    proven: list[dict[str, list[str]]] = [{"applicationKey": []}, {"browserID": []}, {"bearer": []}]
    wanted = {Permission.NONE: [], Permission.VIEW: [*proven, {}]}.get(operation.permission, proven)

    assert item.get("security", DESCRIPTION["security"]) == wanted


def names_read() -> set[str]:
    """Headers, query parameters and form fields that the code asks for by name."""
    return set(re.findall(r"(?:get|header|text)\(\"([a-z_-]+)\"", source()))


def test_every_parameter_that_is_read_is_described() -> None:
    elsewhere = {"accept", "authorization", "content-type", "content-length", "content-encoding", "transfer-encoding"}
    elsewhere |= {"origin", "access-control-request-method"}
    told = {name.lower() for path, method, _ in described() for name in parameters(path, method)}
    told |= {name.lower() for name in COMPONENTS["headers"]}
    told |= {name for schema in COMPONENTS["schemas"].values() for name in schema.get("properties", ())}

    assert {"since", "x-ttl", "principles", "deliver_at"} <= names_read()
    assert names_read() - told - elsewhere == set()


def test_every_parameter_that_is_read_is_in_the_reference() -> None:
    reference = (Path(__file__).parent.parent / "docs/rest.md").read_text().lower()

    assert [name for name in sorted(names_read()) if name not in reference] == []


def test_limits_are_those_of_the_code() -> None:
    settings = Settings()
    schemas = COMPONENTS["schemas"]
    entry, queue = schemas["NewMessage"]["properties"], schemas["NewQueue"]["properties"]
    reading_parameters = parameters("/v1/{application}/{queue}", "get")
    append = parameters("/v1/{application}/{queue}", "post")

    for ttl in (entry["ttl"], append["X-TTL"]["schema"]):
        assert (ttl["minimum"], ttl["maximum"], ttl["default"]) == (1, MAX_TTL_SECONDS, DEFAULT_TTL_SECONDS)
    for partition in (entry["partition"], append["X-Partition"]["schema"], queue["partitions"]):
        assert (partition["minimum"], partition["maximum"]) == (1, MAX_PARTITIONS)
    assert entry["key"]["maxLength"] == append["X-Key"]["schema"]["maxLength"] == drafts.MAX_KEY
    assert entry["content_type"]["maxLength"] == drafts.MAX_CONTENT_TYPE
    assert entry["idempotency_key"]["maxLength"] == params.MAX_ONCE
    assert append["Idempotency-Key"]["schema"]["maxLength"] == params.MAX_ONCE
    assert schemas["Batch"]["properties"]["messages"]["maxItems"] == settings.limits.max_batch_messages
    assert reading_parameters["limit"]["schema"]["maximum"] == reading.MAX_STREAM_LIMIT
    assert str(reading.MAX_LIMIT) in reading_parameters["limit"]["description"]
    assert str(reading.DEFAULT_LIMIT) in reading_parameters["limit"]["description"]
    assert str(params.MAX_IDS) in COMPONENTS["parameters"]["ids"]["description"]
    assert parameters("/v1/{application}", "get")["limit"]["schema"]["maximum"] == queues.MAX_LIST
    assert parameters("/v1/{application}/{queue}/offsets", "get")["limit"]["schema"]["maximum"] == groups.MAX_GROUPS
    assert schemas["Generation"]["maximum"] == MAX_GENERATION
    assert schemas["NewOffset"]["properties"]["partition"]["maximum"] == MAX_PARTITIONS
    assert schemas["NewOffsets"]["maxItems"] == MAX_PARTITIONS
    assert schemas["ResetTo"]["properties"]["partitions"]["maxItems"] == MAX_PARTITIONS
    assert set(queue["type"]["enum"]) == set(QueueKind)
    assert set(queue["consistency"]["enum"]) == set(Consistency)


def test_limits_of_leases_are_those_of_the_code() -> None:
    settings, schemas = Settings(), COMPONENTS["schemas"]
    asked = schemas["LeaseRequest"]["properties"]
    receive, group = asked["receive"]["properties"], schemas["NewLeaseSettings"]["properties"]
    old, backoff = GroupSettings(), group["backoff"]["properties"]

    assert set(asked) == set(lease_requests.MEMBERS)
    for member in ("acknowledge", "release", "reject"):
        assert asked[member]["maxItems"] == lease_requests.MAX_SETTLES
    assert asked["append"]["maxItems"] == lease_requests.MAX_QUEUES_APPENDED
    several = schemas["LeaseRequestOfSeveral"]["properties"]
    assert {*several, *asked} == set(lease_requests.SEVERAL_MEMBERS)
    assert several["order"]["enum"] == [lease_requests.FIRST, lease_requests.WEIGHTED]
    named, weighed = several["queues"]["oneOf"]
    assert named["maxItems"] == weighed["maxProperties"] == reading_live.MAX_QUEUES
    assert weighed["additionalProperties"]["maximum"] == lease_requests.MAX_WEIGHT
    assert schemas["NewMessages"]["properties"]["messages"]["maxItems"] == settings.limits.max_batch_messages
    assert (receive["max"]["minimum"], receive["max"]["maximum"]) == (1, lease_requests.MAX_RECEIVED)
    assert receive["wait"]["maximum"] == lease_requests.MAX_WAIT_SECONDS
    for longest in (schemas["Visibility"], schemas["Release"]["properties"]["delay"], group["visibility"]):
        assert longest["maximum"] == lease_settings.MAX_VISIBILITY_SECONDS
    assert set(group) == set(lease_settings.SETTINGS_MEMBERS)
    assert {*schemas["LeaseSettings"]["required"], "start"} == set(lease_settings.SETTINGS_MEMBERS)
    for name, most in (
        ("per_key", lease_settings.MAX_K),
        ("max_leased", lease_settings.MAX_LEASED),
        ("max_held", lease_settings.MAX_HELD),
    ):
        assert (group[name]["minimum"], group[name]["maximum"]) == (1, most)
    assert group["k"]["anyOf"] == [{"type": "integer", "minimum": 1, "maximum": lease_settings.MAX_K}, {"const": AUTO}]
    assert schemas["LeaseCounts"]["properties"]["k"]["maximum"] == lease_settings.MAX_K == MOST_K
    for name in ("visibility", "max_failures", "per_key", "exact", "max_leased", "max_held"):
        assert group[name]["default"] == getattr(old, name)
    assert {name: found.get("default", old.backoff.most) for name, found in backoff.items()} == old.backoff._asdict()
    assert schemas["LeaseOrder"]["enum"] == [NO_ORDER, ORDER_BY_KEY]
    assert parameters("/v1/{application}/{queue}/leases", "get")["limit"]["schema"]["maximum"] == groups.MAX_GROUPS
    shown = parameters("/v1/{application}/{queue}/leases/{group}", "get")["limit"]["schema"]
    assert shown["maximum"] == lease_groups.MAX_LEASES


def test_columns_are_those_of_the_code() -> None:
    text = parameters("/v1/{application}/{queue}", "get")["columns"]["description"]

    assert text.endswith(f"{', '.join(COLUMNS)}.")
    assert set(COLUMNS) <= set(COMPONENTS["schemas"]["Message"]["properties"])


@pytest.mark.parametrize("name", ["", "a", "a" * 50, "a" * 51, "a" * 80, "a" * 81, "a.b-c_D9", "ä", "a b", "a/b"])
def test_queue_names_match_as_the_code_takes_them(name: str) -> None:
    schemas = COMPONENTS["schemas"]

    assert bool(re.search(schemas["QueueName"]["pattern"], name)) == is_queue_name(name)
    assert bool(re.search(schemas["NewQueueName"]["pattern"], name)) == (
        is_queue_name(name) and len(name) <= MAX_NEW_NAME
    )


@pytest.mark.parametrize("name", ["", "a", "a" * 100, "a" * 101, "a.b-c_D9", "ä", "a b", "a/b"])
def test_names_of_groups_match_as_the_code_takes_them(name: str) -> None:
    if re.search(COMPONENTS["schemas"]["GroupName"]["pattern"], name):
        assert params.group_name(name) == name
    else:
        with pytest.raises(ValueError, match="must be 1 to 100"):
            params.group_name(name)


def test_the_verbs_of_a_token_are_those_that_the_code_takes() -> None:
    token = COMPONENTS["schemas"]["Token"]["properties"]

    assert token["verbs"]["items"]["enum"] == list(VERBS)
    assert ", ".join(VERBS) in COMPONENTS["schemas"]["NewToken"]["properties"]["verbs"]["description"]


def test_every_error_stands_under_its_status() -> None:
    codes = {
        found.status: {code for code, other in error_classes().items() if other.status == found.status}
        for found in error_classes().values()
    }
    unseen = {
        code
        for code, found in error_classes().items()
        if issubclass(found, ConfigurationError | CoordinatorUnavailable | BrokenStream | DataLost | ServerUnreachable)
    }
    told: dict[int, set[str]] = {}
    for _, _, operation in described():
        for status, answer in operation["responses"].items():
            _, _, listed = follow(answer)["description"].partition("Codes: ")
            told.setdefault(int(status), set()).update(re.findall(r"\w+", listed))
    told[405] = set(
        re.findall(r"\w+", COMPONENTS["responses"]["MethodNotAllowed"]["description"].partition("Codes: ")[2])
    )

    assert {status: found for status, found in told.items() if found} == {
        status: found - unseen for status, found in codes.items()
    }


def test_every_component_is_used() -> None:
    text = json.dumps(DESCRIPTION)
    unused = [
        f"#/components/{kind}/{name}"
        for kind, found in COMPONENTS.items()
        if kind != "securitySchemes"
        for name in found
        if f'"#/components/{kind}/{name}"' not in text
    ]

    # A method that is not offered belongs to no operation; lines of a stream are not in a JSON document.
    assert unused == [
        "#/components/responses/MethodNotAllowed",
        "#/components/schemas/StreamedMessage",
        "#/components/schemas/StreamEnd",
    ]


def test_what_any_call_is_refused_for_is_described() -> None:
    """A bad query, a body without its length, one that is too large or packed, a head that is, and what fails."""
    any_call = {"400", "411", "413", "414", "415", "431", "500", "503"}
    lacking = {
        (path, method): missing
        for path, method, operation in described()
        if (missing := any_call - operation["responses"].keys())
    }

    assert lacking == {}


def test_no_partitions_are_a_list_of_partitions() -> None:
    schema = parameters("/v1/{application}/{queue}", "GET")["partitions"]["schema"]

    assert [bool(re.search(schema["pattern"], text)) for text in ("", "all", "1, 2", "x")] == [True, True, True, False]
