"""A full server's answer.

It is made once for each form, and sent many times (docs/decisions/017).
"""

from __future__ import annotations

import logging
from collections.abc import Hashable

import orjson

from queuey.http.exchange import Answer, Call
from queuey.http.finishing import ANY_ID, ANY_PATH
from queuey.http.pipeline import Pipeline
from queuey.server.http1 import RequestHead, answer_head
from queuey.server.sending import PIECE

log = logging.getLogger(__name__)

_TAKES_PLACE = ("/v1/", "/tokens/")
"""Prefixes of paths that the server may refuse. Other paths are about the server itself, and always served."""
_PREFLIGHT = "access-control-request-method"


class RefusedAlike:
    """A refusal for many requests, which differ only in date, request id and path."""

    def __init__(self, answer: Answer) -> None:
        self._heads = [_head_of(answer, lasting=lasting) for lasting in (False, True)]
        self._names_path = ANY_PATH.encode() in answer.body
        self._body = _escaped(answer.body).replace(orjson.dumps(ANY_PATH), b"%b").replace(ANY_ID.encode(), b"%b")

    def answer(self, head: RequestHead, date: str, request_id: str, lasting: bool) -> bytes:
        """Head and body; only the head if ``head`` asks for that.

        :param date: the Date header, with its line end.
        :param lasting: the connection goes on after it.
        """
        id_ = request_id.encode()
        body = self._body % ((orjson.dumps(head.path), id_) if self._names_path else id_)
        start = self._heads[lasting] % (len(body), date.encode(), id_)
        return start if head.method == "HEAD" else start + body


def _head_of(answer: Answer, *, lasting: bool) -> bytes:
    head = _escaped(answer_head(answer.status, "{date}", answer.headers, 0, lasting=lasting))
    return head.replace(b": 0", b": %d", 1).replace(b"{date}", b"%b", 1).replace(ANY_ID.encode(), b"%b")


def _escaped(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")


class Refusals:
    """Refusals of the calls that come while the server is full."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._made: dict[Hashable, RefusedAlike] = {}
        """By what a request says about the form of its answer: at most two for each configured origin."""
        self._unreported = 0

    def fits(self, head: RequestHead) -> bool:
        """Whether a call can be refused without opening it.

        Three kinds cannot: calls that take no place, preflight requests of browsers, and requests whose refusal would
        end a connection that could go on. A client of the last kind would come back at once on a new connection.
        """
        headers, length = head.headers, head.length
        if length is None or length > PIECE or not head.path.startswith(_TAKES_PLACE):
            return False
        return not (length and "expect" in headers) and not (head.method == "OPTIONS" and _PREFLIGHT in headers)

    def answer(self, head: RequestHead, date: str, lasting: bool) -> bytes:
        """The whole answer to a call that :meth:`fits`; see :meth:`RefusedAlike.answer`."""
        pipeline, headers = self._pipeline, head.headers
        form = pipeline.finisher.form(head.path, headers)
        alike = self._made.get(form)
        if alike is None:
            alike = self._made[form] = RefusedAlike(pipeline.finisher.alike(head.path, headers))
        self._unreported += 1
        return alike.answer(head, date, pipeline.finisher.at_once(head.method, headers.get("x-request-id")), lasting)

    def full(self, call: Call) -> Answer:
        """See :meth:`Finisher.full`."""
        self._unreported += 1
        return self._pipeline.finisher.full(call, logged=False)

    def report(self) -> None:
        """Log the number of refusals since the last report.

        A log line for each would cost more than the refusal.
        """
        if self._unreported:
            log.warning("refused %d calls: the server was full", self._unreported)
            self._unreported = 0
