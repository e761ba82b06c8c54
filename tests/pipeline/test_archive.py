"""The archive and the way back: what comes out is what went in, whatever was killed between."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from qdo.cli import main
from qdo.cli.pipeline.archive import waiting
from qdo.client import Client
from qdo.pipeline.jobs.archive import Archive, archive
from qdo.pipeline.jobs.replay import Chosen, preview, replay, restore
from queuey.errors import ConfigurationError, CorruptMessage
from queuey.terminal.options import Server
from tests.support.archives import archived, filled, options, there
from tests.support.client import new_name
from tests.support.pipeline import APPLICATION, KEY, append, fill, on_both_stores_if_drawn, settle
from tests.support.servers import RunningServer, eventually

LATER = (datetime.now(UTC) + timedelta(days=2)).date()
"""A day after all those of messages, also where midnight passes meanwhile."""


@pytest.fixture(scope="module")
def whole(
    spark: SparkSession, embedded_server: RunningServer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    """A queue, and the folder of an archive of it; both are only read."""
    folder = str(tmp_path_factory.mktemp("whole"))
    with Client(embedded_server.url, APPLICATION, KEY) as client:
        name = filled(client, new_name())
    archive(spark, folder, options=options(embedded_server, subscribe=name))
    return name, folder


def contents(client: Client, name: str) -> list[tuple[Any, ...]]:
    return [(m.partition, m.body, m.key, m.content_type, m.headers) for m in client.iterate(name)]


@pytest.mark.drawn
def test_an_archive_grows_by_what_is_new_and_its_manifest_tells_of_each_file(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    stem = new_name()
    names = [filled(client, f"{stem}.{each}") for each in "ab"]
    given = options(running, subscribePattern=rf"{stem}\..*")
    found = Archive(spark, str(tmp_path))

    assert archive(spark, str(tmp_path), options=given) == 120
    assert archive(spark, str(tmp_path), options=given) == 0
    client.append(names[0], "new")
    assert archive(spark, str(tmp_path), options=given) == 1

    assert archived(found) == there(client, *names)
    files = found.files()
    assert {(file.queue, file.day) for file in files} == {
        (name, datetime.now(UTC).date().isoformat()) for name in names
    }
    assert sum(file.messages for file in files) == 121
    assert all((tmp_path / file.name).is_file() for file in files)
    plain = spark.read.parquet(str(tmp_path))
    assert plain.count() == 121


def test_files_say_between_which_times_they_lie_whatever_the_session_does_to_times(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    """Else a reader of one hour reads them all; and a session may have times cut to milliseconds."""
    name = filled(client, new_name())
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS")
    try:
        archive(spark, str(tmp_path), options=options(running, subscribe=name))
        assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MILLIS"
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")

    for file in tmp_path.glob("queue=*/day=*/*.parquet"):
        read = pq.ParquetFile(file)
        assert {str(read.schema_arrow.field(column).type) for column in ("timestamp", "expires")} == {
            "timestamp[us, tz=UTC]"
        }
        times = read.read(["timestamp"])["timestamp"].to_pylist()
        (group,) = [read.metadata.row_group(at) for at in range(read.metadata.num_row_groups)]
        told = {group.column(at).path_in_schema: group.column(at).statistics for at in range(read.metadata.num_columns)}
        assert (told["timestamp"].min, told["timestamp"].max) == (min(times), max(times))
        assert told["body"] is None or not told["body"].has_min_max
    assert archived(Archive(spark, str(tmp_path))) == there(client, name)


@pytest.mark.drawn
def test_days_past_are_put_together_in_the_order_of_ids(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    name = filled(client, new_name())
    given = options(running, subscribe=name)
    for _ in range(3):
        archive(spark, str(tmp_path), options=given)
        client.append_batch(name, ["more"] * 10)
    found = Archive(spark, str(tmp_path))
    before, files = archived(found), found.files()

    assert found.compact(date(2020, 1, 1)) == 0
    assert found.compact(LATER) == len(files) - 1

    (whole,) = found.files()
    assert archived(found) == before
    assert [path.name for path in (tmp_path / whole.name).parent.glob("*.parquet")] == [Path(whole.name).name]
    rows = [(row.partition, row.timestamp) for row in found.read().collect()]
    assert rows == sorted(rows)
    assert archive(spark, str(tmp_path), options=given, compact_before=LATER) == 10
    assert archived(found) == there(client, name)


def test_a_step_is_on_disk_before_its_manifest_says_that_it_is_there(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(str(Path(f"/proc/self/fd/{number}").readlink())))
    kept = Archive._keep
    before: list[set[str]] = []

    def keep(self: Archive, manifest: str, told: Mapping[str, Any]) -> None:
        before.append({Path(name).name for name in synced})
        kept(self, manifest, told)

    monkeypatch.setattr(Archive, "_keep", keep)
    name = filled(client, new_name())

    archive(spark, str(tmp_path), options=options(running, subscribe=name))

    (step,) = before
    (file,) = Archive(spark, str(tmp_path)).files()
    assert step >= {"offsets", "0", "metadata", f"queue={name}", f"day={file.day}", tmp_path.name}
    assert any(each.endswith(".parquet") for each in step)
    assert {"batch-000000000.json.partial", "_manifest"} <= {Path(name).name for name in synced}


def test_days_that_are_in_order_stay_as_they_are_until_a_run_adds_to_them(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day has several files if it is large. Names of files that are put together again and again do not grow."""
    monkeypatch.setattr("qdo.pipeline.jobs.archive.FILE_BYTES", 4_000)
    name = filled(client, new_name())
    given = options(running, subscribe=name)
    archive(spark, str(tmp_path), options=given)
    client.append(name, "second file")
    archive(spark, str(tmp_path), options=given, compact_before=LATER)
    found = Archive(spark, str(tmp_path))
    files = found.files()

    assert len(files) > 1
    assert found.compact(LATER) == 0
    assert found.files() == files
    client.append(name, "third file")
    assert archive(spark, str(tmp_path), options=given, compact_before=LATER) == 1

    assert {*found.files()}.isdisjoint(files)
    assert {len(file.name) for file in found.files()} == {len(file.name) for file in files}
    assert archived(found) == there(client, name)


def test_a_run_that_was_killed_before_its_manifest_is_repeated_without_repeats(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    name = filled(client, new_name())
    given = options(running, subscribe=name)
    archive(spark, str(tmp_path), options=given)
    forget_the_end(tmp_path)
    client.append(name, "meanwhile")

    archive(spark, str(tmp_path), options=given)

    assert archived(Archive(spark, str(tmp_path))) == there(client, name)
    assert spark.read.parquet(str(tmp_path)).count() == 61


def forget_the_end(folder: Path) -> None:
    """What a kill leaves: files in their places, no manifest, no commit of Spark's."""
    for below in (folder / "_manifest", folder / "_checkpoint" / "commits"):
        for path in below.iterdir():
            path.unlink()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "stopped by hand"])
def test_runs_that_are_ended_at_any_moment_leave_nothing_out_and_nothing_twice(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path, number: signal.Signals
) -> None:
    name = fill(client, partitions=3, messages=4_000)
    folder = tmp_path / "archive"
    for _ in range(3):
        code, _ = ended(number, running, folder, "-q", name, "--max-per-batch", "500")
        assert code == (130 if number == signal.SIGINT else -signal.SIGKILL)

    assert 0 < commits(folder) < 24
    archive(spark, str(folder), options=options(running, subscribePattern=name))
    assert archived(Archive(spark, str(folder))) == there(client, name)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.drawn
def test_a_run_that_is_stopped_says_what_is_stored_and_how_to_go_on(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path, number: signal.Signals
) -> None:
    name = fill(client, partitions=2, messages=3_000)
    folder = tmp_path / "archive"

    code, told = ended(number, running, folder, "-q", name, "--max-per-batch", "200")

    stored = sum(file.messages for file in Archive(spark, str(folder)).files())
    assert told.splitlines() == [f"stopped: archived {stored} messages; a new run goes on behind them"]
    assert (code, 0 < stored < 6_000) == (128 + number, True)
    archive(spark, str(folder), options=options(running, subscribePattern=name))
    assert archived(Archive(spark, str(folder))) == there(client, name)


def test_how_much_a_run_has_before_it_is_told_before_it_begins(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    name = fill(client, partitions=2, messages=10)
    server = Server(running.url, APPLICATION, KEY, None, 10)
    found: list[Archive] = []
    given = options(running, subscribePattern=name)

    archive(spark, str(tmp_path), options=given, begun=found.append)
    append(client, name, "one more")

    assert found[0].stored == 20
    assert waiting(server, name, {}) == 21
    assert waiting(server, name, found[0].reached()) == 1
    client.delete_queue(name)
    client.create_queue(name)
    append(client, name, "of another incarnation", "and another")
    assert waiting(server, name, found[0].reached()) == 2


def ended(number: signal.Signals, running: RunningServer, folder: Path, *words: str) -> tuple[int, str]:
    """The exit code and the words of a run that gets a signal, as from a terminal, when it has done some of its work."""
    done = commits(folder)
    run = subprocess.Popen(
        [sys.executable, "-m", "qdo.cli", "pipeline", "archive", str(folder), *words],
        env={**os.environ, "QUEUEY_URL": running.url, "QUEUEY_APPLICATION": APPLICATION, "QUEUEY_KEY": KEY},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        eventually(lambda: commits(folder) > done or run.poll() is not None, seconds=90)
        time.sleep(random.random())
        os.killpg(run.pid, number)
        told = run.communicate(timeout=60)[1]
        return run.returncode, told
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)  # what is left of it


def commits(folder: Path) -> int:
    return len(list((folder / "_checkpoint" / "commits").glob("[0-9]*")))


def test_a_folder_that_is_no_archive_is_refused(spark: SparkSession, running: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "mine.parquet").touch()

    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ConfigurationError, match="is no archive: there is no _manifest in it"):
            Chosen().of(Archive(spark, str(folder)))
    for folder in (tmp_path, tmp_path / "mine.parquet"):
        with pytest.raises(ConfigurationError, match="there is something in it: name a new folder"):
            archive(spark, str(folder), options=options(running, subscribe="x"))
    with pytest.raises(ConfigurationError, match='folder gibberish://x/y: No FileSystem for scheme "gibberish"'):
        Archive(spark, "gibberish://x/y")


@pytest.mark.drawn
def test_what_is_gone_before_it_was_read_ends_each_run_until_it_is_told_to_go_on(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    name = filled(client, new_name())
    command = [
        "pipeline",
        "archive",
        str(tmp_path),
        "--url",
        running.url,
        "-a",
        APPLICATION,
        "--app-key",
        KEY,
        "-q",
        name,
    ]
    archive(spark, str(tmp_path), options=options(running, subscribePattern=name))
    forget_the_end(tmp_path)
    client.delete(name, list(client.iterate(name))[-3:])

    for _ in range(2):
        refused = CliRunner().invoke(main, command)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert f"messages of queue {name}, partition" in refused.stderr
        assert "--skip-lost goes on without them" in refused.stderr
    assert CliRunner().invoke(main, [*command, "--skip-lost"]).exit_code == 0

    assert archived(Archive(spark, str(tmp_path))) == there(client, name)


def test_a_run_beside_another_is_refused(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    """As where a run takes longer than the time until the next is begun."""
    queue, folder = filled(client, new_name()), str(tmp_path / "archive")
    refusals: list[str] = []

    def beside(_: Archive) -> None:
        with pytest.raises(ConfigurationError) as refused:
            archive(spark, folder, options=options(running, subscribe=queue))
        refusals.append(str(refused.value))

    assert archive(spark, folder, options=options(running, subscribe=queue), begun=beside) == 60
    assert "another run is under way" in refusals[0]
    assert archive(spark, folder, options=options(running, subscribe=queue)) == 0


def test_an_archive_without_its_checkpoint_is_refused(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    import shutil

    given = options(running, subscribe=filled(client, new_name()))
    archive(spark, str(tmp_path), options=given)
    shutil.rmtree(tmp_path / "_checkpoint")

    with pytest.raises(Exception, match="of another checkpoint"):
        archive(spark, str(tmp_path), options=given)


def test_files_that_are_not_as_they_were_are_never_put_together(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    name = filled(client, new_name())
    given = options(running, subscribe=name)
    archive(spark, str(tmp_path), options=given)
    client.append(name, "second file")
    archive(spark, str(tmp_path), options=given)
    manifest = next((tmp_path / "_manifest").glob("batch-000000000.json"))
    told = json.loads(manifest.read_text())
    told["files"][0]["checksum"] ^= 1
    manifest.write_text(json.dumps(told))
    (tmp_path / "_manifest" / f".{manifest.name}.crc").unlink()

    with pytest.raises(CorruptMessage, match="left as they are"):
        Archive(spark, str(tmp_path)).compact(LATER)

    assert archived(Archive(spark, str(tmp_path))) == there(client, name)


@on_both_stores_if_drawn
def test_the_round_trip_is_equal(spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path) -> None:
    name, new, same = filled(client, new_name()), new_name(), new_name()
    archive(spark, str(tmp_path), options=options(running, subscribe=name))
    for each in (new, same):
        client.create_queue(each, partitions=3)

    replay(spark, str(tmp_path), options=options(running), queue=new)
    replay(spark, str(tmp_path), options=options(running), queue=new, rate=1000)
    settle(client, new)
    done = restore(spark, str(tmp_path), options=options(running), queue=same, now=datetime.now(UTC))

    assert contents(client, new) == contents(client, name)
    assert done == (60, 0)
    assert [*client.iterate(same)] == [*client.iterate(name)]
    assert {len(m.headers) for m in client.iterate(same)} == {0, 2}
    assert restore(
        spark, str(tmp_path), options=options(running), queue=same, now=datetime(2100, 1, 1, tzinfo=UTC)
    ) == (
        0,
        60,
    )


def test_a_part_is_chosen_by_queue_time_and_key(spark: SparkSession, whole: tuple[str, str]) -> None:
    name, folder = whole
    found = Archive(spark, folder)

    assert Chosen(keys=["k1"]).of(found).count() == 6
    assert Chosen(since=datetime.now(UTC)).of(found).count() == 0
    assert Chosen([name], until=datetime.now(UTC)).of(found).count() == 60
    with pytest.raises(ConfigurationError, match="nothing of queue nobody"):
        Chosen(["nobody"]).of(found)


@pytest.mark.parametrize("partitions", [0, 2])
def test_messages_without_a_place_to_go_are_refused_before_the_first_is_sent(
    spark: SparkSession, running: RunningServer, client: Client, whole: tuple[str, str], partitions: int
) -> None:
    _, folder = whole
    target, why = new_name(), "there is no queue"
    if partitions:
        client.create_queue(target, partitions=partitions)
        why = "has 2 partitions, and there are messages of partition 3"

    soon, later = datetime.now(UTC), datetime(2100, 1, 1, tzinfo=UTC)
    where: Any = {"options": options(running), "queue": target}
    for attempt in (
        lambda: replay(spark, folder, **where),
        lambda: restore(spark, folder, **where, now=soon),
        lambda: preview(spark, folder, **where),
        lambda: preview(spark, folder, **where, now=soon),
    ):
        with pytest.raises(ConfigurationError, match=why):
            attempt()
    # Nothing is left that needs a place.
    assert preview(spark, folder, **where, now=later) == 0
    assert restore(spark, folder, **where, now=later) == (0, 60)

    assert not partitions or contents(client, target) == []


def test_a_token_that_is_for_appending_alone_replays(
    spark: SparkSession, running: RunningServer, client: Client, whole: tuple[str, str]
) -> None:
    """It may not ask what queues there are."""
    (name, folder), target = whole, new_name()
    client.create_queue(target, partitions=3)
    token = client.new_token(queues=[target], verbs=["append"]).text

    replay(spark, folder, options=options(running, token=token), queue=target)

    words = ["--url", running.url, "--application", APPLICATION, "--token", token, "--to", target, "--yes"]
    again = CliRunner().invoke(main, ["pipeline", "replay", folder, *words])

    assert again.exit_code == 0, again.output
    assert contents(client, target) == contents(client, name)  # once


@pytest.mark.drawn
def test_the_commands(spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path) -> None:
    name, target = filled(client, new_name()), new_name()
    client.create_queue(target, partitions=3)
    server = ["--url", running.url, "--application", APPLICATION, "--app-key", KEY]

    def run(*arguments: str) -> Result:
        found = CliRunner().invoke(main, ["pipeline", *arguments])
        assert found.exit_code == 0, found.output
        return found

    folder = str(tmp_path / "archive")
    archived = run("archive", folder, *server, "-q", name, "-q", "not-there", "-q", "none-of-*").stderr
    assert "archived 60 messages" in archived
    assert "has no queue not-there:" in archived
    assert "has no queue that fits none-of-*:" in archived
    assert archived.count("has no queue") == 2
    listed = json.loads(run("archive", folder, "--list", "-o", "json").stdout)
    assert sum(entry["messages"] for entry in listed) == 60
    assert "60 messages would go" in run("replay", folder, *server, "--to", target, "--dry-run").stderr
    refused = CliRunner().invoke(main, ["pipeline", "replay", folder, *server, "--to", "not-there", "--dry-run"])
    assert refused.exit_code
    assert "there is no queue not-there to replay to" in refused.stderr
    assert "replayed 60 messages" in run("replay", folder, *server, "--to", target, "--yes").stderr
    assert contents(client, target) == contents(client, name)

    same = new_name()
    client.create_queue(same, partitions=3)
    asked = CliRunner().invoke(main, ["pipeline", "replay", folder, *server, "--to", same, "--keep-ids"])
    assert f"Put back messages of {folder} to {same}? Say --yes" in asked.stderr
    assert (
        "restored 60 messages; 0 had expired"
        in run("replay", folder, *server, "--to", same, "--keep-ids", "--yes").stderr
    )
    assert [(m.id, m.body, m.key) for m in client.iterate(same)] == [
        (m.id, m.body, m.key) for m in client.iterate(name)
    ]
