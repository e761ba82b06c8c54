"""What each driver of the load harness promises, tried on the systems that are here."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from qdo.bench.drivers import Consumer, Delivered, Driver, MeasuredSystem, OutgoingMessage, driver_class, driver_names
from queuey.errors import ConfigurationError
from tests.support import servers
from tests.support.bench_by_clock import workload_of
from tests.support.redis_server import redis_server
from tests.support.servers import FIRST_KEY, RunningServer

HERE = ("memory", "faulty", "queuey", "sqs")
"""Systems that each run of the tests has."""
PEERS = ("redis-streams", "redis-lists")
"""Systems of others, for the long form."""
WITH_POPS_AND_READS = ("memory", "faulty", "queuey")


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
def redis_url() -> Iterator[str]:
    with TemporaryDirectory(prefix="redis-") as folder, redis_server(Path(folder)) as url:
        yield url


def options_of(name: str, server: RunningServer) -> Mapping[str, str]:
    if name == "queuey":
        return {"url": server.url, "application": "demo", "key": FIRST_KEY}
    if name == "sqs":
        return {"url": server.url, "access_key": "demo", "secret_key": "none"}
    return {}


@pytest.fixture
def made(request: pytest.FixtureRequest, server: RunningServer) -> Iterator[Made]:
    """Makes the driver for a workload, with its queues."""
    drivers: list[Driver] = []
    options = options_of(request.param, server)
    if request.param in PEERS:
        options = {"url": request.getfixturevalue("redis_url")}

    def make(**values: Any) -> Driver:
        receiving = {"batch": 10, "visibility": 30, "wait": 1, **values.pop("receiving", {})}
        kind = driver_class(request.param)
        workload = workload_of(receiving=receiving, seconds=1, **values)
        driver = kind(MeasuredSystem(workload, secrets.randbits(32), options))
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
    assert [*HERE, *PEERS] == driver_names()
    assert [name for name in HERE if "pop" in driver_class(name).modes] == list(WITH_POPS_AND_READS)


@several(*HERE, peers=("redis-streams",))
def test_what_is_sent_is_received_whole(made: Made) -> None:
    driver = made()
    send(driver, "one", "two")
    with closing(driver.producer()) as producer:
        producer.send(0, [OutgoingMessage(f"{at}".encode()) for at in range(5)])

    consumer = driver.consumer(0, 0)
    handed = all_of(consumer, 7)

    assert sorted(one.body for one in handed) == sorted([b"one", b"two", b"0", b"1", b"2", b"3", b"4"])
    consumer.close()


@several(*HERE, peers=("redis-streams",))
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


@several(*HERE)
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


@several(*WITH_POPS_AND_READS, peers=("redis-lists",))
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


def test_an_unknown_option_is_refused_with_those_that_there_are() -> None:
    for name in (*HERE, *PEERS):
        with pytest.raises(ConfigurationError, match="the driver has no option colour; it knows"):
            driver_class(name)(MeasuredSystem(workload_of(), 1, {"colour": "red"}))


def test_a_driver_that_there_is_not_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="no driver kafka: there are memory, faulty, queuey, sqs, redis-streams"
    ):
        driver_class("kafka")


def test_a_mode_that_a_system_lacks_is_refused(server: RunningServer) -> None:
    workload = workload_of(receiving={"mode": "follow"})

    with pytest.raises(ConfigurationError, match=r"receiving\.mode follow: this driver knows receive"):
        driver_class("sqs")(MeasuredSystem(workload, 1, options_of("sqs", server)))


@several(peers=("redis-streams",))
def test_what_was_idle_for_too_long_is_claimed_by_another(made: Made) -> None:
    driver = made(receiving={"visibility": 0.1})
    send(driver, "one")
    consumer, other = driver.consumer(0, 0), driver.consumer(0, 0)

    (handed,) = all_of(consumer, 1)
    (claimed,) = all_of(other, 1)

    assert claimed.body == handed.body
    consumer.close()
    other.close()


@several(peers=("redis-streams",))
def test_a_reader_of_a_stream_sees_everything_in_order(made: Made) -> None:
    driver = made(receiving={"mode": "read"})
    send(driver, *"abcdef")
    reader = driver.consumer(0, 0)

    assert b"".join(one.body for one in all_of(reader, 6)) == b"abcdef"
    assert [*reader.receive(0)] == []
    reader.close()
