"""The JavaScript client in Node, as a program uses it. The example of notifications has it in Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.support.client import new_name
from tests.support.servers import APPLICATIONS, RunningServer
from tests.support.shell import ROOT

HERE = Path(__file__).parent
CLIENT = ROOT / "clients/javascript"
SCENE = re.compile(r'^await scene\("(.*?)"', re.MULTILINE)


def _run(program: Path, server: RunningServer) -> str:
    """What the program prints; it has the server's address and the key of an application."""
    key = APPLICATIONS["queuey"][0]
    known = {"PATH": os.environ["PATH"], "QUEUEY_URL": server.url, "QUEUEY_KEY": key, "QUEUE": new_name()}
    node = shutil.which("node")
    assert node, "node is missing: 'make test' installs it"
    ended = subprocess.run(
        [node, str(program)], env=known, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_a_program_in_node_appends_reads_follows_and_works(shipped_server: RunningServer) -> None:
    program = HERE / "program.mjs"
    assert _run(program, shipped_server).splitlines() == SCENE.findall(program.read_text())


def test_the_page_of_the_client_does_what_it_says(shipped_server: RunningServer, tmp_path: Path) -> None:
    blocks = re.findall(r"^```js\n(.*?)^```$", (ROOT / "docs/javascript.md").read_text(), re.MULTILINE | re.DOTALL)
    text = "\n".join(blocks).replace('"queuey-client"', f'"{(CLIENT / "queuey.js").as_uri()}"')
    program = tmp_path / "page.mjs"
    program.write_text(text.replace('"demo"', '"queuey"').replace('"postcards"', f'"{new_name()}"'))
    said = _run(program, shipped_server)
    assert "a text, or bytes" in said
    assert "in one commit" in said


def test_the_types_name_what_the_client_exports_and_no_more() -> None:
    """And each public method of each class, which no compiler compares."""
    source, types = (CLIENT / name for name in ("queuey.js", "queuey.d.ts"))
    of_source = set(re.findall(r"^export (?:class|const|function) (\w+)", source.read_text(), re.MULTILINE))
    of_types = set(re.findall(r"^export (?:class|const|function) (\w+)", types.read_text(), re.MULTILINE))
    assert of_source == of_types
    assert _methods(source.read_text()) - {"Client.live", "Client.ask"} == _methods(types.read_text())


def _methods(text: str) -> set[str]:
    found = set()
    for name, body in re.findall(r"^export class (\w+).*?\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        methods = re.findall(r"^  (?:async \*?|\*)?([a-z]\w*)\(", body, re.MULTILINE)
        found |= {f"{name}.{method}" for method in methods if method != "constructor"}
    return found
