"""Calls about the offsets of groups that Queuey stores.

They are a part of each client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qdo.client.encoding import to_json
from qdo.client.endpoint import Endpoint
from qdo.client.given import check_mapping, whole_numbers
from qdo.client.moments import Moment, place_to_wire
from qdo.client.steps import ALLOWED, FORBIDDEN, Listing, Repeats, Reply, Steps, call, listing
from qdo.client.values import GroupOffset
from qdo.client.wire import group_path, queue_path
from queuey.ids import MessageId

Ids = Mapping[int, MessageId | str]
"""By partition, the last message that is finished."""


class OffsetCalls:
    """Offsets of groups. One call changes all of its partitions or none."""

    application: str
    _endpoint: Endpoint

    @call
    def offsets(self, queue: str, group: str) -> Steps[list[GroupOffset]]:
        """How far a group is: an entry for each partition of the queue, in order."""
        return _offsets((yield from self._endpoint.ask("GET", *self._group(queue, group))))

    @call
    def commit_offsets(self, queue: str, group: str, ids: Ids, generation: int = 0) -> Steps[list[GroupOffset]]:
        """Record the last messages that are finished in some partitions.

        :param generation: of the owner; see :meth:`take_over`.
        :raises StaleGeneration: a partition has a newer owner, or was reset. Nothing changed.
        :raises OffsetMovesBack: a later message is recorded already. Nothing changed.
        """
        check_mapping("ids", ids, "ids by partition")
        return self._change(queue, group, {"offsets": _entries(ids), "generation": generation})

    @call
    def take_over(self, queue: str, group: str, partitions: Sequence[int], generation: int) -> Steps[list[GroupOffset]]:
        """Claim partitions, and fence off former owners.

        From now on the server refuses the commits of former owners (G14).

        :param generation: higher than that of every former owner; or equal, if that owner is certain to be gone.
        :returns: where to go on in these partitions.
        :raises StaleGeneration: a partition was claimed with a higher generation. Nothing changed.
        """
        entries = [{"partition": number} for number in whole_numbers("partitions", partitions)]
        return self._change(queue, group, {"offsets": entries, "generation": generation})

    @call
    def reset_offsets(
        self,
        queue: str,
        group: str,
        to: Moment | Mapping[int, MessageId | str | None],
        *,
        partitions: Sequence[int] | None = None,
        preview: bool = False,
    ) -> Steps[list[GroupOffset]]:
        """Set offsets by hand, and fence off the present owners.

        :param to: ``beginning``, ``end``, the moment of the first message still to come, or the id of the last one that is
            finished. Or such an id for each partition, None for its beginning.
        :param partitions: which ones, if ``to`` is not by partition; None for all.
        :param preview: only tell what the call would do.
        :returns: the offsets after the call, each with its former id.
        """
        asked: dict[str, Any] = {"reset": True, "preview": preview}
        if isinstance(to, Mapping):
            asked["offsets"] = _entries(to)
        else:
            asked["to"] = place_to_wire(to, "to")
            if partitions is not None:
                asked["partitions"] = whole_numbers("partitions", partitions)
        repeats = ALLOWED if preview else FORBIDDEN  # a repeat would return another former id
        return self._change(queue, group, asked, repeats=repeats)

    @listing
    def offset_groups(self, queue: str, *, start: str = "", page_size: int = 1000) -> Listing[str]:
        """The groups of a queue by name.

        Each page is requested when the iteration reaches it.

        :param start: the first name; it need not exist.
        """
        path, params = queue_path(self.application, queue), {"limit": page_size, "offset": start}
        return self._endpoint.listed(
            *path, "offsets", params=params, read=lambda page: (entry["group"] for entry in page["groups"])
        )

    @call
    def delete_offsets(self, queue: str, group: str) -> Steps[None]:
        """Forget a group and its generations, whether or not it exists.

        End its workers first. A lost answer is not repeated: a repeat could forget what was committed in between.
        """
        yield from self._endpoint.ask("DELETE", *self._group(queue, group), repeats=FORBIDDEN)

    def _change(
        self, queue: str, group: str, asked: Mapping[str, Any], *, repeats: Repeats = ALLOWED
    ) -> Steps[list[GroupOffset]]:
        answer = yield from self._endpoint.ask(
            "PUT",
            *self._group(queue, group),
            data=to_json(asked),
            headers={"Content-Type": "application/json"},
            repeats=repeats,
        )
        return _offsets(answer)

    def _group(self, queue: str, group: str) -> tuple[str, ...]:
        return group_path(self.application, queue, "offsets", group)


def _entries(ids: Mapping[int, MessageId | str | None]) -> list[dict[str, Any]]:
    return [{"partition": number, "message_id": _text(message)} for number, message in ids.items()]


def _text(message: MessageId | str | None) -> str | None:
    return message.hex if isinstance(message, MessageId) else message


def _offsets(answer: Reply) -> list[GroupOffset]:
    return [GroupOffset.from_wire(entry) for entry in answer.json()["offsets"]]
