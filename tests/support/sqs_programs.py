"""Clients of SQS that are programs of their own, or that repeat what failed as their makers have set them up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.credentials import Credentials

from tests.support.commands import done, run_in
from tests.support.node import APPLICATION
from tests.support.servers import write_ini
from tests.support.sqs_clients import REGION, SqsServer


def variables(key: Credentials) -> Mapping[str, str]:
    """By which AWS's clients learn of a key. Nothing else of this machine reaches them."""
    return {
        "AWS_ACCESS_KEY_ID": key.access_key,
        "AWS_SECRET_ACCESS_KEY": key.secret_key,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def lines_of(command: Sequence[str], sqs: SqsServer, **more: str) -> list[str]:
    """What a program prints that has a key of the server, and these variables.

    :raises AssertionError: it fails; with what it says of that.
    """
    known = {"PATH": os.environ["PATH"], **more, **variables(sqs.keys["queuey"])}
    ended = subprocess.run(command, env=known, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def new_key(folder: Path) -> Credentials:
    """An access key of :data:`APPLICATION`, for the server that is to be started on a folder."""
    ini = write_ini(folder / "queuey.ini", folder / "data")
    made = done(run_in({"QUEUEY_CONFIG": str(ini)}, None, "key", "new", APPLICATION, "--sqs", "-o", "jsonl"))
    return Credentials(str(made.rows[0]["access_key_id"]), str(made.rows[0]["secret_access_key"]))


def repeating_client(url: str, key: Credentials, **config: Any) -> Any:
    """boto3's client, with its own retries."""
    return boto3.client(
        "sqs",
        region_name=REGION,
        endpoint_url=url,
        aws_access_key_id=key.access_key,
        aws_secret_access_key=key.secret_key,
        config=Config(proxies={}, **config),
    )
