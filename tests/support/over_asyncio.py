"""The asyncio client, called as the blocking one: so one scenario runs over both."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, Self, cast

from qdo.aio import AsyncArrowStream, AsyncClient, AsyncDelivery, AsyncFollowedPages, AsyncMessageStream
from qdo.client import Client, Delivery, Settled
from qdo.client.extending import HeldLease

CLIENTS = ("blocking", "asyncio")


def make_client(kind: str, *args: Any, **options: Any) -> Client:
    """A client of one of :data:`CLIENTS`."""
    return Client(*args, **options) if kind == "blocking" else cast(Client, OverAsyncio(*args, **options))


class OverAsyncio:
    """An :class:`AsyncClient` in the event loop of a thread."""

    def __init__(self, *args: Any, sleep: Callable[[float], None] | None = None, **options: Any) -> None:
        async def pause(seconds: float) -> None:
            if sleep is None:
                await asyncio.sleep(seconds)
            else:
                sleep(seconds)

        async def made() -> AsyncClient:
            return AsyncClient(*args, sleep=pause, **options)

        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="asyncio client")
        self._thread.start()
        try:
            self.client = self._run(made())
        except BaseException:
            self._end()
            raise
        self._extender = self

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.client, name)
        if not callable(found):
            return found
        return lambda *args, **options: self._result(found(*args, **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._run(self.client.aclose())
        self._end()

    def keep(self, lease: HeldLease) -> None:
        """As the extender of the blocking client."""
        self._loop.call_soon_threadsafe(self.client._extender.keep, lease)

    def drop(self, lease: HeldLease) -> None:
        self._loop.call_soon_threadsafe(self.client._extender.drop, lease)

    @contextmanager
    def receive_one(self, *args: Any, **options: Any) -> Iterator[Delivery | None]:
        block = self.client.receive_one(*args, **options)
        delivery = self._run(block.__aenter__())
        try:
            yield self._value(delivery)
        except BaseException as error:
            if not self._run(block.__aexit__(type(error), error, None)):
                raise
        else:
            self._run(block.__aexit__(None, None, None))

    def _settle(self, *args: Any) -> Any:
        return self.client._settle(*args)

    def _do(self, steps: Any) -> Any:
        return self._run(self.client._do(steps))

    def _run(self, work: Awaitable[Any]) -> Any:
        async def awaited() -> Any:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(120)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _result(self, result: Any) -> Any:
        if inspect.isasyncgen(result):
            return self._iterated(result)
        if isinstance(result, AsyncFollowedPages):
            return _Pages(self, result)
        return self._value(self._run(cast(Coroutine[Any, Any, Any], result)))

    def _iterated(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        try:
            while True:
                try:
                    item = self._run(anext(items))
                except StopAsyncIteration:
                    return
                yield self._value(item)
        finally:
            if inspect.isasyncgen(items):
                self._run(items.aclose())

    def _value(self, value: Any) -> Any:
        match value:
            case AsyncDelivery():
                given = {one.name: getattr(value, one.name) for one in fields(value)}
                return Delivery(**{**given, "_leases": value._leases and self})
            case Settled():
                return replace(value, messages=tuple(map(self._value, cast(Sequence[Any], value.messages))))
            case [*several]:
                return [*map(self._value, several)] if isinstance(value, list) else value
            case AsyncMessageStream() | AsyncArrowStream():
                return _Stream(self, value)
        return value


class _Pages:
    def __init__(self, over: OverAsyncio, pages: AsyncFollowedPages) -> None:
        self._over, self._pages = over, pages

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            return self._over._run(anext(self._pages))
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._over._run(self._pages.aclose())


class _Stream:
    def __init__(self, over: OverAsyncio, stream: AsyncMessageStream | AsyncArrowStream) -> None:
        self._over, self._stream = over, stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[Any]:
        return self._over._iterated(self._stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over._run(self._stream.aclose())
