"""The whole project on Python 3.12, and its backend for tasks of Django on Django 6, which needs that Python."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.bare import Bare
from tests.support.packaging import BESIDE, SHIPPED, copy_to
from tests.support.pythons import python

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


class Tree:
    """A copy of the source, and an environment in which it is installed with the extra ``dev``."""

    def __init__(self, folder: Path, interpreter: str) -> None:
        self.folder = folder / "tree"
        self.folder.mkdir()
        copy_to(self.folder, (*SHIPPED, *BESIDE))
        self.environment = Bare(folder / "env", interpreter)
        self.environment.install("--editable", f"{self.folder}[dev]")

    def run(self, *given: str) -> str:
        """What Python says in that environment. It must succeed."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        command = [self.environment.python, *given]
        done = subprocess.run(command, cwd=self.folder, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-20_000:]
        return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("python-3.12"), python("3.12"))


def test_tasks_and_outbox_work_with_django_6(tree: Tree) -> None:
    assert tree.run("-c", "import django; print(django.VERSION[0])") == "6\n"

    said = tree.run("-m", "pytest", "tests/functional/test_web.py", "-k", "not fastapi and not flask")

    assert "passed" in said.splitlines()[-1]


def test_units_and_examples_in_docstrings_pass(tree: Tree) -> None:
    assert tree.run("-c", "import sys; print(*sys.version_info[:2])") == "3 12\n"

    said = tree.run("-m", "pytest", "-n", "2", "queuey", "qdo", "tests/unit", "tests/test_layers.py")

    assert "passed" in said.splitlines()[-1]
