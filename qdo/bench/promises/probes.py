"""Cells that a load does not show: each sets up one situation."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress

from qdo.bench.drivers import Consumer, DeadLetterDriver, Delivered, Driver, OutgoingMessage, StepConsumer
from qdo.bench.promises import Trial, TrialResult, drained, kills, persistently
from qdo.bench.workload import Workload
from queuey.errors import ConfigurationError, QueueNotFound, QueueyError

MESSAGES = 200
TOGETHER = 10
"""Messages of one receive and one acknowledgement: SQS takes no more."""
STALE_ROUNDS = 10
HELD_SECONDS = 1.0
"""Of leases."""
PATIENCE_SECONDS = 20.0
QUIET_SECONDS = 3.0
"""Longer than a lease: then nothing comes back any more."""


def _workload(trial: Trial, topics: int = 1, batch: int = 5, **values: object) -> Workload:
    base = Workload(name="promises", topics=topics)
    receiving = {"batch": batch, "visibility": HELD_SECONDS, "wait": 0.5}
    return trial.workload(base, receiving=receiving, **values)


def _send(driver: Driver, count: int) -> None:
    with closing(driver.producer()) as producer:
        for at in range(count):
            producer.send(0, [OutgoingMessage(f"{at}".encode())])


def torn_step(trial: Trial) -> TrialResult:
    """Acknowledges a message and sends one for it, in one step, while the system is killed."""
    workload = _workload(trial, topics=2)
    with trial.running(workload) as (system, driver), closing(driver.consumer(0, 0)) as consumer:
        if not isinstance(consumer, StepConsumer):
            raise ConfigurationError("it has no step that acknowledges and sends")
        _send(driver, MESSAGES)
        with suppress(QueueNotFound), kills(system, 4) as over:
            for handed in drained(consumer, QUIET_SECONDS, over):
                made = [OutgoingMessage(one.body) for one in handed]
                try:
                    consumer.step([one.token for one in handed], 1, made)
                except QueueyError:
                    # Done or not: what is not done comes again.
                    time.sleep(0.05)
        results = _counted(lambda: driver.consumer(1, 0))
    torn = MESSAGES - sum(results.get(f"{at}".encode(), 0) == 1 for at in range(MESSAGES))
    return TrialResult(
        torn, MESSAGES, f"{torn} of {MESSAGES} messages were acknowledged and made none, or two, of another"
    )


def ghost_after_delete(trial: Trial) -> TrialResult:
    """Deletes a queue with messages, some of them leased, makes one of its name, and kills the system."""
    with trial.running(_workload(trial)) as (system, driver):
        _send(driver, MESSAGES)
        with closing(driver.consumer(0, 0)) as consumer:
            handed = consumer.receive(5)
            consumer.acknowledge([one.token for one in handed[:2]])
        driver.remove()
        driver.prepare()
        system.kill()
        system.start()
        found = 0
        with closing(driver.consumer(0, 0)) as consumer:
            for handed in drained(consumer, QUIET_SECONDS):
                found += len(handed)
                consumer.acknowledge([one.token for one in handed])
    return TrialResult(found, MESSAGES, f"{found} messages of a queue that was deleted came in a new one of its name")


def two_dead_letters(trial: Trial) -> TrialResult:
    """Fails at all messages until they are dead letters, while the system is killed."""
    tries = 2
    group = {"max_failures": tries, "backoff": {"first": 0}}
    with trial.running(_workload(trial, group=group)) as (system, driver):
        if not isinstance(driver, DeadLetterDriver):
            raise ConfigurationError("it moves no failing messages to a queue of dead letters")
        _send(driver, MESSAGES)
        with suppress(QueueNotFound), kills(system, 4) as over, closing(driver.consumer(0, 0)) as consumer:
            for handed in drained(consumer, QUIET_SECONDS, over):
                tokens = [one.token for one in handed]
                persistently(lambda tokens=tokens: consumer.fail(tokens))  # type: ignore[misc]
        letters = _counted(lambda: driver.letters(0))
    twice = sum(count > 1 for count in letters.values())
    lost = MESSAGES - len(letters)
    text = f"{twice} messages have two dead letters, {lost} have none"
    return TrialResult(twice + lost, MESSAGES, text)


def stale_accepted(trial: Trial) -> TrialResult:
    """Acknowledges messages after their leases ran out, while another receiver has them."""
    workload, accepted, of = _workload(trial, batch=TOGETHER), 0, 0
    with (
        trial.running(workload) as (_system, driver),
        closing(driver.consumer(0, 0)) as late,
        closing(driver.consumer(0, 0)) as other,
    ):
        for _ in range(STALE_ROUNDS):
            settled, tried = _late_settle(driver, late, other)
            if not tried:
                raise ConfigurationError("no other receiver gets what one has held for too long")
            accepted, of = accepted + settled, of + tried
    text = f"{accepted} of {of} messages were settled by a receiver while another one had them"
    return TrialResult(accepted, of, text)


def _late_settle(driver: Driver, late: Consumer, other: Consumer) -> tuple[int, int]:
    """How many messages a receiver settled that another one had, and how many it tried to."""
    _send(driver, TOGETHER)
    first = _all_of(late, TOGETHER)
    held = {one.body for one in _all_of(other, TOGETHER)}
    stale = [one for one in first if one.body in held]
    if stale:
        late.acknowledge([one.token for one in stale])
    # The other one forgets its messages: what comes again was not settled by the late one.
    back = set[bytes]()
    for handed in drained(other, QUIET_SECONDS):
        back |= {one.body for one in handed}
        other.acknowledge([one.token for one in handed])
    return sum(one.body not in back for one in stale), len(stale)


def _counted(opened: Callable[[], Consumer]) -> Mapping[bytes, int]:
    """How many messages of each body are in a queue; none, if a kill has taken the queue itself."""
    found = Counter[bytes]()
    with suppress(QueueNotFound), closing(opened()) as consumer:
        for handed in drained(consumer, QUIET_SECONDS):
            for one, is_settled in zip(handed, _settled(consumer, handed), strict=True):
                found[one.body] += is_settled
    # What came and was never settled for certain is one message, whether it came again or not.
    return {body: max(count, 1) for body, count in found.items()}


def _settled(consumer: Consumer, handed: Sequence[Delivered]) -> Sequence[bool]:
    """Whether the acknowledgement of each was taken; of none, if there was no answer."""
    try:
        return consumer.acknowledge([one.token for one in handed])
    except QueueyError:
        return [False] * len(handed)


def _all_of(consumer: Consumer, count: int) -> list[Delivered]:
    """This many messages, or those that come within :data:`PATIENCE_SECONDS`."""
    found: list[Delivered] = []
    give_up = time.monotonic() + PATIENCE_SECONDS
    while len(found) < count and time.monotonic() < give_up:
        found += consumer.receive(0.5)
    return found
