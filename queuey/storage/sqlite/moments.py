"""How far time has got, noted in the file (G3, G4).

After a restart, ids and watermarks go on above it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import apsw

from queuey.clock import Clock
from queuey.errors import ConfigurationError
from queuey.ids import ANCHOR_SLACK_SECONDS, TICKS_PER_SECOND, Anchor, IdGenerator
from queuey.storage.checksums import NONSENSE
from queuey.storage.leasing import ATTEMPT_SECONDS
from queuey.storage.leasing.clock import BootMoment, LeaseClock
from queuey.storage.sqlite import upkeep
from queuey.storage.sqlite.checked_rows import with_checksum, without_checksum
from queuey.storage.sqlite.committer import Committer
from queuey.storage.sqlite.connections import BUSY_MS
from queuey.storage.sqlite.health import DiskHealth
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import Row, Transaction

__all__ = ["Moments", "short_waits"]

_OTHER_BOOT_SECONDS = 5.0
"""How far a process may have run past its anchor before the machine went down. Clocks of another boot do not show
it."""
_SAME_BOOT_SECONDS = 3600.0
"""The longest that a process can have gone on without a new anchor."""
_CLOSED = "closed"
"""Stands for the boot's name: the process closed the store, and had not passed the noted moment."""
_SHORT_MS = 50
"""How long the committer, and everything behind it, waits for readers of an old snapshot, such as a
backup, and in a probe."""


class _Noted(NamedTuple):
    """What an earlier process noted."""

    boot: str
    elapsed: float
    ticks: int


class Moments:
    """Reads the moment of the last process, and notes the moments of this one."""

    def __init__(self, writer: apsw.Connection, clock: Clock, ids: IdGenerator) -> None:
        self._writer = writer
        self._clock = clock
        self._ids = ids
        self._noted_ticks, self._noted_at = 0, 0.0
        self._lease_clock: LeaseClock | None = None
        """The one whose moments are noted; None until its beginning is."""

    def raise_floor(self) -> None:
        """Go on above everything that an earlier process stamped or promised (G3, G4).

        That holds even if the clock was set back.

        :raises ConfigurationError: the note of it is damaged.
        """
        for noted in [_Noted(*row) for row in self._read("moment_read")]:
            lived = _OTHER_BOOT_SECONDS
            if noted.boot == _CLOSED:
                lived = 0.0
            elif noted.boot and noted.boot == self._clock.boot():
                lived = min(self._clock.elapsed() - noted.elapsed, _SAME_BOOT_SECONDS)
            floor = Anchor(noted.ticks, 0.0).bound(lived)
            self._ids.raise_floor(floor)
            ahead = (floor - self._clock.now_ticks()) / TICKS_PER_SECOND
            if 0 < ahead <= ANCHOR_SLACK_SECONDS:
                time.sleep(ahead)  # no message is readable before its moment, not even by the slack (G13)

    def begin(self) -> None:
        """Note where this process begins, before it hands out ids."""
        anchor = self._ids.anchor()
        try:
            self._writer.execute(SQL["moment_keep"], self._values(anchor))
        except apsw.FullError:
            return  # the upkeep tries again; a full store must still open, for reading and deleting
        self._ids.anchored(anchor)

    def lease_clock(self, *, keep: bool) -> LeaseClock:
        """The clock that leases run by, which goes on from an earlier process of this boot.

        :param keep: note the moment at which it begins, and later ones, for later processes.
        :raises ConfigurationError: the note of an earlier process is damaged.
        """
        rows = self._read("lease_moment")
        clock = LeaseClock(self._clock, BootMoment(*rows[0]) if rows else None)
        # A full store must still open; the next process begins anew, too. It does so unless both are stored.
        with suppress(apsw.FullError):
            if keep and clock.is_new:
                self._note_boot(clock)
            if keep:
                self._lease_clock = clock
        return clock

    def _note_boot(self, clock: LeaseClock) -> None:
        with self._writer:
            self._writer.execute(SQL["lease_moment_keep"], with_checksum(clock.began))
            bound = clock.began.ticks + round(ATTEMPT_SECONDS * TICKS_PER_SECOND)
            # The clock may have begun before moments of an earlier boot: attempts stay in the order of their expiry.
            self._writer.execute(SQL["lease_attempts_bound"], (bound,))

    def probe(self, committer: Committer, health: DiskHealth) -> None:
        """Try to write, while writes are refused because earlier ones failed.

        If the probe succeeds, writes go on.
        """

        def write() -> None:
            try:
                with short_waits(self._writer):
                    self._writer.execute(SQL["moment_keep"], self._values(self._ids.anchor()))
            except apsw.Error as error:
                health.write_failed(error, self._writer.system_errno)

        if health.failing is not None:
            committer.run_between(write).wait()

    def note(self, committer: Committer) -> None:
        """Note how far time has got, once a turn, and wait until that is stored.

        It does so only if time moved, or a step of the clock waits to count.
        """
        now, moment = time.monotonic(), self._ids.last_ticks
        if now - self._noted_at < upkeep.TURN_SECONDS / 2 or (moment == self._noted_ticks and not self._ids.held_back):
            return

        def job(transaction: Transaction) -> Anchor:
            anchor = self._ids.anchor()
            transaction.look(SQL["moment_keep"], self._values(anchor))
            self._note_leases(transaction)
            return anchor

        self._ids.anchored(committer.submit(job, grows=False).wait())
        self._noted_ticks, self._noted_at = moment, now

    def end(self, transaction: Transaction) -> None:
        """Note that this process hands out nothing more."""
        transaction.look(SQL["moment_keep"], with_checksum((_CLOSED, self._clock.elapsed(), self._ids.last_ticks)))
        self._note_leases(transaction)

    def _note_leases(self, transaction: Transaction) -> None:
        if self._lease_clock is not None:
            transaction.look(SQL["lease_moment_keep"], with_checksum(self._lease_clock.moment()))

    def _values(self, anchor: Anchor) -> Row:
        return with_checksum((self._clock.boot(), anchor.elapsed, anchor.ticks))

    def _read(self, name: str) -> list[Row]:
        try:
            return [without_checksum(row) for row in self._writer.execute(SQL[name])]
        except NONSENSE as error:
            raise ConfigurationError(
                f"the store's note of its newest moment is damaged ({error}): run 'queuey verify --repair'"
            ) from error


@contextmanager
def short_waits(writer: apsw.Connection) -> Iterator[None]:
    """Let the committer wait only a moment for others while the block runs."""
    writer.set_busy_timeout(_SHORT_MS)
    try:
        yield
    finally:
        writer.set_busy_timeout(BUSY_MS)
