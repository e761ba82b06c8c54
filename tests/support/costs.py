"""What a process costs the machine: memory, threads, files and sockets."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Costs:
    """What a process has of the machine's."""

    pid: int

    def _status(self, name: str) -> int:
        found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1])

    @property
    def rss_mb(self) -> float:
        return self._status("VmRSS") / 1024

    @property
    def rss_peak_mb(self) -> float:
        return self._status("VmHWM") / 1024

    @property
    def threads(self) -> int:
        return self._status("Threads")

    @property
    def files(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    @property
    def sockets(self) -> int:
        names = []
        for file in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                names.append(str(file.readlink()))
        return sum(name.startswith("socket:") for name in names)
