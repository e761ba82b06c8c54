"""The one place where errors become answers."""

from __future__ import annotations

from typing import Any

import orjson

from queuey.errors import QueueyError, Unauthenticated
from queuey.http.exchange import JSON, PROBLEM, RETRY_AFTER_SECONDS, Answer, Call, Headers


def refusal(error: QueueyError, call: Call, challenge: str) -> Answer:
    """The answer to a refused call.

    It has v1's shape, with its tested keys first; RFC 9457's if Accept asks for that. Texts name fields, limits and
    what to do; they never repeat a key, a credential or a body.

    :param challenge: the value of WWW-Authenticate, on 401 and on 403 without a credential.
    """
    extra = _extension(error, call)
    if call.accepts(PROBLEM):
        content: dict[str, Any] = {
            "title": type(error).default(),
            "status": error.status,
            "instance": call.path,
            **extra,
        }
        headers: Headers = [("content-type", PROBLEM)]
    else:
        content = {"status": "error", "error_msg": error.problems, **extra}
        headers = [("content-type", JSON)]
    if error.retriable:
        headers.append(("retry-after", str(RETRY_AFTER_SECONDS)))
    if isinstance(error, Unauthenticated) or (error.status == 403 and not call.identity.principals):
        headers.append(("www-authenticate", challenge))
    headers += error.headers.items()
    return Answer(error.status, orjson.dumps(content), headers)


def _extension(error: QueueyError, call: Call) -> dict[str, Any]:
    return {
        "code": error.code,
        "detail": str(error),
        "type": f"urn:queuey:error:{error.code}",
        "retriable": error.retriable,
        "request_id": call.request_id,
        "errors": [{"field": field, "code": error.code, "detail": text} for field, text in error.problems.items()],
    }
