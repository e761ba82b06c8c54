"""The client for asyncio has what the blocking client has."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest

import qdo.aio
from qdo.aio import AsyncArrowStream, AsyncClient, AsyncDelivery, AsyncFollowedPages, AsyncMessageStream
from qdo.client import ArrowStream, Client, Delivery, FollowedPages, MessageStream
from qdo.client.steps import call, listing
from tests.support.scripted_server import Say, Script

PAIRS = [
    (Client, AsyncClient),
    (Delivery, AsyncDelivery),
    (MessageStream, AsyncMessageStream),
    (ArrowStream, AsyncArrowStream),
    (FollowedPages, AsyncFollowedPages),
]
IN_ASYNCIO = {"close": "aclose"}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def parameters(function: Callable[..., Any]) -> list[tuple[str, object, object]]:
    """Names, kinds and defaults."""
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_each_public_name_stands_in_both(blocking: type, asynchronous: type) -> None:
    assert {IN_ASYNCIO.get(name, name) for name in public(blocking)} == public(asynchronous)


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_each_method_has_the_same_parameters_in_both(blocking: type, asynchronous: type) -> None:
    for name in public(blocking):
        mine, theirs = getattr(blocking, name), getattr(asynchronous, IN_ASYNCIO.get(name, name))
        if callable(mine):
            assert parameters(mine) == parameters(theirs), name


def test_the_clients_are_made_alike() -> None:
    def but_sleep(function: Callable[..., Any]) -> list[tuple[str, object, object]]:
        return [one for one in parameters(function) if one[0] != "sleep"]

    assert but_sleep(Client) == but_sleep(AsyncClient)
    assert parameters(Client)[-1][0] == parameters(AsyncClient)[-1][0] == "sleep"


def test_what_differs_is_written_twice_and_nothing_else() -> None:
    """A call that stands in one client alone would not be compared with the other."""
    own = {name for name in vars(AsyncClient) if not name.startswith("_")}

    assert own == {"aclose", "receive_one"}
    shared = public(AsyncClient) - own - {"follow", "from_env"}  # these stand once, and only make what differs
    assert all(isinstance(getattr(AsyncClient, name), call | listing | property) for name in shared)


def test_a_method_tells_what_it_does() -> None:
    assert inspect.getdoc(AsyncClient.append) == inspect.getdoc(Client("http://x").append)
    assert str(inspect.getdoc(Client.append)).startswith("Store one message.")


def test_a_library_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("qdo.aio", "qdo.aio.transport"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)

    with pytest.raises(ModuleNotFoundError, match=r"pip install '/path/to/queuey\[aio\]'"):
        importlib.import_module("qdo.aio")


def test_the_package_offers_what_it_says() -> None:
    assert all(hasattr(qdo.aio, name) for name in qdo.aio.__all__)


def test_a_close_that_is_cancelled_closes(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    script.say(Say(200, b'{"queues":[]}'))

    async def scenario() -> None:
        client = AsyncClient(script.url)
        assert [queue async for queue in client.queues()] == []
        session = client._transport._session
        client._background.start(asyncio.Event().wait(), "it is not done")  # type: ignore[arg-type]
        closing = asyncio.create_task(client.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        assert session is not None
        assert session.closed
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())

    assert "it is not done: the client was closed" in caplog.text
