"""How far the groups of a queue are with one message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from queuey.console.pages.stories import story_in
from queuey.console.visits import Visit
from queuey.errors import QueueNotFound
from queuey.ids import MessageId
from queuey.model.dead_letters import REDRIVEN_HEADER, STORY_HEADER

__all__ = ["MOST_GROUPS", "whereabouts"]

MOST_GROUPS = 10
"""Groups of each kind that are asked: each is a call or two, and some more if it has dead letters."""
MOST_LOOKED_AT = 200
"""Messages of each partition among which the dead letter of a message is looked for, and the message that came back."""


def whereabouts(
    visit: Visit, application: str, queue: str, entry: Mapping[str, Any]
) -> tuple[Sequence[Mapping[str, Any]], bool]:
    """What each group has done with a message, those with offsets first; nothing of groups the visitor may not see.

    :returns: the groups, and whether these are all.
    """
    names, are_all = _names(visit, application, queue, "offsets")
    rows = [
        {"kind": "g", "group": name, "held": None, "went": None, **_of_offsets(visit, application, queue, name, entry)}
        for name in names
    ]
    names, are_all_too = _names(visit, application, queue, "leases")
    rows += [{"kind": "l", "group": name, **_of_leases(visit, application, queue, name, entry)} for name in names]
    return rows, are_all and are_all_too


def _names(visit: Visit, application: str, queue: str, kind: str) -> tuple[Sequence[str], bool]:
    """The first groups of a kind, and whether these are all."""
    listed = visit.may(application, queue, kind, limit=MOST_GROUPS)
    return ([], True) if listed is None else ([one["group"] for one in listed.content["groups"]], not listed.following)


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
    known = visit.ask(*names).content
    partition = _in(known["partitions"], entry)
    place, held, state = partition.get("done_up_to"), None, "not handed out yet"
    if _is_behind(place, entry):
        state = "settled"
    elif _is_behind(partition.get("handed_up_to"), entry):
        held, state = _held(visit, names, entry, waits_for_keys=bool(partition["closed_keys"]))
    went = None
    if held is None and partition.get("dead"):
        went = _letter(visit, known, names, entry) or _again(visit, names, entry)
    return {
        "state": "given up" if went else state,
        "held": held,
        "done_up_to": place,
        "changed": None,
        "went": went,
    }


def _held(
    visit: Visit, names: Sequence[str], entry: Mapping[str, Any], *, waits_for_keys: bool
) -> tuple[Mapping[str, Any] | None, str]:
    """What a group holds of a message that it has looked at and may not have settled, and in what state that is."""
    ticks, tail = MessageId.parse(entry["message_id"])
    before = f"{entry['partition']}:{MessageId(ticks, tail - 1).hex}"
    listed = visit.may(*names, leased="true", offset=before, limit=1)
    if listed is None:
        return None, "held, or settled"
    first = next(iter(listed.content["leases"]), None)
    if first is not None and first["message_id"] == entry["message_id"]:
        return first, first["state"]
    return None, "settled, or waits for its key" if waits_for_keys else "settled"


def _letter(
    visit: Visit, known: Mapping[str, Any], names: Sequence[str], entry: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Where the dead letter of a message is, if it is among the first ones behind it."""
    letters = known["settings"]["dead_letter_queue"]
    place = _told_by(visit, STORY_HEADER, names, letters, entry["timestamp"], entry)
    return None if place is None else {"how": "a dead letter", "queue": letters, "place": place}


def _again(visit: Visit, names: Sequence[str], entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Where a message is that was sent again: it is looked for behind the last redrive's beginning, and behind itself."""
    redrive = visit.may(*names, "redrive")
    if redrive is None:
        return None
    task = redrive.content["task"]
    for queue, since in ((task.get("queue") or names[1], task["started"]), (names[1], entry["timestamp"])):
        place = _told_by(visit, REDRIVEN_HEADER, names, queue, since, entry)
        if place is not None:
            return {"how": "sent again", "queue": queue, "place": place}
    return None


def _told_by(
    visit: Visit, header: str, names: Sequence[str], queue: str, since: str, entry: Mapping[str, Any]
) -> str | None:
    """The place of the message of a queue whose header tells of another one, and of its group."""
    application, origin, _, group = names
    wanted = {"columns": "partition,message_id,headers", "since": since, "limit": MOST_LOOKED_AT}
    try:
        found = visit.may(application, queue, partitions="all", **wanted)
    except QueueNotFound:
        return None
    for one in [] if found is None else found.content["messages"]:
        story = story_in(one, header) or {}
        told = story.get("queue"), story.get("group"), story.get("partition"), story.get("message_id")
        if told == (origin, group, entry["partition"], entry["message_id"]):
            return f"{one['partition']}:{one['message_id']}"
    return None
