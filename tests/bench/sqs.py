"""The door for SQS clients, beside v1 on the same server in the same minutes.

Sends are signed beforehand, with a time that the server takes for fifteen minutes. What names a receipt handle cannot
be: receives and deletions ask a server that reads signatures and does not check them (``[sqs] auth = open``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.bench import leases
from tests.bench.drivers import END, NUMBER, in_turn, request
from tests.bench.measure import alternate
from tests.bench.plan import BODY, BODY_BYTES, CONNECTIONS, Plan
from tests.bench.servers import Server, access_key, queuey
from tests.bench.table import Row

REGION = "eu-west-1"
DISTINCT = 600
"""Signed requests of one load, sent in turn: more than the server has heads or signatures at hand. No client of the real
kind sends one twice."""
OPEN = {"QUEUEY_SQS_AUTH": "open"}
"""Reads signatures and does not check them."""


def signed(key: Credentials, action: str, values: Mapping[str, Any]) -> str:
    """A whole request, as text."""
    body = json.dumps(values)
    named = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"AmazonSQS.{action}"}
    asked = AWSRequest("POST", "http://127.0.0.1/", headers=named, data=body.encode())
    SigV4Auth(key, "sqs", REGION).add_auth(asked)
    return request("POST", "/", body, **{name.replace("-", "_"): text for name, text in asked.headers.items()})


def ask(server: Server, key: Credentials, action: str, values: Mapping[str, Any]) -> dict[str, Any]:
    head, _, body = signed(key, action, values).partition("\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:])
    answer = server.ask("POST", "/", data=body.encode(), headers=headers)
    return dict(answer.json()) if answer.content else {}


def sends(key: Credentials, url: str, messages: int) -> list[str]:
    """Requests that send this number of messages, each with another signature."""

    def send(at: int) -> str:
        if messages == 1:
            return signed(key, "SendMessage", {"QueueUrl": url, "MessageBody": f"{at:03}{BODY[3:]}"})
        entries = [{"Id": str(one), "MessageBody": f"{at:03}{BODY[3:]}"} for one in range(messages)]
        return signed(key, "SendMessageBatch", {"QueueUrl": url, "Entries": entries})

    return [send(at) for at in range(DISTINCT)]


def make_queue(server: Server, key: Credentials, name: str) -> str:
    """Make a queue; its URL."""
    return str(ask(server, key, "CreateQueue", {"QueueName": name})["QueueUrl"])


def _load(server: Server, script: str, messages: float, plan: Plan) -> leases.Run:
    """:param messages: of a request."""
    found = leases.run_load(server, script, messages, plan.seconds)
    server.settle()
    return found


def _sent(plan: Plan, messages: int) -> Row:
    folder = plan.fresh("sqs")
    key = Credentials(*access_key(folder))
    with queuey(folder) as server:
        server.create("v1", leases.PARTITIONS)
        below = in_turn([leases.append_some("v1", messages)])
        url = make_queue(server, key, "sqs")

        def appended() -> leases.Run:
            return _load(server, below, messages, plan)

        def sent() -> leases.Run:
            return _load(server, in_turn(sends(key, url, messages)), messages, plan)

        runs = alternate(appended, sent, plan.rounds)
    action = "SendMessage" if messages == 1 else f"SendMessageBatch of {messages}"
    return leases.row_of(
        f"{action}, signed", f"appended, {messages} per request", *runs, first="ratio >= 0.5", goal="ratio >= 0.7"
    )


def _script(key: Credentials, url: str, messages: int) -> str:
    """Deletes what earlier answers handed out, one request for each."""
    asked = {"QueueUrl": url, "MaxNumberOfMessages": messages}
    receive = signed(key, "ReceiveMessage", asked)
    if messages == 1:
        action = "DeleteMessage"
        before, after = json.dumps({"QueueUrl": url, "ReceiptHandle": "@"}).split("@")
    else:
        action = "DeleteMessageBatch"
        before, after = json.dumps({"QueueUrl": url, "Entries": ["@"]}).split('"@"')
    head = signed(key, action, {}).partition("Content-Length")[0]
    return f"""
local held, count = {{}}, 0
local function unseen(head)
  count = count + 1
  return (head:gsub("Signature=%x+", string.format("Signature=%064x", count)))
end
local one = {"true" if messages == 1 else "false"}
request = function()
  local handles = table.remove(held)
  if not handles then return unseen({json.dumps(receive)}) end
  local body = {json.dumps(before)} .. handles .. {json.dumps(after)}
  return unseen({json.dumps(head)}) .. "Content-Length: " .. #body .. "\\r\\n\\r\\n" .. body
end
response = function(status, headers, body)
  local found = {{}}
  for handle in body:gmatch('"ReceiptHandle":"([^"]+)"') do
    found[#found + 1] = one and handle or '{{"Id":"' .. #found .. '","ReceiptHandle":"' .. handle .. '"}}'
  end
  if #found > 0 then held[#held + 1] = table.concat(found, ",") end
end
"""


def _received(plan: Plan, messages: int) -> Row:
    folder, names = plan.fresh("sqs-open"), (f"q{at}" for at in count())
    key = Credentials(*access_key(folder))
    with queuey(folder, OPEN) as server:

        def run(script_of: Callable[[str], str]) -> leases.Run:
            queue = next(names)
            url = make_queue(server, key, queue)
            leases.fill(server, queue, leases.enough(messages, plan.seconds))
            found = _load(server, script_of(url), messages / 2, plan)
            left = ask(server, key, "ReceiveMessage", {"QueueUrl": url})
            leases.check_not_empty(left.get("Messages", []))
            return found

        def by_v1() -> leases.Run:
            return run(lambda url: leases.lease_script(url.rpartition("/")[2], leases.APART % messages))

        def by_sqs() -> leases.Run:
            return run(lambda url: _script(key, url, messages))

        runs = alternate(by_v1, by_sqs, plan.rounds)
    what = "receive and delete, two requests for one" if messages == 1 else f"the same for {messages}"
    return leases.row_of(
        what, "received and acknowledged, two requests", *runs, first="ratio >= 0.6", goal="ratio >= 0.8"
    )


_LAG = 2 * CONNECTIONS
"""Requests between the send of a message and its receive: by then the send has been answered."""


def cycle(key: Credentials, url: str, messages: int, pick: str, cycles: int | None = None) -> str:
    """Sends messages, receives them and deletes them, with one request for each of the three.

    :param url: of a queue whose name ends with :data:`~tests.bench.drivers.NUMBER`.
    :param messages: of a request, 1 or 10.
    :param pick: Lua: the body of a function that gives the number of the next queue, from ``n``, which counts from 0.
    :param cycles: the run ends when this number of queues was picked; None: when the time is up.
    """
    body = (f"{NUMBER} {BODY}")[:BODY_BYTES]
    asked: dict[str, Any] = {"QueueUrl": url}
    if messages == 1:
        send = signed(key, "SendMessage", {**asked, "MessageBody": body})
        before, after = json.dumps({**asked, "ReceiptHandle": "@"}).split("@")
        delete, entry = "DeleteMessage", "handle"
    else:
        entries = [{"Id": str(number), "MessageBody": body} for number in range(messages)]
        send = signed(key, "SendMessageBatch", {**asked, "Entries": entries})
        before, after = json.dumps({**asked, "Entries": ["@"]}).split('"@"')
        delete, entry = "DeleteMessageBatch", """'{"Id":"' .. #found .. '","ReceiptHandle":"' .. handle .. '"}'"""
    receive = signed(key, "ReceiveMessage", {**asked, "MaxNumberOfMessages": messages})
    head = signed(key, delete, {}).partition("Content-Length")[0]
    ending = "" if cycles is None else f"if n == {cycles} then {END} end"
    return f"""
local function parts(text)
  local found = {{}}
  for part in (text .. "{NUMBER}"):gmatch("(.-){NUMBER}") do found[#found + 1] = part end
  return function(queue) return table.concat(found, string.format("%07d", queue)) end
end
local send, receive = parts({json.dumps(send)}), parts({json.dumps(receive)})
local before, after = parts({json.dumps(before)}), {json.dumps(after)}
local n, at, sent, held = 0, 0, {{}}, {{}}
local function pick() {pick} end
request = function()
  local done = table.remove(held)
  if done then
    local body = before(done[1]) .. done[2] .. after
    return {json.dumps(head)} .. "Content-Length: " .. #body .. "\\r\\n\\r\\n" .. body
  end
  if n - at >= {_LAG} then
    local queue = sent[at]
    sent[at], at = nil, at + 1
    return receive(queue)
  end
  local queue = pick()
  sent[n], n = queue, n + 1
  {ending}
  return send(queue)
end
response = function(status, headers, body)
  local found = {{}}
  for handle in body:gmatch('"ReceiptHandle"%s*:%s*"([^"]+)"') do
    found[#found + 1] = {entry}
  end
  if #found > 0 then
    held[#held + 1] = {{ tonumber(body:match('"Body"%s*:%s*"(%d+)')), table.concat(found, ",") }}
  end
end
"""


def measure(plan: Plan) -> Iterator[Row]:
    """Sent one by one and by ten, with signatures that are checked; received and deleted."""
    for work in (_sent, _received):
        for messages in (1, 10):
            yield work(plan, messages)
