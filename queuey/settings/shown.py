"""Settings for people: those in force, and a sample file of all of them."""

from __future__ import annotations

from typing import NamedTuple

from queuey.settings.issuers import sample_issuer
from queuey.settings.sections import SECTIONS, SETTINGS, Settings
from queuey.settings.setting import rows_of

__all__ = ["Row", "describe", "sample_ini"]


class Row(NamedTuple):
    """A setting in force, for people."""

    section: str
    key: str
    value: str
    origin: str
    variable: str


def describe(settings: Settings) -> list[Row]:
    """Every setting, its value and where that came from. Keys are counted, never shown."""
    rows = [
        Row(
            setting.section,
            setting.key,
            setting.shown(settings.value(setting)),
            settings.origins.get(setting.name, "default"),
            setting.variable,
        )
        for setting in SETTINGS
    ]
    for issuer in settings.issuers:
        rows += [Row(f"issuer:{issuer.name}", key, value, "ini file", "") for key, value in issuer.shown()]
    for application, keys in settings.application_keys.items():
        rows.append(Row("application_keys", application, f"({len(keys)} hidden)", "ini file", ""))
    return rows


def sample_ini() -> str:
    """An ini file of all settings with their defaults, each commented out: loading it changes nothing.

    >>> print(sample_ini().splitlines()[3])
    #host = 127.0.0.1
    """
    lines: list[str] = []
    for section, declared in SECTIONS.items():
        lines += [f"[{section}]"]
        for setting in rows_of(section, declared):
            lines += [f"# {setting.help}", f"# {setting.accepted}; {setting.variable}"]
            lines += [f"#{setting.key} = {setting.to_text(setting.default)}".rstrip(), ""]
    lines += [f"# {line}" if line else "" for line in sample_issuer()] + [""]
    lines += ["[application_keys]"]
    lines += ["# application = key, or several keys, one on each following line, for a change of keys."]
    lines += ["# 'queuey key new APPLICATION' keeps only a digest, in the store: better than a key in a file."]
    return "\n".join(lines) + "\n"
