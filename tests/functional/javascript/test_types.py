"""The types of the JavaScript client, read by the compiler of TypeScript as strictly as it can."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.services.jars import node_modules
from tests.support.shell import ROOT

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
CLIENT = ROOT / "clients/javascript"
STRICT = {
    "strict": True,
    "exactOptionalPropertyTypes": True,
    "noImplicitOverride": True,
    "noUnusedLocals": True,
    "noEmit": True,
    "skipLibCheck": False,
    "target": "es2022",
    "module": "nodenext",
    "moduleResolution": "nodenext",
    "lib": ["es2022", "dom", "dom.asynciterable"],
    "types": [],
}
NODE = """
declare const process: { env: { QUEUEY_URL: string; QUEUEY_KEY: string } };
declare function show(text: string | Uint8Array): void;
"""


def installed(folder: Path, **more: bool) -> Path:
    """A package for TypeScript, with the client as npm installs it."""
    npm = shutil.which("npm")
    assert npm, "npm is missing: 'make faults' installs it"
    (folder / "package.json").write_text(json.dumps({"type": "module", "private": True}))
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": STRICT | more}))
    subprocess.run([npm, "install", "--no-audit", "--no-fund", "--offline", str(CLIENT)], cwd=folder, check=True)
    return folder


def compiled(folder: Path) -> str:
    """What the compiler has to say."""
    compiler = node_modules("typescript") / "typescript/bin/tsc"
    done = subprocess.run(
        ["node", str(compiler), "--project", str(folder)], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_a_program_that_uses_everything_compiles_and_wrong_uses_do_not(tmp_path: Path) -> None:
    shutil.copy(HERE / "uses.ts", installed(tmp_path, noUncheckedIndexedAccess=True))

    assert compiled(tmp_path) == ""


def test_what_the_pages_show_compiles(tmp_path: Path) -> None:
    """Each page is a module."""
    folder = installed(tmp_path)
    (folder / "node.d.ts").write_text(NODE)
    for name in ("javascript", "fastapi", "flask", "django"):
        page = (ROOT / f"docs/{name}.md").read_text()
        text = "\n".join(re.findall(r"^```js\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
        begins = "" if "import " in text else 'import { Client } from "queuey-client";\n'
        (folder / f"{name}.ts").write_text(begins + text)

    assert compiled(folder) == ""
