"""Queuey over HTTP: typed calls with time limits and safe repeats.

Errors are those of :mod:`queuey.errors`. The client finds the class by the code that the server sent, so the same name
is raised on both sides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self, TypeVar, Unpack

from qdo.client.appending import AppendCalls
from qdo.client.endpoint import Addressed, Endpoint, Named
from qdo.client.extending import Extender
from qdo.client.figures import ApplicationFigures, FigureCalls, QueueFigures, ServerFigures
from qdo.client.following import FollowedPages, Following
from qdo.client.lease_groups import LeaseGroup, LeasePartition
from qdo.client.lease_values import (
    Delivery,
    Extend,
    ExtendAll,
    Lease,
    Queues,
    Receive,
    ReceiveOptions,
    Reject,
    Release,
    Settle,
    Settled,
)
from qdo.client.leases import LeaseCalls, Popped
from qdo.client.moments import Moment
from qdo.client.offsets import OffsetCalls
from qdo.client.queue_info import PartitionInfo, QueueInfo
from qdo.client.queues import QueueCalls
from qdo.client.reading import ReadCalls
from qdo.client.steps import Blocks, Listing, Reply, Steps
from qdo.client.streams import ArrowStream, MessageStream
from qdo.client.tasks import QueueTask, RedrivePreview, TaskCalls
from qdo.client.transport import Transport
from qdo.client.values import (
    Appended,
    ChangedQueues,
    GroupOffset,
    HasLocation,
    Message,
    NewMessage,
    NewToken,
    Page,
    QueueSettings,
    SpanCount,
    SpanCounts,
    StreamEnd,
)

__all__ = [
    "Appended",
    "ApplicationFigures",
    "ArrowStream",
    "ChangedQueues",
    "Client",
    "Delivery",
    "Extend",
    "ExtendAll",
    "FollowedPages",
    "GroupOffset",
    "HasLocation",
    "Lease",
    "LeaseGroup",
    "LeasePartition",
    "Message",
    "MessageStream",
    "Moment",
    "NewMessage",
    "NewToken",
    "Page",
    "PartitionInfo",
    "QueueFigures",
    "QueueInfo",
    "QueueSettings",
    "QueueTask",
    "Queues",
    "Receive",
    "RedrivePreview",
    "Reject",
    "Release",
    "ServerFigures",
    "Settle",
    "Settled",
    "SpanCount",
    "SpanCounts",
    "StreamEnd",
]


T = TypeVar("T")


class Client(
    AppendCalls,
    QueueCalls,
    ReadCalls[MessageStream, ArrowStream, FollowedPages],
    OffsetCalls,
    LeaseCalls[Delivery],
    TaskCalls,
    FigureCalls,
    Addressed,
    Blocks,
):
    """The queues of one application on one server.

    Use one client in each thread; as a context manager it closes itself.
    """

    _delivery = Delivery

    def __init__(
        self,
        url: str | None = None,
        application: str | None = None,
        key: str | None = None,
        *,
        token: str | None = None,
        timeout_seconds: float = 30.0,
        retries: int = 5,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """:param url: of the server. Without it, what else is not given is from the environment as well: ``QUEUEY_URL``,
            ``QUEUEY_APPLICATION``, and ``QUEUEY_KEY`` or ``QUEUEY_TOKEN``; or from a context, if none of these names a server or
            a credential. With a URL neither counts.
        :param application: ``demo``, if it is named nowhere.
        :param key: application key; None asks anonymously, which public queues allow.
        :param token: of a user, or of the server's own making; it takes the place of the key.
        :param timeout_seconds: for connecting, and for the next bytes of an answer.
        :param retries: repeats of one call, at most. Each call says which outcomes are never repeated.
        :param sleep: waits between repeats and polls.
        """
        named = Named.of(url, application, key, token)
        self.application = named.application
        """Whose queues these are."""
        self._endpoint = Endpoint(named.url, named.key, named.token, timeout_seconds=timeout_seconds, retries=retries)
        self._transport = Transport(sleep)
        self._extender = self._new_extender()
        self._popped = Popped[Delivery]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections. Leases are not extended any more."""
        self._extender.close()
        self._transport.close()

    @contextmanager
    def receive_one(
        self, queue: Queues, group: str, *, receiver: str | None = None, **options: Unpack[ReceiveOptions]
    ) -> Iterator[Delivery | None]:
        """One message for the block of a ``with``, or None if there is none.

        The lease is extended while the block runs. The message is acknowledged at the end of the block, or released if the
        block raises; see :class:`Delivery`.

        :param queue, receiver, options: as for :meth:`receive`, but no ``pop``.
        :raises StaleReceipt: the block ended well, but the lease had ended before.
        """
        found = self._do(self._received_for_block(queue, group, receiver, options))
        if found is None:
            yield None
            return
        with found as delivery:
            yield delivery

    def _new_extender(self) -> Extender:
        """It has connections of its own, since a pool serves one thread."""
        transport = self._transport.beside()
        return Extender(lambda leases: transport.do(self._extended(leases)), transport.close)

    def _do(self, steps: Steps[T]) -> T:
        return self._transport.do(steps)

    def _each(self, steps: Listing[T]) -> Iterator[T]:
        return self._transport.each(steps)

    def _followed(self, following: Following) -> FollowedPages:
        return FollowedPages(following, self._each)

    def _message_stream(self, answer: Reply) -> MessageStream:
        return MessageStream(answer, self._each)

    def _arrow_stream(self, answer: Reply) -> ArrowStream:
        return ArrowStream(answer, self._each)
