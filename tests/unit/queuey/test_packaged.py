"""Files beside the modules are found wherever the package is installed; a missing one is an error."""

from __future__ import annotations

import subprocess
import sys

import pytest

from queuey.packaged import packaged


def test_a_file_of_a_package_is_read() -> None:
    assert b"create table" in packaged("queuey.storage.sqlite", "schema.sql")


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(OSError, match=r"none\.sql"):
        packaged("queuey.storage.sqlite", "none.sql")


def test_a_server_at_rest_does_without_modules_that_not_every_server_needs() -> None:
    """``importlib.resources`` and what it needs took 0.5 MiB, ``difflib`` 0.1 MiB, the SQS door 1 MiB."""
    code = "import sys, queuey.cli.serve, queuey.server.run, queuey.storage.sqlite; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "queuey.server.run" in loaded
    assert {"queuey.sqs.calls", "queuey.console.calls"} <= {*loaded}
    assert {"importlib.resources", "zipfile", "difflib"}.isdisjoint(loaded)
    assert {"queuey.sqs.face", "queuey.console.face", "queuey.api.arrow.drafts"}.isdisjoint(loaded)
