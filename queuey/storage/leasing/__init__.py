"""What a store must do for lease groups.

The rule is :mod:`queuey.model.leases`. A store makes its changes durable, alone or together with appends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from uuid import UUID

from queuey.future import Future, Inbox
from queuey.ids import MessageId
from queuey.model.lease_groups import GroupSettings, LeaseGroup
from queuey.model.lease_steps import HeldPage, LeaseCounts, LeaseOutcome, LeaseStep

__all__ = ["ATTEMPT_SECONDS", "LeaseStore"]

ATTEMPT_SECONDS = 300.0
"""How long the answer to an attempt is remembered (G23)."""


class LeaseStore(ABC):
    """The lease groups of queues.

    They are stored with the messages: one :meth:`queuey.storage.MessageStore.drop` ends both (G9). Queues are given by
    uuid, groups by exact name.
    """

    default_settings = GroupSettings()
    """Of a new group."""

    def use_loop(self, inbox: Inbox | None) -> None:  # noqa: B027 - few stores have such work
        """Work on an event loop where that is cheaper, from now on. Call it on that loop.

        :param inbox: that of the loop; None before the loop ends, after :meth:`queuey.storage.MessageStore.use_loop`.
        """

    @abstractmethod
    def step(self, step: LeaseStep) -> Future[LeaseOutcome]:
        """Settle, append and receive, in one step among all servers.

        The future completes when the step would survive the death of this process (G21, G24). A message is handed out
        if it is readable: not past the watermark, and not expired.

        :raises StaleReceipt: the step appends, and a lease that it settles had ended; nothing is done.
        :raises LeaseGroupNotFound: a group is not there or has another token; nothing is done.
        :raises KeyReused: the attempt was used for another digest, or an idempotency key was; nothing is done.
        :raises QueueNotFound: the incarnation of a queue was dropped; nothing is done.
        :raises StorageFull: the step appends; nothing is done. Other steps still work.
        :raises CorruptMessage, StorageUnavailable: a message that is to be handed out is damaged, or cannot be read, and
            nothing is settled or appended. A step that does settle or append hands out nothing instead.
        """

    @abstractmethod
    def find_group(self, queue: UUID, name: str) -> Future[LeaseGroup | None]:
        """A group as stored now."""

    @abstractmethod
    def keep_group(self, queue: UUID, name: str, group: LeaseGroup, before: LeaseGroup | None) -> Future[bool]:
        """Compare-and-set: store the group if ``before`` is what is stored, or None if there is none.

        A group with another token than before begins anew at its start: all leases and answers to attempts are
        forgotten, and receipts of the former token are refused.

        :returns: False if something else is stored; then nothing changed.
        :raises QueueNotFound: the queue's incarnation was dropped; nothing is stored.
        :raises StorageUnavailable: nothing is stored. A group does not begin anew either while messages that its steps
            append are still on their way.
        """

    @abstractmethod
    def list_groups(self, queue: UUID, *, start: str = "", limit: int = 1000) -> Future[Sequence[str]]:
        """One page of the lease groups of a queue, by name in code point order.

        The page begins with ``start``, which is included.
        """

    @abstractmethod
    def forget_group(self, queue: UUID, name: str) -> Future[None]:
        """Forget a group and its leases; no error if there is none. A new group of the name has another token.

        :raises StorageUnavailable: nothing is forgotten. It is not forgotten either while messages that its steps append
            are still on their way.
        :raises OutcomeUnknown: it may be forgotten; a repeat does the rest.
        """

    @abstractmethod
    def count(self, queue: UUID, name: str, partitions: Sequence[int]) -> Future[Mapping[int, LeaseCounts]]:
        """What a group holds in partitions of a queue; it costs the same for any number of holes.

        :returns: an entry for each of the partitions; empty if there is no such group.
        """

    @abstractmethod
    def held(self, queue: UUID, name: str, partition: int, *, after: MessageId, limit: int) -> Future[HeldPage]:
        """Messages of a partition that are leased, wait or are given up, behind an id, in the order of their ids.

        A lease that was extended shows that.
        """
