"""G21 to G28: messages that are handed out, while receivers and the server die."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Protocol

import pytest

from qdo.client import Client
from queuey.errors import OutcomeUnknown, ServerUnreachable
from tests.support.client import authorization
from tests.support.figures import Figures
from tests.support.lease_log import HandOut, LeaseLog
from tests.support.lease_receiver import AWAY, GROUP, QUEUE, VISIBILITY, Receiver, StaleResults, Worker, fill
from tests.support.node import APPLICATION, CARRIED, Node, busy, wait_for_all, wait_for_more
from tests.support.servers import FIRST_KEY
from tests.support.services.proxy import Proxy

RESULTS = "results"


def bodies_of(node: Node, queue: str) -> list[str]:
    """All messages of a queue, by its stream."""
    with suppress(KeyError):
        return [message.body.decode() for message in node.client().stream_ndjson(queue)]
    return []


@pytest.mark.parametrize(
    ("receivers", "most", "away"), [(6, 600, 0.05), pytest.param(16, 2_000, 0.1, marks=pytest.mark.long)]
)
def test_nobody_has_what_another_has_and_nothing_is_passed_over(
    tmp_path: Path,
    rounds: Callable[[int], range],
    chance: random.Random,
    figures: Figures,
    receivers: int,
    most: int,
    away: float,
) -> None:
    """
    :param most: messages for each death of the server.
    :param away: the share of steps after which a receiver forgets what it has, or stands still past its leases.
    """
    log, kills = LeaseLog(), 10 if most > 600 else len(rounds(3))
    with Node(tmp_path, settings=CARRIED[chance.choice([*CARRIED])]) as node:
        node.client().create_queue(QUEUE, partitions=3)
        ids = fill(node, most * kills)
        workers = [
            Worker(node, log, f"w{number}", random.Random(chance.random()), away=away) for number in range(receivers)
        ]
        with busy(*(worker.step for worker in workers)):
            for _ in range(kills):
                wait_for_more(lambda: len(log.acknowledged), chance.randint(most // 12, most // 3))
                node.kill()
                node.start()
            wait_for_all(lambda: len(log.acknowledged), len(ids) - 50 * kills, seconds=180)
        time.sleep(VISIBILITY)
        last = Receiver(node, "last")
        while found := last.receive(max=100, visibility=100, wait=1):
            now = time.monotonic()
            log.note([HandOut(one["message_id"], "last", now, now, 0.0, one["deliveries"]) for one in found])
            assert not last.step(acknowledge=[one["receipt"] for one in found])["settled"]["stale"]

    verdict = log.judge(ids)
    again = sum(1 for found in log.handed.values() if len(found) > 1)
    for guarantee in ("G21", "G22"):
        figures(
            guarantee,
            receivers=receivers,
            kills=kills,
            messages=len(ids),
            handed_again=again,
            held_by_two=len(verdict.held_by_two),
            after_acknowledgement=len(verdict.handed_after_acknowledgement),
            never_handed=len(verdict.never_handed),
        )
    assert again
    assert verdict == ([], [], set())


def test_the_judge_finds_what_is_wrong() -> None:
    log = LeaseLog()
    log.note([HandOut("two", "a", 0.0, 0.1, 10.0, 1), HandOut("two", "b", 5.0, 5.1, 10.0, 2)])
    log.note([HandOut("late", "a", 0.0, 0.1, 10.0, 1), HandOut("late", "b", 12.0, 12.1, 10.0, 2)])
    log.note([HandOut("fine", "a", 0.0, 0.1, 10.0, 1), HandOut("fine", "b", 10.2, 10.3, 10.0, 2)])
    log.took_back(11.0, ["late"])
    assert log.judge(["two", "late", "fine", "lost"]) == (["two"], ["late"], {"lost"})


# G23


class Popping(Protocol):
    """A receiver that pops, and asks again when its connection breaks."""

    asked_again: int

    def pop(self, most: int) -> list[str]:
        """Bodies of the messages; none once the queue is empty."""

    def close(self) -> None:
        """End its connections."""


class PlainPopping:
    """Asks again at once, as long as it takes."""

    def __init__(self, address: tuple[str, int], chance: random.Random, *, keeps_attempts: bool = True) -> None:
        self._address, self._chance, self._keeps = address, chance, keeps_attempts
        self._open: http.client.HTTPConnection | None = None
        self.asked_again = 0

    def pop(self, most: int) -> list[str]:
        attempt = f"{self._chance.getrandbits(64):x}"
        while True:
            body = {"attempt": attempt, "receive": {"max": most, "pop": True}}
            try:
                return [one["body"] for one in self._ask(json.dumps(body).encode())["messages"]]
            except AWAY:
                self.close()
                self.asked_again += 1
                if not self._keeps:
                    attempt = f"{self._chance.getrandbits(64):x}"

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _ask(self, body: bytes) -> dict[str, Any]:
        if self._open is None:
            self._open = http.client.HTTPConnection(*self._address, timeout=30)
        headers = {"Content-Type": "application/json", **authorization(FIRST_KEY)}
        self._open.request("POST", f"/v1/{APPLICATION}/{QUEUE}/leases/{GROUP}", body, headers)
        answer = self._open.getresponse()
        whole = answer.read()
        assert answer.status == 200, whole
        found = json.loads(whole)
        assert isinstance(found, dict)
        return found


class ClientPopping:
    """The Python client as it is: it repeats by itself, and after its last repeat the caller does, by the same attempt."""

    def __init__(self, address: tuple[str, int], chance: random.Random) -> None:
        self._chance = chance
        self._client = Client("http://{}:{}".format(*address), APPLICATION, FIRST_KEY, sleep=self._pause)
        self.asked_again = 0

    def _pause(self, seconds: float) -> None:
        self.asked_again += 1
        time.sleep(seconds)

    def pop(self, most: int) -> list[str]:
        attempt = f"{self._chance.getrandbits(64):x}"
        while True:
            try:
                found = self._client.receive(QUEUE, GROUP, most, attempt=attempt, pop=True)
            except (OutcomeUnknown, ServerUnreachable):
                self.asked_again += 1
            else:
                return [one.text for one in found]

    def close(self) -> None:
        self._client.close()


class Popped(NamedTuple):
    """What receivers popped through a network that breaks connections."""

    rate: float
    """Messages a second."""
    lost: int
    twice: int
    asked_again: int


def popped(node: Node, messages: int, receivers: Sequence[Popping]) -> Popped:
    """Pop all messages."""
    node.client().delete_queue(QUEUE)
    node.client().create_queue(QUEUE)
    fill(node, messages)
    found: Counter[str] = Counter()
    lock = threading.Lock()

    def work(receiver: Popping) -> None:
        while some := receiver.pop(5):
            with lock:
                found.update(some)
        receiver.close()

    began = time.monotonic()
    threads = [threading.Thread(target=work, args=(receiver,)) for receiver in receivers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rate = messages / (time.monotonic() - began)
    again = sum(receiver.asked_again for receiver in receivers)
    return Popped(rate, messages - len(found), sum(number - 1 for number in found.values()), again)


LOSSES = (0.0001, 0.001, 0.01, 0.1)


@pytest.mark.parametrize(
    ("kind", "losses", "messages"),
    [
        (PlainPopping, LOSSES, 1_000),
        (ClientPopping, LOSSES[2:], 1_000),
        pytest.param(PlainPopping, LOSSES, 20_000, marks=pytest.mark.long),
        pytest.param(ClientPopping, LOSSES, 20_000, marks=pytest.mark.long),
    ],
)
def test_a_pop_whose_answer_is_lost_loses_nothing(
    tmp_path: Path,
    chance: random.Random,
    figures: Figures,
    kind: Callable[[tuple[str, int], random.Random], Popping],
    losses: Sequence[float],
    messages: int,
) -> None:
    """Each rate is compared with that without losses right before it, in several turns of some thousand messages."""
    turns = max(messages // 4_000, 1)
    with Node(tmp_path) as node, Proxy(lambda: ("127.0.0.1", node.running.port), chance=chance) as proxy:
        node.client().create_queue(QUEUE)

        def three(**how: Any) -> list[Popping]:
            return [kind(proxy.address, random.Random(chance.random()), **how) for _ in range(3)]

        for loss in losses:
            ratios, asked_again, lost, twice = list[float](), 0, 0, 0
            for _ in range(turns):
                proxy.heal()
                lossless = popped(node, messages // turns, three())
                proxy.lose(loss)
                found = popped(node, messages // turns, three())
                assert lossless[1:] == (0, 0, 0)
                ratios.append(found.rate / lossless.rate)
                lost, twice, asked_again = lost + found.lost, twice + found.twice, asked_again + found.asked_again
            figures(
                "G23",
                client="qdo.client" if kind is ClientPopping else "plain",
                loss=f"{loss:g}",
                messages=messages,
                asked_again=asked_again,
                lost=lost,
                twice=twice,
                rate_of_lossless=f"{median(ratios):.2f}",
            )
            assert (lost, twice) == (0, 0)
        if kind is PlainPopping:
            unsafe = popped(node, 1000, three(keeps_attempts=False))
            assert unsafe.asked_again
            assert unsafe.lost, "without attempts what a lost answer had is lost"


# G24


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.long)])
def test_results_are_stored_exactly_once_with_the_acknowledgement(
    tmp_path: Path, chance: random.Random, figures: Figures, kills: int
) -> None:
    done = Counter[str]()

    def worker(receiver: Receiver) -> Callable[[], None]:
        held: list[dict[str, Any]] = []

        def step() -> None:
            now, held[:] = [*held], []
            body: dict[str, Any] = {"receive": {"max": 3, "visibility": 0.5, "wait": 0.1}}
            if now:
                results = [{"body": one["body"]} for one in now]
                body |= {
                    "acknowledge": [one["receipt"] for one in now],
                    "append": [{"queue": RESULTS, "messages": results}],
                }
            try:
                found = receiver.step(**body)
            except AWAY:
                time.sleep(0.02)
            except StaleResults:
                pass  # another has its messages now
            else:
                done.update([one["body"] for one in now])
                held[:] = found["messages"]

        return step

    with Node(tmp_path, settings=CARRIED[chance.choice([*CARRIED])]) as node:
        node.client().create_queue(QUEUE, partitions=2)
        node.client().create_queue(RESULTS)
        messages = len(fill(node, 300 * kills))
        with busy(*(worker(Receiver(node, f"w{number}")) for number in range(4))):
            for _ in range(kills):
                wait_for_more(lambda: len(done), chance.randint(20, 150))
                node.kill_in_commit()
                node.start()
            wait_for_all(lambda: len(bodies_of(node, RESULTS)), messages, seconds=120)
        stored = Counter(bodies_of(node, RESULTS))

    figures("G24", kills=kills, messages=messages, results=stored.total(), twice=stored.total() - len(stored))
    assert stored == Counter([str(at) for at in range(messages)])


# G25, G27, G28


def settings(node: Node, **members: Any) -> None:
    answer = node.call("PUT", QUEUE, "leases", GROUP, json=members)
    assert answer.status_code == 200, answer.text


def until_empty(receiver: Receiver, **wanted: Any) -> Iterator[list[dict[str, Any]]]:
    """Receives, until nothing is left or waits."""
    while True:
        found = receiver.receive(**wanted)
        if found:
            yield found
        elif not receiver.node.call("GET", QUEUE, "leases", GROUP).json()["partitions"][0]["held"]:
            return


def test_a_message_that_kills_its_receivers_dies_alone(tmp_path: Path, figures: Figures) -> None:
    """A receiver that meets the poison in its batch of ten is gone, and all that it had runs out.

    Its leases are cut short: those of the others last, however busy the machine is.
    """
    with Node(tmp_path) as node:
        node.client().create_queue(QUEUE)
        settings(node, max_failures=3)
        (poison, *_) = fill(node, 40)
        failures: dict[str, int] = {}
        deaths = 0
        for found in until_empty(Receiver(node, "w"), max=10, visibility=60, wait=0.5):
            failures |= {one["message_id"]: one["failures"] for one in found}
            if any(one["message_id"] == poison for one in found):
                deaths += 1
                Receiver(node, "w").step(extend=[{"receipt": one["receipt"], "visibility": 0} for one in found])
                continue
            assert not Receiver(node, "w").step(acknowledge=[one["receipt"] for one in found])["settled"]["stale"]
        dead = bodies_of(node, f"{QUEUE}-dead")

    innocent = sum(1 for message, number in failures.items() if message != poison and number)
    for guarantee in ("G25", "G28"):
        figures(guarantee, messages=40, deaths=deaths, dead_letters=len(dead), innocent_failures=innocent)
    assert dead == ["0"]
    assert deaths == 4, "with others, and then three times alone"
    assert innocent == 0


def test_dead_letters_are_stored_once_though_the_server_dies(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    kills = len(rounds(3))
    with Node(tmp_path) as node:
        node.client().create_queue(QUEUE)
        messages = len(fill(node, 100 * kills))

        def step(receiver: Receiver) -> None:
            try:
                found = receiver.receive(max=3, visibility=5, wait=0.1)
                receiver.step(reject=[{"receipt": one["receipt"], "reason": "so"} for one in found])
            except AWAY:
                time.sleep(0.02)

        receivers = [Receiver(node, f"w{number}") for number in range(3)]
        with busy(*((lambda receiver=receiver: step(receiver)) for receiver in receivers)):
            for _ in range(kills):
                time.sleep(chance.uniform(0.1, 0.4))
                node.kill_in_commit()
                node.start()
            wait_for_all(lambda: len({*bodies_of(node, f"{QUEUE}-dead")}), messages, seconds=120)
        dead = Counter(bodies_of(node, f"{QUEUE}-dead"))
        time.sleep(0.2)

    figures("G25", kills=kills, messages=messages, dead_letters=dead.total(), twice=dead.total() - len(dead))
    assert dead == Counter([str(at) for at in range(messages)])


@pytest.mark.parametrize(("messages", "lease"), [(3_000, 3), pytest.param(100_000, 30, marks=pytest.mark.long)])
def test_all_that_was_leased_and_left_comes_back_after_a_restart(
    tmp_path: Path, figures: Figures, messages: int, lease: int
) -> None:
    with Node(tmp_path) as node:
        node.client().create_queue(QUEUE)
        ids = fill(node, messages)
        receiver = Receiver(node, "gone")
        while receiver.receive(max=1000, visibility=lease):
            pass
        node.kill()
        seconds = node.start()
        time.sleep(lease)
        found: set[str] = set()
        for some in until_empty(Receiver(node, "new"), max=1000, visibility=600, wait=1):
            found |= {one["message_id"] for one in some}
            Receiver(node, "new").step(acknowledge=[one["receipt"] for one in some])

    figures("G22", leased_and_left=len(ids), came_back=len(found), reopen_s=f"{seconds:.1f}")
    assert found == {*ids}


@pytest.mark.parametrize("member", ["max_leased", "max_held"])
def test_a_group_holds_no_more_than_it_may(tmp_path: Path, member: str, figures: Figures) -> None:
    with Node(tmp_path) as node:
        node.client().create_queue(QUEUE)
        settings(node, **{member: 100})
        fill(node, 300)
        receiver = Receiver(node, "w")
        held = [one for _ in range(5) for one in receiver.receive(max=50, visibility=100)]
        assert len(held) == 100
        receiver.step(acknowledge=[one["receipt"] for one in held[:30]])
        held += receiver.receive(max=50)
    figures("G27", **{member: 100}, handed=len(held), acknowledged=30)
    assert len(held) == 130
