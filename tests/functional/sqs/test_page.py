"""The page about the door: its example runs, and its tables are whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from queuey.sqs.attributes import QueueAttributes
from queuey.sqs.shapes import ACTIONS
from tests.support.commands import done, run_in
from tests.support.source import ROOT
from tests.support.sqs_clients import SqsServer

TEXT = (ROOT / "docs/sqs.md").read_text()


def test_the_example_receives_a_message(sqs: SqsServer, tmp_path: Path) -> None:
    (program,) = re.findall(r"<<'END'\n(.*?)END\n", TEXT, re.DOTALL)
    file = tmp_path / "example.py"
    file.write_text(program.replace("http://127.0.0.1:5000", sqs.url))
    key = sqs.keys["queuey"]
    variables = {"AWS_ACCESS_KEY_ID": key.access_key, "AWS_SECRET_ACCESS_KEY": key.secret_key}

    assert done(run_in(variables, tmp_path, module="example")).text == "two chairs\n"


@pytest.mark.parametrize("action", ACTIONS)
def test_the_page_names_each_action(action: str) -> None:
    assert f"`{action}`" in TEXT


def test_the_page_names_each_attribute() -> None:
    names = {*QueueAttributes({"FifoQueue": "true"}).reported(), "Policy", "RedrivePolicy", "RedriveAllowPolicy"}

    assert [name for name in names if f"`{name}`" not in TEXT] == []
