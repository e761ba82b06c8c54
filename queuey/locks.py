"""Locks that a forked process finds free.

A thread of the parent may hold a lock at the moment of a fork. That thread is not there in the child, so nobody would ever let go, and a
request that is only to be refused would hang (G18). Drivers with threads of their own, such as Cassandra's, do not outlive a fork at all.
"""

from __future__ import annotations

import os
import threading
import weakref

_made: weakref.WeakSet[threading.Lock] = weakref.WeakSet()


def new_lock() -> threading.Lock:
    """A lock that is free in the child after a fork. The thread that forks must not hold it."""
    lock = threading.Lock()
    _made.add(lock)
    return lock


def _free_all() -> None:
    for lock in [*_made]:
        if lock.locked():
            lock.release()


os.register_at_fork(after_in_child=_free_all)
