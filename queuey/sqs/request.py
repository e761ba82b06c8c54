"""One request of an SQS client, and the queues that it names."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from queuey.errors import QueueNotFound
from queuey.http.access import allowed
from queuey.http.addresses import scheme_of
from queuey.http.exchange import Call
from queuey.ids import ZERO_ID
from queuey.model import Queue
from queuey.model.lease_groups import LeaseGroup
from queuey.security.access_keys import account_of
from queuey.security.permissions import Permission, permits
from queuey.service import Service
from queuey.sqs.attributes import attributes_of
from queuey.sqs.errors import no_such_queue
from queuey.sqs.signature import presented

__all__ = ["SqsRequest", "is_sqs_name"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")
_ACCOUNT = re.compile(r"[0-9]{12}")
_SOME_REGION = "us-east-1"
_USUAL_URL = 256
"""Characters. Longer ones are taken apart each time."""


def is_sqs_name(text: str) -> bool:
    """1 to 80 letters, digits, ``_`` and ``-``; the name of a FIFO queue ends in ``.fifo``, which counts."""
    return _NAME.fullmatch(text) is not None


def _parts(url: str) -> tuple[str, str]:
    """The account and the name in a queue URL; no account if there is none."""
    *before, name = url.rstrip("/").split("/")
    return before[-1] if before and _ACCOUNT.fullmatch(before[-1]) else "", name


_usual_parts = lru_cache(4096)(_parts)


class SqsRequest(NamedTuple):
    """What a request asks for."""

    action: str
    """Its name."""
    service: Service
    call: Call
    application: str
    """The caller's."""
    values: dict[str, Any]
    """The members of the request, as :mod:`queuey.sqs.json` and :mod:`queuey.sqs.query` give them."""

    @property
    def counted_as(self) -> str:
        """Whose the call is in the metrics."""
        return self.call.identity.counted_as(self.application)

    @property
    def now_ticks(self) -> int:
        return self.service.clock.now_ticks()

    @property
    def region(self) -> str:
        """That of the signature, for ARNs."""
        shown = presented(self.call)
        return _SOME_REGION if shown is None else shown.region

    async def queue(self, permission: Permission) -> Queue:
        """The queue of the member ``QueueUrl``.

        :raises SqsError: there is none.
        :raises Forbidden: the caller may not do this there.
        """
        application, name = self._place(self.values["QueueUrl"])
        known = self.service.queues.cached(application, name)
        if known is not None and permits(permission, self.call.identity, application, name, known):
            return known
        return await self.named(permission, application, name)

    async def named(self, permission: Permission, application: str, name: str) -> Queue:
        """A queue by its name, as :meth:`queue`. Its policy may allow what the table of rights does not."""
        try:
            found = await allowed(self.service, self.call.identity, permission, application, name, self._is_opened)
        except QueueNotFound:
            found = None
        if found is None:
            raise no_such_queue()
        return found

    def _is_opened(self, queue: Queue) -> bool:
        """Whether the policy of a queue allows this to the caller."""
        return attributes_of(queue).policy.allows(self.action, account_of(self.application))

    def _place(self, url: str) -> tuple[str, str]:
        """The application and the name in a queue URL of any host. The name alone is one of the caller's queues."""
        account, name = _usual_parts(url) if len(url) <= _USUAL_URL else _parts(url)
        if not account or account == account_of(self.application):
            return self.application, name
        return self.application_of(account), name

    def application_of(self, account: str) -> str:
        """The application with this account number.

        :raises SqsError: there is none.
        """
        if account == account_of(self.application):
            return self.application
        found = self.service.keys.application_of_account(account)
        if found is None:
            raise no_such_queue()
        return found

    def url_of(self, queue: Queue) -> str:
        """The URL of a queue, on the host that the client asked."""
        host = self.service.settings.sqs.host or self.call.headers.get("host", "localhost")
        base = host if "://" in host else f"{scheme_of(self.call.headers.get('x-forwarded-proto', ''))}://{host}"
        return f"{base.rstrip('/')}/{account_of(queue.application)}/{queue.name}"

    def new_group(self, queue: Queue) -> LeaseGroup:
        """The lease group of SQS clients in a queue, as it begins."""
        leases = self.service.leases
        return leases.new_group(queue.leases.settings(leases.default_settings), ZERO_ID)

    def arn_of(self, queue: Queue) -> str:
        return f"arn:aws:sqs:{self.region}:{account_of(queue.application)}:{queue.name}"
