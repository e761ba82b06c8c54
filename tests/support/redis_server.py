"""A real Redis for tests: on a socket in a folder, without a port, its data in memory."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from tests.support.servers import eventually


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Its URL. The folder's name must be short: the path of a socket has at most 107 bytes."""
    socket = folder / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no"]
    with (folder / "redis.log").open("wb") as said:
        process = subprocess.Popen([*command, "--dir", str(folder)], stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        url = f"unix://{socket}"
        eventually(lambda: _answers(url))
        yield url
    finally:
        process.terminate()
        process.wait(60)


def _answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url) as client:
            return bool(client.ping())
    except redis.exceptions.ConnectionError:
        return False
