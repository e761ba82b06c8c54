"""Finding the tasks of modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qdo.tasks.declaring import DeclaredTask
from qdo.worker.job import load_module
from queuey.errors import ConfigurationError

__all__ = ["load_tasks"]


def load_tasks(modules: Sequence[str]) -> Mapping[str, DeclaredTask[Any, Any]]:
    """The tasks in these modules by name. The current folder is searched as well.

    :raises ConfigurationError: a module cannot be imported or has no task, two tasks have one name, or JSON has no form for a
        type of a parameter.
    """
    found: dict[str, DeclaredTask[Any, Any]] = {}
    for name in modules:
        module = load_module(name)
        some = [value for value in vars(module).values() if isinstance(value, DeclaredTask)]
        if not some:
            raise ConfigurationError(f"module {name} has no task: declare one with @qdo.task")
        for one in some:
            if found.setdefault(one.name, one) is not one:
                raise ConfigurationError(f"two tasks are named {one.name}: give one of them another name=")
            one.arguments.check()
    return found
