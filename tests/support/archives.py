"""Queues to archive, and what an archive of them holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from qdo.client import Client, NewMessage
from qdo.pipeline.jobs.archive import Archive
from tests.support.pipeline import APPLICATION, KEY, settle
from tests.support.servers import RunningServer


def options(running: RunningServer, **more: str) -> dict[str, str]:
    return {"url": running.url, "application": APPLICATION, "token": KEY} | more


def filled(client: Client, name: str, count: int = 60) -> str:
    """Bodies of all kinds, keys and headers and none, over three partitions."""
    client.create_queue(name, partitions=3)
    bodies = [b"\xff\x00%d" % number if number % 3 else b"text %d" % number for number in range(count)]
    client.append_batch(
        name,
        [
            NewMessage(
                body,
                key=f"k{number % 5}" if number % 2 else None,
                content_type="x/y" if number % 7 == 0 else None,
                headers={"trace": b"\xff\x00%d" % number, "Kind": "order"} if number % 4 == 0 else {},
            )
            for number, body in enumerate(bodies)
        ],
    )
    settle(client, name)
    return name


def archived(found: Archive) -> Counter[tuple[Any, ...]]:
    return Counter(
        (row.queue, row.partition, row.message_id, bytes(row.body), row.key, _pairs(row.headers or {}))
        for row in found.read().collect()
    )


def there(client: Client, *names: str) -> Counter[tuple[Any, ...]]:
    return Counter(
        (name, m.partition, m.id.hex, m.body, m.key, _pairs(m.headers)) for name in names for m in client.iterate(name)
    )


def _pairs(headers: Mapping[str, bytes | bytearray]) -> tuple[tuple[str, bytes], ...]:
    return tuple(sorted((name, bytes(value)) for name, value in headers.items()))
