"""NATS JetStream: a stream for each queue, and a pull consumer for each subscription."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import TimeoutError as NoResultInTime
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

import nats.aio.client
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig

from qdo.bench.drivers import Consumer, Delivered, Driver, MeasuredSystem, OutgoingMessage, Producer
from queuey.errors import OutcomeUnknown, QueueyError, ServerUnreachable, StorageUnavailable

T = TypeVar("T")
DEFAULT_URL = "nats://127.0.0.1:4222"
ANSWER_SECONDS = 5.0
"""The client does not say that a connection broke off before an answer came."""
REST_SECONDS = 1.0
"""For the rest of an answer whose first message came, if the server does not say that it is over."""
_OVER = ("404", "408")
"""Of a pull: there is nothing more, or its time is over."""


class NatsDriver(Driver):
    """A NATS server with JetStream. Its streams are on disk; how often it syncs is a setting of the server."""

    modes = frozenset(["receive", "pop", "read"])
    option_names: ClassVar[Mapping[str, str]] = {"url": f"the server; default {DEFAULT_URL}"}

    def __init__(self, target: MeasuredSystem) -> None:
        super().__init__(target)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connections: list[NatsConnection] = []

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """That of all connections, in a thread of its own: the client knows no other way."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True).start()
        return self._loop

    def connection(self) -> NatsConnection:
        return NatsConnection(self.loop, self.target.options.get("url", DEFAULT_URL))

    def prepare(self) -> None:
        workload, connection = self.target.workload, self.connection()
        for topic in self.each_topic():
            name = self.target.queue(topic)
            stream = StreamConfig(name=name, subjects=[name], storage=StorageType.FILE)
            connection.carry_out(connection.jetstream.add_stream(stream))
            for view in range(workload.subscriptions_per_topic if workload.shares else 0):
                connection.carry_out(connection.jetstream.add_consumer(name, self.consumer_settings(f"bench-{view}")))
        connection.close()

    def consumer_settings(self, name: str | None = None) -> ConsumerConfig:
        """Of a subscription; without a name, of one reader."""
        own = self.target.workload.queuey.receiving
        if own.mode != "receive":
            return ConsumerConfig(durable_name=name, ack_policy=AckPolicy.NONE)
        return ConsumerConfig(
            durable_name=name,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=own.visibility,
            max_deliver=-1,
            max_ack_pending=-1,
        )

    def remove(self) -> None:
        connection = self.connection()
        for topic in range(self.target.workload.topics):
            connection.carry_out(connection.jetstream.delete_stream(self.target.queue(topic)))
        connection.close()

    def versions(self) -> Mapping[str, str]:
        connection = self.connection()
        found = str(connection.client.connected_server_version)
        connection.close()
        return {"nats-server": found, "nats-py": nats.aio.client.__version__}

    def producer(self) -> Producer:
        return _NatsProducer(self)

    def consumer(self, topic: int, subscription: int) -> Consumer:
        return _NatsConsumer(self, topic, subscription)


class NatsConnection:
    """A connection whose calls block."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str) -> None:
        """:raises ServerUnreachable: it does not answer."""
        self._loop = loop
        self.client = nats.aio.client.Client()
        self.jetstream = self.client.jetstream(timeout=ANSWER_SECONDS)
        try:
            self.carry_out(self._connect(url))
        except QueueyError as error:
            raise ServerUnreachable(f"{url}: {error}") from error

    async def _connect(self, url: str) -> None:
        await self.client.connect(
            url,
            connect_timeout=5,
            reconnect_time_wait=0,
            max_reconnect_attempts=-1,
            error_cb=_say_nothing,
        )

    def carry_out(self, call: Coroutine[Any, Any, T], seconds: float = 2 * ANSWER_SECONDS) -> T:
        """The answer to a request.

        :raises OutcomeUnknown: there was none; it may have been carried out.
        :raises StorageUnavailable: it was refused.
        """
        asked = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return asked.result(seconds)
        except NoResultInTime as error:
            asked.cancel()
            raise OutcomeUnknown("no answer in time") from error
        except (nats.errors.Error, OSError) as error:
            raise _as_ours(error) from error

    def close(self) -> None:
        # A connection that is broken already has nothing to say.
        with suppress(QueueyError):
            self.carry_out(self.client.close())


async def _say_nothing(_error: Exception) -> None:
    """The call that meets the error raises it."""


def _as_ours(error: BaseException) -> QueueyError:
    """Refused, or unknown."""
    is_refusal = isinstance(error, nats.js.errors.Error | nats.errors.NoRespondersError)
    text = f"{type(error).__name__}: {error}"
    return StorageUnavailable(text) if is_refusal else OutcomeUnknown(text)


class _NatsProducer(Producer):
    def __init__(self, driver: NatsDriver) -> None:
        self._connection = driver.connection()
        self._target = driver.target

    def send(self, topic: int, messages: Sequence[OutgoingMessage]) -> None:
        subject = self._target.queue(topic)
        outcomes = self._connection.carry_out(self._published(subject, messages))
        errors = [one for one in outcomes if isinstance(one, BaseException)]
        if not errors:
            return
        ours = [_as_ours(one) for one in errors]
        if len(errors) < len(messages) or any(isinstance(one, OutcomeUnknown) for one in ours):
            raise OutcomeUnknown(f"{len(errors)} of {len(messages)} messages: {ours[0]}")
        raise ours[0]

    async def _published(self, subject: str, messages: Sequence[OutgoingMessage]) -> Sequence[Any]:
        """The messages go out in their order, and their acknowledgements are awaited together."""
        publish = self._connection.jetstream.publish
        return await asyncio.gather(*(publish(subject, one.body) for one in messages), return_exceptions=True)

    def close(self) -> None:
        self._connection.close()


class _NatsConsumer(Consumer):
    """Pulls messages.

    Each pull has an inbox of its own. A message that comes after its pull is over is not taken for a later one, whose
    lease would seem to be younger than it is.
    """

    def __init__(self, driver: NatsDriver, topic: int, view: int) -> None:
        workload = driver.target.workload
        self._connection = driver.connection()
        self._client = self._connection.client
        self._stream = driver.target.queue(topic)
        self._batch = workload.queuey.receiving.batch
        self._settles = workload.leases
        name = f"bench-{view}"
        if not workload.shares:
            made = self._connection.jetstream.add_consumer(self._stream, driver.consumer_settings())
            name = self._connection.carry_out(made).name
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{name}"

    def receive(self, wait: float) -> Sequence[Delivered]:
        # With both, the server answers with what is there, or waits for the first message.
        asked = {"batch": self._batch, "no_wait": True, **({"expires": int(wait * 1e9)} if wait else {})}
        found = self._connection.carry_out(self._pull(asked, wait), wait + 2 * ANSWER_SECONDS)
        return [Delivered(one.data, one.reply if self._settles else None) for one in found]

    async def _pull(self, asked: Mapping[str, object], wait: float) -> list[Msg]:
        inbox = self._client.new_inbox()
        found: list[Msg] = []
        answers = await self._client.subscribe(inbox)
        try:
            await self._client.publish(self._subject, json.dumps(asked).encode(), reply=inbox)
            while len(found) < self._batch:
                try:
                    message = await answers.next_msg(REST_SECONDS if found else wait + ANSWER_SECONDS)
                except nats.errors.TimeoutError:
                    if not found:
                        raise
                    break
                status = (message.headers or {}).get("Status")
                if status in _OVER:
                    break
                if status is not None:
                    raise StorageUnavailable(f"the server refuses to hand out: {dict(message.headers or {})}")
                found.append(message)
        finally:
            await answers.unsubscribe()
        return found

    def acknowledge(self, tokens: Sequence[object]) -> Sequence[bool]:
        """The server confirms each, and does not say whether it was still held."""
        self._connection.carry_out(self._confirmed(tokens))
        return [True] * len(tokens)

    async def _confirmed(self, tokens: Sequence[object]) -> None:
        ask = self._client.request
        await asyncio.gather(*(ask(str(token), b"+ACK", timeout=ANSWER_SECONDS) for token in tokens))

    def fail(self, tokens: Sequence[object]) -> None:
        self._connection.carry_out(self._given_back(tokens))

    async def _given_back(self, tokens: Sequence[object]) -> None:
        for token in tokens:
            await self._client.publish(str(token), b"-NAK")
        await self._client.flush()

    def close(self) -> None:
        self._connection.close()
