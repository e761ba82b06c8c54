"""Tasks for tests that run on an event loop, and one beside them that does not."""

from __future__ import annotations

import asyncio
import threading

from qdo import current_context, task

NOTES: list[str] = []


@task(queue="async", results=True)
async def meet(text: str) -> str:
    """Returns once another one has come."""
    NOTES.append(text)
    while len(NOTES) < 2:  # noqa: ASYNC110 -- an event would belong to one loop
        await asyncio.sleep(0.001)
    return current_context().queue


@task(queue="async", timeout=0.05, retries=0, results=True)
async def sleep() -> None:
    await asyncio.sleep(60)


@task(queue="async", results=True)
def plain() -> bool:
    return threading.current_thread() is threading.main_thread()
