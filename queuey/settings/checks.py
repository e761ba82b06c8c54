"""Checks that no row of the table can make by itself.

They concern several settings, or a form of its own, and run once when all settings are read.
"""

from __future__ import annotations

import re
from ipaddress import ip_network

from queuey.errors import ConfigurationError
from queuey.settings.issuers import is_this_machine
from queuey.settings.sections import Settings

__all__ = ["MIN_KEY_CHARACTERS", "MIN_TOKEN_KEY_CHARACTERS", "check", "is_key"]

MIN_KEY_CHARACTERS = 16
"""Of an application key: 64 bits if it is hexadecimal. The first Queuey's one-character keys are refused (queuey-api-v1 W2); ``queuey key new`` gives 256."""
MOST_NAMED_QUEUES = 100
"""Each is five series of metrics and more for its groups, and is looked at every ten seconds."""
MIN_TOKEN_KEY_CHARACTERS = 32
"""Of a key that signs tokens or derives secrets, which can be guessed at without asking the server. ``queuey token key`` gives 256 bits."""

_KEY_TEXT = re.compile(r"[!-:<-~]+")
"""What a credential in a header can carry: visible ASCII, no semicolon."""
_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")
"""What CQL takes without quotes, and gives back as it was written."""
_HOST = r"([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?"
_QUEUE_HOST = re.compile(rf"(https?://)?{_HOST}")
_NAMED_QUEUE = re.compile(r"[A-Za-z0-9_.-]{1,50}/[A-Za-z0-9_.-]{1,80}")
_COLLECTOR = re.compile(rf"https?://{_HOST}(/[!-~]*)?", re.IGNORECASE)
_ORIGIN = re.compile(rf"\*|https?://{_HOST}")


def is_key(text: str) -> bool:
    """Whether a text can be a key.

    It has visible ASCII characters without ``;``, and enough of them.
    """
    return len(text) >= MIN_KEY_CHARACTERS and _KEY_TEXT.fullmatch(text) is not None


def check(settings: Settings) -> None:
    """Check what no row can check by itself.

    :raises ConfigurationError: the first thing that is wrong: where it stands, which key, what was expected.
    """
    _check_limits(settings)
    _check_keyspaces(settings)
    _check_read_delay(settings)
    _check_secrets(settings, "tokens", "keys", settings.tokens.keys)
    _check_secrets(settings, "sqs", "secrets", settings.sqs.secrets)
    _check_secrets(settings, "console", "secrets", settings.console.secrets)
    _check_sqs(settings)
    _check_origins(settings)
    _check_console(settings)
    _check_proxies(settings)
    _check_tls(settings)
    _check_named_queues(settings)
    _check_metrics_token(settings)
    _check_telemetry(settings)


def _check_limits(settings: Settings) -> None:
    if settings.limits.max_body_bytes > settings.limits.max_request_bytes:
        origin = _origin(settings, "limits.max_body_bytes", "limits.max_request_bytes")
        raise ConfigurationError(
            f"{origin}: [limits] max_body_bytes is over max_request_bytes: expected a request to hold a body"
        )


def _check_keyspaces(settings: Settings) -> None:
    keyspaces = {"keyspace": settings.cassandra.keyspace, "metadata_keyspace": settings.cassandra.metadata_keyspace}
    for key, name in keyspaces.items():
        if name and not _KEYSPACE.fullmatch(name):
            raise ConfigurationError(
                f"{_origin(settings, f'cassandra.{key}')}: [cassandra] {key} = {name!r}: expected at most 48 small "
                "letters, digits and '_', the first a letter"
            )


def _check_read_delay(settings: Settings) -> None:
    """D >= W + 2 E, or readers could pass an append under way (G3)."""
    delay, budget = settings.cassandra.read_delay_ms, settings.cassandra.write_budget_ms
    least = budget + 2 * settings.cassandra.clock_error_ms
    if budget and delay < least:
        origin = _origin(settings, *(f"cassandra.{key}_ms" for key in ("read_delay", "write_budget", "clock_error")))
        raise ConfigurationError(
            f"{origin}: [cassandra] read_delay_ms = {delay}: expected at least write_budget_ms + 2 * clock_error_ms, "
            f"which is {least}"
        )


def _check_secrets(settings: Settings, section: str, key: str, secrets: tuple[str, ...]) -> None:
    for number, secret in enumerate(secrets, 1):
        if len(secret) < MIN_TOKEN_KEY_CHARACTERS or not secret.isascii():
            raise ConfigurationError(
                f"{_origin(settings, f'{section}.{key}')}: [{section}] {key}: {key.removesuffix('s')} {number} of "
                f"{len(secrets)}: expected at least {MIN_TOKEN_KEY_CHARACTERS} ASCII characters; 'queuey token key' "
                "makes good ones"
            )


def _check_sqs(settings: Settings) -> None:
    sqs, listens = settings.sqs, settings.server.host
    if sqs.auth == "open" and not sqs.open_to_network and not is_this_machine(listens):
        raise ConfigurationError(
            f"{_origin(settings, 'sqs.auth')}: [sqs] auth = open, and [server] host = {listens!r} is not of this "
            "machine alone: every machine that reaches it could do everything. Expected auth = signature, or "
            "host = 127.0.0.1, or open_to_network = true as well"
        )
    if sqs.host and not _QUEUE_HOST.fullmatch(sqs.host):
        raise ConfigurationError(
            f"{_origin(settings, 'sqs.host')}: [sqs] host = {sqs.host!r}: expected a host such as "
            "sqs.example.org:5000, or https://sqs.example.org"
        )


def _check_origins(settings: Settings) -> None:
    for origin in settings.server.cors_origins:
        if not _ORIGIN.fullmatch(origin):
            where = f"{_origin(settings, 'server.cors_origins')}: [server] cors_origins: {origin!r}"
            raise ConfigurationError(f"{where}: expected an origin such as https://app.example.org:8080, or *")


def _check_console(settings: Settings) -> None:
    url = settings.console.url
    if url and (url == "*" or not _ORIGIN.fullmatch(url)):
        raise ConfigurationError(
            f"{_origin(settings, 'console.url')}: [console] url = {url!r}: expected scheme and host in small letters, "
            "such as https://queuey.example.com, and no path"
        )
    for issuer in settings.issuers:
        if issuer.client_id and not url:
            raise ConfigurationError(
                f"[issuer:{issuer.name}] client_id needs [console] url: expected the address under which browsers reach "
                "this server, such as https://queuey.example.com"
            )


def _check_named_queues(settings: Settings) -> None:
    queues = settings.metrics.queues
    where = f"{_origin(settings, 'metrics.queues')}: [metrics] queues" if queues else ""
    if len(queues) > MOST_NAMED_QUEUES:
        raise ConfigurationError(f"{where}: {len(queues)} queues: expected {MOST_NAMED_QUEUES} at most")
    for name in queues:
        if not _NAMED_QUEUE.fullmatch(name):
            raise ConfigurationError(f"{where}: {name!r}: expected application/queue")


def _check_proxies(settings: Settings) -> None:
    for proxy in settings.server.trusted_proxies:
        try:
            ip_network(proxy, strict=False)
        except ValueError:
            where = f"{_origin(settings, 'server.trusted_proxies')}: [server] trusted_proxies: {proxy!r}"
            raise ConfigurationError(f"{where}: expected an address or a network such as 10.0.0.0/8") from None


def _check_tls(settings: Settings) -> None:
    given, missing = ("tls_cert", "tls_key") if settings.server.tls_cert else ("tls_key", "tls_cert")
    if bool(settings.server.tls_cert) != bool(settings.server.tls_key):
        raise ConfigurationError(
            f"{_origin(settings, f'server.{given}')}: [server] {given} is given without {missing}: expected both, or none"
        )


def _check_metrics_token(settings: Settings) -> None:
    token = settings.metrics.token
    if token and not is_key(token):
        raise ConfigurationError(
            f"{_origin(settings, 'metrics.token')}: [metrics] token: expected at least {MIN_KEY_CHARACTERS} visible "
            "ASCII characters without ';'; 'queuey token key' makes a good one"
        )


def _check_telemetry(settings: Settings) -> None:
    endpoint = settings.telemetry.endpoint
    if endpoint and not _COLLECTOR.fullmatch(endpoint):
        raise ConfigurationError(
            f"{_origin(settings, 'telemetry.endpoint')}: [telemetry] endpoint = {endpoint!r}: expected an address such as "
            "http://127.0.0.1:4318"
        )


def _origin(settings: Settings, *names: str) -> str:
    """Where the first of these settings that is not the default was given."""
    return next(settings.origins[name] for name in names if name in settings.origins)
