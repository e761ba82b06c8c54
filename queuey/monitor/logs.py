"""Logging: one event a line on standard error, as JSON or as text.

Lines hold application, queue, id, status and time; never bodies, keys or credentials.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import orjson

from queuey.tracebacks import bounded
from queuey.visible import visible

log = logging.getLogger(__name__)

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class TextFormatter(logging.Formatter):
    """A record as a line with its ``extra``, and a bounded traceback behind it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        extra = [f"{name}={_plain(value)}" for name, value in vars(record).items() if name not in _STANDARD]
        record.message = visible(record.message)  # it may have text of callers
        return " ".join([super().formatMessage(record), *extra])

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        return bounded(super().formatException(ei))


class JsonFormatter(TextFormatter):
    """A record as one JSON object: time, level, logger, event, and ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _event(record),
        }
        for name, value in vars(record).items():
            if name not in _STANDARD:
                line[f"extra_{name}" if name in line else name] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=_text).decode()
        except TypeError:  # JSON has no form for something in it
            return orjson.dumps({_text(name): _sendable(value) for name, value in line.items()}).decode()


def _event(record: logging.LogRecord) -> str:
    """A job's own line may have arguments that do not fit. It is a line all the same."""
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - whatever a value's own text raises
        return f"{_text(record.msg)} (its arguments do not fit: {_text(error)})"


def _sendable(value: Any) -> Any:
    """A value for which JSON has a form."""
    is_small = not isinstance(value, int) or -(1 << 63) <= value < 1 << 63
    return value if value is None or (isinstance(value, bool | int | float) and is_small) else _text(value)


def _text(value: Any) -> str:
    try:
        return str(value).encode("utf-8", "backslashreplace").decode()
    except Exception:  # noqa: BLE001 - a user's class may say nothing of itself
        return f"<{type(value).__name__}>"


def _plain(value: Any) -> str:
    """A value that cannot be taken for more than one."""
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if text and text.isprintable() and " " not in text else repr(text)


def _without_drivers_stack(record: logging.LogRecord) -> bool:
    """Drop the stack of a message of Cassandra's driver.

    That a node does not answer is the event; the stack helps nobody.
    """
    if record.name.startswith("cassandra."):
        record.exc_info = None
    return True


def set_up(level: str, form: str) -> None:
    """Send all logging to standard error. As JSON, warnings of Python and errors that nobody catches are lines of it too.

    :param form: ``json``, ``text``, or ``auto``: text on a terminal, else JSON.
    """
    handler = logging.StreamHandler(sys.stderr)
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    if as_json:
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    if level != "debug":
        handler.addFilter(_without_drivers_stack)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(as_json)
    sys.excepthook = _log_uncaught if as_json else sys.__excepthook__


def _log_uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
    else:
        log.error("ended by an error", exc_info=(kind, error, traceback))


def is_json() -> bool:
    """Whether all logging goes out as JSON, by :func:`set_up`."""
    handlers = logging.getLogger().handlers
    return bool(handlers) and all(isinstance(one.formatter, JsonFormatter) for one in handlers)
