"""Leases in the client of the project, against the real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from qdo.client import (
    Client,
    Delivery,
    Extend,
    ExtendAll,
    NewMessage,
    Receive,
    Reject,
    Release,
    Settle,
)
from qdo.client.lease_values import receipt_of
from queuey.errors import (
    Conflict,
    InvalidParameter,
    InvalidReceipt,
    KeyReused,
    LeaseGroupNotFound,
    StaleReceipt,
)
from queuey.ids import MessageId
from tests.support.client import Server, new_name
from tests.support.losing import Losing, losing_answers
from tests.support.over_asyncio import CLIENTS, make_client
from tests.support.services.proxy import Proxy


@pytest.fixture
def losing(seen: Server) -> Iterator[Losing]:
    with losing_answers(seen.running) as losing:
        yield losing


@pytest.fixture(params=CLIENTS)
def behind(seen: Server, losing: Losing, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client whose answers can be lost."""
    with make_client(request.param, losing.url, seen.application, seen.key, sleep=lambda _: None) as client:
        yield client


def texts(messages: list[Delivery] | tuple[Delivery, ...]) -> list[str]:
    return sorted(message.text for message in messages)


# Receiving.


def test_a_message_comes_as_it_was_sent_and_with_its_lease(client: Client, queue: str) -> None:
    sent = NewMessage(b"\xff\x00", key="k\xfc", content_type="image/x", headers={"a": b"\xfe", "b": "text"})
    placed = client.append(queue, sent)
    before = time.time()

    (found,) = client.receive(queue, "g", visibility=100)

    assert (found.id, found.partition, found.timestamp) == (placed.id, placed.partition, placed.timestamp)
    assert (found.body, found.key, found.content_type) == (b"\xff\x00", "k\xfc", "image/x")
    assert found.headers == {"a": b"\xfe", "b": b"text"}
    assert (found.queue, found.group, found.deliveries, found.failures) == (queue, "g", 1, 0)
    assert found.visible_at is not None
    assert float(found.visible_at) == pytest.approx(float(found.first_delivered) + 100)
    assert before - 2 < float(found.first_delivered) < time.time() + 2
    assert client.receive(queue, "g") == []
    assert client.receive(queue, "another") != []


def test_a_receive_is_bounded_by_number_and_partitions(client: Client, queue: str) -> None:
    client.append_batch(queue, [NewMessage(f"{number}", partition=number % 3 + 1) for number in range(9)])

    assert texts(client.receive(queue, "g", 10, partitions=[2])) == ["1", "4", "7"]
    assert len(client.receive(queue, "g", 4)) == 4
    assert len(client.receive(queue, "g", 1000)) == 2
    with pytest.raises(InvalidParameter, match=r"receive\.max"):
        client.receive(queue, "g", 1001)


def test_a_receive_waits_for_what_comes(seen: Server, client: Client, queue: str) -> None:
    found: list[Delivery] = []

    def receive() -> None:
        # Its own time for an answer is shorter than the wait.
        with Client(seen.url, seen.application, seen.key, timeout_seconds=0.5, retries=0) as waiting:
            found.extend(waiting.receive(queue, "g", wait=60))

    thread = threading.Thread(target=receive)
    thread.start()
    time.sleep(1)  # longer than the time for an answer
    client.append(queue, "came")
    thread.join(90)

    assert texts(found) == ["came"]


def test_what_is_popped_has_no_lease(client: Client, queue: str) -> None:
    client.append(queue, "x")

    (popped,) = client.receive(queue, "g", pop=True)

    assert (popped.text, popped.receipt, popped.visible_at) == ("x", None, None)
    for use in (popped.acknowledge, popped.release, popped.reject, popped.__enter__, lambda: popped.extend(1)):
        with pytest.raises(InvalidReceipt, match="popped"):
            use()
    with pytest.raises(InvalidReceipt, match="popped"):
        client.settle(queue, "g", Settle(acknowledge=[popped]))
    assert client.receive(queue, "g") == []


# A lost answer.


@pytest.mark.parametrize("wait", [0, 20])
def test_a_pop_whose_answer_is_lost_loses_nothing_and_gives_nothing_twice(
    client: Client, behind: Client, losing: Losing, queue: str, wait: float
) -> None:
    client.append_batch(queue, [f"{number}" for number in range(20)])
    found: list[Delivery] = []

    for _ in range(5):
        losing.lose(2)
        found += behind.receive(queue, "g", 4, pop=True, wait=wait)

    assert losing.lost == 10
    assert texts(found) == sorted(f"{number}" for number in range(20))
    assert client.receive(queue, "g") == []


def test_a_pop_whose_connection_breaks_while_it_waits_gets_what_comes_once(
    seen: Server, client: Client, queue: str
) -> None:
    found: list[Delivery] = []
    waiting = threading.Event()

    def pop() -> None:
        with Client(proxy.url, seen.application, seen.key, retries=20) as behind:
            waiting.set()
            found.extend(behind.receive(queue, "g", pop=True, wait=60))

    with Proxy(lambda: ("127.0.0.1", seen.running.port)) as proxy:
        thread = threading.Thread(target=pop)
        thread.start()
        assert waiting.wait(30)
        for _ in range(3):
            time.sleep(0.3)  # by then it mostly waits; whenever it is cut, the outcome is the same
            proxy.cut()
            proxy.heal()
        client.append_batch(queue, ["a", "b"])
        thread.join(90)

    rest = client.receive(queue, "g", 10, pop=True)
    assert len(found) == len(rest) == 1
    assert texts([*found, *rest]) == ["a", "b"]


def test_what_is_settled_and_appended_is_so_once_whatever_is_lost(
    client: Client, behind: Client, losing: Losing, queue: str
) -> None:
    results = client.create_queue(new_name()).name
    client.append(queue, "x")
    (delivery,) = behind.receive(queue, "g")
    losing.lose(2)

    done = behind.settle(queue, "g", Settle(acknowledge=[delivery], append={results: ["a", "b"]}))

    assert (done.acknowledged, done.stale) == (1, ())
    assert [place.repeated for place in done.appended[results]] == [False, False]
    assert [message.text for message in client.iterate(results)] == ["a", "b"]


def test_an_acknowledgement_whose_answer_is_lost_is_no_stale_one(
    client: Client, behind: Client, losing: Losing, queue: str
) -> None:
    client.append_batch(queue, ["a", "b", "c"])
    acknowledged, released, rejected = behind.receive(queue, "g", 3)

    losing.lose()
    acknowledged.acknowledge()
    losing.lose()
    released.release(3600)
    losing.lose()
    rejected.reject("no")

    assert losing.lost == 3
    assert [lease.failures for lease in client.leases(queue, "g") if lease.state == "waits"] == [1]


def test_an_attempt_is_repeated_by_hand(client: Client, queue: str) -> None:
    client.append_batch(queue, ["a", "b"])

    first = client.receive(queue, "g", pop=True, attempt="mine")

    assert client.receive(queue, "g", pop=True, attempt="mine") == first
    assert client.receive(queue, "g", pop=True) != first
    with pytest.raises(KeyReused):
        client.receive(queue, "g", 2, pop=True, attempt="mine")


def test_an_attempt_that_is_withdrawn_hands_out_nothing(client: Client, queue: str) -> None:
    client.append(queue, "a")

    assert client.withdraw(queue, "g", "early")
    with pytest.raises(KeyReused):
        client.receive(queue, "g", attempt="early")
    (one,) = client.receive(queue, "g", attempt="done")
    assert not client.withdraw(queue, "g", "done")
    assert [again.receipt for again in client.receive(queue, "g", attempt="done")] == [one.receipt]


# Settling.


def test_leases_are_settled_one_by_one(client: Client, queue: str) -> None:
    client.append_batch(queue, ["done", "again", "later", "never"])
    leased = {delivery.text: delivery for delivery in client.receive(queue, "g", 10, visibility=3600)}

    leased["done"].acknowledge()
    leased["again"].release(count=False)
    leased["later"].release(3600)
    leased["never"].reject("broken")

    (again,) = client.receive(queue, "g", 10)
    assert (again.text, again.deliveries, again.failures) == ("again", 2, 0)
    assert again.first_delivered == leased["again"].first_delivered
    (waits,) = [lease for lease in client.leases(queue, "g") if lease.state == "waits"]
    assert (waits.id, waits.failures) == (leased["later"].id, 1)
    (dead,) = client.read(f"{queue}-dead").messages
    assert dead.text == "never"
    assert client.lease_group(queue, "g").settings["dead_letter_queue"] == f"{queue}-dead"


def test_a_release_waits_by_the_back_off_if_it_counts(client: Client, queue: str) -> None:
    client.set_lease_group(queue, "g", backoff={"first": 1000, "jitter": 0})
    client.append(queue, "x")
    (delivery,) = client.receive(queue, "g")

    delivery.release()

    (lease,) = client.leases(queue, "g")
    assert (lease.state, lease.failures) == ("waits", 1)
    assert float(lease.visible_at) - time.time() == pytest.approx(1000, abs=60)


def test_a_lease_is_extended(client: Client, queue: str) -> None:
    client.append(queue, "x")
    (delivery,) = client.receive(queue, "g", visibility=30)

    delivery.extend(3600)

    (lease,) = client.leases(queue, "g")
    assert (lease.state, lease.id, lease.partition) == ("leased", delivery.id, delivery.partition)
    assert float(lease.visible_at) - time.time() == pytest.approx(3600, abs=60)


def test_several_queues_are_received_from_and_settled_by_one_request(client: Client, queue: str) -> None:
    other = client.create_queue(new_name()).name
    client.append(other, "b")
    client.append_batch(queue, ["a", "c"])

    found = client.receive([queue, other], "workers", 2)
    assert {one.queue for one in found} == {queue}
    with client.receive_one({queue: 3, other: 1}, "workers", visibility=30) as delivery:
        assert delivery is not None
        assert (delivery.queue, delivery.text) == (other, "b")
        settled = client.settle(
            [other, queue], "workers", Settle(release=[Release(found[0], 0)], acknowledge=found[1:])
        )
    assert (settled.released, settled.acknowledged) == (1, 1)
    again = client.receive([other, queue], "workers", 9, order="weighted", pop=True)
    assert [one.id for one in again] == [found[0].id]
    with pytest.raises(InvalidParameter, match="order"):
        client.receive(queue, "workers", order="first")
    with pytest.raises(InvalidParameter, match="queues"):
        client.receive([], "workers")


def test_a_stale_receipt_is_told(client: Client, queue: str) -> None:
    client.append(queue, "x")
    (first,) = client.receive(queue, "g", visibility=0)
    (second,) = client.receive(queue, "g")

    for use in (first.acknowledge, first.release, first.reject, lambda: first.extend(60)):
        with pytest.raises(StaleReceipt, match=first.id.hex):
            use()
    second.acknowledge()
    for use in (second.acknowledge, second.release, second.reject, lambda: second.extend(60)):
        with pytest.raises(StaleReceipt):
            use()


def test_everything_goes_in_one_request(client: Client, queue: str) -> None:
    results = client.create_queue(new_name()).name
    client.append_batch(queue, [NewMessage(text, partition=1) for text in "abcdefg"])
    a, b, c, d, e = client.receive(queue, "g", 5)

    done = client.settle(
        queue,
        "g",
        Settle(
            acknowledge=[a, receipt_of(b)],
            release=[Release(c, 3600, count=False)],
            extend=[Extend(d, 3600)],
            reject=[Reject(e, "no")],
            append={results: ["r", NewMessage(b"\xff", key="k")], queue: [NewMessage("h", delay_seconds=3600)]},
            receive=Receive(10),
        ),
    )

    assert (done.acknowledged, done.released, done.extended, done.rejected, done.stale) == (2, 1, 1, 1, ())
    assert [message.body for message in client.get(results, done.appended[results])] == [b"r", b"\xff"]
    assert {name: len(places) for name, places in done.appended.items()} == {results: 2, queue: 1}
    assert texts(done.messages) == ["f", "g"]
    assert not done.is_full


def test_a_stale_receipt_harms_nothing_else_but_refuses_an_append(client: Client, queue: str) -> None:
    client.append_batch(queue, [NewMessage(text, partition=1) for text in "ab"])
    a, b = client.receive(queue, "g", 2)
    a.acknowledge()

    with pytest.raises(StaleReceipt):
        client.settle(queue, "g", Settle(acknowledge=[a, b], append={queue: ["c"]}))
    assert client.receive(queue, "g") == []
    done = client.settle(queue, "g", Settle(acknowledge=[a, b]))

    assert (done.acknowledged, done.stale) == (1, (a.receipt,))


def test_wrong_receipts_do_nothing(client: Client, queue: str) -> None:
    client.append(queue, "x")
    (delivery,) = client.receive(queue, "g")

    wrong: list[Sequence[Delivery | str]] = [[delivery, "nonsense"], [delivery, delivery]]
    for some in wrong:
        with pytest.raises(InvalidReceipt):
            client.settle(queue, "g", Settle(acknowledge=some))
    with pytest.raises(InvalidReceipt):
        client.settle(queue, "other", Settle(acknowledge=[delivery]))
    delivery.acknowledge()


def test_all_leases_of_a_receiver_go_on(client: Client, queue: str) -> None:
    client.append_batch(queue, list("abc"))
    client.receive(queue, "g", 2, receiver="me")
    client.receive(queue, "g", receiver="you")

    client.settle(queue, "g", Settle(extend=ExtendAll("me", 3600)))

    ends = {lease.receiver: float(lease.visible_at) - time.time() for lease in client.leases(queue, "g")}
    assert ends["me"] == pytest.approx(3600, abs=60)
    assert ends["you"] == pytest.approx(30, abs=20)


# Groups.


def test_groups_are_made_changed_listed_and_forgotten(client: Client, queue: str) -> None:
    until = datetime.now(UTC) + timedelta(hours=1)

    made = client.set_lease_group(queue, "b", visibility=5, order="key", start="end")
    changed = client.set_lease_group(queue, "b", max_failures=3, paused_until=until, paused_reason="night")
    for name in "adc":
        client.receive(queue, name)

    assert (made["visibility"], made["order"], made["max_failures"]) == (5, "key", 20)
    assert (changed["visibility"], changed["max_failures"], changed["paused_reason"]) == (5, 3, "night")
    assert changed["paused_until"] == pytest.approx(until.timestamp())
    assert list(client.lease_groups(queue)) == list(client.lease_groups(queue, page_size=1)) == ["a", "b", "c", "d"]
    assert list(client.lease_groups(queue, start="c")) == ["c", "d"]
    client.forget_lease_group(queue, "b")
    client.forget_lease_group(queue, "b")
    with pytest.raises(LeaseGroupNotFound):
        client.lease_group(queue, "b")
    with pytest.raises(LeaseGroupNotFound):
        next(client.leases(queue, "b"))


def test_a_queue_has_what_its_groups_begin_with(client: Client) -> None:
    name = client.create_queue(new_name(), leases={"visibility": 5, "backoff": {"first": 9}, "order": "key"}).name
    client.receive(name, "g")
    settings = client.lease_group(name, "g").settings
    assert (settings["visibility"], settings["backoff"]["first"], settings["order"]) == (5.0, 9.0, "key")
    changed = client.update_queue(name, leases={"visibility": None, "k": 2})
    assert (changed.leases["visibility"], changed.leases["k"], changed.leases["start"]) == (30.0, 2, "beginning")
    assert client.queue_info(name).settings.leases == changed.leases
    with pytest.raises(InvalidParameter, match="lease_k"):
        client.update_queue(name, leases={"k": 0})


def test_settings_that_are_wrong_are_refused(client: Client, queue: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        client.set_lease_group(queue, "g", visibility=-1, nonsense=1)
    assert set(caught.value.problems) == {"visibility", "nonsense"}
    with pytest.raises(Conflict):
        client.set_lease_group(queue, "g", dead_letter_queue=queue)
    with pytest.raises(InvalidParameter, match="group"):
        client.lease_group(queue, "..")
    client.set_lease_group(queue, "g")
    with pytest.raises(InvalidParameter, match="start"):
        client.set_lease_group(queue, "g", start="end")


def test_a_group_begins_where_it_is_told(client: Client, queue: str) -> None:
    placed = client.append_batch(queue, [NewMessage(text, partition=1) for text in "abc"])

    client.set_lease_group(queue, "at", start=placed[1].id)
    client.set_lease_group(queue, "since", start=datetime.now(UTC) - timedelta(hours=1))
    client.set_lease_group(queue, "end", start="end")

    assert texts(client.receive(queue, "at", 10)) == ["c"]
    assert texts(client.receive(queue, "since", 10)) == ["a", "b", "c"]
    assert client.receive(queue, "end") == []


def test_a_group_is_reset(client: Client, queue: str) -> None:
    placed = client.append_batch(queue, [NewMessage(f"{n}", partition=1) for n in range(3)])
    client.receive(queue, "g", 3)

    shown = client.reset_lease_group(queue, "g", placed[0].id, preview=True)
    assert client.receive(queue, "g", 3) == []
    client.reset_lease_group(queue, "g", placed[0].id)

    assert (shown["to"], shown["before"][0]["held"]) == (placed[0].id.hex, 3)
    assert [one.text for one in client.receive(queue, "g", 3)] == ["1", "2"]


def test_a_group_tells_what_it_holds(client: Client, queue: str) -> None:
    placed = client.append_batch(queue, [NewMessage(f"{n}", partition=n % 3 + 1) for n in range(9)])
    leased = {delivery.id: delivery for delivery in client.receive(queue, "g", 9, receiver="me")}
    leased[placed[0].id].acknowledge()
    leased[placed[1].id].release(3600)

    found = client.lease_group(queue, "g")

    assert found.name == "g"
    assert [(one.number, one.held, one.dead) for one in found.partitions] == [(1, 2, 0), (2, 3, 0), (3, 3, 0)]
    done = found.partitions[0].done_up_to
    assert done is not None
    assert placed[0].id <= MessageId.parse(done) < placed[3].id
    for size in (1, 2, 3, 1000):
        leases = list(client.leases(queue, "g", page_size=size))
        assert [(one.partition, one.id) for one in leases] == sorted((p.partition, p.id) for p in placed[1:])
    assert {(one.id == placed[1].id, one.state, one.receiver) for one in leases} == {
        (True, "waits", "me"),
        (False, "leased", "me"),
    }
