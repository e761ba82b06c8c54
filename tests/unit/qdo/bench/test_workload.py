"""Workload files: those of the OpenMessaging benchmark as they are, and each mistake with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from qdo.bench import machine
from qdo.bench.running import Experiment
from qdo.bench.workload import CLOSED_LOOP, MOST_DELAY_SECONDS, built_in, changed, find, load, scaled, variants
from queuey.errors import ConfigurationError
from tests.support.bench_by_clock import run_by_clock, workload_of

OPEN_MESSAGING = """
name: 1 topic / 16 partitions / 1 KB

topics: 1
partitionsPerTopic: 16

messageSize: 1024
useRandomizedPayloads: true
randomBytesRatio: 0.5
randomizedPayloadPoolSize: 100

subscriptionsPerTopic: 2
consumerPerSubscription: 4
producersPerTopic: 3

# Discover max-sustainable rate
producerRate: 50000
keyDistributor: KEY_ROUND_ROBIN

consumerBacklogSizeGB: 1
testDurationMinutes: 15
warmupDurationMinutes: 1
"""


def loaded(folder: Path, text: str) -> object:
    path = folder / "work.yaml"
    path.write_text(text)
    return load(path)


def test_a_file_of_the_openmessaging_benchmark_is_taken_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "omb.yaml"
    path.write_text(OPEN_MESSAGING)

    workload = load(path)

    assert (workload.partitions_per_topic, workload.producers, workload.views) == (16, 3, 2)
    assert [phase.rate for phase in workload.phases] == [50_000, 50_000]
    assert workload.seconds == 16 * 60
    assert workload.backlog_messages == 2**20
    assert workload.keys is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\ntopic: 1\n", ":2: unknown key topic"),
        ("name: x\nqueuey:\n  seed: 1\n  sead: 2\n", ":4: unknown key sead in queuey"),
        ("name: x\nqueuey:\n  receiving:\n    bath: 2\n", ":4: unknown key bath in queuey.receiving"),
        (
            "name: x\nqueuey:\n  phases:\n    - {seconds: 1, rate: 1}\n    - {second: 1, rate: 1}\n",
            ":5: unknown key second",
        ),
        ("name: x\nqueuey:\n  phases:\n    - seconds: 1\n", ":4: the key rate is missing in queuey.phases[0]"),
        ("name: x\ntopics: 0\n", ":2: topics: expected `int` >= 1"),
        ("name: x\nmessageSize: 47\n", ":2: messageSize: expected `int` >= 48"),
        ("name: x\ntopics: one\n", ":2: topics: expected `int`, got `str`"),
        ("name: x\ntopics: 1\ntopics: 2\n", ":3: topics stands twice"),
        ("topics: 1\n", ":1: the key name is missing"),
        ("name: x\nqueuey: {receiving: {mode: push}}\n", ":2: queuey.receiving.mode: invalid enum value 'push'"),
        ("name: [x\n", ": this is no YAML"),
        (f"name: {'[' * 5000}{']' * 5000}\n", ": too many values lie inside each other"),
        ("", "the file is empty"),
        ("name: &a x\nqueuey:\n  about: *a\n", ":1: anchors and aliases are not taken"),
        ("name: x\nqueuey: {about: !!str x}\n", ":2: tags are not taken"),
        ("name: x\ntopics: !!bool x\n", ":2: tags are not taken"),
        ("name: 2026-13-01\n", ":1: '2026-13-01' is no value"),
        ("name: 0x_\n", ":1: '0x_' is no value"),
        ('name: "\\ud800"\n', ":1: '\\ud800' is no value"),
        (f"name: x\nqueuey: {{seed: {'9' * 5000}}}\n", ":2: '999"),
        *(
            (f"name: x\nqueuey: {{group: {{{text}}}}}\n", "group: max_failures is a whole number from 0")
            for text in ("max_failures: many", "max_failures: 2.5", "max_failures: -1", "max_failures: null")
        ),
        *(
            (f"name: x\nqueuey: {{group: {{backoff: {text}}}}}\n", "backoff has numbers from 0")
            for text in ("5", "null", "{first: soon}", "{factor: 1.0e+300}", "{most: .nan}", "{jitter: -1}")
        ),
        ("- a\n", ":1: expected `object`, got `array`"),
        ("name: x\nqueuey: {messages: 5, phases: [{seconds: 1, rate: 5}]}\n", "only a closed loop ends"),
        ("name: x\nqueuey: {phases: [{seconds: 1, rate: 5}, {seconds: 1, rate: 0}]}\n", "all closed loops, or none"),
        ("name: x\nqueuey: {receiving: {holders: 1}}\n", "needs a consumer that does not hold"),
        ("name: x\nqueuey: {receiving: {mode: pop, crash: 0.1}}\n", "need leases"),
        ("name: x\nqueuey: {faults: {server: {mttf: 5}}}\n", "only a process that the run started is killed"),
        (
            "name: x\nqueuey: {start: queuey, receiving: {mode: follow}, faults: {network: {answers: 0.1}}}\n",
            "faults.network: the proxy carries no streams",
        ),
        ("name: x\nqueuey: {seconds: .inf}\n", "the load takes inf seconds: at most 1e+09"),
        ("name: x\ntestDurationMinutes: 1000000000\n", "the load takes 6e+10 seconds"),
        ("name: x\nqueuey: {sizes: [{bytes: 99, weight: .inf}]}\n", ":2: queuey.sizes[0].weight: expected"),
        ("name: x\nqueuey: {expect: {lost: -1}}\n", ":2: queuey.expect.lost: expected `int` >= 0"),
        ("name: x\nqueuey: {delay: 5000000}\n", ":2: queuey.delay: expected `float` <= 4000000.0"),
        ("name: x\ntopics: 10000\nproducersPerTopic: 1000\n", "10,000,000 producers and 10,000 consumers: at most"),
        ("name: x\ntopics: 10000\nconsumerPerSubscription: 1000\n", "10,000 producers and 10,000,000 consumers"),
        ("name: x\nsubscriptionsPerTopic: 70000\n", "70,000 subscriptions of a topic, readers included: at most"),
    ],
)
def test_a_mistake_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        loaded(tmp_path, text)

    assert str(refused.value).startswith(str(tmp_path / "work.yaml"))
    assert said in str(refused.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "work.yaml"
    path.write_bytes(b"name: \xff\n")

    with pytest.raises(ConfigurationError, match="UTF-8"):
        load(path)


def test_arrivals_that_do_not_fit_are_refused_unless_the_load_is_made_shorter(tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text("name: x\nproducerRate: 1000000\ntestDurationMinutes: 15\n")

    with pytest.raises(ConfigurationError, match="960,000,000 requests are more than 50,000,000") as refused:
        Experiment(load(path), ["memory"]).check()

    assert "--seconds" in str(refused.value)
    assert Experiment(scaled(load(path), 10), ["memory"]).check()


def test_payloads_that_do_not_fit_are_refused() -> None:
    pool = {"useRandomizedPayloads": True, "randomizedPayloadPoolSize": 10_000}
    sizes = [{"bytes": 100_000}, {"bytes": 100_000}, {"bytes": 7_374}]

    assert Experiment(workload_of(sizes=sizes, **pool), ["memory"]).check()
    with pytest.raises(ConfigurationError, match="1,073,750,000 bytes, at most 1,073,741,824"):
        Experiment(workload_of(sizes=[*sizes[:2], {"bytes": 7_375}], **pool), ["memory"]).check()


def test_a_message_may_be_delayed_for_as_long_as_is_allowed() -> None:
    """What a body says of its time has room for it."""
    workload = workload_of(producerRate=10, seconds=1, delay=MOST_DELAY_SECONDS, receiving={"visibility": 43_200})

    assert run_by_clock(workload, steps=200).findings.counts["early"] == 0


@pytest.mark.parametrize("name", built_in())
def test_a_workload_that_comes_with_the_program_says_what_it_shows(name: str) -> None:
    workload = load(find(name))

    assert workload.name == name
    assert workload.queuey.about.endswith(".")
    assert workload.queuey.repeats >= 2


@pytest.mark.parametrize("name", built_in())
def test_a_perfect_system_passes_each_workload(name: str) -> None:
    """The first of its variants, for a quarter of a second of its own time, on the queues in memory."""
    _, workload = variants(scaled(load(find(name)), 0.25))[0]

    found = run_by_clock(workload, steps=300 if workload.queuey.receiving.poison else 3000).findings

    assert found.distinct > 0
    assert found.over(replace(workload.queuey.expect, late=None)) == {}


def test_a_name_without_a_file_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="queuey bench ls"):
        find("no-such-workload")


def test_values_of_the_command_replace_those_of_the_file() -> None:
    workload = changed(workload_of(producerRate=10, seconds=5), seconds=2.0, repeats=None, seed=9)

    assert (workload.seconds, workload.queuey.repeats, workload.queuey.seed) == (2.0, 3, 9)


def test_a_closed_loop_carries_the_word() -> None:
    assert workload_of(seconds=1).loop == CLOSED_LOOP
    assert workload_of(seconds=1, producerRate=1, arrivals="poisson").loop == "open loop, poisson arrivals"


def test_readers_do_not_share() -> None:
    shared = workload_of(consumerPerSubscription=3, subscriptionsPerTopic=2)
    read = workload_of(consumerPerSubscription=3, subscriptionsPerTopic=2, receiving={"mode": "read"})

    assert (shared.views, shared.receivers_of_view) == (2, 3)
    assert (read.views, read.receivers_of_view) == (6, 1)


def test_rates_count_messages_and_batches_are_requests() -> None:
    (phase,) = workload_of(producerRate=1000, batch=10, seconds=1).phases

    assert phase.rate == 100


def test_each_combination_of_what_varies_is_a_workload() -> None:
    workload = workload_of(vary={"queuey.group.k": [1, 2], "consumerPerSubscription": [1, 3]})

    found = variants(workload)

    assert [values for values, _ in found] == [
        {"k": k, "consumerPerSubscription": consumers} for k in (1, 2) for consumers in (1, 3)
    ]
    assert [(one.queuey.group, one.consumer_per_subscription) for _, one in found][2] == ({"k": 2}, 1)
    assert {len(one.queuey.vary) for _, one in found} == {0}


def test_without_anything_that_varies_there_is_one_workload() -> None:
    assert [values for values, _ in variants(workload_of())] == [{}]


def test_places_with_the_same_last_name_are_told_apart() -> None:
    """Each variant has a label, and so a file of results, of its own."""
    workload = workload_of(vary={"queuey.batch": [1, 2], "queuey.receiving.batch": [1, 2], "topics": [3]})

    found = [values for values, _ in variants(workload)]

    assert found[1] == {"queuey.batch": 1, "queuey.receiving.batch": 2, "topics": 3}
    assert len({str(values) for values in found}) == 4


def test_options_of_a_driver_may_vary() -> None:
    workload = workload_of(driver="memory", vary={"queuey.options.service": ["0", "0.1"]})
    experiment = Experiment(workload)

    assert [experiment.options_of(one) for one in experiment.check()] == [{"service": "0"}, {"service": "0.1"}]


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ({"topic": [1]}, "unknown key topic"),
        ({"queuey.receiving.bath": [1]}, "unknown key bath in queuey.receiving"),
        ({"topics": [0]}, "topics: expected `int` >= 1"),
        ({"queuey.seed": [*range(20)], "topics": [1, 2, 3, 4, 5, 6]}, "vary makes 120 variants"),
        ({"queuey.seed": [1, 2, 1]}, "queuey.seed has a value twice"),
        ({"queuey.repeats": [1, 2]}, "queuey.repeats is that of all variants"),
        ({"queuey.driver": ["memory", "faulty"]}, "queuey.driver is that of all variants"),
        ({"queuey.vary": [{"topics": [1, 2]}]}, "does not vary itself"),
    ],
)
def test_what_cannot_vary_so_is_refused(vary: dict[str, list[object]], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        variants(workload_of(vary=vary))


@pytest.mark.parametrize("place", ["queuey.seconds", "queuey.phases", "testDurationMinutes", "warmupDurationMinutes"])
def test_the_time_of_a_load_that_varies_is_not_replaced(place: str) -> None:
    workload = workload_of(vary={place: [1, 2]})

    with pytest.raises(ConfigurationError, match=f"{place} varies: nothing replaces it"):
        scaled(workload, 5)


def test_a_seed_that_varies_is_not_replaced() -> None:
    workload = workload_of(vary={"queuey.seed": [1, 2]})

    with pytest.raises(ConfigurationError, match=r"queuey\.seed varies"):
        changed(workload, seed=7)
    assert changed(workload, seed=None, repeats=2).queuey.repeats == 2


def test_each_connection_through_the_proxy_is_two_files(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = workload_of(start="queuey", producersPerTopic=600, consumerPerSubscription=600, connections=600)
    network = changed(workload, receivers=600, faults={"network": {"answers": 0.1}})
    monkeypatch.setattr(machine, "most_files", lambda: 2499)

    with pytest.raises(ConfigurationError, match="2,400 connections at once need 2,500 open files"):
        Experiment(network).check()


def test_a_scaled_workload_keeps_the_shares_of_its_phases() -> None:
    found = scaled(workload_of(warmup=9, phases=[{"seconds": 10, "rate": 1}, {"seconds": 30, "rate": 2}]), 4)

    assert [(one.seconds, one.rate) for one in found.phases] == [(4, 1), (1, 1), (3, 2)]


def test_a_process_serves_its_share_of_the_receivers() -> None:
    herd = workload_of(consumerPerSubscription=10_000, receivers=10_000, processes=4, receiving={"loop": True})
    users = workload_of(topics=1000, receivers=250, processes=4)

    # A subscription is in one process: that has all of its receivers, and the others have none.
    assert (herd.receivers_at_once, herd.receivers_with(1), herd.receivers_with(0)) == (10_000, 10_000, 0)
    assert (users.receivers_at_once, users.receivers_with(250)) == (250, 63)


def test_thousands_of_receivers_need_an_event_loop() -> None:
    with pytest.raises(ConfigurationError, match=r"receivers: 2,001 receive at once.*set receiving\.loop: true"):
        changed(workload_of(consumerPerSubscription=2001), receivers=2001)
