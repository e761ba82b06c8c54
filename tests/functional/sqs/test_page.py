"""The pages about the door: their examples run, and their tables are whole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from queuey.sqs.attributes import QueueAttributes
from queuey.sqs.shapes import ACTIONS
from tests.support.client import Server
from tests.support.commands import done, run_in
from tests.support.source import ROOT
from tests.support.sqs_clients import REGION, SqsServer

COMING = (ROOT / "docs/coming-from-sqs.md").read_text()
TEXT = (ROOT / "docs/sqs.md").read_text()


def test_the_example_receives_a_message(sqs: SqsServer, tmp_path: Path) -> None:
    (program,) = re.findall(r"<<'END'\n(.*?)END\n", TEXT, re.DOTALL)
    file = tmp_path / "example.py"
    file.write_text(program.replace("http://127.0.0.1:5000", sqs.url))
    key = sqs.keys["queuey"]
    variables = {"AWS_ACCESS_KEY_ID": key.access_key, "AWS_SECRET_ACCESS_KEY": key.secret_key}

    assert done(run_in(variables, tmp_path, module="example")).text == "two chairs\n"


def test_the_programs_of_those_who_come_from_sqs_run(sqs: SqsServer, v1: Server, tmp_path: Path) -> None:
    key = sqs.keys["queuey"]
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "QUEUEY_URL": sqs.url,
        "QUEUEY_APPLICATION": v1.application,
        "QUEUEY_KEY": str(v1.key),
        "AWS_ENDPOINT_URL_SQS": sqs.url,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": key.access_key,
        "AWS_SECRET_ACCESS_KEY": key.secret_key,
    }
    script = "set -euo pipefail\n" + "\n".join(re.findall(r"^```sh\n(.*?)^```", COMING, re.MULTILINE | re.DOTALL))

    said = subprocess.run(
        ["bash"], input=script, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )

    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == "received two chairs\nreceived a table\n"


def test_a_queue_of_another_service_is_moved(sqs: SqsServer, client: Any, other_client: Any, tmp_path: Path) -> None:
    """Here another account of the same server: its keys are in a profile."""
    (program,) = re.findall(r"^cat > move.py <<'END'\n(.*?)^END", COMING, re.MULTILINE | re.DOTALL)
    (tmp_path / "move.py").write_text(program)
    (tmp_path / ".aws").mkdir()
    there, here = sqs.keys["other"], sqs.keys["queuey"]
    lines = ["[amazon]", f"aws_access_key_id = {there.access_key}", f"aws_secret_access_key = {there.secret_key}", ""]
    (tmp_path / ".aws/credentials").write_text("\n".join(lines))
    source = other_client.create_queue(QueueName="orders-of-old")["QueueUrl"]
    kind = {"kind": {"DataType": "String", "StringValue": "furniture"}}
    for number in range(12):
        other_client.send_message(QueueUrl=source, MessageBody=f"chair {number}", MessageAttributes=kind)
    variables = {
        "HOME": str(tmp_path),
        "AWS_ENDPOINT_URL_SQS": sqs.url,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": here.access_key,
        "AWS_SECRET_ACCESS_KEY": here.secret_key,
    }

    told = done(run_in(variables, tmp_path, "amazon", sqs.url, "orders-of-old", "orders-of-new", module="move")).text

    target = client.get_queue_url(QueueName="orders-of-new")["QueueUrl"]
    wanted = {"QueueUrl": target, "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
    moved: list[Any] = []
    while found := client.receive_message(**wanted).get("Messages"):
        moved += found
    bodies = {f"chair {number}" for number in range(12)}
    assert set(told.splitlines()) == {f"moved {body}" for body in bodies}
    assert sorted(one["Body"] for one in moved) == sorted(bodies)
    assert {one["MessageAttributes"]["kind"]["StringValue"] for one in moved} == {"furniture"}
    assert "Messages" not in other_client.receive_message(QueueUrl=source)


@pytest.mark.parametrize("action", ACTIONS)
def test_the_page_names_each_action(action: str) -> None:
    assert f"`{action}`" in TEXT


def test_the_page_names_each_attribute() -> None:
    names = {*QueueAttributes({"FifoQueue": "true"}).reported(), "Policy", "RedrivePolicy", "RedriveAllowPolicy"}

    assert [name for name in names if f"`{name}`" not in TEXT] == []
