"""Queuey over HTTP for asyncio: the calls, values and errors of :mod:`qdo.client`, with ``await``.

It needs the extra ``aio``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar, Unpack, cast

from qdo.aio.background import Background
from qdo.aio.extending import AsyncExtender
from qdo.aio.streams import AsyncArrowStream, AsyncFollowedPages, AsyncMessageStream
from qdo.client.appending import AppendCalls
from qdo.client.endpoint import Addressed, Endpoint, Named
from qdo.client.figures import FigureCalls
from qdo.client.following import Following
from qdo.client.lease_values import LeasedMessage, Queues, ReceiveOptions
from qdo.client.leases import LeaseCalls, Popped
from qdo.client.offsets import OffsetCalls
from qdo.client.queues import QueueCalls
from qdo.client.reading import ReadCalls
from qdo.client.steps import Awaits, Listing, Reply, Request, Steps
from qdo.client.tasks import TaskCalls
from qdo.client.values import address

try:
    from qdo.aio.transport import AsyncTransport
except ModuleNotFoundError as error:
    if error.name not in ("aiohttp", "yarl"):
        raise
    raise ModuleNotFoundError("qdo.aio needs aiohttp: pip install '/path/to/queuey[aio]'", name=error.name) from error

__all__ = ["AsyncArrowStream", "AsyncClient", "AsyncDelivery", "AsyncFollowedPages", "AsyncMessageStream"]

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AsyncDelivery(LeasedMessage, Awaits):
    """A message that is leased to this receiver until ``visible_at``.

    In an ``async with`` it extends the lease while the block runs. It acknowledges the message at the end of the block. It
    releases it if the block raises: as a failure, but not if it was cancelled. Both go on if the task is cancelled
    meanwhile. If the block settles the message itself, nothing is done at its end.
    """

    async def __aenter__(self) -> Self:
        """:raises InvalidReceipt: the message was popped."""
        self.keep()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """:raises StaleReceipt: the block ended well, but the lease had ended before."""
        steps = self._end(error)
        if steps is not None:
            await self._client()._finish(steps)  # noqa: SLF001 -- the two are one part of the client

    async def _do(self, steps: Steps[T]) -> T:
        return await self._client()._do(steps)  # noqa: SLF001

    def _client(self) -> AsyncClient:
        """:raises InvalidReceipt: the message was popped."""
        return cast(AsyncClient, self._kept()[0])


class AsyncClient(
    AppendCalls,
    QueueCalls,
    ReadCalls[AsyncMessageStream, AsyncArrowStream, AsyncFollowedPages],
    OffsetCalls,
    LeaseCalls[AsyncDelivery],
    TaskCalls,
    FigureCalls,
    Addressed,
    Awaits,
):
    """The queues of one application on one server, for the tasks of one event loop.

    In an ``async with`` it closes itself. A call may be cancelled at any time. What a cancelled call stores or settles may
    be done or not, as after :class:`~queuey.errors.OutcomeUnknown`. A cancelled receive gives its messages back.
    """

    _delivery = AsyncDelivery

    def __init__(
        self,
        url: str | None = None,
        application: str | None = None,
        key: str | None = None,
        *,
        token: str | None = None,
        timeout_seconds: float = 30.0,
        retries: int = 5,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Nothing is sent before the first call. See :class:`~qdo.client.Client` for the parameters."""
        named = Named.of(url, application, key, token)
        self.application = named.application
        """Whose queues these are."""
        self._endpoint = Endpoint(named.url, named.key, named.token, timeout_seconds=timeout_seconds, retries=retries)
        self._transport = AsyncTransport(self._endpoint.root, sleep)
        self._background = Background()
        self._popped = Popped[AsyncDelivery]()
        self._extender = AsyncExtender(lambda leases: self._do(self._extended(leases)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the connections. Leases are not extended any more.

        First it waits for what gives messages of cancelled calls back, but at most ``timeout_seconds``, and not if it is
        cancelled.
        """
        try:
            await self._extender.aclose()
            await self._background.aclose(self._endpoint.timeout_seconds)
        finally:
            await self._transport.aclose()
            self._tell_of_popped()

    def _tell_of_popped(self) -> None:
        if left := [address(one) for one in self._popped.left()]:
            log.warning("cancelled pops have got messages that no other pop took: get(%s) reads them", ",".join(left))

    @asynccontextmanager
    async def receive_one(
        self, queue: Queues, group: str, *, receiver: str | None = None, **options: Unpack[ReceiveOptions]
    ) -> AsyncIterator[AsyncDelivery | None]:
        """One message for the block of an ``async with``, or None if there is none.

        See :meth:`qdo.client.Client.receive_one`, and :class:`AsyncDelivery` for what the block does.
        """
        found = await self._do(self._received_for_block(queue, group, receiver, options))
        if found is None:
            yield None
            return
        async with found as delivery:
            yield delivery

    async def _do(self, steps: Steps[T]) -> T:
        return await self._transport.do(steps, self._given_up)

    def _each(self, steps: Listing[T]) -> AsyncGenerator[T, None]:
        return self._transport.each(steps)

    async def _finish(self, steps: Steps[None]) -> None:
        """Carry out a call to its end, also if the caller is cancelled."""
        await self._background.finish(self._transport.do(steps), "a lease may not be settled, and runs out")

    def _given_up(self, request: Request, error: asyncio.CancelledError) -> None:
        if request.method != "GET":
            error.add_note(f"{request.method} {request.url.partition('?')[0]} may be done or not")
        if request.withdraw is not None:
            what = (
                "messages of a cancelled receive may come only when their leases run out, and those of a pop not at all"
            )
            self._background.start(self._transport.do(request.withdraw()), what)

    def _followed(self, following: Following) -> AsyncFollowedPages:
        return AsyncFollowedPages(following, self._each)

    def _message_stream(self, answer: Reply) -> AsyncMessageStream:
        return AsyncMessageStream(answer, self._each)

    def _arrow_stream(self, answer: Reply) -> AsyncArrowStream:
        return AsyncArrowStream(answer, self._each)
