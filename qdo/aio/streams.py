"""Answers of unknown length, in an ``async for``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, Self, TypeVar

from qdo.client.following import Following
from qdo.client.steps import Listing, Reply
from qdo.client.streams import ArrowRows, MessageRows, StreamRows
from qdo.client.values import Message, Page

__all__ = ["AsyncArrowStream", "AsyncFollowedPages", "AsyncMessageStream"]

T = TypeVar("T")


class _AsyncIterated(StreamRows[T]):
    """Rows in an ``async for``. As a context manager it closes the connection."""

    def __init__(self, answer: Reply, each: Callable[[Listing[T]], AsyncGenerator[T, None]]) -> None:
        super().__init__(answer)
        self._items = each(self._rows())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """:raises BrokenStream: the answer ended without its mark, or its rows are not as many as the mark says."""
        return await anext(self._items)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._answer.close()
        await self._items.aclose()


class AsyncMessageStream(_AsyncIterated[Message], MessageRows):
    """Messages from newline-delimited JSON."""


class AsyncFollowedPages:
    """Pages of :meth:`qdo.aio.AsyncClient.follow`, in an ``async for``. As a context manager it closes itself."""

    def __init__(self, following: Following, each: Callable[[Listing[Page]], AsyncGenerator[Page, None]]) -> None:
        self._following = following
        self._pages = each(following.pages())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Page:
        """:raises QueueyError: an error that waiting does not mend."""
        return await anext(self._pages)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the loop, which may be that of another task."""
        self._following.close()
        # The task that runs it ends it by itself.
        with suppress(RuntimeError):
            await self._pages.aclose()


class AsyncArrowStream(_AsyncIterated[Any], ArrowRows):
    """Record batches of pyarrow. It needs the extra ``arrow``."""
