"""The command line of workers: what needs no server."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from qdo.cli import main
from qdo.cli.lease_status import lease_rows
from qdo.cli.offsets import place_of
from qdo.cli.options import Workplace
from qdo.cli.status import headline, is_over, row
from qdo.cli.top import trend, worst
from qdo.client import Client
from qdo.client.values import Message, QueueSettings
from qdo.compat.cli import main as old_main
from qdo.compat.positions import parse_old_partition
from qdo.compat.qdo_worker import FixedCoordinator, as_dict, read_settings
from qdo.groups.assign import Partition
from qdo.groups.coordination import CommittedOffset, Member
from qdo.groups.hash_slots import every_slot
from qdo.groups.lag import Lag, PartitionStatus, total
from qdo.groups.subscription import is_meant
from qdo.groups.view import GroupView
from qdo.worker.metrics import WorkerMetrics, serve_metrics
from qdo.worker.work import Counts, WorkerFigures
from queuey.errors import ConfigurationError, LeaseGroupNotFound, QueueNotFound, QueueyError
from queuey.ids import MAX_TICKS, ZERO_ID, MessageId, format_timestamp
from queuey.monitor.exposition import registry_of
from queuey.terminal.live import screen
from queuey.terminal.options import Server

HEX = "1f9f6640e56711f189bf02fc00000001"
ID = MessageId.parse(HEX)
UUID = "0" * 32
SERVER = Server("http://127.0.0.1:5000", "demo", None, None, 1.0)
ONE = Partition("q", 1)


def run(*arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(main, arguments, env=dict(variables), prog_name="qdo")


def status(lag: Lag | None = None, *, owner: str | None = None, partition: Partition = ONE) -> PartitionStatus:
    return PartitionStatus(partition, owner, 1, CommittedOffset(UUID, ID), lag)


# What a user reads.


def test_help_teaches_the_first_command() -> None:
    told = " ".join(run("--help").stdout.split())

    assert "'qdo work MODULE:FUNCTION --queue NAME' starts a worker" in told
    assert all(name in told for name in ("QUEUEY_URL", "QUEUEY_APPLICATION", "QUEUEY_KEY", "QDO_ZOOKEEPER"))


def test_help_of_work_tells_how_it_ends() -> None:
    told = " ".join(run("work", "--help").stdout.split())

    assert "def process(message, context)" in told
    assert "SIGTERM, Ctrl-C or the end of its terminal ends it in order" in told
    assert "exit code 143 or 130" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("work", "a:b"), "Missing option '-q' / '--queue'"),
        (("work", "a:b", "--queue", "q", "--thread", "1"), "No such option '--thread'"),
        (("work", "a:b", "--queue", "q", "--threads", "0"), "'--threads': 0 is not in the range x>=1"),
        (("work", "a:b", "--queue", "q", "--strategy", "best"), "'--strategy': 'best' is not one of"),
        (("work", "here", "--queue", "q"), "'here' names no function: expected MODULE:FUNCTION"),
        (("work", "os:nothing", "--queue", "q"), "'os:nothing': module os has no function nothing"),
        (("work", "builtins:print", "--queue", "q", "--group", "a/b"), "group 'a/b': expected 1 to 100 letters"),
        (("work", "builtins:print", "--queue", "q", "--dead-letters", "{a}"), "only {queue} may stand in braces"),
        (("work", "builtins:print", "--queue", "q", "--metrics", "here"), "metrics at 'here': expected HOST:PORT"),
        (("check",), "say how much lag is allowed"),
        (("top",), "a live view needs a terminal"),
        (("offsets", "set", "q"), "Missing option '--to'"),
        (("offsets", "set", "q", "--to", "soon"), "'soon' is not a message id"),
        (("dead", "retry", "q"), "say which"),
        (("status", "--state", "x", "--zookeeper", "h:1"), "--state is for groups on this machine"),
        (("status", "--zookeeper-auth", "a:b"), "need a ZooKeeper: name it with --zookeeper"),
        (("status", "--zookeeper", "h:1", "--zookeeper-auth", "a"), "is not USER:PASSWORD"),
        (("status", "--zookeeper", "h:1", "--zookeeper-ca", "/none"), "the ca for ZooKeeper, /none, is no file"),
        (("status", "--zookeeper", "h:1", "--zookeeper-key", __file__), "a certificate for ZooKeeper needs its key"),
        (("wrok",), "No such command 'wrok'"),
    ],
)
def test_wrong_usage_is_told_by_name_and_exits_2(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    result = run(*arguments, QUEUEY_URL="http://127.0.0.1:1", QDO_STATE=str(tmp_path))

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_an_async_function_needs_no_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "async_jobs.py").write_text("async def job(message, context): ...\n")
    monkeypatch.syspath_prepend(tmp_path)

    result = run("work", "async_jobs:job", "--queue", "q", "--processes", "2")

    assert result.exit_code == 2
    assert "--processes: an async function runs in this process" in result.stderr


# Groups.


@pytest.mark.parametrize("other", [{"url": "http://127.0.0.1:5001"}, {"application": "other"}])
def test_groups_of_other_servers_and_applications_are_others(tmp_path: Path, other: dict[str, str]) -> None:
    here = Workplace(SERVER, "g", None, str(tmp_path))
    there = Workplace(Server(**(vars(SERVER) | other)), "g", None, str(tmp_path))
    first, same, second = here.coordinator(), here.coordinator(), there.coordinator()
    try:
        first.reset({ONE: CommittedOffset(UUID, ID)})

        assert (same.offsets(), second.offsets()) == ({ONE: CommittedOffset(UUID, ID)}, {})
    finally:
        for coordinator in (first, same, second):
            coordinator.close()


def test_names_and_patterns_choose_queues() -> None:
    assert [is_meant(name, ["mail-*", "a"]) for name in ("mail-1", "mail", "a", "ab")] == [True, False, True, False]
    assert [is_meant(name, ["mail-*", "mail-2"], lambda _: True) for name in ("mail-1", "mail-2")] == [False, True]


# What a group is like.


def test_a_group_in_a_line() -> None:
    found = [status(Lag(10_000, 5.0, exact=False), owner="m"), status(Lag(2, 60.25)), status()]

    told = headline(Workplace(SERVER, "g", None, None), GroupView([Member("m", {})], found, found))

    assert told == "g of demo: 1 worker, 3 partitions, 2 without an owner; lag 10002+ messages, 60.2 s"


def test_a_group_by_slots_in_a_line() -> None:
    slots = [status(owner="m", partition=slot) for slot in every_slot()]
    found = [status(Lag(3, 5.0)), status(Lag(), partition=Partition("done", 1))]

    told = headline(Workplace(SERVER, "g", None, None), GroupView([Member("m", {})], slots, found, 20_000))

    assert told == "g of demo: 1 worker, 256 slots; lag 3 messages, 5.0 s in 1 of 20,000 queues"


def test_a_partition_of_a_queue_that_is_gone_has_no_lag() -> None:
    assert [row(status())[name] for name in ("message_id", "lag_messages", "lag_seconds")] == [HEX, None, None]
    assert total([status()]) == Lag(0, 0.0, exact=True)


def test_the_beginning_has_no_id() -> None:
    found = row(PartitionStatus(ONE, None, None, CommittedOffset(UUID, ZERO_ID), Lag()))

    assert (found["message_id"], found["time"]) == (None, None)


@pytest.mark.parametrize(
    ("lag", "most", "seconds", "over"),
    [
        (Lag(5, 9.0), 5, 9.0, False),
        (Lag(6, 9.0), 5, None, True),
        (Lag(6, 9.0), None, 8.9, True),
        (Lag(6, 9.0), 9, 8.9, True),
        (None, 0, 0.0, False),
    ],
)
def test_a_lag_is_over_if_one_measure_is(lag: Lag | None, most: int | None, seconds: float | None, over: bool) -> None:
    assert is_over(lag, most, seconds) is over


def test_the_live_view_shows_the_worst_first_and_only_what_fits() -> None:
    found = [status(Lag(1, seconds), partition=Partition("q", int(seconds))) for seconds in (1.0, 3.0, 2.0)]

    lines = worst(found)
    told = screen(["title \x1b[31m", *lines], 12, 4)

    assert [line.split()[3] for line in lines] == ["q:3", "q:2", "q:1"]
    assert [line.partition("\x1b")[0] for line in told.removeprefix("\x1b[H").splitlines()] == [
        "title \\x1b[3",
        "      3.0 s ",
        "q ends",
        "",
    ]


def test_a_trend_needs_two_exact_counts() -> None:
    assert trend((1.0, Lag(10)), (3.0, Lag(40))) == " (+15.0 messages/s)"
    assert trend(None, (3.0, Lag(40))) == trend((1.0, Lag(10, exact=False)), (3.0, Lag(40))) == ""


# Places.


@given(st.integers(1, MAX_TICKS // 2))
def test_a_time_is_the_first_message_still_to_come(ticks: int) -> None:
    ticks += 0x01B21DD213814000
    moment = format_timestamp(ticks)

    place = place_of(moment, "0.0")

    assert MessageId.parse(place.hex) == place
    assert MessageId.last_of(ticks - 2) < place < MessageId.first_of(ticks)
    assert MessageId.first_of(ticks) < place_of("end", moment) < MessageId.first_of(ticks + 1)


def test_an_id_is_the_last_message_done() -> None:
    assert place_of(HEX, "0.0") == ID


@pytest.mark.parametrize("text", ["", "queue", "queue-", "-1", "queue-0", "queue-x", "queue-\u0661"])
def test_what_is_no_partition_of_qdo_0_1_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected QUEUE-NUMBER"):
        parse_old_partition(text)


# Metrics.


def test_a_workers_figures_in_prometheus_form() -> None:
    told = WorkerMetrics(
        lambda: WorkerFigures(Counts(done=3, failed=2, dead=1), owned=4, lag_seconds=[1.5, 2.0], connected=True)
    )
    told.took(0.02)

    def sample(name: str, **labels: str) -> float | None:
        return registry_of(told).get_sample_value(name, labels)

    assert [sample("qdo_jobs_total", result=each) for each in ("done", "failed", "dead")] == [3, 2, 1]
    assert [sample("qdo_lag_seconds", stat=each) for each in ("sum", "max")] == [3.5, 2.0]
    assert (sample("qdo_partitions_owned"), sample("qdo_coordinator_connected")) == (4, 1)
    assert sample("qdo_job_duration_seconds_count") == 1


def test_an_address_that_is_taken_is_refused() -> None:
    url = serve_metrics(WorkerMetrics(WorkerFigures), "127.0.0.1:0")

    with pytest.raises(ConfigurationError, match="Address already in use"):
        serve_metrics(WorkerMetrics(WorkerFigures), url.removeprefix("http://").removesuffix("/metrics"))


# qdo-worker


def conf(folder: Path, text: str) -> Path:
    path = folder / "qdo-worker.conf"
    path.write_text(text)
    return path


def test_an_empty_file_has_the_defaults_of_2012(tmp_path: Path) -> None:
    found = read_settings(conf(tmp_path, ""), {})

    assert (found.url, found.application, found.key) == ("http://127.0.0.1:5000", "queuey", None)
    assert (found.job, found.job_context) == ("", "qdo.worker:dict_context")
    assert (found.job_failure, found.automatic) == ("qdo.worker:log_failure", False)
    assert (found.partitions, found.zookeeper) == ([], "127.0.0.1:2181/mozilla-qdo")


def test_the_sample_says_what_is_so_anyway(tmp_path: Path) -> None:
    sample = Path(__file__).parents[3] / "etc/qdo-worker.conf"

    assert read_settings(sample, {}) == read_settings(conf(tmp_path, ""), {})


def test_settings_of_2012_are_understood(tmp_path: Path) -> None:
    text = """
[qdo-worker]
name = w1
job = "jobs:run"
wait_interval = 30
[partitions]
policy = automatic
ids =
    mail-in-1

    mail-in-12
[queuey]
connection = https://queue.example.org/below/v1/notes
app_key = ${KEY}
[metlog]
sender_class = metlog.senders.StdOutSender
"""
    found = read_settings(conf(tmp_path, text), {"KEY": "secret"})

    assert (found.url, found.application, found.key) == ("https://queue.example.org/below", "notes", "secret")
    assert (found.name, found.job, found.automatic) == ("w1", "jobs:run", True)
    assert found.partitions == [Partition("mail-in", 1), Partition("mail-in", 12)]
    assert [notice.partition(" ")[0] for notice in found.notices] == ["[qdo-worker]", "[metlog]:"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[qdo]\n", r"section \[qdo\] is unknown: expected"),
        ("[qdo-worker]\njobs = a:b\n", r"\[qdo-worker\] jobs is unknown: expected ca_bundle, job"),
        ("[partitions]\npolicy = some\n", r"policy = some: expected manual or automatic"),
        ("[partitions]\nids = q\n", r"ids: 'q' is no partition"),
        ("[queuey]\nconnection = http://h/v2/a\n", r"expected http://HOST:PORT/v1/APPLICATION/"),
        ("[queuey]\napp_key = ${NONE}\n", r"\$\{NONE\} is not in the environment"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_settings(conf(tmp_path, text), {})


def test_without_a_job_the_old_worker_returns_at_once(tmp_path: Path) -> None:
    result = CliRunner().invoke(old_main, ["-c", str(conf(tmp_path, "[qdo-worker]\nname = w\n"))])

    assert (result.exit_code, result.stdout) == (0, "")
    assert "there is no job to run" in result.stderr


def test_the_hooks_of_2012_are_where_they_were() -> None:
    from qdo import worker

    assert {"StopWorker", "dict_context", "log_failure", "save_failed_message"} <= set(worker.__all__)


def test_bytes_that_are_no_text_are_base64_for_old_jobs() -> None:
    told = as_dict(Message(ID, 2, b"\xff"))

    assert told == {
        "message_id": HEX,
        "partition": 2,
        "timestamp": ID.timestamp,
        "body": "/w==",
        "encoding": "base64",
    }


def test_members_with_fixed_partitions_plan_for_themselves_and_share_claims(tmp_path: Path) -> None:
    first, second = FixedCoordinator("g", tmp_path, by_hand=True), FixedCoordinator("g", tmp_path, by_hand=True)
    names = [coordinator.join({"name": "m"}) for coordinator in (first, second)]

    assert [[member.name for member in each.members()] for each in (first, second)] == [[name] for name in names]
    assert len(first.claim([ONE])) == 1
    assert second.claim([ONE, Partition("q", 2)]).keys() == second.claim([Partition("q", 2)]).keys()
    first.close()
    second.close()


@pytest.mark.parametrize("error", [QueueNotFound(), LeaseGroupNotFound()])
def test_a_queue_that_goes_while_it_is_looked_at_has_no_row(error: QueueyError) -> None:
    class Gone:
        def queues(self, **_: object) -> list[QueueSettings]:
            return [QueueSettings("mail")]

        def lease_group(self, queue: str, group: str) -> None:
            raise error

    assert lease_rows(cast("Client", Gone()), Workplace(SERVER, "g", None, None), ()) == ([], False)


@pytest.mark.parametrize("hosts", ["zk1:port", ":", "/qdo"])
def test_an_address_that_is_none_of_a_zookeeper_is_named(hosts: str) -> None:
    result = run("status", QDO_ZOOKEEPER=hosts)

    assert result.exit_code == 2
    assert f"ZooKeeper {hosts!r}: expected HOST:PORT" in result.stderr
