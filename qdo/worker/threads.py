"""The threads that run jobs.

They make attempts and retries, and deal with messages that are given up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from math import inf

from qdo.client import Client
from qdo.client.refusals import may_pass
from qdo.client.values import Message
from qdo.groups.coordination import Claim, CommittedOffset
from qdo.groups.dead_letter_names import DeadLetterNames
from qdo.worker.buffers import KeyQueue, PartitionBuffer
from qdo.worker.dead_letters import write_letters
from qdo.worker.job import FailedMessages, RejectMessage, RetryLater, RetryPolicy, StopWorker
from qdo.worker.options import WorkerOptions
from qdo.worker.parts import WorkerParts
from qdo.worker.work import Counts, JobCaller
from queuey.errors import CoordinatorUnavailable, QueueyError

__all__ = ["JobThreads"]

log = logging.getLogger(__name__)

TURN_SECONDS = 0.05
"""A key queue may keep a thread for this long while others wait."""
UNTRUSTED_SECONDS = 0.1
"""Until a worker looks again whether it may begin a job."""


class JobThreads:
    """Runs jobs of the messages that are fetched, in ``options.threads`` threads."""

    def __init__(
        self,
        caller: JobCaller,
        options: WorkerOptions,
        parts: WorkerParts,
        names: DeadLetterNames | None,
        record: Callable[[Mapping[Claim, CommittedOffset]], Collection[Claim]],
        stop: Callable[[], None],
    ) -> None:
        """:param names: of the queues for dead letters; None if the group writes none.
        :param record: commits offsets, and returns the claims that are gone. Raises CoordinatorUnavailable.
        :param stop: called when a job asks for the end of the worker.
        """
        self._options = options
        self._parts = parts
        self._names = names
        self._record = record
        self._stop = stop
        self._retry = options.retry or RetryPolicy()
        self.caller = caller
        self._ended = False
        self.counts = Counts()
        self.error: QueueyError | None = None
        """What ended a thread, and with it the worker."""

    def start(self) -> None:
        for number in range(self._options.threads):
            threading.Thread(target=self._run, name=f"job-{number}", daemon=True).start()

    def end(self) -> None:
        """Begin no more jobs. Takes no lock, so a signal handler may call it."""
        self._ended = True

    def close(self) -> None:
        """Let go of processes and of the event loop."""
        self.caller.close()

    def _run(self) -> None:
        elapsed, prefetched = self._parts.clock.elapsed, self._parts.prefetched
        with self._parts.make_client() as client:
            while (key_queue := prefetched.next_ready(elapsed(), elapsed)) is not None:
                resume_at = elapsed() + 1.0
                try:
                    resume_at = self._turn(key_queue, client)
                except StopWorker:
                    self._stop()
                except QueueyError as error:
                    # What is done cannot be recorded, and never will be.
                    self.error = error
                    self._stop()
                except BaseException:  # a thread that ended nobody would miss
                    log.exception("a worker's thread failed in %s", key_queue.buffer.claim.partition)
                finally:
                    prefetched.end_turn(key_queue, resume_at)

    def _turn(self, key_queue: KeyQueue, client: Client) -> float:
        """Run the jobs of a key queue for a while.

        :returns: the elapsed time before which the key queue does not go on.
        """
        elapsed, trusted, options = self._parts.clock.elapsed, self._parts.coordinator.trusted, self._options
        until = elapsed() + TURN_SECONDS
        buffer = key_queue.buffer
        while buffer.open and not self._ended:
            if not trusted():
                return elapsed() + UNTRUSTED_SECONDS
            failed = key_queue.failed
            messages = list(islice(key_queue.messages, options.batch)) if failed is None else failed.messages
            if options.at_most_once and not self._committed_first(buffer, messages[-1]):
                return elapsed() + UNTRUSTED_SECONDS
            if failed is None:
                pause = self._attempt(key_queue, messages, client)
            else:
                pause = self._give_up(key_queue, failed, client)
            if pause is not None:
                return elapsed() + pause
            if not self._parts.prefetched.finished(key_queue, len(messages)) or elapsed() > until:
                break
        return 0.0

    def _committed_first(self, buffer: PartitionBuffer, message: Message) -> bool:
        """At most once: record the message before its job begins.

        So nobody runs it again. Where the partition begins at the end, that is recorded before: it would come after this.
        """
        if buffer.dirty:
            return False
        try:
            return not self._record({buffer.claim: CommittedOffset(buffer.incarnation, message.id)})
        except CoordinatorUnavailable:
            return False

    def _attempt(self, key_queue: KeyQueue, messages: Sequence[Message], client: Client) -> float | None:
        """Call the job once.

        :returns: None if the messages are finished, else seconds until the next attempt.
        """
        context = key_queue.context
        context.attempt, context.message = key_queue.attempt, messages[0]
        try:
            self.caller.call(messages, context)
        except StopWorker:
            raise
        except RejectMessage as error:
            failed = FailedMessages(context.queue, messages, key_queue.attempt, error)
            log.warning(
                "%s is rejected after attempt %d: %s",
                *(failed.subject(key_queue.buffer.claim.partition), failed.attempts, failed.reason),
                exc_info=failed.shown,
            )
            return self._give_up(key_queue, failed, client)
        except Exception as error:
            self.counts.failed += 1
            failed = FailedMessages(context.queue, messages, key_queue.attempt, error)
            log.warning(
                "%s: attempt %d failed: %s",
                *(failed.subject(key_queue.buffer.claim.partition), failed.attempts, failed.reason),
                exc_info=failed.shown,
            )
            pause = None if self._options.at_most_once else self._retry.pause(key_queue.attempt)
            if pause is None:
                return self._give_up(key_queue, failed, client)
            key_queue.attempt += 1
            return error.seconds if isinstance(error, RetryLater) else pause
        self.counts.done += len(messages)
        return None

    def _give_up(self, key_queue: KeyQueue, failed: FailedMessages, client: Client) -> float | None:
        """Store dead letters, or hand the failure to ``on_failure``.

        :returns: None if that went well, else seconds until it is tried again. The job is not tried again.
        """
        key_queue.failed = failed
        try:
            if self._options.on_failure is not None:
                self._options.on_failure(failed, self._options.context_value)
            elif self._names is not None:
                write_letters(client, failed, queue=self._names.queue_for(failed.queue), group=self._options.group)
            else:
                log.error("given up after %d attempts: %s", failed.attempts, failed.reason)
        except StopWorker:
            raise
        except Exception as error:  # noqa: BLE001 - on_failure is a user's
            return self._not_stored(key_queue, failed, error)
        key_queue.failed = key_queue.trouble = None
        key_queue.give_ups = 0
        self.counts.dead += len(failed.messages)
        return None

    def _not_stored(self, key_queue: KeyQueue, failed: FailedMessages, error: Exception) -> float:
        """:returns: seconds until the next try; infinite if the server would refuse it again."""
        what = "on_failure" if self._options.on_failure is not None else "the dead letter"
        said = f"{error.code}: {error}" if isinstance(error, QueueyError) else FailedMessages("", (), 0, error).reason
        key_queue.trouble = f"{what} of message {failed.messages[0].id.hex} failed: {said}"[:500]
        partition = key_queue.buffer.claim.partition
        if isinstance(error, QueueyError) and not may_pass(error):
            self._parts.prefetched.hold(key_queue, len(failed.messages))
            self.counts.held += 1
            log.error(
                "%s stands still: %s; mend that and restart the worker, or pass the message over with "
                "'qdo offsets set'",
                *(partition, key_queue.trouble),
            )
            return inf
        key_queue.give_ups += 1
        policy = RetryPolicy(key_queue.give_ups + 1, most_seconds=self._retry.most_seconds)
        pause = policy.pause(key_queue.give_ups) or 0.0
        log.warning("%s waits %.1f s: %s", partition, pause, key_queue.trouble)
        return pause
