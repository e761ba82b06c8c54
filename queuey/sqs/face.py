"""The face of SQS: unmodified clients of Amazon's service, on the queues of an application.

A request names its action in a header (JSON) or in its parameters (Query), its caller by a signature over the whole
request, and its queue in the body. So the pipeline lets in each caller that is proven, and an action looks up its queue
and asks the table of rights itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import count
from typing import Any
from uuid import uuid4

from queuey.errors import QueueyError
from queuey.http.addresses import address_of
from queuey.http.exchange import Answer, Call, Target
from queuey.http.face import Body, Function, Operation, Runs
from queuey.security.permissions import ANONYMOUS, Grant, Identity, Permission
from queuey.security.principals import app_principal, application_of
from queuey.service import Service
from queuey.sqs import json, query
from queuey.sqs.actions import FUNCTIONS
from queuey.sqs.calls import FORM, TARGET, is_sqs
from queuey.sqs.errors import SqsError, as_sqs, no_such_action, unknown_operation
from queuey.sqs.local import check_sender
from queuey.sqs.request import SqsRequest
from queuey.sqs.shapes import ACTIONS, SqsAction
from queuey.sqs.signature import HASHED_ON_LOOP_BYTES, Presented, Signatures, SignedLately, presented

__all__ = ["Sqs"]

_JSON = "application/x-amz-json-1.0"
_ANYWHERE = ("CreateQueue", "ListQueues")
"""Actions that are about no queue, and so are none of a queue's URL."""


class Sqs:
    """See :class:`queuey.http.face.Face`."""

    def __init__(self, service: Service) -> None:
        self._is_open = service.settings.sqs.auth == "open"
        self._service = service
        self._signatures = Signatures(service.keys, service.master_secrets)
        self._signed = SignedLately(service.clock.elapsed)

    def serves(self, call: Call) -> bool:
        """See :func:`queuey.sqs.calls.is_sqs`."""
        return is_sqs(call)

    def resolve(self, call: Call) -> Operation:
        """The action of the header, or of the query string; of a form only its body says it."""
        target = call.headers.get("x-amz-target")
        if target is not None:
            return _operation(target.removeprefix(TARGET))
        if call.media_type == FORM:
            return _OF_FORM
        operation = _of_parameters(call, query.of_link(call.query_string))
        return operation._replace(body=Body.FORM) if call.method in ("GET", "HEAD") else operation

    def at_hand(self, service: Service, call: Call) -> Identity | None:
        """None: a signature is checked with each request."""
        return None

    def payer(self, service: Service, call: Call) -> Identity:
        """The application of the access key that the request names, if this key has signed at that address lately.

        The id of a key is no secret: whoever names one must not use up the share of its application.
        """
        if call.identity is not ANONYMOUS:
            return call.identity
        try:
            shown = presented(call)
            is_theirs = self._is_open or (shown is not None and self._signed.holds(shown.key_id, self._address(call)))
            return self._claimed(shown) if is_theirs else ANONYMOUS
        except SqsError:
            return ANONYMOUS

    def proves_by_head(self, service: Service, call: Call) -> bool:
        """Only where no signature is checked: a signature covers the body. The key has to be in force."""
        self._claimed(presented(call))
        return self._is_open

    def identify(self, service: Service, call: Call) -> Identity:
        """By the signature, which covers the body."""
        shown = presented(call)
        # A signature is for one moment; while a receiver waits, its key counts.
        call.renew = partial(self._claimed, shown)
        if self._is_open:
            check_sender(call, service.settings)
            return self._claimed(shown)
        if shown is None:
            raise _unsigned()
        application = self._current().check(shown, call, service.clock.now_ticks())
        if shown.expires_seconds is None:  # a link may be in anybody's hands
            self._signed.note(shown.key_id, self._address(call))
        return _identity(application)

    def _address(self, call: Call) -> str:
        return address_of(call, self._service.settings.server.trusted_proxies)

    def _current(self) -> Signatures:
        """What checks signatures, by the master secrets in force."""
        if self._signatures.secrets is not self._service.master_secrets:
            self._signatures = Signatures(self._service.keys, self._service.master_secrets)
        return self._signatures

    def _claimed(self, shown: Presented | None) -> Identity:
        """The application whose key a request names, proven or not."""
        if self._is_open:
            return _identity(self._current().application_without_check(shown))
        if shown is None:
            raise _unsigned()
        return _identity(self._current().application_of(shown))

    def refusal(self, error: QueueyError, call: Call, challenge: str) -> Answer:
        """In JSON, or in XML for Query."""
        said, request = as_sqs(error), _request_id()
        headers = [("x-amzn-requestid", request), *said.headers.items()]
        if _is_json(call.headers):
            headers += [("content-type", _JSON), ("x-amzn-query-error", said.query_error)]
            return Answer(said.status, json.refusal(said), headers)
        headers.append(("content-type", query.MEDIA_TYPE))
        return Answer(said.status, query.refusal(said, request), headers)

    def form_of_refusal(self, headers: Mapping[str, str]) -> Hashable:
        """Whether it is JSON."""
        return _is_json(headers)


def _is_json(headers: Mapping[str, str]) -> bool:
    return "x-amz-target" in headers


def _unsigned() -> SqsError:
    return SqsError("MissingAuthenticationToken", "Request is missing Authentication Token.")


_process, _counter = str(uuid4())[:-12], count(1)


def _request_id() -> str:
    """In the form of a UUID: random for this process, then a number. A random one for each request costs a system call."""
    return f"{_process}{next(_counter):012x}"


@lru_cache(1024)
def _identity(application: str) -> Identity:
    return Identity([Grant(app_principal(application))])


def _carried_out(name: str, function: Function, **more: Any) -> Operation:
    return Operation(name, Permission.MINE, function, Body.BATCH, Runs.BATCH, loop_bytes=HASHED_ON_LOOP_BYTES, **more)


@lru_cache(64)
def _operation(name: str) -> Operation:
    """An action in JSON.

    :raises SqsError: there is no such action.
    """
    if name not in ACTIONS:
        raise unknown_operation(f"Unknown operation: {name[:100]}.")
    return _carried_out(f"sqs_{name}", partial(_carry_out, ACTIONS[name]))


def _of_parameters(call: Call, parameters: Sequence[tuple[str, str]]) -> Operation:
    """An action in Query.

    :raises SqsError: no action is named, or there is no such action here.
    """
    name = dict(parameters).get("Action", "")
    if not name:
        raise unknown_operation()
    if name not in ACTIONS or (call.path != "/" and name in _ANYWHERE):
        raise no_such_action(name[:100])
    return _carried_out(f"sqs_{name}", partial(_carry_out_query, ACTIONS[name], parameters))


def _of_form(call: Call) -> Operation:
    """As :func:`_of_parameters`, with the parameters of the query string and of the form."""
    return _of_parameters(call, [*query.of_link(call.query_string), *query.parameters(call.body)])


async def _carry_out(action: SqsAction, service: Service, call: Call, target: Target) -> Answer:
    result = await _result(action, service, call, json.parse(action, call.body))
    return Answer(200, json.answer(action, result), [("x-amzn-requestid", _request_id()), ("content-type", _JSON)])


async def _carry_out_query(
    action: SqsAction, parameters: Sequence[tuple[str, str]], service: Service, call: Call, target: Target
) -> Answer:
    if call.path != "/" and "QueueUrl" in action.members and not any(name == "QueueUrl" for name, _ in parameters):
        parameters = [*parameters, ("QueueUrl", call.path)]
    result, request = await _result(action, service, call, query.parse(action, parameters)), _request_id()
    headers = [("x-amzn-requestid", request), ("content-type", query.MEDIA_TYPE)]
    return Answer(200, query.answer(action, result, request), headers)


async def _carry_out_form(service: Service, call: Call, target: Target) -> Answer:
    return await _of_form(call).function(service, call, target)


_OF_FORM = _carried_out("sqs", _carry_out_form, by_body=_of_form)


async def _result(action: SqsAction, service: Service, call: Call, values: dict[str, Any]) -> Mapping[str, Any]:
    """Do what a request asks."""
    (application,) = [name for one in call.identity.principals if (name := application_of(one)) is not None]
    return await FUNCTIONS[action.name](SqsRequest(action.name, service, call, application, values))
