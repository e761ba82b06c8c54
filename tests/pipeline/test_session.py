"""How jobs get their Spark, and how they say that they could not."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pyspark
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit

from qdo.cli import main
from qdo.client import Client
from qdo.pipeline.jobs import session as own_session
from qdo.pipeline.jobs.failures import SparkFailed, plain_errors
from qdo.pipeline.jobs.session import _worth_saying, end, session
from queuey.errors import ConfigurationError, QueueNotFound
from tests.support.pipeline import APPLICATION, KEY, fill
from tests.support.servers import RunningServer

SAID = """
from qdo.pipeline.jobs.session import session
spark = session("said", conf={"spark.sql.shuffle.partitions": "3"})
print(spark.sparkContext.master, spark.conf.get("spark.sql.session.timeZone"), spark.conf.get("spark.driver.memory"),
      spark.conf.get("spark.sql.shuffle.partitions"), spark.conf.get("spark.ui.enabled"),
      spark.conf.get("spark.sql.streaming.checkpointFileManagerClass").rpartition(".")[2],
      spark.range(3).rdd.map(lambda row: __import__("sys").executable).first(),
      spark.range(3).rdd.map(lambda row: __import__("pyspark").__file__).first())
spark.read.format("queuey")
print(spark.sparkContext._jvm.System.getProperty("arrow.enable_null_check_for_get"))

from pyspark.sql.datasource import DataSource, DataSourceReader

class Half(DataSource):
    def schema(self):
        return "a int, b string, c binary, d timestamp"
    def reader(self, schema):
        return HalfReader()

class HalfReader(DataSourceReader):
    def read(self, partition):
        import pyarrow as pa
        kinds = [pa.int32(), pa.string(), pa.binary(), pa.timestamp("us", tz="UTC")]
        values = [[None, 1], [None, "1"], [None, b"1"], [None, 1]]
        yield pa.record_batch([pa.array(*both) for both in zip(values, kinds)], names=list("abcd"))

spark.dataSource.register(Half)
half = spark.read.format("Half").load()
print(*half.first(), half.where("a is null and b is null").count(), half.where("c is not null and d is not null").count())
"""


ENDED = """
import gc, sys, threading
from pathlib import Path
from tests.support.local_spark import local_spark

connects = []
sys.addaudithook(lambda event, _: connects.append(event) if event == "socket.connect" else None)
for _ in range(2):
    with local_spark(Path(sys.argv.pop())) as spark:
        frames = [spark.range(1) for _ in range(50)]
    connects.clear()
    del frames, spark
    gc.collect()
    print([thread.name for thread in threading.enumerate()], connects)
"""


@pytest.mark.drawn
def test_the_spark_of_tests_leaves_no_thread_that_connects_for_each_object(tmp_path: Path) -> None:
    """Its own process. In a whole run a later test met 856 such connections. A second Spark may follow."""
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    command = [sys.executable, "-c", ENDED, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout == "['MainThread'] []\n" * 2, done.stderr


def test_what_is_told_to_end_while_pyspark_is_loaded_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The main thread hears the signal while that of the job is in the middle of the import."""
    monkeypatch.setitem(sys.modules, "pyspark", ModuleType("pyspark"))
    monkeypatch.setattr(own_session, "_homes", [])
    end(0)


def test_an_end_at_once_leaves_no_home_of_spark_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", ModuleType("pyspark"))
    monkeypatch.setattr(own_session, "_homes", [TemporaryDirectory(dir=tmp_path)])

    end(0)

    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(("master", "driver"), [("spark://there:7077", None), ("local[2]", "127.0.0.1")])
def test_a_master_among_the_settings_is_one(monkeypatch: pytest.MonkeyPatch, master: str, driver: str | None) -> None:
    """A driver on the loopback waits for executors of a cluster for ever."""
    started: dict[str, str] = {}
    monkeypatch.setattr(own_session, "_start_apart", started.update)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", None)

    with pytest.raises(ConfigurationError):
        session("test", "local[1]", conf={"spark.master": master})

    assert (started["spark.master"], started.get("spark.driver.host")) == (master, driver)


@pytest.mark.drawn
def test_without_a_word_it_is_this_machine_and_quiet() -> None:
    """Its own process: a session is one for all of a process."""
    done = subprocess.run([sys.executable, "-c", SAID], capture_output=True, text=True, timeout=120, check=False)

    light = "FileSystemBasedCheckpointFileManager"
    # Arrow no longer asks whether a value is null; a null is still one.
    unchecked = ["false", "None", "None", "None", "None", "1", "1"]
    said = ["local[*]", "UTC", "2g", "3", "false", light, sys.executable, pyspark.__file__, *unchecked]
    assert done.stdout.split() == said, done.stderr
    assert done.stderr == ""


IDLE = b"""Traceback (most recent call last):
  File "/lib/pyspark/daemon.py", line 264, in manager
    code = worker(sock, authenticated)
  File "/lib/pyspark/daemon.py", line 95, in worker
    outfile.flush()
BrokenPipeError: [Errno 32] Broken pipe
"""
USERS = IDLE.replace(b"BrokenPipe", b'  File "/lib/mine.py", line 7, in udf\n    pipe.flush()\nBrokenPipe')
"""Of work that a process did, not of its own end."""
GROUP = b"""  + Exception Group Traceback (most recent call last):
  |   File "/lib/mine.py", line 1, in work
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError
    +------------------------------------
"""
OTHER = b"""Traceback (most recent call last):
  File "/lib/mine.py", line 1, in work
    outfile.flush()
BrokenPipeError: [Errno 32] Broken pipe
"""


@given(
    st.lists(
        st.sampled_from([IDLE, OTHER, USERS, GROUP, b"[Stage 0:> (0 + 2) / 2]\r", b"12:00:00 ERROR Executor: why\n"])
    ),
    st.data(),
)
def test_what_spark_says_is_passed_on_but_for_python_processes_that_it_ended(
    said: list[bytes], draw: st.DataObject
) -> None:
    """Whole lines come at once, in pieces of any number of them."""
    lines = b"".join(said).splitlines(keepends=True)
    passed, begun = b"", b""
    while lines:
        count = draw.draw(st.integers(1, len(lines)))
        now, begun = _worth_saying(begun + b"".join(lines[:count]))
        passed, lines = passed + now, lines[count:]

    assert passed + begun == b"".join(said).replace(IDLE, b"")
    assert not begun


def test_without_java_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(ConfigurationError, match="Spark needs Java 17 or newer, and there is none: install it"):
        session("test")


def test_a_home_of_java_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(ConfigurationError, match=f"JAVA_HOME is {tmp_path}, which has no bin/java: correct or unset"):
        session("test")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["--master", "foo"], "Master must either be yarn or start with spark, k8s, or local"),
        (["--master", "local[x]"], "Could not parse Master URL: 'local[x]'"),
        (["--driver-memory", "lots"], "Invalid maximum heap size: -Xmxlots"),
    ],
)
def test_a_start_that_fails_is_told_in_one_line(
    running: RunningServer, client: Client, given: list[str], reason: str
) -> None:
    """Java's words are many, and its reason somewhere among them. A process of its own, as above."""
    reached = {"QUEUEY_URL": running.url, "QUEUEY_APPLICATION": APPLICATION, "QUEUEY_KEY": KEY}
    command = [sys.executable, "-m", "qdo.cli", "pipeline", "stats", "-q", fill(client), *given]

    done = subprocess.run(command, env=os.environ | reached, capture_output=True, text=True, timeout=120, check=False)

    assert (done.returncode, done.stderr) == (2, f"ConfigurationError: Spark does not start: {reason}\n")


def test_without_pyspark_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)

    with pytest.raises(ConfigurationError, match=r"pip install '/path/to/queuey\[spark\]'"):
        session("test")


@pytest.mark.parametrize("given", ["sql.shuffle.partitions=4", "spark.sql.shuffle.partitions"])
def test_a_setting_that_is_none_of_sparks_is_refused(given: str) -> None:
    result = CliRunner().invoke(main, ["pipeline", "stats", "--conf", given])

    assert result.exit_code == 2
    assert "is not of the form spark.NAME=VALUE" in result.stderr


@pytest.mark.parametrize("job", ["stats", "dead-letters"])
def test_no_server_and_a_wrong_key_are_told_before_spark_starts(
    job: str, running: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qdo.pipeline.jobs.session.session", None)

    unreachable = CliRunner().invoke(main, ["pipeline", job, "--url", "http://127.0.0.1:9"])
    stranger = CliRunner().invoke(
        main,
        ["pipeline", job],
        env={"QUEUEY_URL": running.url, "QUEUEY_APPLICATION": APPLICATION, "QUEUEY_KEY": "0" * 42},
    )

    assert (unreachable.exit_code, "no server answers" in unreachable.stderr) == (5, True)
    assert stranger.exit_code == 4


def test_a_token_for_named_queues_is_refused_with_the_reason(
    running: RunningServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_session, "session", None)
    queue = fill(client, messages=1)
    token = client.new_token(queues=[queue], verbs=["read", "list"]).text
    given = {"QUEUEY_URL": running.url, "QUEUEY_APPLICATION": APPLICATION, "QUEUEY_TOKEN": token}

    result = CliRunner().invoke(main, ["pipeline", "stats", "-q", queue], env=given)

    assert f"this job needs the list of queues of {APPLICATION}: " in result.stderr


def test_a_logger_of_sparks_changes_no_line_of_later_tests(caplog: pytest.LogCaptureFixture) -> None:
    logger = PySparkLogger.getLogger("a logger of Spark's")
    logger.addHandler(caplog.handler)
    logger.removeHandler(caplog.handler)
    logging.getLogger("a logger of ours").warning("plain")
    assert caplog.text.endswith("plain\n")


def test_an_error_of_ours_comes_out_of_a_task_as_itself(spark: SparkSession) -> None:
    missing = spark.read.format("queuey").option("url", "http://127.0.0.1:9").option("subscribe", "x")

    with pytest.raises(ConfigurationError, match="option typo is none of the format queuey"), plain_errors():
        missing.option("typo", "1").load().collect()


def test_an_error_of_sparks_is_one_line(spark: SparkSession) -> None:
    with pytest.raises(SparkFailed, match=r"^\[DIVIDE_BY_ZERO\][^\n]*$"), plain_errors():
        spark.sql("select 1 / 0").collect()


def test_an_error_of_a_query_is_not_written_before_it_is_raised(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    logger = PySparkLogger.getLogger("DataFrameQueryContextLogger")
    logger.addHandler(caplog.handler)
    session("test")

    with pytest.raises(SparkFailed, match=r"^\[DATATYPE_MISMATCH[^\n]*$"), plain_errors():
        spark.range(1).select(col("id") * lit(True))

    logger.removeHandler(caplog.handler)
    assert caplog.text == ""


def test_an_error_of_neither_stays_what_it_is() -> None:
    with pytest.raises(QueueNotFound), plain_errors():
        raise QueueNotFound


def test_a_page_that_cannot_be_written_is_told_before_the_work(
    spark: SparkSession, running: RunningServer, tmp_path: Path
) -> None:
    page = tmp_path / "nowhere" / "page.html"
    environment = {"QUEUEY_URL": running.url, "QUEUEY_APPLICATION": APPLICATION, "QUEUEY_KEY": KEY}

    result = CliRunner().invoke(main, ["pipeline", "stats", "-q", "none", "--html", str(page)], env=environment)

    assert (result.exit_code, f"the page {page} cannot be written" in result.stderr) == (2, True)
