"""Settings: frozen values, typed at use.

They come from an ini file and from ``QUEUEY_*`` variables.

Order of precedence: command line, environment, ini file, default. Files of the first Queuey load as well
(queuey-api-v1 section 9): their sections and class names are known, and :attr:`Settings.notices` says what has no
meaning any more.
"""

from queuey.settings.checks import MIN_KEY_CHARACTERS, is_key
from queuey.settings.loading import CLIENT_VARIABLES, load_settings
from queuey.settings.sections import (
    SECTIONS,
    SETTINGS,
    CassandraSettings,
    LimitSettings,
    LogSettings,
    MetadataSettings,
    MetricSettings,
    ServerSettings,
    Settings,
    SqsSettings,
    StorageSettings,
    TokenSettings,
)
from queuey.settings.setting import Setting
from queuey.settings.shown import Row, describe, sample_ini

__all__ = [
    "CLIENT_VARIABLES",
    "MIN_KEY_CHARACTERS",
    "SECTIONS",
    "SETTINGS",
    "CassandraSettings",
    "LimitSettings",
    "LogSettings",
    "MetadataSettings",
    "MetricSettings",
    "Row",
    "ServerSettings",
    "Setting",
    "Settings",
    "SqsSettings",
    "StorageSettings",
    "TokenSettings",
    "describe",
    "is_key",
    "load_settings",
    "sample_ini",
]
