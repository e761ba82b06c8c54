#!/usr/bin/env python3
"""Make queuey/sqs/actions.json, the table of SQS's actions, from the service description of an installed botocore.

`python scripts/sqs_actions.py > queuey/sqs/actions.json`. A test compares the two; the server itself needs no SDK.
The description of today knows JSON only. Two things are added here: names of lists and maps in Query, and bounds.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from botocore.loaders import Loader

LIST_NAMES = {
    "BinaryList": "BinaryListValue",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "StringList": "StringListValue",
}
"""In Query, where it is not the name of the list's shape without `List`."""

MAP_NAMES = {
    "MessageBodyAttributeMap": ["MessageAttribute", "Name", "Value"],
    "MessageBodySystemAttributeMap": ["MessageSystemAttribute", "Name", "Value"],
    "MessageSystemAttributeMap": ["Attribute", "Name", "Value"],
    "QueueAttributeMap": ["Attribute", "Name", "Value"],
    "TagMap": ["Tag", "Key", "Value"],
}
"""In Query: the map's own name, and those of its keys and values."""

BOUNDS = {
    "DelaySeconds": [0, 900],
    "MaxNumberOfMessages": [1, 10],
    "MaxNumberOfMessagesPerSecond": [1, 500],
    "MaxResults": [1, 1000],
    "VisibilityTimeout": [0, 43200],
    "WaitTimeSeconds": [0, 20],
}
"""Least and most, from the API reference."""
OTHER_BOUNDS = {("ListMessageMoveTasksRequest", "MaxResults"): [1, 10]}


class Table:
    def __init__(self, model: dict[str, Any]) -> None:
        self.model = model
        self.structures: dict[str, Any] = {}

    def whole(self) -> dict[str, Any]:
        actions = {name: self.action(one) for name, one in sorted(self.model["operations"].items())}
        return {"actions": actions, "structures": dict(sorted(self.structures.items()))}

    def action(self, operation: dict[str, Any]) -> dict[str, Any]:
        return {
            "errors": sorted(one["shape"] for one in operation["errors"]),
            "input": self.structure(operation["input"]["shape"]),
            "output": self.structure(operation["output"]["shape"]) if "output" in operation else {},
        }

    def structure(self, name: str) -> dict[str, Any]:
        shape = self.model["shapes"][name]
        required = set(shape.get("required", ()))
        return {
            field: self.field(name, field, target["shape"]) | ({"required": True} if field in required else {})
            for field, target in sorted(shape["members"].items())
        }

    def field(self, structure: str, name: str, target: str) -> dict[str, Any]:
        shape = self.model["shapes"][target]
        kind = shape["type"]
        if kind == "list":
            query = LIST_NAMES.get(target, target.removesuffix("List"))
            return {"type": "list", "of": self.item(shape["member"]["shape"]), "query": query}
        if kind == "map":
            return {"type": "map", "of": self.item(shape["value"]["shape"]), "query": MAP_NAMES[target]}
        bounds = OTHER_BOUNDS.get((structure, name), BOUNDS.get(name))
        return {"type": kind} | ({"bounds": bounds} if bounds else {})

    def item(self, name: str) -> str:
        """A simple type, or the name of a structure, which gets its row in the table."""
        kind: str = self.model["shapes"][name]["type"]
        if kind != "structure":
            return kind
        self.structures[name] = self.structure(name)
        return name


def text(value: Any, indent: str = "") -> str:
    """JSON with one line for each field of a structure."""
    if not isinstance(value, dict) or not value or isinstance(value.get("type"), str):
        return json.dumps(value)
    deeper = indent + "  "
    rows = (f"{deeper}{json.dumps(name)}: {text(one, deeper)}" for name, one in value.items())
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


def table() -> str:
    """The text of the table."""
    return text(Table(Loader().load_service_model("sqs", "service-2")).whole()) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
