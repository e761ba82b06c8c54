"""Clients of threads that are not ours."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from weakref import ref

from qdo.adapters.clients import ThreadClients
from qdo.client import Client


def in_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_a_client_goes_with_its_thread() -> None:
    """Some servers begin a thread for each request: its connection would stay until no file can be opened."""
    clients = ThreadClients(lambda: Client("http://queuey.example"))
    of_threads: list[ref[Client]] = []

    for _ in range(3):
        in_thread(lambda: of_threads.append(ref(clients.get())))
    mine = clients.get()
    gc.collect()

    assert [found() for found in of_threads] == [None] * 3
    assert clients.get() is mine
    clients.close()
    assert clients.get() is not mine
    clients.close()


def test_each_thread_has_one_of_its_own() -> None:
    clients = ThreadClients(lambda: Client("http://queuey.example"))
    found: list[Client] = []

    in_thread(lambda: found.extend((clients.get(), clients.get())))

    assert found[0] is found[1]
    assert found[0] is not clients.get()
    clients.close()
