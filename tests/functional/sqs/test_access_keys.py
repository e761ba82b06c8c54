"""An access key counts as long as it is there, at a server that runs all the time."""

from __future__ import annotations

from dataclasses import replace

import requests
from botocore.credentials import Credentials

from tests.support.commands import done, run_in
from tests.support.servers import eventually
from tests.support.sqs_clients import SqsServer, texts


def test_a_key_that_a_command_makes_counts_while_it_is_there(sqs: SqsServer) -> None:
    made = done(run_in(sqs.variables, None, "key", "new", "rotating", "--sqs", "-o", "jsonl")).rows[0]
    key_id, secret = str(made["access_key_id"]), str(made["secret_access_key"])

    def listing() -> requests.Response:
        rotating = replace(sqs, keys={"rotating": Credentials(key_id, secret)})
        return rotating.send("GET", "/?Action=ListQueues", key="rotating")

    eventually(lambda: listing().status_code == 200)
    done(run_in(sqs.variables, None, "key", "rm", "rotating", key_id, "--yes"))

    eventually(lambda: texts(listing(), "Code") == ["InvalidClientTokenId"])
