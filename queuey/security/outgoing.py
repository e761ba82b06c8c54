"""The requests that the server makes: to addresses in its settings, bounded in time and size.

No redirect is followed, no proxy is used, and nothing of this machine goes along.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["CONNECT_SECONDS", "READ_SECONDS", "OutgoingAnswer", "OutgoingError", "ask"]

CONNECT_SECONDS, READ_SECONDS = 3.0, 3.0
_PIECE = 1 << 14


class OutgoingError(Exception):
    """Why there is no answer; a sentence."""


class OutgoingAnswer(NamedTuple):
    """An answer."""

    status: int
    content: bytes
    """Empty unless the status is one that was expected."""


def ask(
    address: str,
    *,
    most_bytes: int,
    seconds: float,
    form: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    expected: tuple[int, ...] = (200,),
) -> OutgoingAnswer:
    """Ask an address of the settings.

    :param seconds: for the whole answer.
    :param form: the body of a POST; None for a GET.
    :param expected: statuses whose content is read.
    :raises OutgoingError: there was no answer, or one that took too long or was too large.
    """
    import urllib3

    began = time.monotonic()
    sent = {"Accept": "application/json", "Accept-Encoding": "identity", **(headers or {})}
    try:
        with urllib3.PoolManager(retries=False) as pool:
            answer = pool.request(
                "GET" if form is None else "POST",
                address,
                body=form,
                headers=sent,
                redirect=False,
                preload_content=False,
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
            )
            if answer.status not in expected:
                return OutgoingAnswer(answer.status, b"")
            content = b""
            while piece := answer.read1(_PIECE):
                content += piece
                if len(content) > most_bytes:
                    raise OutgoingError(f"{address} is longer than {most_bytes} bytes")
                if time.monotonic() - began > seconds:
                    raise OutgoingError(f"{address} took longer than {seconds:g} seconds")
            return OutgoingAnswer(answer.status, content)
    except (OSError, urllib3.exceptions.HTTPError) as error:
        raise OutgoingError(f"{address} cannot be reached: {type(error).__name__}") from error
