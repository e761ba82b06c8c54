"""What each driver of the load harness promises, tried on the systems that are here."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from qdo.bench.clock import SECOND, MonotonicClock
from qdo.bench.drivers import (
    Consumer,
    DeadLetterDriver,
    Delivered,
    Driver,
    LoopConsumer,
    LoopDriver,
    MeasuredSystem,
    OutgoingMessage,
    StepConsumer,
    driver_class,
    driver_names,
)
from qdo.bench.drivers.queuey_v1 import QueueyDriver
from qdo.bench.systems import system_class
from queuey.errors import ConfigurationError, QueueyError
from tests.support import servers
from tests.support.bench_by_clock import workload_of
from tests.support.peers_of_bench import StartedPeers, started
from tests.support.servers import FIRST_KEY, RunningServer

HERE = ("memory", "faulty", "queuey", "sqs", "queuey-spread")
"""Drivers whose systems each run of the tests has."""
PEERS: Mapping[str, tuple[str, str]] = {
    "redis-streams": ("redis-streams", "redis"),
    "redis-lists": ("redis-lists", "redis"),
    "rabbitmq-classic": ("rabbitmq-classic", "rabbitmq"),
    "rabbitmq-quorum": ("rabbitmq-quorum", "rabbitmq"),
    "nats": ("nats", "nats"),
    "kafka": ("kafka", "kafka"),
    "elasticmq": ("sqs", "elasticmq"),
}
"""Systems of others, for the long form: the driver, and what is started."""
WITH_POPS_AND_READS = ("memory", "faulty", "queuey", "queuey-spread")
IN_LOOPS = ("memory", "faulty", "queuey", "queuey-spread")
WITH_LEASES = ("redis-streams", "rabbitmq-classic", "rabbitmq-quorum", "nats", "kafka", "elasticmq")
POPPING = ("redis-lists", "rabbitmq-classic", "rabbitmq-quorum", "nats")
READING = ("redis-streams", "nats", "kafka")


def several(*names: str, peers: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Run a test over these drivers; over peers in the long form."""
    marked = [pytest.param(name, marks=pytest.mark.long) for name in peers]
    return pytest.mark.parametrize("made", [*names, *marked], indirect=True)


Made = Callable[..., Driver]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with servers.shipped(tmp_path_factory.mktemp("bench"), settings="[sqs]\nauth = open\n") as running:
        yield running


@pytest.fixture(scope="module")
def peers() -> Iterator[StartedPeers]:
    with TemporaryDirectory(prefix="peers-") as folder, ExitStack() as running:
        yield StartedPeers(Path(folder), running)


def options_of(name: str, server: RunningServer) -> Mapping[str, str]:
    if name in ("queuey", "queuey-spread"):
        return {"url": server.url, "application": "demo", "key": FIRST_KEY}
    if name == "sqs":
        return {"url": server.url, "access_key": "demo", "secret_key": "none"}
    return {}


@pytest.fixture
def made(request: pytest.FixtureRequest, server: RunningServer) -> Iterator[Made]:
    """Makes the driver for a workload, with its queues."""
    drivers: list[Driver] = []
    name, options = request.param, options_of(request.param, server)
    if name in PEERS:
        name, system = PEERS[name]
        options = request.getfixturevalue("peers").options(system)

    def make(**values: Any) -> Driver:
        receiving = {"batch": 10, "visibility": 30, "wait": 1, **values.pop("receiving", {})}
        workload = workload_of(receiving=receiving, seconds=1, **values)
        driver = driver_class(name)(MeasuredSystem(workload, secrets.randbits(32), options))
        driver.prepare()
        drivers.append(driver)
        return driver

    yield make
    for driver in drivers:
        driver.remove()


def all_of(consumer: Consumer, count: int) -> list[Delivered]:
    """This many messages; the ask behind the last one is bounded."""
    found: list[Delivered] = []
    for _ in range(100):
        found += consumer.receive(1)
        if len(found) >= count:
            break
    return found


def send(driver: Driver, *bodies: str) -> None:
    producer = driver.producer()
    for body in bodies:
        producer.send(0, [OutgoingMessage(body.encode())])
    producer.close()


def test_all_drivers_are_tried() -> None:
    assert {*HERE, *(driver for driver, _ in PEERS.values())} == {*driver_names()}
    assert [name for name in HERE if "pop" in driver_class(name).modes] == list(WITH_POPS_AND_READS)
    assert [name for name in HERE if issubclass(driver_class(name), LoopDriver)] == list(IN_LOOPS)
    assert {name for name in driver_names() if driver_class(name).loop_modes} == {*IN_LOOPS}
    assert [name for name in driver_names() if issubclass(driver_class(name), DeadLetterDriver)] == [
        "queuey",
        "sqs",
        "rabbitmq-quorum",
        "queuey-spread",
    ]


@several(*HERE, peers=WITH_LEASES)
def test_what_is_sent_is_received_whole(made: Made) -> None:
    driver = made()
    send(driver, "one", "two")
    with closing(driver.producer()) as producer:
        producer.send(0, [OutgoingMessage(f"{at}".encode()) for at in range(5)])

    consumer = driver.consumer(0, 0)
    handed = all_of(consumer, 7)

    assert sorted(one.body for one in handed) == sorted([b"one", b"two", b"0", b"1", b"2", b"3", b"4"])
    consumer.close()


@several(*HERE, peers=WITH_LEASES)
def test_what_is_leased_is_hidden_and_what_is_acknowledged_stays_away(made: Made) -> None:
    driver = made()
    send(driver, "one")
    consumer, other = driver.consumer(0, 0), driver.consumer(0, 0)

    (handed,) = all_of(consumer, 1)
    hidden = other.receive(0)
    acknowledged = consumer.acknowledge([handed.token])

    assert (hidden or [], [*acknowledged]) == ([], [True])
    assert [*other.receive(0)] == []
    consumer.close()
    other.close()


@several(*HERE, peers=WITH_LEASES[1:])
def test_what_is_given_back_comes_again(made: Made) -> None:
    driver = made(group={"backoff": {"first": 0}})
    send(driver, "one")
    consumer = driver.consumer(0, 0)

    (handed,) = all_of(consumer, 1)
    consumer.fail([handed.token])
    (again,) = all_of(consumer, 1)

    assert again.body == handed.body
    assert [*consumer.acknowledge([again.token])] == [True]
    consumer.close()


@several(*WITH_POPS_AND_READS, peers=POPPING)
def test_a_pop_gives_each_message_once(made: Made) -> None:
    driver = made(receiving={"mode": "pop"})
    send(driver, "one", "two")
    consumer = driver.consumer(0, 0)

    handed = all_of(consumer, 2)

    assert sorted(one.body for one in handed) == [b"one", b"two"]
    assert {one.token for one in handed} == {None}
    assert [*consumer.receive(0)] == []
    consumer.close()


@several(*WITH_POPS_AND_READS)
@pytest.mark.parametrize("mode", ["read", "follow"])
def test_readers_each_see_everything_in_order(made: Made, mode: str) -> None:
    driver = made(receiving={"mode": mode}, consumerPerSubscription=2)
    send(driver, *"abcdef")

    readers = [driver.consumer(0, view) for view in range(2)]
    seen = [b"".join(one.body for one in all_of(reader, 6)) for reader in readers]

    assert seen == [b"abcdef"] * 2
    for reader in readers:
        reader.close()


HERD = 40


async def received(consumers: Sequence[LoopConsumer], count: int) -> list[tuple[LoopConsumer, Delivered]]:
    """What they all get, each of which waits at once, until there are this many."""
    found: list[tuple[LoopConsumer, Delivered]] = []

    async def one(consumer: LoopConsumer) -> None:
        while len(found) < count:
            found.extend((consumer, handed) for handed in await consumer.receive(1))

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for consumer in consumers:
            group.create_task(one(consumer))
    return found


@several(*IN_LOOPS)
@pytest.mark.parametrize("mode", ["receive", "pop"])
def test_a_message_wakes_one_of_the_receivers_that_an_event_loop_serves(made: Made, mode: str) -> None:
    driver = made(receiving={"mode": mode, "batch": 1, "loop": True}, consumerPerSubscription=HERD)
    assert isinstance(driver, LoopDriver)

    async def herd() -> list[bytes]:
        consumers = [driver.loop_consumer(0, 0) for _ in range(HERD)]
        waiting = asyncio.create_task(received(consumers, 3))
        await asyncio.to_thread(send, driver, "one", "two", "three")
        found = await waiting
        if mode == "receive":
            assert [await consumer.acknowledge([handed.token]) for consumer, handed in found] == [[True]] * 3
        for consumer in consumers:
            consumer.close()
        return [handed.body for _, handed in found]

    assert sorted(asyncio.run(herd())) == [b"one", b"three", b"two"]
    with closing(driver.consumer(0, 0)) as consumer:
        assert [*consumer.receive(0)] == []


@several(*IN_LOOPS)
def test_what_a_receiver_of_an_event_loop_gives_back_comes_again(made: Made) -> None:
    driver = made(group={"backoff": {"first": 0}}, receiving={"loop": True})
    assert isinstance(driver, LoopDriver)
    send(driver, "one")

    async def twice() -> list[bytes]:
        consumer = driver.loop_consumer(0, 0)
        ((_, handed),) = await received([consumer], 1)
        await consumer.fail([handed.token])
        ((_, again),) = await received([consumer], 1)
        consumer.close()
        return [handed.body, again.body]

    assert asyncio.run(twice()) == [b"one", b"one"]


def test_an_event_loop_is_refused_where_a_driver_has_no_receivers_for_it(server: RunningServer) -> None:
    for name, mode in (("queuey", "read"), ("sqs", "receive")):
        workload = workload_of(receiving={"mode": mode, "loop": True})
        with pytest.raises(ConfigurationError, match=f"no receivers of mode {mode} for an event loop: leave it out"):
            driver_class(name)(MeasuredSystem(workload, 1, options_of(name, server)))


@several("queuey", "queuey-spread", peers=("redis-streams",))
def test_a_step_settles_and_sends(made: Made) -> None:
    driver = made(topics=2)
    send(driver, "one")
    with closing(driver.consumer(0, 0)) as consumer:
        assert isinstance(consumer, StepConsumer)
        (handed,) = all_of(consumer, 1)
        consumer.step([handed.token], 1, [OutgoingMessage(b"two"), OutgoingMessage(b"three")])

        assert [*consumer.receive(0)] == []
    with closing(driver.consumer(1, 0)) as consumer:
        assert sorted(one.body for one in all_of(consumer, 2)) == [b"three", b"two"]


@several("queuey", "queuey-spread", "sqs", peers=("rabbitmq-quorum", "elasticmq"))
def test_what_fails_too_often_is_a_dead_letter(made: Made) -> None:
    driver = made(group={"max_failures": 2, "backoff": {"first": 0}})
    send(driver, "one")
    with closing(driver.consumer(0, 0)) as consumer:
        for _ in range(2):
            (handed,) = all_of(consumer, 1)
            consumer.fail([handed.token])

        assert [*consumer.receive(0)] == []
    assert isinstance(driver, DeadLetterDriver)
    with closing(driver.letters(0)) as letters:
        assert [one.body for one in all_of(letters, 1)] == [b"one"]


def test_an_unknown_option_is_refused_with_those_that_there_are() -> None:
    for name in driver_names():
        with pytest.raises(ConfigurationError, match="the driver has no option colour; it knows"):
            driver_class(name)(MeasuredSystem(workload_of(), 1, {"colour": "red"}))


def test_a_driver_that_there_is_not_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="no driver pigeon: there are memory, faulty, queuey, sqs, redis-streams"
    ):
        driver_class("pigeon")


def test_a_mode_that_a_system_lacks_is_refused(server: RunningServer) -> None:
    workload = workload_of(receiving={"mode": "follow"})

    with pytest.raises(ConfigurationError, match=r"receiving\.mode follow: this driver knows receive"):
        driver_class("sqs")(MeasuredSystem(workload, 1, options_of("sqs", server)))


@several(peers=WITH_LEASES)
def test_what_is_held_for_too_long_comes_again(made: Made) -> None:
    driver = made(receiving={"visibility": 0.1})
    send(driver, "one")
    consumer, other = driver.consumer(0, 0), driver.consumer(0, 0)

    (handed,) = all_of(consumer, 1)
    again: list[Delivered] = []
    for _ in range(100):
        again += [*consumer.receive(0), *other.receive(0.5)]
        if again:
            break

    assert {one.body for one in again} == {handed.body}
    consumer.close()
    other.close()


@several("queuey")
def test_consumers_of_one_thread_share_a_connection_where_they_are_many(made: Made) -> None:
    """A thread or a task that serves a million queues does not open a million connections, and two do not share one."""
    few, many = made(topics=2, receivers=2), made(topics=2, receivers=1)
    assert isinstance(few, QueueyDriver)
    assert isinstance(many, QueueyDriver)

    async def line_of_a_task() -> object:
        return many.receiving_line(many.loop_line)

    async def lines_of_tasks() -> tuple[object, object]:
        return await asyncio.gather(line_of_a_task(), line_of_a_task())

    one, other = asyncio.run(lines_of_tasks())
    assert one is not other
    assert few.receiving_line(few.blocking_line) is not few.receiving_line(few.blocking_line)
    assert many.receiving_line(many.blocking_line) is (here := many.receiving_line(many.blocking_line))
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(many.receiving_line, many.blocking_line).result() is not here


class Ahead(MonotonicClock):
    """Runs ahead of the machine's clock by what a test adds."""

    ahead = 0

    def now(self) -> int:
        return time.monotonic_ns() + self.ahead


@several(peers=("rabbitmq-classic", "rabbitmq-quorum"))
def test_what_is_held_for_too_long_takes_no_later_message_with_it(made: Made) -> None:
    """A channel that closes gives all of its messages back: also one that a receiver has got just now."""
    driver, clock = made(receiving={"batch": 2}), Ahead()
    driver.target = replace(driver.target, clock=clock)
    consumer, other = driver.consumer(0, 0), driver.consumer(0, 0)
    send(driver, "one")
    (one,) = all_of(consumer, 1)
    clock.ahead = 20 * SECOND
    send(driver, "two")
    (two,) = all_of(consumer, 1)
    clock.ahead = 40 * SECOND

    early = [*consumer.receive(0), *other.receive(1)]
    settled = consumer.acknowledge([two.token])
    back: list[Delivered] = []
    for _ in range(100):
        back += [*consumer.receive(0), *other.receive(0.5)]
        if back:
            break

    assert (early, [*settled]) == ([], [True])
    assert {found.body for found in back} == {one.body}
    consumer.close()
    other.close()


@several(peers=READING)
def test_a_reader_of_another_system_sees_everything_in_order(made: Made) -> None:
    driver = made(receiving={"mode": "read"})
    send(driver, *"abcdef")
    reader = driver.consumer(0, 0)

    assert b"".join(one.body for one in all_of(reader, 6)) == b"abcdef"
    assert [*reader.receive(0)] == []
    reader.close()


ON_DISK = ("redis-streams", "redis-lists", "rabbitmq-classic", "rabbitmq-quorum", "nats")
"""Whose acknowledgement says that a message is on disk. ElasticMQ's file store does not: it lost five messages of twenty."""
STARTED = {"queuey": ("queuey", "queuey"), **{name: PEERS[name] for name in ON_DISK}}


@pytest.mark.parametrize(
    "name", ["queuey", *(pytest.param(name, marks=pytest.mark.long) for name in STARTED if name != "queuey")]
)
def test_what_a_started_system_acknowledged_lives_through_its_kill(name: str, tmp_path: Path) -> None:
    driver_name, system = STARTED[name]
    kind = driver_class(driver_name)
    mode = "receive" if "receive" in kind.modes else "pop"
    with started(system, tmp_path) as running:
        driver = kind(MeasuredSystem(workload_of(receiving={"mode": mode}), 1, running.options))
        driver.prepare()
        send(driver, *(f"{at}" for at in range(20)))

        running.kill()
        running.start()

        with closing(driver.consumer(0, 0)) as consumer:
            found = set[bytes]()
            # A queue may have no leader yet.
            for _ in range(100):
                with suppress(QueueyError):
                    handed = consumer.receive(1)
                    found |= {one.body for one in handed}
                    if mode == "receive":
                        consumer.acknowledge([one.token for one in handed])
                if len(found) == 20:
                    break
        assert found == {f"{at}".encode() for at in range(20)}


def test_a_system_whose_program_is_missing_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qdo.bench.systems.found_program", lambda name: None)

    with pytest.raises(ConfigurationError, match=r"redis-server is missing.* apt-get install redis-server"):
        system_class("redis")(tmp_path)


def test_elasticmq_asks_for_its_jars(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="name the folder of ElasticMQ's jars"):
        system_class("elasticmq")(tmp_path)
