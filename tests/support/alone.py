"""A test that fails, fails alone.

What a failed test left open lives on in the frames of its traceback. Python closes it when it collects them, in the
middle of some later test, and the warning about it, which is an error here, fails that one. So the frames are cleared
and collected as soon as the test is over; by then the report is written, and a warning has nothing to add to it.
"""

from __future__ import annotations

import gc
import sys
import traceback
import warnings
from collections.abc import Generator
from types import TracebackType
from typing import Any

import pytest

_FAILED: pytest.StashKey[list[TracebackType]] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
        item.stash.setdefault(_FAILED, []).extend(_of_all(call.excinfo.value))
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    result = yield
    failed = item.stash.get(_FAILED, None)
    if failed is not None:
        del item.stash[_FAILED]
        _forget(failed)
    return result


def _of_all(error: BaseException | None) -> list[TracebackType]:
    """The tracebacks of an exception and of those that led to it."""
    found: list[TracebackType] = []
    seen: set[int] = set()
    todo = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        todo += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
        if one.__traceback__ is not None:
            found.append(one.__traceback__)
    return found


def _forget(tracebacks: list[TracebackType]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        while tracebacks:
            traceback.clear_frames(tracebacks.pop())
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, name):
                delattr(sys, name)
        gc.collect()
