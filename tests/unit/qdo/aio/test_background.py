"""Work that outlives its caller."""

from __future__ import annotations

import asyncio
import logging

import pytest

from qdo.aio.background import MOST_TASKS, Background
from queuey.errors import StorageUnavailable


def test_it_goes_on_when_its_caller_is_cancelled() -> None:
    async def scenario() -> list[str]:
        done: list[str] = []
        background, begun, may_end = Background(), asyncio.Event(), asyncio.Event()

        async def work() -> None:
            begun.set()
            await may_end.wait()
            done.append("all")

        caller = asyncio.create_task(background.finish(work(), "what"))
        await begun.wait()
        caller.cancel()
        await asyncio.wait([caller])
        assert caller.cancelled()
        may_end.set()
        await background.aclose(60)
        return done

    assert asyncio.run(scenario()) == ["all"]


def test_the_error_is_the_callers_or_the_logs(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise StorageUnavailable("because")

    async def scenario() -> None:
        background = Background()
        with pytest.raises(StorageUnavailable):
            await background.finish(fails(), "waited for")
        assert caplog.messages == []
        background.start(fails(), "not waited for")
        caller = asyncio.create_task(background.finish(fails(), "left alone"))
        await asyncio.sleep(0)
        caller.cancel()
        await background.aclose(60)

    asyncio.run(scenario())

    assert sorted(caplog.messages) == ["left alone: because", "not waited for: because"]


def test_the_end_of_the_client_is_the_end_of_its_tasks(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        background = Background()
        background.start(asyncio.sleep(3600), "what")
        await background.aclose(0.01)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())

    assert caplog.messages == ["what: the client was closed"]


def test_tasks_that_nobody_waits_for_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def scenario() -> None:
        background = Background()
        for _ in range(MOST_TASKS + 1):
            background.start(asyncio.sleep(0), "what")
        assert caplog.messages == [f"what: {MOST_TASKS} calls are in the background already"]
        await background.aclose(60)
        background.start(asyncio.sleep(0), "what")
        await background.aclose(60)

    asyncio.run(scenario())

    assert len(caplog.messages) == 1
