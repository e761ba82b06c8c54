"""Packs and caches messages of an embedded store for bulk readers."""

from __future__ import annotations

import logging
from functools import partial

from queuey.ids import MessageId
from queuey.model import Page, ReadRequest, Span
from queuey.storage.sqlite import packs
from queuey.storage.sqlite.file import File
from queuey.storage.sqlite.packing import pack
from queuey.storage.sqlite.pages import PageBuilder
from queuey.storage.sqlite.read_cache import ReadCache, find_run, keep, read_run
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import Transaction

__all__ = ["Tidying"]

log = logging.getLogger(__name__)

_MANY_LOOSE = 10_000
"""Partitions that wait for their messages to be packed."""


class Tidying:
    """Makes packs of loose messages, and cached runs of packs.

    Reads note what to do, and the upkeep does it.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self.loose: dict[bytes, MessageId] = {}
        """By partition key, the id after which messages lie that are worth a pack."""
        self.cache = _opened_cache(file)
        """The read cache; None if there is none."""

    def note_read(self, partition_key: bytes, request: ReadRequest, page: Page, builder: PageBuilder) -> None:
        """Note what bulk readers meet, to pack or cache it."""
        if request.limit < packs.MOST or request.newest_first or not page.messages:
            return
        if builder.is_loose:
            if page.more and request.with_bodies and len(self.loose) < _MANY_LOOSE:
                self.loose.setdefault(partition_key, request.span.after)  # the span's next pages come with its first
        elif self.cache is not None and not builder.is_cached:
            self.cache.was_read(partition_key, request, page.messages[-1].id)

    def run(self) -> bool:
        """Pack or cache some messages; True as long as there is more to do."""
        is_short = self._file.health.is_short_of_room()
        has_room = self.cache is not None and self._made_room(self.cache, is_short=is_short)
        return not is_short and (self.pack_some() or (has_room and self.cache_some()))

    def pack_some(self) -> bool:
        """Make a pack of messages that a bulk reader met one by one.

        :returns: False if there is nothing more to do.
        """
        try:
            partition_key, after = self.loose.popitem()
        except KeyError:
            return False
        file = self._file
        span, now = Span(after, MessageId.last_of(file.ids.watermark())), file.clock.now_ticks()

        def job(transaction: Transaction) -> MessageId | None:
            return None if partition_key[:-1] in file.dropped else pack(transaction, partition_key, span, now)

        goes_on = file.committer.submit(job, grows=True).wait()
        if goes_on is not None:
            self.loose[partition_key] = goes_on
        return True

    def cache_some(self) -> bool:
        """Make a cached run of packs that bulk readers meet again and again.

        :returns: False if there is nothing more to do.
        """
        cache, now = self.cache, self._file.clock.now_ticks()
        if cache is None or (found := cache.take()) is None:
            return False
        partition_key, span = found
        with self._file.readers.lend() as reader, reader.snapshot():
            run = find_run(reader.beside, partition_key, span, now)
            columns = read_run(reader.beside, run.packs) if run.packs else None
        cache.went_on(partition_key, span, run)
        if columns is not None:
            try:
                written = cache.folder.append(columns)
            except OSError as error:
                log.warning("no run could be cached: %s", error)
                return False
            job = partial(keep, partition_key=partition_key, run=run, written=written)
            self._file.committer.submit(job, grows=True).wait()
        return True

    def _made_room(self, cache: ReadCache, *, is_short: bool) -> bool:
        """Delete runs that cannot be used, and runs for which there is no space.

        It returns whether there is space for new ones.

        :param is_short: the disk is short of space: then no run stays.
        """
        file = self._file
        while cache.spoilt:
            file.change(SQL["cached_run_delete"], (cache.spoilt.pop(),)).wait()
        if cache.is_due(file.clock.elapsed()):
            with file.readers.lend() as reader:
                used = {number for (number,) in reader.ask(SQL["cached_run_files"], (), list)}
            cache.folder.remove([number for number in cache.folder.sizes if number not in used])
        for number in [*cache.folder.sizes] if is_short else cache.unused(file.clock.now_ticks()):
            file.change(SQL["cached_runs_delete"], (number,)).wait()
            cache.folder.remove([number])
        return cache.has_room


def _opened_cache(file: File) -> ReadCache | None:
    if not file.serves:
        return None
    cache = ReadCache(file.path.with_name(file.path.name + "-read-cache"), file.options.read_cache_mb << 20)
    if file.options.read_cache_mb:
        return cache
    if cache.folder.sizes:
        file.change(SQL["cached_runs_delete_all"]).wait()
        cache.folder.remove([*cache.folder.sizes])
    return None
