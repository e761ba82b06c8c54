"""Messages whose queues are in another file than the one that is named for them.

A server without them would look like a new one: no queue is there, and its first application is made again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import apsw

from queuey.errors import ConfigurationError, StorageUnavailable
from queuey.storage.sqlite.messages import SqliteMessages
from queuey.storage.sqlite.metadata import SqliteMetadata
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.verify import connected

__all__ = ["refuse_parted", "refuse_parted_files"]


def refuse_parted(messages: SqliteMessages, metadata: SqliteMetadata) -> None:
    """Check the files of two open stores, which may be one.

    :raises ConfigurationError: there are messages, and no queue is known.
    """
    with suppress(apsw.Error, StorageUnavailable):  # of damage, others have more to say
        _refuse(
            lambda statement: _asked(messages, statement),
            lambda statement: _asked(metadata, statement),
            f"{messages.file.path} has messages, and {metadata.file.path} has no queue",
        )


def _asked(store: SqliteMessages | SqliteMetadata, statement: str) -> Any:
    with store.file.readers.lend() as reader:
        return reader.ask(statement, (), list)


def refuse_parted_files(messages: Path, metadata: Path) -> None:
    """The same of two backups, which may be one.

    :raises ConfigurationError: there are messages, and no queue is known; or as for a store that is verified.
    """
    with closing(connected(messages)) as first, closing(connected(metadata)) as second:
        _refuse(
            lambda statement: first.execute(statement).fetchall(),
            lambda statement: second.execute(statement).fetchall(),
            f"{messages} has messages, and {metadata} has no queue",
        )


def _refuse(of_messages: Callable[[str], Any], of_metadata: Callable[[str], Any], found: str) -> None:
    ((knows,),) = of_metadata(SQL["has_queues"])
    if knows:
        return
    ((holds,),) = of_messages(SQL["has_messages"])
    if holds:
        raise ConfigurationError(
            f"{found}: the queues of these messages are in another file, which [metadata] path has to name; with the messages, if "
            "it is empty"
        )
