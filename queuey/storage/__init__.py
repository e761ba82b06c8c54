"""What a store must do, and how one is opened.

Messages and metadata are two interfaces, so they may live in different stores. Every call that can take time returns a
:class:`~queuey.future.Future`: an embedded store often completes it at once, a distributed one later. The contract
suite in :mod:`queuey.storage.contract` is the definition: code that passes it is a backend.

Every call has the same errors (G10): :class:`~queuey.errors.StorageUnavailable` means that nothing was changed;
:class:`~queuey.errors.OutcomeUnknown` means that something may have been.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import inf
from uuid import UUID

from queuey import future
from queuey.future import Future, Inbox
from queuey.ids import MessageId
from queuey.model import (
    Appended,
    AppendRequest,
    Consistency,
    Location,
    Message,
    Offset,
    OffsetChange,
    OffsetMove,
    Overwrite,
    Page,
    PartitionId,
    PartitionState,
    PrincipalKey,
    Queue,
    ReadRequest,
    Span,
    SpanCount,
    SpanRemoval,
)
from queuey.storage.leasing import LeaseStore
from queuey.storage.peers import AppendNotice, NodeState, Peers, ServerBeat
from queuey.storage.tasks import TaskStore

__all__ = [
    "AppendNotice",
    "LeaseStore",
    "MessageStore",
    "MetadataStore",
    "NodeState",
    "OffsetStore",
    "Peers",
    "ServerBeat",
    "Stores",
    "TaskStore",
]

_COUNT_PAGE = 5000


class OffsetStore(ABC):
    """How far groups have got in the partitions of queues.

    An offset refers to one incarnation's messages and is useless without them. So it is stored with them: one
    :meth:`MessageStore.drop` ends both (G9), and a backup of the messages includes the offsets. Queues are given by
    uuid, groups by exact name.
    """

    @abstractmethod
    def read_offsets(self, queue: UUID, group: str) -> Future[Mapping[int, Offset]]:
        """The offsets of a group, by partition.

        Partitions that were never claimed or set are left out; a dropped queue has none. The answer is never older than
        an acknowledged change, nor than an earlier answer.
        """

    @abstractmethod
    def change_offsets(self, queue: UUID, group: str, change: OffsetChange) -> Future[Mapping[int, OffsetMove]]:
        """Compare-and-set of the offsets of some partitions.

        It carries out :meth:`OffsetChange.moves` as one step among all servers. The first change makes the group.

        :returns: what was done, by partition.
        :raises StaleGeneration, OffsetMovesBack, InvalidParameter: of one partition; nothing is changed in any.
        :raises QueueNotFound: the queue's incarnation was dropped; nothing is changed.
        :raises StorageFull: it is the first change of a partition and needs room; other changes still work.
        """

    @abstractmethod
    def list_groups(self, queue: UUID, *, start: str = "", limit: int = 1000) -> Future[Sequence[str]]:
        """One page of the groups of a queue, by name in code point order.

        The page begins with ``start``, which is included. Its cost follows ``limit``, not the number of groups of this
        or of other queues.
        """

    @abstractmethod
    def forget_group(self, queue: UUID, group: str) -> Future[None]:
        """Forget a group and its generations; no error if there is none."""


class MessageStore(ABC):
    """Partitions of messages, in the order of their ids."""

    read_delay_seconds: float = 0.0
    """How far the watermark stays behind the clock; 0 in a store that knows all its unfinished writes."""
    settled_seconds: float = inf
    """A removal of a queue completes no sooner than this and :attr:`MetadataStore.trusted_seconds` after it was
    decided. A write that ends later than that after its queue was looked up may have outlived the queue, so the queue
    is looked up again (G9). Infinite if the store itself refuses such writes."""

    peers: Peers | None = None
    """How to notify other servers; None unless others append to the same store."""
    reads_elsewhere: bool = False
    """Whether pages are read outside of this process, so that asking ahead pays."""

    def use_loop(self, inbox: Inbox | None) -> None:  # noqa: B027 - few stores have such work
        """Work at the end of an event loop's turns where that is cheaper, from now on.

        No work of that loop may block until a call of the store is done.

        :param inbox: that of the loop; None before the loop ends.
        """

    def stays_open(self) -> bool:
        """Let what the event loop asks for in its next turn share the commit of an append that was just asked for.

        A step of a lease group that shares it hands out what is appended there.

        :returns: False if that commit does not wait.
        """
        return False

    @abstractmethod
    def append(self, request: AppendRequest) -> Future[Appended]:
        """Store messages under fresh ids.

        The store draws the ids at the last moment before they go to disk. A draft due in the future gets an id of that
        moment; one due in the past is raised to now. Drafts due now get rising ids in their order. The future completes
        only when the messages would survive the death of this process (G1). Within one partition they are stored whole
        or not at all.

        :raises QueueNotFound: the queue's incarnation was dropped; nothing is stored.
        :raises KeyReused: ``request.idempotency`` was used for another digest; nothing is stored.
        :raises StorageFull: nothing is stored; other calls still work.
        """

    @abstractmethod
    def watermark(self, consistency: Consistency) -> int:
        """The newest tick up to which no more acknowledged messages can appear (G3).

        That holds for messages acknowledged by now and later. It never falls. Take it before reading, and read no
        further.
        """

    @abstractmethod
    def read(
        self, request: ReadRequest, *, now_ticks: int, consistency: Consistency = Consistency.STRONG
    ) -> Future[Page]:
        """One page of the live messages of a partition.

        Expired and deleted messages are skipped before ``limit`` counts.

        :param request: the ``upto`` of its span is at most the watermark; a store adds no delay of its own.
        :param now_ticks: decides expiry.
        :returns: strictly ascending ids; descending with ``newest_first``. With a limit of 4,000 messages or more, a
            page may end early with ``more`` set, if the store has the messages after it in one piece.
        :raises CorruptMessage: a body does not match its checksum; the error names the id (G6).
        :source: queuey-api-v1 W10: the first Queuey filtered after the limit.
        """

    def count_span(
        self,
        partition: PartitionId,
        span: Span,
        *,
        now_ticks: int,
        limit: int = 0,
        step: int = 0,
        consistency: Consistency = Consistency.STRONG,
    ) -> Future[SpanCount]:
        """What a span holds: its last id, its number of messages, and split points.

        This implementation reads ids, page by page; a store that can count does better. Messages that expire or are
        deleted while it counts may be counted or not.

        :param span: see :meth:`read`.
        :param limit: count no further; with 0 nothing is counted, and ``more`` says whether there is any message.
        :param step: every ``step``-th message is a split point; 0 gives none.
        """
        return future.start(self._count_span(partition, span, now_ticks, limit, step, consistency))

    async def _count_span(
        self, partition: PartitionId, span: Span, now_ticks: int, limit: int, step: int, consistency: Consistency
    ) -> SpanCount:
        last = await self.read(
            ReadRequest(partition, span, 1, newest_first=True, with_bodies=False),
            now_ticks=now_ticks,
            consistency=consistency,
        )
        newest = last.messages[0].id if last.messages else None
        split_points: list[MessageId] = []
        counted, more = 0, newest is not None
        while more and counted < limit:
            request = ReadRequest(partition, span, min(_COUNT_PAGE, limit - counted), with_bodies=False)
            page = await self.read(request, now_ticks=now_ticks, consistency=consistency)
            ids = [message.id for message in page.messages]
            split_points += ids[-(counted + 1) % step :: step] if step else ()
            counted, more = counted + len(ids), page.more
            span = Span(ids[-1], span.upto) if ids else span
        return SpanCount(newest, counted, more, split_points)

    @abstractmethod
    def fetch(self, queue: Queue, wanted: Sequence[Location], *, now_ticks: int) -> Future[Sequence[Message | None]]:
        """Messages by location, in the order asked.

        None stands for a message that does not exist. The watermark does not limit a fetch.

        :raises CorruptMessage: as :meth:`read`.
        """

    @abstractmethod
    def put(self, queue: Queue, wanted: Sequence[Location], new: Overwrite) -> Future[bool]:
        """Store one message under each of these ids, in place of any message there, whose key stays.

        :returns: True if any of the ids is at or below the watermark, so that a reader may have passed it (G3).
        :raises InvalidParameter: see :meth:`Overwrite.keys_over`; nothing is stored.
        :raises QueueNotFound: the queue's incarnation was dropped; nothing is stored.
        """

    @abstractmethod
    def delete(self, queue: Queue, wanted: Sequence[Location]) -> Future[None]:
        """Remove messages by location; missing ones are no error.

        Removing a scheduled message cancels it.
        """

    @abstractmethod
    def delete_span(
        self, queue: Queue, number: int, span: Span, *, most: int, whole: bool = False
    ) -> Future[SpanRemoval]:
        """Remove the first messages of a span of a partition, in the order of their ids.

        Each call removes a part of the span, so that other calls wait for milliseconds at most. It may be repeated, and
        an interrupted one has removed the messages up to some id.

        :param most: about how many messages to remove, from 1.
        :param whole: messages that are stored as one piece, which the span ends within, stay.
        :returns: what was removed, and up to which id: go on behind it.
        :raises CorruptMessage: the span ends within messages that are stored as one damaged piece.
        """

    @abstractmethod
    def inspect(
        self, partitions: Sequence[PartitionId], *, now_ticks: int, seconds: float = inf
    ) -> Future[Sequence[PartitionState]]:
        """Depth, bytes and ends of each partition, in the order asked.

        A deep partition costs no more than others, once it was asked for. Where other servers change messages too, what
        they delete or overwrite may be counted up to a minute late; appends are exact.

        :param seconds: no further partition is counted after this time. The answer then has the first ones only. What was
            counted stays known, so asking again gets further.
        """

    @abstractmethod
    def drop(self, queue: UUID) -> Future[None]:
        """Forget all messages of a queue's incarnation, and its offsets.

        Once this is done, they can no longer be read, and appends are refused. The store gives the room on disk back
        later, also across restarts (G9). May be repeated.
        """

    @abstractmethod
    def problems(self) -> Sequence[str]:
        """What makes the store unable to work, each problem as a sentence.

        Empty if all is well. Fast, from memory.
        """

    def warnings(self) -> Sequence[str]:
        """What makes the store weaker than it promises, though it works.

        Each is a sentence. Fast, from memory.
        """
        return ()

    def nodes(self) -> Sequence[NodeState] | None:
        """The nodes of a cluster that the store lies on, by address; None if it has none. Fast, from memory."""
        return None

    def clock_error_seconds(self) -> float:
        """How far this server's clock may be off, in seconds.

        It is measured against the clocks that the store's guarantees depend on, or against its newest id.
        """
        return 0.0

    @abstractmethod
    def close(self) -> None:
        """Finish what was accepted, then release files and threads. May be repeated."""


class MetadataStore(ABC):
    """Queues and their settings, and the keys of applications and operators."""

    trusted_seconds: float = inf
    """How long a queue that was read may be used while others change it; infinite in a store of one server."""

    def use_loop(self, inbox: Inbox | None) -> None:  # noqa: B027 - few stores have such work
        """See :meth:`MessageStore.use_loop`."""

    @abstractmethod
    def create_queue(self, queue: Queue) -> Future[tuple[Queue, bool]]:
        """Store ``queue`` unless its application has one of that name.

        Atomic among all servers.

        :returns: the queue that is stored now, and True if it is the given one.
        """

    @abstractmethod
    def find_queue(self, application: str, name: str) -> Future[Queue | None]:
        """The queue as stored now; names match exactly."""

    @abstractmethod
    def replace_queue(self, old: Queue, new: Queue) -> Future[bool]:
        """Compare-and-set of a queue's settings.

        Stores ``new`` if ``old`` is what is stored.

        :returns: False if it is not; then nothing changed.
        """

    @abstractmethod
    def remove_queue(self, queue: Queue) -> Future[bool]:
        """Remove this incarnation.

        The same step remembers its uuid among :meth:`removed`.

        :returns: False if it was removed already.
        """

    @abstractmethod
    def removed(self, limit: int = 100) -> Future[Sequence[UUID]]:
        """Incarnations removed whose messages may not have been dropped yet."""

    @abstractmethod
    def forget_removed(self, queue: UUID) -> Future[None]:
        """Forget a removed incarnation, whose messages are dropped."""

    @abstractmethod
    def list_queues(self, application: str, *, start: str = "", limit: int = 1000) -> Future[Sequence[Queue]]:
        """One page of an application's queues, by name in code point order.

        The page begins with ``start``, which is included. Its cost follows ``limit``, not the number of queues.
        """

    @abstractmethod
    def list_named(
        self, application: str, principal: str, *, start: str = "", limit: int = 1000
    ) -> Future[Sequence[Queue]]:
        """One page of an application's queues that name ``principal``.

        In the order of :meth:`list_queues`, and from its start. A queue is listed once, however often it names the
        principal. It is listed from the acknowledgement of its creation or replacement on, until that of its
        replacement or removal. Principals match exactly. Queues that do not name the principal are skipped before
        ``limit`` counts, so a short page is the last.

        The cost follows ``limit``, not the number of queues or principals.
        """

    @abstractmethod
    def add_key(self, key: PrincipalKey) -> Future[None]:
        """Store a key. Storing the same digest again changes nothing."""

    @abstractmethod
    def keys(self) -> Future[Sequence[PrincipalKey]]:
        """All keys of all applications and operators, oldest first.

        They are a few thousand at most.
        """

    @abstractmethod
    def remove_key(self, principal: str, label: str) -> Future[int]:
        """Remove the keys of an application or an operator with this label.

        :returns: the number of keys removed.
        """

    @abstractmethod
    def problems(self) -> Sequence[str]:
        """See :meth:`MessageStore.problems`."""

    @abstractmethod
    def close(self) -> None:
        """See :meth:`MessageStore.close`."""


class Stores:
    """The stores of one server. Several may share a file, a process or a cluster."""

    def __init__(
        self,
        messages: MessageStore,
        offsets: OffsetStore,
        metadata: MetadataStore,
        leases: LeaseStore,
        tasks: TaskStore,
    ) -> None:
        self.messages = messages
        self.offsets = offsets
        """The offset store. It lies where the messages lie, and is closed with them."""
        self.metadata = metadata
        self.leases = leases
        """The lease store. It lies where the messages lie, and is closed with them."""
        self.tasks = tasks
        """The store of tasks. It lies where the messages lie, and is closed with them."""

    def use_loop(self, inbox: Inbox | None) -> None:
        """See :meth:`MessageStore.use_loop`."""
        self.messages.use_loop(inbox)
        self.metadata.use_loop(inbox)
        self.leases.use_loop(inbox)

    def problems(self) -> list[str]:
        found = list(self.messages.problems())
        return found + [text for text in self.metadata.problems() if text not in found]

    def warnings(self) -> Sequence[str]:
        return self.messages.warnings()

    def close(self) -> None:
        self.messages.close()
        self.metadata.close()
