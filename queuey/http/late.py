"""A face whose program is loaded with the first call that it serves.

A server of one protocol pays no memory for the others: the SQS door alone is a MiB of code.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cached_property

from queuey.errors import QueueyError
from queuey.http.exchange import Answer, Call
from queuey.http.face import Face, Operation
from queuey.security.permissions import Identity
from queuey.service import Service

__all__ = ["LateFace"]


class LateFace:
    """See :class:`queuey.http.face.Face`. It hands all on to the face behind it."""

    def __init__(self, is_served: Callable[[Call], bool], load: Callable[[], Face]) -> None:
        """:param is_served: decides as the face's own ``serves``, and loads nothing.
        :param load: imports the face and opens it; called once.
        """
        self.serves = is_served
        self._load = load

    @cached_property
    def _face(self) -> Face:
        return self._load()

    def resolve(self, call: Call) -> Operation:
        return self._face.resolve(call)

    def at_hand(self, service: Service, call: Call) -> Identity | None:
        return self._face.at_hand(service, call)

    def payer(self, service: Service, call: Call) -> Identity:
        return self._face.payer(service, call)

    def proves_by_head(self, service: Service, call: Call) -> bool:
        return self._face.proves_by_head(service, call)

    def identify(self, service: Service, call: Call) -> Identity:
        return self._face.identify(service, call)

    def refusal(self, error: QueueyError, call: Call, challenge: str) -> Answer:
        return self._face.refusal(error, call, challenge)

    def form_of_refusal(self, headers: Mapping[str, str]) -> Hashable:
        return self._face.form_of_refusal(headers)
