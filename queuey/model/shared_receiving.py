"""A receive beside other servers that they know nothing of yet. See :mod:`queuey.model.receiving`."""

from __future__ import annotations

from collections.abc import Callable

from queuey.ids import MessageId
from queuey.model.lease_rules import Share
from queuey.model.lease_state import Due
from queuey.model.receiving import Receive

__all__ = ["ReceiveShared"]


class ReceiveShared(Receive):
    """A receive of a weak group that several servers use.

    Each message is in the share of one server. So servers that hand out at once rarely choose the same, and each comes
    to its next message soon: little gets out of order.
    """

    def run(self, pick: Callable[[int], int]) -> None:
        fresh: list[int] = []
        self.fresh = fresh
        self._look()
        left: list[Due | int] = []
        while self.has_place and (own := self._next_own(left)) is not None:
            self.hand_out(own, fresh)
        if not self.handed:
            self._hand_others(left, fresh)
        self.left_to_others = [self._id_of(one) for one in left]
        self._leave([one for one in left if isinstance(one, int)])

    def _hand_others(self, left: list[Due | int], fresh: list[int]) -> None:
        """Hand out messages of others that are free: those farthest from what their servers, or yet other ones, come to
        next.
        """
        share, most = self._share, self.most - self.others
        ids = [self._id_of(one) for one in left]
        ranks = [share.rank(message_id) for message_id in ids]
        free = [at for at, message_id in enumerate(ids) if share.is_free(message_id, ranks[at])]
        for at in sorted(sorted(free, key=lambda at: (ranks[at], -at))[:most]):
            if not self.has_place:
                break
            self.hand_out(left[at], fresh)
        handed = {*fresh}
        left[:] = [one for one in left if one not in handed]

    def _id_of(self, found: Due | int) -> MessageId:
        return found.hole.id if isinstance(found, Due) else self.id_at(found)

    @property
    def _share(self) -> Share:
        assert self.rules.share is not None  # noqa: S101 - else this is another kind of receive
        return self.rules.share

    def _next_own(self, left: list[Due | int]) -> Due | int | None:
        """The next message of this server's share; None if there is none among the next ``k``.

        :param left: gets the messages before it.
        """
        for _ in range(self.rules.k):
            found = self._draw()
            if found is None:
                return None
            if not self._share.rank(self._id_of(found)):
                return found
            left.append(found)
        return None
