"""What settings of several rows, or of a form of their own, must hold: checked once, when all of them are read."""

from __future__ import annotations

import re

from queuey.errors import ConfigurationError
from queuey.settings.sections import Settings

__all__ = ["MIN_KEY_CHARACTERS", "MIN_TOKEN_KEY_CHARACTERS", "check", "is_key"]

MIN_KEY_CHARACTERS = 16
"""Of an application key: 64 bits if it is hexadecimal. The first Queuey's one-character keys are refused (queuey-api-v1 W2); ``queuey key new`` gives 256."""
MIN_TOKEN_KEY_CHARACTERS = 32
"""Of a key that signs tokens, which can be guessed at without asking the server. ``queuey token key`` gives 256 bits."""

_KEY_TEXT = re.compile(r"[!-:<-~]+")
"""What a credential in a header can carry: visible ASCII, no semicolon."""
_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")
"""What CQL takes without quotes, and gives back as it was written."""
_ORIGIN = re.compile(r"\*|https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


def is_key(text: str) -> bool:
    """Whether a text can be an application's key: visible ASCII characters without ';', and enough of them."""
    return len(text) >= MIN_KEY_CHARACTERS and _KEY_TEXT.fullmatch(text) is not None


def check(settings: Settings) -> None:
    """Check what no row can check by itself.

    :raises ConfigurationError: the first thing that is wrong: where it stands, which key, what was expected.
    """
    _check_limits(settings)
    _check_keyspaces(settings)
    _check_read_delay(settings)
    _check_token_keys(settings)
    _check_origins(settings)
    _check_metrics_token(settings)


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
    """D >= W + 2 E, or readers could pass an append that is still to be acknowledged (G3)."""
    delay, budget = settings.cassandra.read_delay_ms, settings.cassandra.write_budget_ms
    least = budget + 2 * settings.cassandra.clock_error_ms
    if budget and delay < least:
        origin = _origin(settings, *(f"cassandra.{key}_ms" for key in ("read_delay", "write_budget", "clock_error")))
        raise ConfigurationError(
            f"{origin}: [cassandra] read_delay_ms = {delay}: expected at least write_budget_ms + 2 * clock_error_ms, "
            f"which is {least}"
        )


def _check_token_keys(settings: Settings) -> None:
    keys = settings.tokens.keys
    for number, key in enumerate(keys, 1):
        if len(key) < MIN_TOKEN_KEY_CHARACTERS or not key.isascii():
            raise ConfigurationError(
                f"{_origin(settings, 'tokens.keys')}: [tokens] keys: key {number} of {len(keys)}: expected at least "
                f"{MIN_TOKEN_KEY_CHARACTERS} ASCII characters; 'queuey token key' makes good ones"
            )


def _check_origins(settings: Settings) -> None:
    for origin in settings.server.cors_origins:
        if not _ORIGIN.fullmatch(origin):
            where = f"{_origin(settings, 'server.cors_origins')}: [server] cors_origins: {origin!r}"
            raise ConfigurationError(f"{where}: expected an origin such as https://app.example.org:8080, or *")


def _check_metrics_token(settings: Settings) -> None:
    token = settings.metrics.token
    if token and not is_key(token):
        raise ConfigurationError(
            f"{_origin(settings, 'metrics.token')}: [metrics] token: expected at least {MIN_KEY_CHARACTERS} visible "
            "ASCII characters without ';'; 'queuey token key' makes a good one"
        )


def _origin(settings: Settings, *names: str) -> str:
    """Where the first of these settings that is not the default was given."""
    return next(settings.origins[name] for name in names if name in settings.origins)
