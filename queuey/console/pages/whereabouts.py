"""How far the groups of a queue are with one message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from queuey.console.visits import Visit
from queuey.ids import MessageId

__all__ = ["whereabouts"]

_GROUPS = 10
"""Groups of each kind that are asked: each is a call or two."""


def whereabouts(visit: Visit, application: str, queue: str, entry: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What each group has done with a message, those with offsets first; nothing of groups the visitor may not see."""
    rows = [
        {"kind": "g", "group": name, "held": None, **_of_offsets(visit, application, queue, name, entry)}
        for name in _names(visit, application, queue, "offsets")
    ]
    return rows + [
        {"kind": "l", "group": name, **_of_leases(visit, application, queue, name, entry)}
        for name in _names(visit, application, queue, "leases")
    ]


def _names(visit: Visit, application: str, queue: str, kind: str) -> Sequence[str]:
    listed = visit.may(application, queue, kind, limit=_GROUPS)
    return [] if listed is None else [one["group"] for one in listed.content["groups"]]


def _in(partitions: Sequence[Mapping[str, Any]], entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The partition of the message, among those of a group."""
    return next((one for one in partitions if one["partition"] == entry["partition"]), {})


def _is_behind(place: str | None, entry: Mapping[str, Any]) -> bool:
    """Whether a group that has finished up to ``place`` is behind the message."""
    return place is not None and MessageId.parse(entry["message_id"]) <= MessageId.parse(place)


def _of_offsets(visit: Visit, application: str, queue: str, group: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    found = _in(visit.ask(application, queue, "offsets", group).content["offsets"], entry)
    place = found.get("message_id")
    state = "finished" if _is_behind(place, entry) else "not finished yet"
    return {"state": state, "done_up_to": place, "changed": found.get("timestamp")}


def _of_leases(visit: Visit, application: str, queue: str, group: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    names = [application, queue, "leases", group]
    partition = _in(visit.ask(*names).content["partitions"], entry)
    place, held, state = partition.get("done_up_to"), None, "not handed out yet"
    if _is_behind(place, entry):
        state = "settled"
    elif partition.get("held"):
        ticks, tail = MessageId.parse(entry["message_id"])
        before = f"{entry['partition']}:{MessageId(ticks, tail - 1).hex}"
        listed = visit.may(*names, leased="true", offset=before, limit=1)
        state = "held, settled, or not handed out yet" if listed is None else "settled, or not handed out yet"
        first = next(iter(listed.content["leases"]), None) if listed is not None else None
        if first is not None and first["message_id"] == entry["message_id"]:
            held, state = first, first["state"]
    return {"state": state, "held": held, "done_up_to": place, "changed": None}
