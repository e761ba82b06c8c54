"""What an SDK knows of SQS: botocore's own serializers and parsers, and drawn requests and answers."""

from __future__ import annotations

import copy
import runpy
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from hypothesis import strategies as st

from queuey.sqs.shapes import ACTIONS, Field, Structure
from tests.support.source import ROOT
from tests.support.sqs_clients import FORM, JSON

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "sqs_actions.py"))
_SHIPPED = Loader().load_service_model("sqs", "service-2")


def _query_model() -> dict[str, Any]:
    """The description as it was before JSON: with the names and wrappers of Query."""
    model: dict[str, Any] = copy.deepcopy(_SHIPPED)
    model["metadata"] |= {"protocol": "query", "protocols": ["query"], "xmlNamespace": "urn:any"}
    for name, operation in model["operations"].items():
        if "output" in operation:
            operation["output"]["resultWrapper"] = f"{name}Result"
    for name, shape in model["shapes"].items():
        if shape["type"] == "list":
            shape["member"]["locationName"] = SCRIPT["LIST_NAMES"].get(name, name.removesuffix("List"))
        if shape["type"] == "map":
            _, shape["key"]["locationName"], shape["value"]["locationName"] = SCRIPT["MAP_NAMES"][name]
        for member in shape.get("members", {}).values():
            if member["shape"] in SCRIPT["MAP_NAMES"]:
                member["locationName"] = SCRIPT["MAP_NAMES"][member["shape"]][0]
    return model


MODELS = {"json": ServiceModel(_SHIPPED, "sqs"), "query": ServiceModel(_query_model(), "sqs")}
"""By protocol."""


def operation(protocol: str, action: str) -> OperationModel:
    return MODELS[protocol].operation_model(action)


def serialized(protocol: str, action: str, values: Mapping[str, Any]) -> Any:
    """The body of a request as the SDK makes it: bytes of JSON, or parameters of Query by name."""
    serializer = create_serializer(protocol, include_validation=False)
    return serializer.serialize_to_request(values, operation(protocol, action))["body"]


def request(protocol: str, action: str, values: Mapping[str, Any]) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a request as the SDK makes it."""
    made = serialized(protocol, action, values)
    if protocol == "json":
        return {"Content-Type": JSON, "X-Amz-Target": f"AmazonSQS.{action}"}, made
    return {"Content-Type": FORM}, urlencode(made).encode()


def parsed(
    protocol: str, action: str, body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """An answer as the SDK gives it to its caller."""
    answer = {"body": body, "status_code": status, "headers": headers or {}}
    result: dict[str, Any] = create_parser(protocol).parse(answer, operation(protocol, action).output_shape)
    return result


TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff") | st.sampled_from("\t\n\r")
)
"""Of characters that a message of SQS may have; the last plane's noncharacters are among them."""
NAMES = st.text("abcXYZ019_-.", min_size=1, max_size=12)


def requests(action: str) -> st.SearchStrategy[dict[str, Any]]:
    """Requests that the table allows. Lists and maps have items, since Query cannot say empty ones."""
    return _values(ACTIONS[action].members)


def answers(action: str) -> st.SearchStrategy[dict[str, Any]]:
    return _values(ACTIONS[action].output)


def _values(structure: Structure) -> st.SearchStrategy[dict[str, Any]]:
    required = {name: _value(field) for name, field in structure.items() if field.required}
    others = {name: _value(field) for name, field in structure.items() if not field.required}
    return st.fixed_dictionaries(required, optional=others)


def _value(field: Field) -> st.SearchStrategy[Any]:
    if field.kind not in ("list", "map"):
        return _simple(field.kind, field)
    item = _simple(field.item, field) if field.structure is None else _values(field.structure)
    return (
        st.lists(item, min_size=1, max_size=3)
        if field.kind == "list"
        else st.dictionaries(NAMES, item, min_size=1, max_size=3)
    )


def _simple(kind: str, field: Field) -> st.SearchStrategy[Any]:
    if kind == "integer":
        return st.integers(field.least, field.most) if field.least is not None else st.integers(0, 2**31 - 1)
    simple: dict[str, st.SearchStrategy[Any]] = {
        "blob": st.binary(max_size=20),
        "boolean": st.booleans(),
        "long": st.integers(0, 2**63 - 1),
        "string": TEXT,
    }
    return simple[kind]
