"""Signature Version 4, in a header or in the query string (a presigned link).

A client derives a key from its secret, the day, a region and the service, and signs a *canonical request* with it: the
method, path and query, the headers that it names, and the SHA-256 of the body. The server builds the same and compares.
A request that is sent again within its time is valid again, as at Amazon's service: an action that must not be done
twice has a deduplication id.

:source: the public description of Signature Version 4, and botocore 1.44, whose signatures the tests verify.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote

from queuey.http.exchange import Call
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND
from queuey.security.access_keys import MasterSecrets, digest_of_access_key
from queuey.service.keys import DEMO, Keys
from queuey.sqs.errors import SqsError, shown
from queuey.sqs.query import of_link

__all__ = ["HASHED_ON_LOOP_BYTES", "Presented", "Signatures", "SignedLately", "presented"]

HASHED_ON_LOOP_BYTES = 64 << 10
"""Bytes of a body that :meth:`Signatures.check` may hash on the event loop: 40 us, or 200 on a processor without SHA
instructions."""
SKEW_SECONDS = 15 * 60
"""How far the time of a signature may be from the server's, before and after it."""
_SKEW = f"{SKEW_SECONDS // 60} min."
MAX_EXPIRES_SECONDS = 7 * 24 * 3600
"""The longest life of a presigned link."""
SIGNING_KEYS = 4096
"""Signing keys that are kept: about 4 MB. Each is for an access key, a day and a region, which the caller names."""

SIGNERS = 10_000
"""Keys with the addresses of their signers that are kept, at most: about 2 MB."""
SIGNER_SECONDS = 600.0
"""How long an address that has signed with a key counts as that key's."""

HEADERS = 256
"""Headers that are kept once they are read, without their signatures. An SDK's is the same for a second."""
_MOST_HEADER_CHARACTERS = 1024
"""Longer ones are read each time."""

_ALGORITHM = "AWS4-HMAC-SHA256"
_SERVICE = "sqs"
_END = "aws4_request"
_MOST_SHOWN_OF_A_KEY = 32
"""Characters; ids of access keys have 20."""
_KEY_ID = re.compile(r"[!-.0-~]{1,128}")
_REGION = re.compile(r"[!-.0-~]{1,64}")
_SIGNATURE = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SIGNATURE_CHARACTERS = 64
_TIME = re.compile(r"[0-9]{8}T[0-9]{6}Z", re.ASCII)
_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_EXPIRES = re.compile(r"[0-9]{1,6}", re.ASCII)
_DECIDING = ("host", "x-amz-target")
"""Headers that say where and what a request is for. Whoever changes them on the way must not find them unsigned."""


class Presented(NamedTuple):
    """A signature as a request shows it, not yet checked."""

    key_id: str
    date: str
    """The day of the signing key: ``yyyymmdd``, in UTC."""
    region: str
    signed_headers: tuple[str, ...]
    """In the client's order."""
    signature: str
    """64 hexadecimal digits."""
    time: str
    """When it was signed: ``yyyymmddThhmmssZ``, in UTC, on the day of ``date``."""
    expires_seconds: int | None
    """Of a presigned link, how long it lives; None for a signature in a header."""


def presented(call: Call) -> Presented | None:
    """The signature of a request, from its Authorization header or its query string.

    Only the head is looked at.

    :returns: None if there is none; another scheme's Authorization header is none.
    :raises SqsError: it cannot be read (IncompleteSignature), or is for another service or day than it was made on
        (InvalidSignatureException).
    """
    header = call.headers.get("authorization", "")
    if header.startswith("AWS4-"):
        time = call.headers.get("x-amz-date") or _time_of_date(call.headers.get("date", ""))
        if len(header) <= _MOST_HEADER_CHARACTERS:
            usual, signature = _usual(header[:-_SIGNATURE_CHARACTERS], time), header[-_SIGNATURE_CHARACTERS:]
            if usual is not None and _SIGNATURE.fullmatch(signature):
                return Presented(*usual, signature, time, None)
        return _from_header(header, time)
    if "X-Amz-Algorithm=" in call.query_string or "X-Amz-Signature=" in call.query_string:
        return _from_query(dict(of_link(call.query_string)))
    return None


class Signatures:
    """Checks signatures against the access keys in force."""

    def __init__(self, keys: Keys, secrets: MasterSecrets) -> None:
        self._keys = keys
        self.secrets = secrets
        """What the secrets of access keys are derived from."""
        self._signing_key = lru_cache(SIGNING_KEYS)(self._derived)

    def application_of(self, signature: Presented) -> str:
        """The application whose access key a signature names. It proves nothing.

        :raises SqsError: no such key is in force (InvalidClientTokenId).
        """
        application = self._keys.application_of_access_key(signature.key_id)
        if application is None:
            raise _unknown_key(signature.key_id)
        return application

    def application_without_check(self, signature: Presented | None) -> str:
        """The application that a caller names where ``[sqs] auth = open``.

        It is that of the access key; or the application of which the key id is the name; or ``demo``, since tools for
        development send any key id.

        :raises SqsError: there is no such application, not even ``demo`` (InvalidClientTokenId).
        """
        key_id = "" if signature is None else signature.key_id
        application = self._keys.application_of_access_key(key_id)
        for name in (application, key_id, DEMO):
            if name is not None and self._keys.knows(name):
                return name
        text = f"There is no application {shown(key_id)}" if key_id else "The request names no application"
        raise SqsError("InvalidClientTokenId", f"{text}: the access key id has to be the name of one.")

    def check(self, signature: Presented, call: Call, now_ticks: int) -> str:
        """The application whose access key signed this very request.

        The keys in memory decide, so refresh them first if they are stale. It hashes the whole body: of one over
        :data:`HASHED_ON_LOOP_BYTES` call it in a thread, as :attr:`Operation.loop_bytes
        <queuey.http.face.Operation.loop_bytes>` asks the server to.

        :raises SqsError: the key is not in force (InvalidClientTokenId); the time is more than 15 minutes off, or the
            link has ended, or the signature is not that of this request (InvalidSignatureException); the host or the
            target is not signed (IncompleteSignature).
        """
        application = self.application_of(signature)
        _check_time(signature, now_ticks)
        for name in _DECIDING:
            if name in call.headers and name not in signature.signed_headers:
                raise _incomplete(f"SignedHeaders do not name the header {name}.")
        key = self._signing_key(signature.key_id, signature.date, signature.region)
        stamp = f"{_ALGORITHM}\n{signature.time}\n{signature.date}/{signature.region}/{_SERVICE}/{_END}\n"
        for request in _canonical_requests(signature, call):
            made = key.copy()
            made.update(f"{stamp}{sha256(request.encode('utf-8', 'surrogateescape')).hexdigest()}".encode())
            if hmac.compare_digest(made.hexdigest(), signature.signature):
                self._keys.note_use(digest_of_access_key(signature.key_id))
                return application
        raise _mismatch(
            f"the secret access key is not the one of {signature.key_id}, or a proxy changed the request on its way, "
            f"which arrived for the host {shown(call.headers.get('host', ''))}"
        )

    def _derived(self, key_id: str, date: str, region: str) -> hmac.HMAC:
        """Signs with the key for a day, a region and this service: a copy of it, for it is kept."""
        secret = self.secrets.secret_of(key_id)
        if secret is None:
            raise _unknown_key(key_id)
        key = f"AWS4{secret}".encode()
        for part in (date, region, _SERVICE, _END):
            key = hmac.digest(key, part.encode(), "sha256")
        return hmac.new(key, digestmod="sha256")


class SignedLately:
    """Which keys have signed requests that came from which addresses in the last minutes. Thread-safe.

    Until the body is here, a signature proves nothing. This says whose it most likely is.
    """

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._until: dict[tuple[str, str], float] = {}

    def note(self, key_id: str, address: str) -> None:
        """A signature of this key was found good."""
        if len(self._until) >= SIGNERS:
            self._until = {}
        self._until[key_id, address] = self._elapsed() + SIGNER_SECONDS

    def holds(self, key_id: str, address: str) -> bool:
        """Whether that was within :data:`SIGNER_SECONDS`."""
        return self._until.get((key_id, address), 0.0) > self._elapsed()


# What a request shows


_AS_SDKS_WRITE_IT = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([!-+.0-~-]{1,128})/([0-9]{8})/([!-+.0-~-]{1,64})/sqs/aws4_request, ?"
    r"SignedHeaders=([!-+.-~-]+), ?Signature=",
    re.ASCII,
)
"""All but the signature itself."""


@lru_cache(HEADERS)
def _usual(beginning: str, time: str) -> tuple[str, str, str, tuple[str, ...]] | None:
    """What stands before the signature in a header as SDKs write it: key id, day, region and signed headers.

    None for any other header: :func:`_from_header` then reads it, or says what is wrong.
    """
    found = _AS_SDKS_WRITE_IT.fullmatch(beginning)
    if found is None:
        return None
    key_id, date, region, headers = found.groups()
    names = tuple(headers.split(";"))
    if not _TIME.fullmatch(time) or date != time[:8] or len({*names}) < len(names):
        return None
    return key_id, date, region, names


def _from_header(header: str, time: str) -> Presented:
    """A signature in the form ``AWS4-HMAC-SHA256 Credential=..., SignedHeaders=..., Signature=...``."""
    algorithm, _, rest = header.partition(" ")
    fields = {name.strip(): value.strip() for name, _, value in (part.partition("=") for part in rest.split(","))}
    return _presented(algorithm, fields, "", time, None)


def _from_query(fields: dict[str, str]) -> Presented:
    expires = fields.get("X-Amz-Expires", "")
    if not _EXPIRES.fullmatch(expires) or not 1 <= int(expires) <= MAX_EXPIRES_SECONDS:
        raise _incomplete(f"X-Amz-Expires is not 1 to {MAX_EXPIRES_SECONDS} seconds.")
    time = fields.get("X-Amz-Date", "")
    return _presented(fields.get("X-Amz-Algorithm", ""), fields, "X-Amz-", time, int(expires))


def _presented(algorithm: str, fields: dict[str, str], prefix: str, time: str, expires: int | None) -> Presented:
    if algorithm != _ALGORITHM:
        raise _incomplete(f"The algorithm {shown(algorithm)} is not {_ALGORITHM}, the only one here.")
    names = [f"{prefix}{name}" for name in ("Credential", "SignedHeaders", "Signature")]
    for name in names:
        if not fields.get(name):
            raise _incomplete(f"The signature has no {name}.")
    credential, headers, signature = (fields[name] for name in names)
    parts = credential.split("/")
    if len(parts) != 5 or not _KEY_ID.fullmatch(parts[0]) or not _REGION.fullmatch(parts[2]):
        raise _incomplete(
            f"Credential is not of the form ID/yyyymmdd/REGION/{_SERVICE}/{_END}: look at the access key id and the region."
        )
    key_id, date, region, service, end = parts
    if not _SIGNATURE.fullmatch(signature):
        raise _incomplete("Signature is not 64 hexadecimal digits in lower case.")
    if not _TIME.fullmatch(time):
        raise _incomplete("X-Amz-Date is missing, or not of the form yyyymmddThhmmssZ.")
    if (service, end) != (_SERVICE, _END):
        raise _mismatch(f"it is for {shown(service)}/{shown(end)}, and not for {_SERVICE}/{_END}")
    if date != time[:8]:
        raise _mismatch(f"its Credential is of another day than its time, {time}")
    names = headers.split(";")
    if len(set(names)) < len(names):  # a long header, named a thousand times, would be built in a thousand times
        raise _incomplete("SignedHeaders name a header twice.")
    return Presented(key_id, date, region, tuple(names), signature, time, expires)


def _time_of_date(header: str) -> str:
    """A Date header as a time; empty if it is none. Some clients have it in the place of X-Amz-Date."""
    try:
        moment = parsedate_to_datetime(header)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment  # -0000 is UTC without a place
        return moment.astimezone(UTC).strftime(_TIME_FORMAT)
    except (ValueError, OverflowError):
        return ""


def _check_time(signature: Presented, now_ticks: int) -> None:
    """:raises SqsError: in the words of Amazon's service, in which some SDKs look for the time of the server."""
    now, signed = (now_ticks - EPOCH_TICKS) / TICKS_PER_SECOND, _unix_seconds(signature.time)
    if signed - now > SKEW_SECONDS:
        bound = f"{_written(now + SKEW_SECONDS)} ({_written(now)} + {_SKEW})"
        raise _invalid(f"Signature not yet current: {signature.time} is still later than {bound}")
    expires = signature.expires_seconds
    lives = SKEW_SECONDS if expires is None else expires
    if now - signed > lives:
        bound = f"{_written(now - lives)} ({_written(now)} - {_SKEW if expires is None else f'{expires} sec.'})"
        raise _invalid(f"Signature expired: {signature.time} is now earlier than {bound}")


def _written(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).strftime(_TIME_FORMAT)


@lru_cache(256)
def _unix_seconds(time: str) -> int:
    """:raises SqsError: there is no such moment."""
    try:
        return int(datetime.strptime(time, _TIME_FORMAT).replace(tzinfo=UTC).timestamp())
    except ValueError as error:
        raise _incomplete("X-Amz-Date is no moment.") from error


# The canonical request


def _canonical_requests(signature: Presented, call: Call) -> Iterator[str]:
    """What the client may have signed, the likely first: one text, unless a part of it can be written in several ways.

    Each part has arrived, and is acted on, in one meaning, whichever way it was written.

    :raises SqsError: a signed header is absent (InvalidSignatureException).
    """
    end = f"{';'.join(signature.signed_headers)}\n{sha256(call.body).hexdigest()}"
    for headers in _headers(call.headers, signature.signed_headers):
        for path in _paths(call.path):
            for query in _queries(call.query_string, presigned=signature.expires_seconds is not None):
                yield f"{call.method}\n{path}\n{query}\n{headers}\n{end}"


def _headers(sent: Mapping[str, str], names: Sequence[str]) -> Iterator[str]:
    r"""Signed headers with their values; and without the blank that the server puts between values of one header.

    :raises SqsError: one is absent (InvalidSignatureException).

    >>> [*_headers({"host": "q", "x-a": "1, 2"}, ["host", "x-a"])]
    ['host:q\nx-a:1, 2\n', 'host:q\nx-a:1,2\n']
    """
    try:
        text = "".join([f"{name}:{' '.join(sent[name].split())}\n" for name in names])
    except KeyError as absent:
        raise _mismatch(f"it was made with the header {shown(absent.args[0])}, which has not arrived") from None
    yield text
    if ", " in text:
        yield text.replace(", ", ",")


@lru_cache(64)
def _paths(path: str) -> tuple[str, ...]:
    """A decoded path without ``.``, ``..`` and empty parts, escaped twice; and once, for a client that sent it plain.

    >>> _paths("/284951520618/jobs.fifo")
    ('/284951520618/jobs.fifo',)
    >>> _paths("//a b/./c/../")
    ('/a%2520b/', '/a%20b/')
    """
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    plain = f"/{'/'.join(parts)}{'/' if parts and path.endswith('/') else ''}"
    once = quote(plain, safe="/~", errors="surrogateescape")
    return tuple(dict.fromkeys((quote(once, safe="/~"), once)))


def _queries(query_string: str, *, presigned: bool) -> tuple[str, ...]:
    """A query string in canonical order and escapes; and with the client's own escapes if they are others.

    >>> _queries("b=2&a=%7e&X-Amz-Signature=0", presigned=True)
    ('a=~&b=2', 'a=%7e&b=2')
    """
    if not query_string:
        return ("",)
    pairs = [(quote(name, safe=""), quote(value, safe="")) for name, value in of_link(query_string)]
    sent = [pair.partition("=")[::2] for pair in query_string.split("&") if pair]
    texts = [
        "&".join(f"{name}={value}" for name, value in sorted(some) if not presigned or name != "X-Amz-Signature")
        for some in (pairs, sent)
    ]
    return tuple(dict.fromkeys(texts))


# Refusals


def _unknown_key(key_id: str) -> SqsError:
    how = "'queuey key new APPLICATION --sqs' makes one, 'queuey key ls' lists those there are"
    if len(key_id) > _MOST_SHOWN_OF_A_KEY:  # it may be a secret, or a key of v1
        return SqsError("InvalidClientTokenId", f"{key_id[:4]}... is too long to be the id of an access key: {how}.")
    return SqsError("InvalidClientTokenId", f"No access key {key_id} is in force here: {how}.")


def _incomplete(text: str) -> SqsError:
    return SqsError("IncompleteSignature", text)


def _mismatch(why: str) -> SqsError:
    return _invalid(f"The request signature we calculated does not match the signature you provided: {why}.")


def _invalid(text: str) -> SqsError:
    return SqsError("InvalidSignatureException", text)
