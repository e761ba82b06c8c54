"""The states of a connection.

::

    HEAD ──► ASK ──► BODY ──► WORK ──► SEND ──► HEAD ...     the next request
      ├──── the body is here ──►│        ├────► SKIP ─► HEAD  past a body that is not read
      └──────── refused ────────────────►├────► PAUSE ► HEAD  the server was full
                                         └────► OVER          the connection ends

TURN stands in place of HEAD when the next request has arrived already.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """What a connection waits for."""

    HEAD = "a request, or the rest of its head"
    TURN = "the others to have had their turn: there is something of its next request"
    ASK = "whether its sender may send a body"
    BODY = "the rest of a body"
    WORK = "its answer to be made"
    SEND = "the client to take the answer"
    SKIP = "the rest of a body that nobody reads"
    PAUSE = "room for its next request, which is not read meanwhile"
    OVER = "the client to close, or to take the last answer"
