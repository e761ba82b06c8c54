"""Attempts: steps that are safe to ask for again, since their answers are remembered (G23)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from queuey.errors import KeyReused
from queuey.ids import TICKS_PER_SECOND
from queuey.model import Location, Message, Retention
from queuey.model.lease_steps import LeaseOutcome, LeaseStep
from queuey.storage.checksums import making_sense
from queuey.storage.leasing import ATTEMPT_SECONDS
from queuey.storage.leasing.access import LeaseAccess, StoredAttempt
from queuey.storage.leasing.answers import decode_answer, encode_answer

__all__ = ["OTHER_REQUEST", "known_answer", "leaving", "remember"]

OTHER_REQUEST = "the attempt id was used in the last 5 minutes for another request: use a new one for each request"


def known_answer(step: LeaseStep, access: LeaseAccess, now: int) -> LeaseOutcome | None:
    """The answer to a step that was carried out before; None if it was not, or not as a step that renews needs it.

    :raises KeyReused: the attempt was used for another digest.
    """
    if step.attempt is None:
        return None
    first = step.groups[0]
    known = access.attempt(first.queue.uuid, first.name, step.attempt.key, now)
    if known is None:
        return None
    if known.digest != step.attempt.digest:
        raise KeyReused(OTHER_REQUEST)
    lost = False

    def find(group: int, wanted: Sequence[Location]) -> Sequence[Message | None]:
        nonlocal lost
        found = access.fetch(step.groups[group].queue, wanted)
        lost = lost or None in found
        return found

    with making_sense():
        answer = decode_answer(known.answer, find, access.now_ticks)
    return None if lost and step.renews else answer


def leaving(step: LeaseStep) -> Collection[int]:
    """Indexes of groups whose messages are kept with the answer to the step's attempt.

    They may leave the log once the step is done: they are popped, and settled so.
    """
    if step.attempt is None or step.receive is None or not step.receive.pop:
        return ()
    return [at for at, one in enumerate(step.groups) if one.queue.retention is Retention.ACKNOWLEDGED]


def remember(step: LeaseStep, access: LeaseAccess, now: int, outcome: LeaseOutcome) -> None:
    """Keep what a step answered, if it is an attempt and its answer may be asked for again."""
    if step.attempt is not None and (outcome.handed or not (step.looks_again or step.renews)):
        first, attempt = step.groups[0], step.attempt
        expires = now + round(ATTEMPT_SECONDS * TICKS_PER_SECOND)
        answered = StoredAttempt(attempt.digest, encode_answer(outcome, leaving(step)))
        access.keep_attempt(first.queue.uuid, first.name, attempt.key, answered, expires)
