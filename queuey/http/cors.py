"""Pages of other origins in a browser: which may call, and what they may see.

Off unless ``[server] cors_origins`` names origins. Credentials travel in headers that a page's own script sets.
Cookies, which only the console has, are not allowed.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from queuey.http.exchange import Answer, Call, Headers

ANY = "*"
MAX_AGE_SECONDS = 600
_METHODS = "GET, HEAD, POST, PUT, DELETE"
_MESSAGE_HEADER = re.compile(r"queuey-header(?:64)?-[!#$%&'*+.^_`|~0-9a-z-]{1,128}")
_SENT = (
    "authorization, content-type, idempotency-key, if-match, if-none-match, last-event-id, prefer, traceparent, "
    "tracestate, x-deliver-at, x-delay, x-key, x-partition, x-request-id, x-ttl"
)
_SEEN = (
    "etag, idempotency-replayed, link, preference-applied, queuey-corrupt, queuey-cursor, queuey-message-id, "
    "queuey-more, queuey-partition, queuey-timestamp, queuey-wait, queuey-watermark, retry-after, www-authenticate, "
    "x-request-id"
)


def allowed_origin(origin: str | None, origins: Collection[str]) -> str | None:
    """The origin that the answer allows; None if the page may not see the answer.

    :param origin: the request's ``Origin`` header.
    """
    if not origin or not origins:
        return None
    return ANY if ANY in origins else origin if origin in origins else None


def preflight(call: Call, origins: Collection[str]) -> Answer | None:
    """The answer to a preflight request.

    None for any other request, or an origin that is not allowed.
    """
    asks = call.method == "OPTIONS" and call.header("access-control-request-method") is not None
    if not asks or allowed_origin(call.header("origin"), origins) is None:
        return None
    headers: Headers = [
        ("access-control-allow-methods", _METHODS),
        ("access-control-allow-headers", ", ".join([_SENT, *_of_messages(call)])),
        ("access-control-max-age", str(MAX_AGE_SECONDS)),
    ]
    return Answer(204, b"", headers)


def _of_messages(call: Call) -> list[str]:
    """The message headers that a page wants to send: any name may follow the prefix."""
    asked = (call.header("access-control-request-headers") or "").lower().split(",")
    return [name.strip() for name in asked if _MESSAGE_HEADER.fullmatch(name.strip())]


def open_to(answer: Answer, call: Call, origins: Collection[str]) -> None:
    """Let a browser show the answer to an allowed page."""
    origin = allowed_origin(call.header("origin"), origins)
    if origin is not None:
        answer.headers.append(("access-control-allow-origin", origin))
        own = [name for name, _ in answer.headers if name.startswith(("queuey-header-", "queuey-header64-"))]
        answer.headers.append(("access-control-expose-headers", ", ".join([_SEEN, *own])))
    if ANY not in origins:
        answer.headers.append(("vary", "origin"))
