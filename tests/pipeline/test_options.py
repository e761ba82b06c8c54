"""Options: typed, and refused by name."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from qdo.pipeline.options import BATCH, OPTIONS, STREAM, WRITE, Given, Reach, ReadOptions, WriteOptions, moment
from queuey.errors import ConfigurationError
from queuey.ids import EPOCH_TICKS, MessageId

ID = "1f9f6640e56711f189bf02fc00000001"


def test_names_are_taken_in_any_case() -> None:
    found = ReadOptions.of({"SUBSCRIBE": "a, b", "failondataloss": "FALSE", "MaxOffsetsPerTrigger": "7"}, STREAM)

    assert found.subscription.names == ("a", "b")
    assert (found.fail_on_data_loss, found.max_per_trigger, found.start) == (False, 7, "latest")
    assert ReadOptions.of({"subscribe": "a"}, BATCH).start == "earliest"


@pytest.mark.parametrize(
    ("options", "road", "said"),
    [
        ({"subscrib": "a"}, BATCH, "did you mean subscribe"),
        ({"nonsense": "a"}, BATCH, "nonsense is none of the format queuey"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "5"}, BATCH, "maxOffsetsPerTrigger is none of a batch read"),
        ({"subscribe": "a", "endingOffsets": "latest"}, STREAM, "endingOffsets is none of a streaming read"),
        ({"subscribe": "a", "minPartitions": "0"}, BATCH, "minPartitions: '0' is not a whole number of 1 or more"),
        ({"subscribe": "a", "minPartitions": "many"}, BATCH, "minPartitions"),
        ({"subscribe": "a", "failOnDataLoss": "yes"}, BATCH, "failOnDataLoss: 'yes' is not true or false"),
        ({"subscribe": "a", "startingTimestamp": "2026-11-21T06:00:00"}, BATCH, "with a zone"),
        ({"subscribe": "a", "startingOffsets": "{}"}, BATCH, "startingOffsets"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": "earliest"}}'}, BATCH, "no partition number"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"1": "xyz"}}'}, BATCH, "startingOffsets"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, BATCH, "would read nothing"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, STREAM, "maxTriggerDelay"),
        ({"subscribe": "a", "transport": "avro"}, BATCH, "transport"),
        ({"subscribe": "a", "groupId": "my group"}, STREAM, "option groupId: 'my group': expected 1 to 100 letters"),
        ({"subscribe": "a", "assign": '{"a": [1]}'}, BATCH, "subscribe and assign: give one"),
        ({"assign": '{"a": [201]}'}, BATCH, "assign"),
        ({"subscribePattern": "("}, BATCH, "no regular expression"),
        ({"subscribe": "a,,b"}, BATCH, "an empty name"),
        ({}, BATCH, "which queues?"),
        ({"subscribe": "a", "token": "x", "tokenFile": "/f"}, BATCH, "token and tokenFile"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "10000000"}, STREAM, "maxOffsetsPerTrigger"),
        ({"subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, STREAM, "minOffsetsPerTrigger"),
    ],
)
def test_what_is_wrong_is_refused_by_name(options: dict[str, str], road: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=r"option|queues") as caught:
        ReadOptions.of(options, road)

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "a"}, "subscribe is none of a write"),
        ({"batchSize": "10001"}, "batchSize"),
        ({"ttl": "0"}, "ttl"),
        ({"jobId": "x" * 65}, "jobId"),
    ],
)
def test_what_is_wrong_with_a_write_is_refused_by_name(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        WriteOptions.of(options)

    assert said in str(caught.value)


def test_offsets_name_ids_or_ends() -> None:
    text = f'{{"a": {{"1": "{ID}", "2": "earliest", "3": "latest"}}}}'

    found = ReadOptions.of({"subscribe": "a", "startingOffsets": text}, BATCH).start

    assert found == {"a": {1: MessageId.parse(ID), 2: "earliest", 3: "latest"}}


def test_a_moment_has_a_zone() -> None:
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)

    assert moment("2026-11-21T13:00:00+01:00") == moment(str(int(noon.timestamp() * 1000)))
    assert moment("0") == EPOCH_TICKS


def test_what_is_left_open_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUEY_URL", "http://one:1,http://two:2")
    monkeypatch.setenv("QUEUEY_APPLICATION", "shop")
    monkeypatch.setenv("QUEUEY_KEY", "from outside")

    reach = Reach.of(Given({}, BATCH))

    assert (reach.urls, reach.application, reach.secret) == (("http://one:1", "http://two:2"), "shop", "from outside")
    assert Reach.of(Given({"token": "mine", "url": "http://three"}, BATCH)).secret == "mine"


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("5e55\n")

    by_file = Reach.of(Given({"tokenFile": str(file)}, WRITE))

    assert by_file.secret == "5e55"
    assert "5e55" not in repr(by_file)
    assert "hidden" not in repr(WriteOptions.of({"token": "hidden", "queue": "q"}))
    with pytest.raises(ConfigurationError, match=r"tokenFile.*cannot be read"):
        _ = Reach.of(Given({"tokenFile": str(tmp_path / "none")}, WRITE)).secret


@pytest.mark.parametrize("held", [b"\n", b"\xff\xfe5e55", b"5e55\nsecond\n"])
def test_a_file_without_a_secret_is_named_and_not_shown(tmp_path: Path, held: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(held)

    with pytest.raises(ConfigurationError, match=r"tokenFile: \S+token must hold one line") as caught:
        _ = Reach.of(Given({"tokenFile": str(file)}, WRITE)).secret

    assert "5e55" not in str(caught.value)


def test_spark_s_own_options_are_none_of_ours() -> None:
    found = ReadOptions.of({"subscribe": "a", "path": "x", "checkpointLocation": "y"}, STREAM)

    assert found.subscription.names == ("a",)


def test_the_table_names_each_option_once() -> None:
    names = [option.name.lower() for option in OPTIONS]

    assert len(names) == len(set(names))
