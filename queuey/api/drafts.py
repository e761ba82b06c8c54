"""Drafts of single messages from a request's body and headers, and what all kinds of drafts share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

from queuey.api.headers import COMMON, has_headers, headers_of_call
from queuey.api.params import Problems, due, integer, once_key, quoted
from queuey.errors import Forbidden, MessageTooLarge
from queuey.http.exchange import Call
from queuey.model import DEFAULT_TTL_SECONDS, MAX_TTL_SECONDS, Draft, IdempotencyKey, Queue, decode_headers
from queuey.model.dead_letters import STORY_HEADER, story_of
from queuey.security.permissions import is_for
from queuey.service.log import partition_for
from queuey.settings import Settings

MAX_KEY = 256
MAX_CONTENT_TYPE = 256
_FORM = "application/x-www-form-urlencoded"
CHECK_TTL = integer(1, MAX_TTL_SECONDS)
MAX_BATCH_PROBLEMS = 20
"""Problems that the refusal of a batch names: the first ones."""


def content_type_of(call: Call, problems: Problems) -> str | None:
    """The content type to store.

    None for the form type, which the first clients send for any text.
    """
    text = call.header("content-type")
    if text is None or call.media_type == _FORM:
        return None
    return problems.take("content_type", check_content_type, text, None)


def check_content_type(text: str) -> str:
    """:raises ValueError: this is no content type."""
    if len(text) > MAX_CONTENT_TYPE or not (text.isascii() and text.isprintable()):
        raise ValueError(f"must be at most {MAX_CONTENT_TYPE} printable ASCII characters")
    return text


def check_key(text: str) -> str:
    """:raises ValueError: this is no key."""
    if not 1 <= len(text) <= MAX_KEY or not text.isprintable():
        raise ValueError(f"must be 1 to {MAX_KEY} printable characters")
    return text


def _ascii_key(text: str) -> str:
    """A key in a header.

    It is ASCII, since headers have no agreed form for other characters; a batch carries those.
    """
    if not text.isascii():
        raise ValueError("must be ASCII in a header: send other keys in a batch")
    return check_key(text)


def ttl_of(call: Call, problems: Problems) -> int:
    """Seconds to live, from X-TTL."""
    text = call.header("x-ttl")
    return DEFAULT_TTL_SECONDS if text is None else problems.take("ttl", CHECK_TTL, text, DEFAULT_TTL_SECONDS)


def check_size(body: bytes, headers: bytes | None, settings: Settings) -> None:
    """:raises MessageTooLarge: body and headers together exceed ``max_body_bytes``."""
    check_sizes(len(body), len(headers or b""), settings)


def check_sizes(body: int, headers: int, settings: Settings) -> None:
    """The same as :func:`check_size`, given numbers of bytes."""
    limit = settings.limits.max_body_bytes
    if body + headers > limit:
        what = "body is" if body > limit else "body and headers are together"
        raise MessageTooLarge(f"a message's {what} {body + headers} bytes; this server takes {limit}")


def check_letters(call: Call, several: Iterable[bytes | None]) -> None:
    """Refuse dead letters of other queues than those that the caller's credentials are for.

    A redrive, or a move, takes each letter to the queue that its story names.

    :param several: encoded headers of messages.
    :raises Forbidden: there is such a letter.
    """
    if not call.identity.is_restricted:
        return
    for headers in several:
        if headers is None or _STORY not in headers:
            continue
        try:
            story = story_of(decode_headers(headers))
        except ValueError:
            continue  # it is no dead letter to anybody
        if not is_for(call.identity, call.application, story.queue):
            raise Forbidden(
                f"Access was denied: a message is a dead letter of {quoted(story.queue)}, for which this credential is not."
            )


_STORY = STORY_HEADER.encode()


def raw_draft(call: Call, queue: Queue, settings: Settings, now_ticks: int) -> Draft:
    """A message whose body is the whole request body; headers give the rest."""
    if call.headers.keys() <= _PLAIN and call.body and not call.query_string:
        options = _plain_options(call.headers.get("x-ttl", ""), call.headers.get("content-type", ""))
        if options is not None and len(call.body) <= settings.limits.max_body_bytes:
            return Draft(partition_for(queue, None), call.body, *options)
    problems = Problems()
    if not call.body:
        problems.add("body", "Required")
    _check_no_key_in_query(call, problems)
    partition, key, due_ticks = 0, None, None
    if not _PLACING.isdisjoint(call.headers):
        partition, key, due_ticks = _placing(call, queue, now_ticks, problems)
    ttl, content_type = ttl_of(call, problems), content_type_of(call, problems)
    headers = headers_of_call(call, problems) if has_headers(call) else None
    problems.check()
    if headers is not None or len(call.body) > settings.limits.max_body_bytes:
        check_size(call.body, headers, settings)
    return Draft(partition or partition_for(queue, key), call.body, ttl, content_type, key, due_ticks, None, headers)


_PLACING = frozenset({"x-partition", "x-key", "x-delay", "x-deliver-at"})
_PLAIN = COMMON - _PLACING
"""Headers of a message that has nothing beside its body but a TTL and a content type, as most have."""
_MOST_REMEMBERED = 100
"""Characters of a header."""


def _plain_options(ttl: str, content_type: str) -> tuple[int, str | None] | None:
    """TTL and content type by their headers; None if they may be wrong, which the long way says."""
    if len(ttl) > _MOST_REMEMBERED or len(content_type) > _MOST_REMEMBERED:
        return None
    return _remembered_options(ttl, content_type)


@lru_cache(1024)
def _remembered_options(ttl: str, content_type: str) -> tuple[int, str | None] | None:
    call, problems = Call("", "", "", {"x-ttl": ttl, "content-type": content_type}), Problems()
    found = ttl_of(call, problems), content_type_of(call, problems)
    return found if problems.none else None


def _placing(call: Call, queue: Queue, now_ticks: int, problems: Problems) -> tuple[int, str | None, int | None]:
    """Partition (0 if none is named), key and due time of a raw message."""
    partition = call.header("x-partition")
    key = problems.take("key", _ascii_key, call.header("x-key"), None)
    if partition is not None and key is not None:
        problems.add("key", "give a partition or a key, not both")
    number = problems.take("partition", integer(1, queue.partitions), partition, 0)
    return number, key, due(call.header("x-delay"), call.header("x-deliver-at"), now_ticks, problems)


def key_of_put(call: Call, problems: Problems) -> str | None:
    """The key of a message that is written by id.

    The parameter takes any characters, X-Key takes ASCII.
    """
    header = problems.take("key", _ascii_key, call.header("x-key"), None)
    parameter = problems.take("key", check_key, call.query.get("key"), header)
    if header is not None and parameter != header:
        problems.add("key", "the header X-Key and the parameter key differ: give one of them")
    return parameter


def check_put(call: Call, numbers: Iterable[int], problems: Problems) -> None:
    """Note each header that would place a message, since the path places it already."""
    check_partition(call, numbers, problems)
    for field in _DUE:
        if call.header(_header(field)) is not None:
            problems.add(field, "is for an append: what is written by id is due at the moment of its id")


def check_partition(call: Call, numbers: Iterable[int], problems: Problems) -> None:
    """Note an X-Partition that differs from the partition of any of these ids."""
    named = call.header("x-partition")
    if named is not None and any(str(number) != named for number in numbers):
        problems.add(
            "partition", "differs from the path, which says where a message is: name it <partition>:<id> there"
        )


def check_batch(call: Call) -> None:
    """Refuse headers that would place a single message.

    X-TTL and X-Partition are exceptions: the first clients send them with a batch, and they have no effect.

    :raises InvalidParameter: there are some.
    """
    problems = Problems()
    _check_no_key_in_query(call, problems)
    for field in ("key", *_DUE):
        if call.header(_header(field)) is not None:
            problems.add(field, f"{_header(field)} is for one message: give it with each message of the batch")
    problems.check()


def _check_no_key_in_query(call: Call, problems: Problems) -> None:
    if call.query_string and "key" in call.query:
        problems.add("key", "in the query string, where it has no effect on an append: send X-Key, or a batch")


_DUE = ("delay", "deliver_at")


def _header(field: str) -> str:
    return "x-" + field.replace("_", "-")


def request_once(call: Call) -> IdempotencyKey | None:
    """The request's idempotency key, bound to everything that the request asks for."""
    text = call.headers.get("idempotency-key")
    if text is None:
        return None
    problems = Problems()
    key = problems.take("Idempotency-Key", once_key, text, "")
    problems.check()
    asked = [call.header(name) or "" for name in _ASKED]
    if has_headers(call):
        asked += [f"{name}:{value}" for name, value in sorted(call.headers.items()) if name.startswith("queuey-header")]
    digest = hashlib.sha256("\0".join(asked).encode() + b"\0")
    digest.update(call.body)
    return IdempotencyKey(key, digest.digest())


_ASKED = ("content-type", "x-ttl", "x-partition", "x-key", "x-delay", "x-deliver-at")
