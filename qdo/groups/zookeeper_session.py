"""One session with ZooKeeper: answers in time, and watched nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import ConnectionLoss, KazooException, NoNodeError, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.interfaces import IAsyncResult

from qdo.groups import zookeeper_tls
from queuey.clock import Clock
from queuey.errors import ConfigurationError, CoordinatorUnavailable

__all__ = ["AT_ONCE", "ZooKeeperSession", "in_parts", "went_well"]

logging.getLogger("kazoo").addHandler(logging.NullHandler())  # else, without a log, each try is a line on stderr

AT_ONCE = 500
"""Requests under way together."""
_PASSING = (ConnectionLoss, SessionExpiredError, KazooTimeoutError)
"""Answers that did not come, and may come to another request."""


class ZooKeeperSession:
    """A connected session. Make it after a fork, not before."""

    def __init__(
        self, servers: str, *, session_seconds: float, connect_seconds: float, clock: Clock, kazoo: dict[str, Any]
    ) -> None:
        """:param session_seconds: asked for; ZooKeeper has bounds of its own.
        :param kazoo: further arguments of its client.
        :raises ConfigurationError: a ZooKeeper that does not prove its identity.
        :raises CoordinatorUnavailable: no server answered in ``connect_seconds``.
        """
        self._asked_seconds = session_seconds
        self._connect_seconds = connect_seconds
        self._clock = clock
        self._watched: set[str] = set()
        """Nodes whose next change will be heard of: what is known of them is up to date."""
        self.changed: Callable[[], None] = lambda: None
        """Called in any thread when something may have changed."""
        if kazoo.get("use_ssl"):
            context = zookeeper_tls.trusting_context(kazoo["ca"], kazoo["certfile"], kazoo["keyfile"])
            kazoo = {"handler": zookeeper_tls.TrustingHandler(context), **kazoo}
        self.client = KazooClient(
            hosts=servers, timeout=session_seconds, connection_retry={"max_tries": -1, "max_delay": 2.0}, **kazoo
        )
        self._connect(servers)

    def _connect(self, servers: str) -> None:
        self._check_tls(servers)
        try:
            self.client.start(timeout=self._connect_seconds)
        except KazooTimeoutError as error:
            self._check_tls(servers)  # at first the server may have been too busy to shake hands
            why = zookeeper_tls.tls_trouble(self.client, listens=True) if self.client.use_ssl else None
            self.client.close()
            said = f"no ZooKeeper answers at {servers} within {self._connect_seconds:g} s"
            raise CoordinatorUnavailable(
                f"{said}: {why or 'look whether it runs, and at --zookeeper or QDO_ZOOKEEPER'}"
            ) from error

    def _check_tls(self, servers: str) -> None:
        """:raises ConfigurationError: ZooKeeper does not prove its identity."""
        if self.client.use_ssl and (trouble := zookeeper_tls.tls_trouble(self.client)):
            self.client.close()
            raise ConfigurationError(f"no TLS with ZooKeeper at {servers}: {trouble}")

    def insist(self, ask: Callable[[], None]) -> None:
        """Ask again and again while the session is new.

        Its first answers may be lost on the way.

        :param ask: may be repeated as a whole.
        """
        until = self._clock.elapsed() + self._connect_seconds
        while True:
            try:
                with self.asking():
                    ask()
                return
            except CoordinatorUnavailable as error:
                if self._clock.elapsed() >= until or not isinstance(error.__cause__, _PASSING):
                    self.close()
                    raise

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    @property
    def timeout_seconds(self) -> float:
        """The session timeout that ZooKeeper agreed to."""
        agreed = self.client._session_timeout / 1000  # noqa: SLF001 - kazoo tells it nowhere else
        return min(agreed, self._asked_seconds) or self._asked_seconds

    def number(self) -> int:
        """The id of the session.

        :raises CoordinatorUnavailable: there is none at the moment.
        """
        found = self.client.client_id
        if found is None:
            raise CoordinatorUnavailable("there is no session with ZooKeeper at the moment")
        return int(found[0])

    # Asking

    @contextmanager
    def asking(self) -> Iterator[None]:
        """:raises CoordinatorUnavailable: in place of whatever kazoo raises."""
        try:
            yield
        except (KazooException, KazooTimeoutError) as error:
            self._watched.clear()
            raise CoordinatorUnavailable(f"ZooKeeper did not answer: {type(error).__name__} {error}") from error

    def result(self, asked: IAsyncResult) -> Any:
        """The answer, or an error in time.

        Kazoo itself would wait for as long as there is no ZooKeeper.
        """
        return asked.get(timeout=self.timeout_seconds)

    def results(self, asked: Iterable[IAsyncResult]) -> list[Any]:
        """The answers in order; None where the node does not exist."""
        answers = []
        for one in asked:
            try:
                answers.append(self.result(one))
            except NoNodeError:
                answers.append(None)
        return answers

    def get(self, paths: Iterable[str]) -> list[Any]:
        """Data and state of each node; None for a node that does not exist."""
        return [
            answer
            for some in in_parts(list(paths), AT_ONCE)
            for answer in self.results([self.client.get_async(path) for path in some])
        ]

    def states(self, paths: Iterable[str]) -> list[Any]:
        """The state of each node; None for a node that does not exist."""
        return self.results([self.client.exists_async(path) for path in paths])

    def children(self, path: str) -> list[str]:
        found: list[str] = self.result(self.client.get_children_async(path))
        return found

    def transaction(self) -> TransactionRequest:
        return self.client.transaction()

    # Watching

    def is_watched(self, path: str) -> bool:
        return path in self._watched

    def watch(self, path: str) -> bool:
        """Note that a node is about to be watched, with :meth:`fired`.

        :returns: False if it is watched already: then there is nothing to ask.
        """
        if path in self._watched:
            return False
        self._watched.add(path)
        return True

    def forget_watches(self, *paths: str) -> None:
        """Ask anew next time for these nodes; for all of them without any."""
        if paths:
            self._watched.difference_update(paths)
        else:
            self._watched.clear()

    def fired(self, event: Any) -> None:
        """A watched node has changed."""
        self.forget_watches(*([event.path] if event.path else []))
        self.changed()


def in_parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def went_well(results: Sequence[Any]) -> bool:
    """Whether all steps of a transaction did."""
    return not any(isinstance(result, Exception) for result in results)
