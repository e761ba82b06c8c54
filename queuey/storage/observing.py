"""What a store tells of its work, to whoever counts it. Any thread may call an observer."""

from __future__ import annotations

from typing import Protocol

__all__ = ["LeaseObserver", "Observer", "Unobserved", "UnobservedLeases"]


class LeaseObserver(Protocol):
    """Receives figures on the work for lease groups."""

    def wrote_state(self, size: int) -> None:
        """Note bytes of changes of states that a transaction writes. One that is lost has written them as well."""

    def wasted_ahead(self, messages: int) -> None:
        """Note messages that were read for receivers, and forgotten before they were handed out."""

    def compared_and_set(self, *, is_lost: bool) -> None:
        """Note the transaction of a lease group.

        :param is_lost: another server's came in between.
        """

    def handed_over(self, result: str) -> None:
        """Note that a step of a lease group was handed over to another server.

        :param result: ``done``, ``refused``: this server carries it out itself, or ``unknown``.
        """

    def handed_twice(self, messages: int) -> None:
        """Note that messages of a weak lease group were handed out while they had a receiver of another server."""

    def picked_among(self, k: int) -> None:
        """Note K of a receive of a weak lease group."""


class Observer(Protocol):
    """Receives figures on how a store works."""

    @property
    def leases(self) -> LeaseObserver:
        """Receives those on lease groups."""

    def took(self, operation: str, seconds: float) -> None:
        """Note that one call succeeded."""

    def committed(self, messages: int, seconds: float) -> None:
        """Note that messages were put on disk together."""

    def commits_switched(self, to: str) -> None:
        """Note that commits are carried elsewhere from now on.

        :param to: ``loop`` or ``thread``.
        """

    def failed(self, operation: str, code: str) -> None:
        """Note that one call failed, with an error of this code."""

    def restamped(self) -> None:
        """Note that an append took too long, and is written again under fresh ids (G3)."""


class UnobservedLeases:
    """An observer of lease groups that ignores everything."""

    def wrote_state(self, size: int) -> None:
        """Ignore it."""

    def wasted_ahead(self, messages: int) -> None:
        """Ignore it."""

    def compared_and_set(self, *, is_lost: bool) -> None:
        """Ignore it."""

    def handed_over(self, result: str) -> None:
        """Ignore it."""

    def handed_twice(self, messages: int) -> None:
        """Ignore it."""

    def picked_among(self, k: int) -> None:
        """Ignore it."""


class Unobserved:
    """An observer that ignores everything."""

    leases: LeaseObserver = UnobservedLeases()

    def took(self, operation: str, seconds: float) -> None:
        """Ignore it."""

    def committed(self, messages: int, seconds: float) -> None:
        """Ignore it."""

    def commits_switched(self, to: str) -> None:
        """Ignore it."""

    def failed(self, operation: str, code: str) -> None:
        """Ignore it."""

    def restamped(self) -> None:
        """Ignore it."""
