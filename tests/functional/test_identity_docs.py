"""The walk-through of docs/identity.md, run as it stands: five commands from an empty directory to a user's own queue."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import requests

from tests.support.servers import eventually
from tests.support.services.ports import free_ports

PAGE = Path(__file__).parent.parent.parent / "docs/identity.md"


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/__heartbeat__", timeout=60).ok
    except requests.RequestException:
        return False


def test_five_commands_from_an_empty_directory_to_a_users_own_queue(tmp_path: Path) -> None:
    """Typed one after the other, as a person does: what follows the server is typed when it listens."""
    commands = block("sh").splitlines()
    (port,) = free_ports(1, ["127.0.0.1"])
    url = f"http://127.0.0.1:{port}"
    (tmp_path / ".curlrc").write_text("fail-with-body\n")
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "CURL_HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "QUEUEY_PORT": str(port),
        "QUEUEY_URL": url,
    }
    folder = tmp_path / "empty"
    folder.mkdir()
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail"],
        cwd=folder,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert shell.stdin is not None
    shell.stdin.write("\n".join(commands[:2]) + "\n")
    shell.stdin.flush()
    try:
        eventually(lambda: answers(url) or shell.poll() is not None, seconds=90)
        more = block("bash").replace("http://127.0.0.1:5000", url)
        said, complained = shell.communicate(
            "\n".join([*commands[2:], "echo then", more, "kill %1; wait"]), timeout=120
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)  # the server too, if a command before it failed
        shell.wait()

    first, _, second = said.partition("then\n")
    assert len(commands) == 5
    assert commands[1] == "queuey serve &"
    assert first.rstrip().endswith('"body": "hello joe"}'), said + complained
    assert '"body":"hello joe"' in second, said + complained
    assert '"principal":"bid:joe@example.org"' in second
    assert '"verbs":["list","read"]' in second
