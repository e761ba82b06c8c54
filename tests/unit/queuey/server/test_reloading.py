"""Which settings a running server takes over."""

from __future__ import annotations

from queuey.server.reloading import merged, waiting
from queuey.settings import SETTINGS, Settings, load_settings

TAKEN = {
    "QUEUEY_LOG_LEVEL": "debug",
    "QUEUEY_LOG_REQUESTS": "true",
    "QUEUEY_TOKENS_KEYS": "k" * 32,
    "QUEUEY_METRICS_TOKEN": "t" * 32,
    "QUEUEY_METRICS_QUEUES": "demo/jobs",
    "QUEUEY_TLS_CERT": "a.pem",
    "QUEUEY_TLS_KEY": "a.key",
    "QUEUEY_SQS_SECRETS": "s" * 32,
    "QUEUEY_CONSOLE_SECRETS": "c" * 32,
    "QUEUEY_CONSOLE_URL": "https://queuey.example.com",
}
LEFT = {"QUEUEY_PORT": "1", "QUEUEY_LIMITS_MAX_IN_FLIGHT": "7", "QUEUEY_CONSOLE_ENABLED": "false"}


def test_keys_tls_and_log_are_taken_and_all_else_waits_for_the_next_start() -> None:
    now, new = Settings(), load_settings(None, {**TAKEN, **LEFT})

    found = merged(now, new)

    changed = {row.variable for row in SETTINGS if found.value(row) != now.value(row)}
    assert changed == TAKEN.keys()
    assert waiting(now, new) == ["[server] port", "[limits] max_in_flight", "[console] enabled"]
    assert found.origins.keys() == {row.name for row in SETTINGS if row.variable in TAKEN}


def test_the_same_settings_change_nothing() -> None:
    now = load_settings(None, {**TAKEN, **LEFT})

    assert merged(now, load_settings(None, {**TAKEN, **LEFT})) == now
    assert waiting(now, load_settings(None, {**TAKEN, **LEFT})) == []
