"""Answers of a scripted server that tests of the client share."""

from __future__ import annotations

import json

from tests.support.scripted_server import Say, refusal

KEY = "0123456789abcdef" * 2
HEX = "1f9f6640e56711f189bf02fc00000001"
ADDED = Say(201, json.dumps({"messages": [{"key": HEX, "timestamp": "1", "partition": 2}]}).encode())
MADE = Say(201, b'{"queue_name":"q","partitions":1,"type":"user","consistency":"strong","principles":null}')
UNAVAILABLE = refusal(503, "StorageUnavailable")
