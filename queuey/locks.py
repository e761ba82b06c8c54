"""Locks that a forked process finds free.

A thread of the parent may hold a lock at the moment of a fork. The child does not have that thread, so nobody would ever
release the lock, and even a request that the server refuses would hang (G18). Drivers with threads of their own, such as Cassandra's, do not outlive a fork at all.
"""

from __future__ import annotations

import os
import threading
import weakref

_made: weakref.WeakSet[threading.Lock] = weakref.WeakSet()


def new_lock() -> threading.Lock:
    """A lock that is free in the child after a fork.

    The thread that forks must not hold it.
    """
    lock = threading.Lock()
    _made.add(lock)
    return lock


def _free_all() -> None:
    for lock in [*_made]:
        if lock.locked():
            lock.release()


os.register_at_fork(after_in_child=_free_all)
