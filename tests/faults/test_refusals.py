"""G10: what was refused stored nothing; only where the outcome is said to be unknown may something be stored."""

from __future__ import annotations

import itertools
import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest
import requests

from qdo.client import Client
from tests.support.effects import Effects, everything
from tests.support.figures import Figures
from tests.support.node import APPLICATION, Node, wait_for_more
from tests.support.outcomes import Outcomes
from tests.support.raw import begin_upload
from tests.support.servers import FIRST_KEY, eventually

ABSENT_ID = "1f9f6640e56711f189bf02fc00000001"
TABLES = ("messages", "idempotency", "offsets", "dropped", "removed", "queues", "app_keys")
"""All that requests change."""
SMALL = "[limits]\nmax_body_bytes = 1000\nmax_request_bytes = 2000\n"
FULL = "[storage]\nreserve_mb = 1000000\n"
"""A reserve larger than any disk of a test machine: the disk counts as full."""

Send = Callable[[Node], requests.Response]


def post(body: bytes = b"body", **headers: str) -> Send:
    return lambda node: node.call("POST", "q", data=body, headers=named(headers))


def batch(text: str | None = None, **headers: str) -> Send:
    given = text or json.dumps({"messages": [{"body": "first"}, {"body": "second"}]})
    return post(given.encode(), content_type="application/vnd.queuey.batch+json", **headers)


def put(ids: str = ABSENT_ID, body: bytes = b"put", **headers: str) -> Send:
    return lambda node: node.call("PUT", "q", ids, data=body, headers=named(headers))


def create(headers: Mapping[str, str] | None = None, **fields: Any) -> Send:
    return lambda node: node.call("POST", data={"queue_name": uuid.uuid4().hex} | fields, headers=headers or {})


def update(queue: str = "q", **fields: Any) -> Send:
    return lambda node: node.call("PUT", queue, data=fields)


def delete(*below: str, key: str | None = None) -> Send:
    headers = {} if key is None else {"Authorization": key}
    return lambda node: node.call("DELETE", *below, headers=headers)


def commit(group: str = "there", *, number: int = 3, generation: Any = 2, **headers: str) -> Send:
    """Of partition 1, to a message whose id tells its number; the offset that is there is of number 2."""
    entries = [{"partition": 2}, {"partition": 1, "message_id": f"{number}{ABSENT_ID[1:]}"}]
    body = {"offsets": entries, "generation": generation}
    return lambda node: node.call("PUT", "q", "offsets", group, json=body, headers=headers)


def named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


WRITES: Mapping[str, Send] = {
    "create": create(),
    "update": update(partitions=7),
    "delete queue": delete("doomed"),
    "append": post(),
    "append once": post(Idempotency_Key="fresh"),
    "batch": batch(),
    "put": put(),
    "delete messages": lambda node: node.call("DELETE", "q", first_id(node)),
    "commit": commit(),
    "commit of a new group": commit("new"),
    "forget group": delete("q", "offsets", "there"),
}
"""Every request that changes something, as it should be."""

BAD_WRITES: Mapping[str, tuple[Send, int]] = {
    "create: name": (create(queue_name="a/b"), 400),
    "create: partitions": (create(partitions=201), 400),
    "create: there is one": (create({"If-None-Match": "*"}, queue_name="q"), 409),
    "create: wrong key": (create({"Authorization": "Application " + "f" * 40}), 401),
    "create: no key": (create({"Authorization": ""}), 403),
    "update: shrink": (update(partitions=1), 400),
    "update: principals": (update(principles="nobody", partitions=9), 400),
    "update: absent": (update("absent", partitions=9), 404),
    "delete queue: absent": (delete("absent"), 404),
    "delete queue: no key": (delete("doomed", key=""), 403),
    "append: empty": (post(b""), 400),
    "append: ttl": (post(X_TTL="0"), 400),
    "append: partition": (post(X_Partition="3"), 400),
    "append: partition and key": (post(X_Partition="1", X_Key="k"), 400),
    "append: too large": (post(b"x" * 1001), 413),
    "append: encoding": (post(Content_Encoding="gzip"), 415),
    "append: key reused": (post(b"another body", Idempotency_Key="used"), 422),
    "append: key": (post(Idempotency_Key="x" * 129), 400),
    "append: wrong key": (post(Authorization="Application " + "f" * 40), 401),
    "append: chunked": (lambda node: node.call("POST", "q", data=iter([b"body"])), 411),
    "batch: no JSON": (batch("{"), 400),
    "batch: last entry": (batch('{"messages": [{"body": "good"}, {"body": "bad", "partition": 3}]}'), 400),
    "batch: key reused": (
        batch('{"messages": [{"body": "good"}, {"body": "bad", "idempotency_key": "of-an-entry"}]}'),
        422,
    ),
    "batch: too large": (batch(json.dumps({"messages": [{"body": "x" * 1900}]})), 413),
    "put: id": (put("nonsense"), 400),
    "put: one of two ids": (put(f"{ABSENT_ID},{ABSENT_ID[:-1]}"), 400),
    "put: partition": (put(f"3:{ABSENT_ID}"), 400),
    "put: empty": (put(body=b""), 400),
    "put: ttl": (put(X_TTL="-1"), 400),
    "put: too large": (put(body=b"x" * 1001), 413),
    "delete messages: id": (lambda node: node.call("DELETE", "q", f"{first_id(node)},nonsense"), 400),
    "delete messages: no key": (
        lambda node: node.call("DELETE", "q", first_id(node), headers={"Authorization": ""}),
        403,
    ),
    "commit: generation": (commit(generation=1), 409),
    "commit: back": (commit(number=1), 409),
    "commit: no number": (commit(generation="3"), 400),
    "commit: group": (commit("a b"), 400),
    "commit: no key": (commit(Authorization=""), 403),
    "forget group: no key": (delete("q", "offsets", "there", key=""), 403),
    "no such method": (lambda node: node.call("PATCH", "q", data=b"body"), 405),
    "no such path": (lambda node: node.call("POST", "q", ABSENT_ID, "more", data=b"body"), 404),
}
"""Requests that must be refused, and how."""


def first_id(node: Node) -> str:
    messages = node.call("GET", "q", params={"limit": "1"}).json()["messages"]
    return str(messages[0]["message_id"])


def send_all(node: Node, look: apsw.Connection, writes: Mapping[str, Send]) -> Outcomes:
    outcomes = Outcomes()
    for name, send in writes.items():
        before = on_disk(look)
        status = send(node).status_code
        outcomes.note(name, status, changed=on_disk(look) != before)
    return outcomes


def on_disk(look: apsw.Connection) -> dict[str, Any]:
    """Everything that the store has committed, table by table, once the keeper has given back the room of dropped queues."""
    eventually(lambda: not look.execute("select 1 from dropped").fetchall())
    return {table: look.execute(f"select * from {table}").fetchall() for table in TABLES}  # noqa: S608


@contextmanager
def prepared(folder: Path, settings: str) -> Iterator[tuple[Node, apsw.Connection]]:
    """A server with something to change, started again with these settings; and a look at its disk."""
    with Node(folder) as node:
        for name in ("q", "doomed"):
            node.client().create_queue(name, partitions=2)
        assert [post(b"there", X_Partition="1")(node).status_code for _ in range(3)] == [201] * 3
        assert post(b"a body", Idempotency_Key="used")(node).status_code == 201
        entry = {"body": "a body", "idempotency_key": "of-an-entry"}
        assert batch(json.dumps({"messages": [entry]}))(node).status_code == 201
        assert commit(number=2)(node).status_code == 200
    with Node(folder, settings=settings) as node:
        look = apsw.Connection(str(node.database), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            yield node, look
        finally:
            look.close()


def test_a_bad_request_is_refused_and_changes_nothing(tmp_path: Path, figures: Figures) -> None:
    with prepared(tmp_path, SMALL) as (node, look):
        outcomes = send_all(node, look, {name: send for name, (send, _) in BAD_WRITES.items()})
        after = send_all(node, look, WRITES)

    figures("G10", fault="bad_input", refused=outcomes.refused, of_which_stored=len(outcomes.stored_though_refused))
    assert outcomes.statuses == {name: status for name, (_, status) in BAD_WRITES.items()}
    assert outcomes.stored_though_refused == []
    assert after.refused == 0, after.statuses
    assert after.unchanged_though_ok == []


def test_a_full_disk_refuses_what_grows_and_nothing_else(tmp_path: Path, figures: Figures) -> None:
    with prepared(tmp_path, FULL) as (node, look):
        outcomes = send_all(node, look, WRITES)

    figures("G10", fault="full_disk", refused=outcomes.refused, of_which_stored=len(outcomes.stored_though_refused))
    taken = {name for name, status in outcomes.statuses.items() if status == 200}
    assert taken == {"delete queue", "delete messages", "commit", "forget group"}
    assert {status for name, status in outcomes.statuses.items() if name not in taken} == {507}
    assert outcomes.stored_though_refused == []
    assert outcomes.unchanged_though_ok == []


def test_a_store_whose_file_is_gone_refuses_every_write(tmp_path: Path, figures: Figures) -> None:
    with prepared(tmp_path, "") as (node, look):
        on_disk(look)
        node.database.unlink()
        outcomes = send_all(node, look, WRITES)

    figures("G10", fault="unlinked", refused=outcomes.refused, of_which_stored=len(outcomes.stored_though_refused))
    assert set(outcomes.statuses.values()) == {503}
    assert outcomes.stored_though_refused == []


@pytest.mark.parametrize(
    ("settings", "size", "held"),
    [("max_in_flight = 2", 1, 0), ("max_in_flight_mb = 1", 6000, 1 << 20)],
)
def test_requests_over_a_limit_in_flight_are_refused_and_store_nothing(
    tmp_path: Path, rounds: Callable[[int], range], figures: Figures, settings: str, size: int, held: int
) -> None:
    """Many at once, beside an upload that holds all the room and then without it.

    Large ones have large answers too, which must not be refused when it is too late.
    """
    statuses: dict[str, int] = {}
    with Node(tmp_path, settings=f"[limits]\n{settings}\n") as node, ThreadPoolExecutor(12) as threads:
        node.client().create_queue("q")

        def send(name: str) -> int:
            text = json.dumps({"messages": [{"body": name}] * size})
            statuses[name] = batch(text)(node).status_code
            return statuses[name]

        path = f"/v1/{APPLICATION}/q"
        probes = (f"probe {number}" for number in itertools.count())
        names = [str(number) for number in rounds(240 if size == 1 else 36)]
        with ExitStack() as slow:
            if held:
                kind = "Content-Type: application/json"
                slow.enter_context(begin_upload(node.running.port, path, FIRST_KEY, b" " * held, kind))
            assert eventually(lambda: 429 in list(threads.map(send, itertools.islice(probes, 1 if held else 24))))
            list(threads.map(send, names[::2]))
        list(threads.map(send, names[1::2]))
        stored = Counter(message.text for message in everything(node.client(), "q"))

    refused = [name for name, status in statuses.items() if status in (429, 503)]
    taken = {name: size for name, status in statuses.items() if status == 201}
    told_wrong = [name for name in refused if name in stored]
    figures("G10", fault=settings.replace(" = ", "_"), refused=len(refused), of_which_stored=len(told_wrong))
    assert len(refused) + len(taken) == len(statuses)
    assert taken
    assert told_wrong == []
    assert stored == taken


def test_a_killed_server_leaves_unknown_outcomes_and_no_wrong_ones(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    effects = [Effects() for _ in range(6)]
    with Node(tmp_path) as node:
        node.client().create_queue("q", partitions=3)
        for _ in rounds(3):
            with node.busy(*(partial(append_one, each) for each in effects)):
                wait_for_more(lambda: sum(each.ok for each in effects), chance.randint(10, 100))
                node.kill()
                eventually(lambda: all(each.refused for each in effects), seconds=90)
            node.start()
        found = {message.body for message in everything(node.client(), "q")}

    refused = {body for each in effects for body in each.turned_away}
    unknown = {body for each in effects for body in each.homeless}
    figures(
        "G10",
        fault="kill",
        refused=len(refused),
        of_which_stored=len(refused & found),
        unknown=len(unknown),
        unknown_stored=len(unknown & found),
    )
    assert refused & found == set()
    assert unknown


def append_one(effects: Effects, client: Client) -> None:
    body = uuid.uuid4().bytes
    effects.append([body], lambda: [client.append("q", body)])
