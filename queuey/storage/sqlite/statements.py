"""The statements of the embedded store, by name."""

from __future__ import annotations

from queuey.storage.statements import load_statements

__all__ = ["SQL"]

SQL = load_statements("queuey.storage.sqlite", "schema.sql", "statements.sql")
