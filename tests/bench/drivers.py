"""The load generator: wrk, told by a Lua script which requests to send.

Scripts hand wrk whole requests, made beforehand: what the generator does not spend, the server has.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.bench.measure import BenchFailed
from tests.bench.plan import BATCH, BODY, TTL_SECONDS
from tests.bench.servers import APPLICATION, AUTHORIZATION, Server

_HOURS = 36_000
"""For runs that end by themselves."""
ENDED = "ENDED"
END = f'wrk.thread:stop(); io.write("\\n{ENDED}\\n"); io.stdout:flush()'
"""Lua: ends the run."""
_DONE = """
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format("\\nRESULT %d %d %d %d %d\\n", summary.requests, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout, latency:percentile(50), latency:percentile(99)))
end
"""
_RESULT = re.compile(r"^RESULT (\d+) (\d+) (\d+) (\d+) (\d+)$", re.MULTILINE)


class Load(NamedTuple):
    """What one run of the generator says."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.requests / self.seconds


def drive(server: Server, script: str, connections: int, seconds: float | None = None) -> Load:
    """Send what ``script`` says over ``connections``, each asking anew once it is answered.

    :param seconds: None for a script that says itself when it has :data:`ENDED`.
    :raises BenchFailed: one request failed, or none was answered.
    """
    tool = shutil.which("wrk")
    if tool is None:
        raise BenchFailed("wrk is missing: apt-get install wrk")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "load.lua"
        path.write_text(script + _DONE)
        duration = f"{_HOURS if seconds is None else max(round(seconds), 1)}s"
        command = [tool, "-t1", f"-c{connections}", f"-d{duration}", "--timeout", "60s", "-s", str(path), server.url]
        code, said = _run(command)
    found = _RESULT.search(said)
    if found is None:
        raise BenchFailed(f"wrk ended with {code}: {said}")
    count, microseconds, failed, p50, p99 = map(int, found.groups())
    if failed or not count:
        raise BenchFailed(f"{failed} of {count} requests failed:\n{said}")
    return Load(count, microseconds / 1e6, p50 / 1000, p99 / 1000)


def _run(command: Sequence[str]) -> tuple[int, str]:
    """Exit code and output. A script can end its thread but not wrk, which sleeps until it is interrupted."""
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ran:
        try:
            for line in ran.stdout or ():
                said.append(line)
                if line.strip() == ENDED:
                    ran.send_signal(signal.SIGINT)
        except BaseException:
            ran.kill()
            raise
    return ran.returncode, "".join(said)


def request(method: str, path: str, body: str = "", **headers: str) -> str:
    """A request as text, with the application's key; header names with ``_`` for ``-``."""
    named = {"Host": "127.0.0.1", **AUTHORIZATION, **{name.replace("_", "-"): text for name, text in headers.items()}}
    if method == "POST":
        named["Content-Length"] = str(len(body))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in named.items())]
    return "\r\n".join(lines) + "\r\n\r\n" + body


def _quoted(text: str) -> str:
    """A Lua string; ASCII's JSON strings are Lua strings."""
    return json.dumps(text)


def in_turn(requests: Sequence[str]) -> str:
    """These requests, one after the other, over and over."""
    texts = ",\n".join(map(_quoted, requests))
    return f"""
local texts = {{ {texts} }}
local at = 0
request = function()
  at = at % #texts + 1
  return texts[at]
end
"""


def times(text: str, count: int) -> str:
    """One request, ``count`` times, then the end."""
    return f"""
local left, text = {count}, {_quoted(text)}
request = function() return text end
response = function()
  left = left - 1
  if left == 0 then {END} end
end
"""


NUMBER = "0000000"
"""Where a script puts a number of seven digits into a request."""


def numbered(text: str, start: int, end: int | None = None) -> str:
    """A request that holds :data:`NUMBER`: with ``start`` and the numbers behind it, until ``end`` were sent.

    When wrk begins, it asks for one request that it does not send.
    """
    pieces = ", ".join(map(_quoted, text.split(NUMBER)))
    stop = "" if end is None else f"if n == {end} then {END} end"
    return f"""
local n, pieces = {start - 1}, {{ {pieces} }}
request = function()
  n = n + 1
  {stop}
  return table.concat(pieces, string.format("%07d", n - 1))
end
"""


def scattered(text: str, count: int, first: int = 0) -> str:
    """A request that holds :data:`NUMBER` once, with numbers from below ``count`` at random.

    Each twentieth request takes one of the ``first`` numbers, if any: queues that grow among all others.
    """
    before, after = text.split(NUMBER)
    pick = f"if n % 20 == 0 then return math.random(0, {first - 1}) end" if first else ""
    return f"""
local n, before, after = 0, {_quoted(before)}, {_quoted(after)}
local function pick()
  {pick}
  return math.random(0, {count - 1})
end
request = function()
  n = n + 1
  return before .. string.format("%07d", pick()) .. after
end
"""


_NAME = "n" * 32
"""Where a script puts a name into a request."""


def named(text: str, run: int) -> str:
    """A request that holds :data:`_NAME` once: with a random name each time, as clients draw them, and others in each run."""
    before, after = text.split(_NAME)
    return f"""
local before, after = {_quoted(before)}, {_quoted(after)}
math.randomseed({run + 1})
local function part() return math.random(0, 0x7fffffff) end
request = function()
  return before .. string.format("%08x%08x%08x%08x", part(), part(), part(), part()) .. after
end
"""


def append_one(queue: str) -> str:
    """One message of 256 bytes, with a TTL, into any partition."""
    path = f"/v1/{APPLICATION}/{queue}"
    return request("POST", path, BODY, Content_Type="application/x-www-form-urlencoded", X_TTL=str(TTL_SECONDS))


def append_keyed(queue: str) -> str:
    """As :func:`append_one`, with an idempotency key of 32 digits, as our client has; for :func:`named`."""
    path, form = f"/v1/{APPLICATION}/{queue}", "application/x-www-form-urlencoded"
    return request("POST", path, BODY, Content_Type=form, X_TTL=str(TTL_SECONDS), Idempotency_Key=_NAME)


def append_batch(queue: str) -> str:
    """A hundred messages of 256 bytes, each with a TTL."""
    body = json.dumps({"messages": [{"body": BODY, "ttl": TTL_SECONDS}] * BATCH})
    return request("POST", f"/v1/{APPLICATION}/{queue}", body, Content_Type="application/json")


def read_page(queue: str, since: str) -> str:
    """A hundred messages from a message on."""
    return request("GET", f"/v1/{APPLICATION}/{queue}?since={since}&limit=100")


def every(values: Sequence[str], count: int) -> Iterator[str]:
    """``count`` of them, evenly apart."""
    step = max(len(values) // count, 1)
    return iter(values[::step][:count])
