"""The actions of SQS as a table: names, types, bounds, names in Query, errors.

The table is ``actions.json``, which ``scripts/sqs_actions.py`` makes from the service's public description.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import orjson

from queuey.packaged import packaged
from queuey.sqs.errors import invalid_parameter, missing_parameter

__all__ = ["ACTIONS", "NO_STRUCTURE", "Field", "SqsAction", "Structure", "check_bounds", "complete"]

SIMPLE = frozenset(["blob", "boolean", "integer", "long", "string"])


class Field(NamedTuple):
    """One member of a structure."""

    name: str
    """In JSON, and in the dict that both protocols give and take."""
    kind: str
    """One of :data:`SIMPLE`, or ``list`` or ``map``."""
    item: str
    """What a list or map holds: one of :data:`SIMPLE`, or ``structure``."""
    structure: Structure | None
    """Of each item."""
    query: str
    """In Query: of each item of a list or map, and of the field itself if it is simple."""
    key: str
    value: str
    """In Query: the two parts of an item of a map; empty otherwise."""
    least: int | None
    most: int | None
    required: bool


class Structure(dict[str, Field]):
    """The members of an action or of an item, by name."""

    def __init__(self, fields: Iterable[Field]) -> None:
        super().__init__({field.name: field for field in fields})
        self.required = [name for name, field in self.items() if field.required]
        self.bounds = [
            (name, field.least, field.most)
            for name, field in self.items()
            if field.least is not None and field.most is not None
        ]
        """Of each number that has some: its name, the least and the most."""
        self.containers = frozenset(name for name, field in self.items() if field.kind not in SIMPLE)
        """Members that are lists or maps."""
        self.nested = frozenset(name for name in self.containers if self[name].structure is not None)
        """Those of structures."""
        self.texts = frozenset(name for name, field in self.items() if field.kind == "string")


NO_STRUCTURE = Structure(())


class SqsAction(NamedTuple):
    name: str
    members: Structure
    output: Structure
    errors: Sequence[str]
    """Shapes of errors that SDKs know for this action."""


class _Actions(Mapping[str, SqsAction]):
    """Reads the table when it is first needed: a server without this door never does."""

    def __getitem__(self, name: str) -> SqsAction:
        return _table()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_table())

    def __len__(self) -> int:
        return len(_table())


ACTIONS: Mapping[str, SqsAction] = _Actions()
"""The 23 actions by name."""


@cache
def _table() -> dict[str, SqsAction]:
    content = orjson.loads(packaged("queuey.sqs", "actions.json"))
    structures: dict[str, Structure] = {}

    def structure(name: str) -> Structure:
        if name not in structures:
            structures[name] = fields(content["structures"][name])
        return structures[name]

    def fields(rows: Mapping[str, Mapping[str, Any]]) -> Structure:
        return Structure([field(name, row) for name, row in rows.items()])

    def field(name: str, row: Mapping[str, Any]) -> Field:
        kind, item = row["type"], row.get("of", "")
        is_deeper = item != "" and item not in SIMPLE
        query = row.get("query", name)
        one, key, value = query if kind == "map" else (query, "", "")
        least, most = row.get("bounds", (None, None))
        return Field(
            name=name,
            kind=kind,
            item="structure" if is_deeper else item,
            structure=structure(item) if is_deeper else None,
            query=one,
            key=key,
            value=value,
            least=least,
            most=most,
            required=row.get("required", False),
        )

    found = {}
    for name, row in content["actions"].items():
        found[name] = SqsAction(name, fields(row["input"]), fields(row["output"]), row["errors"])
    return found


_REASONS = {
    "DelaySeconds": "DelaySeconds must be >= {least} and <= {most}.",
    "MaxNumberOfMessages": "Must be between {least} and {most}, if provided.",
}
_REASON = "Must be >= {least} and <= {most}, if provided."


def check_bounds(structure: Structure, values: Mapping[str, Any]) -> None:
    """Check the numbers of a request, or of one entry of a batch.

    Parsing checks those of the request itself; an action checks each entry, since a bad one fails alone.

    :raises SqsError: one is out of its bounds.
    """
    for name, least, most in structure.bounds:
        value = values.get(name)
        if value is not None and not least <= value <= most:
            reason = _REASONS.get(name, _REASON).format(least=least, most=most)
            raise invalid_parameter(f"Value {value} for parameter {name} is invalid. Reason: {reason}")


def complete(action: SqsAction, values: dict[str, Any]) -> dict[str, Any]:
    """The values of a request in the form that does not depend on its protocol.

    Query cannot say an empty map, so an empty list or map is as good as absent; only the entries of a batch are
    always there, since none at all is an error of its own.

    :raises SqsError: a required member is missing, or a number is out of its bounds.
    """
    if "Entries" in action.members:
        values.setdefault("Entries", [])
    for name in action.members.required:
        if name not in values:
            raise missing_parameter(name)
    check_bounds(action.members, values)
    return values
