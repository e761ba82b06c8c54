"""``queuey serve``, with the embedded store or on a Cassandra that runs."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from qdo.bench.systems import StartedSystem
from queuey.errors import StorageUnavailable

KEYSPACE = "bench"
_ADDRESS = re.compile(rb"http://127\.0\.0\.1:([1-9][0-9]*)[^0-9]")
"""With what follows it: before, its last digits may not be there."""


class StartedServer(StartedSystem):
    """A server on a free port, with the embedded store."""

    drivers = ("queuey",)
    option_names: ClassVar[Mapping[str, str]] = {}
    place_options = frozenset({"url", "application", "key"})
    program: ClassVar[str] = sys.executable

    def __init__(self, folder: Path, given: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, given)
        self._key = secrets.token_hex(16)
        self.ini = self.folder / "queuey.ini"

    @property
    def options(self) -> dict[str, str]:
        return {"url": f"http://127.0.0.1:{self.port}", "application": "bench", "key": self._key}

    def settings(self) -> str:
        """Sections of its ini file."""
        return ""

    def furnish(self) -> None:
        self.ini.write_text(f"{self.settings()}\n[application_keys]\nbench = {self._key}\n")

    def command(self) -> list[str]:
        place = ["--port", str(self.port), "--data", str(self.folder / "data")]
        return [self.path, "-m", "queuey.cli", "serve", *place, "-c", str(self.ini)]

    def variables(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith("QUEUEY_")}

    def is_up(self) -> bool:
        return _ADDRESS.search(self.said.read_bytes()) is not None


class ServerOnCassandra(StartedServer):
    """A server in a Cassandra that is there; only the server is killed.

    It makes the keyspace :data:`KEYSPACE`, which stays: queues have the names of their runs.
    """

    keeps_queues = True
    data_elsewhere = True
    needed: ClassVar[Mapping[str, str]] = {"hosts": "a Cassandra that runs, as HOST:PORT"}
    option_names: ClassVar[Mapping[str, str]] = {**StartedServer.option_names, **needed}

    def settings(self) -> str:
        hosts = self.given["hosts"]
        return f"[storage]\nbackend = cassandra\n[cassandra]\nhosts = {hosts}\nkeyspace = {KEYSPACE}\n"

    def furnish(self) -> None:
        super().furnish()
        command = [self.path, "-m", "queuey.cli", "init", "--replication", "1", "-c", str(self.ini)]
        made = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.variables(),
            check=False,
        )
        if made.returncode:
            raise StorageUnavailable(f"no tables in Cassandra: {made.stdout.strip()[-500:]}")
