"""Kafka, real: what goes in comes out, also after kill -9. Long, because its jars are fetched for it and for the benchmark alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.services.kafka import Kafka, KafkaNode
from tests.support.services.process import ServiceError

pytestmark = pytest.mark.long

TOPIC = "kept"
MESSAGES = [f"message {number}" for number in range(100)]


def put(node: KafkaNode, messages: list[str]) -> None:
    """Return when all of them are acknowledged."""
    lines = "".join(f"{message}\n" for message in messages)
    node.tool("ConsoleProducer", "--topic", TOPIC, "--request-required-acks", "all", stdin=lines)


def taken(node: KafkaNode, count: int) -> list[str]:
    """This many from the beginning, in whatever order of partitions."""
    asked = ["--topic", TOPIC, "--from-beginning", "--max-messages", str(count), "--timeout-ms", "20000"]
    return node.tool("consumer.ConsoleConsumer", *asked).splitlines()


def test_killed_and_started_again_it_has_its_messages(tmp_path: Path) -> None:
    with Kafka(tmp_path / "kafka") as kafka:
        (node,) = kafka.nodes
        kafka.create_topic(TOPIC, partitions=2)
        put(node, MESSAGES)
        assert sorted(taken(node, len(MESSAGES))) == sorted(MESSAGES)

        node.kill()
        assert not node.answers()
        node.start()
        kafka.wait_until_up(0)

        put(node, ["afterwards"])
        assert sorted(taken(node, len(MESSAGES) + 1)) == sorted([*MESSAGES, "afterwards"])
        with pytest.raises(ServiceError, match="already exists"):
            kafka.create_topic(TOPIC, partitions=2)
    assert not kafka.folder.exists()
