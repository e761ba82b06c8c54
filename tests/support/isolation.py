"""Each identity and each route of the tests of isolation (G19)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ABSENT_ID = "1f9f6640e56711f189bf02fc00000001"
LISTED = "app:other,bid:joe@example.org,oidc:joe@example.org"
VERBS = frozenset({"list", "create", "configure", "append", "read", "delete", "commit", "receive"})


@dataclass(frozen=True)
class Caller:
    """What an identity should be able to do here."""

    principal: str | None = None
    verbs: frozenset[str] | None = None
    """Of a token: those it is for; None for a credential that is no token."""
    queues: str = "all"
    """Of a token: ``all``, ``this``, or ``another``."""
    here: bool = True
    """Of a token: whether it is for this application's paths."""
    refused: bool = False

    def acts(self, verb: str) -> str | None:
        """The principal that counts for a verb, if any does."""
        if self.verbs is None:
            return self.principal
        about_one = verb not in {"applications", "list", "create", "mint"}
        covers = self.queues == "all" or (self.queues == "this" and about_one)
        return self.principal if self.here and verb in self.verbs and covers else None


OWNER, JOE, OIDC_JOE = "app:queuey", "bid:joe@example.org", "oidc:joe@example.org"
OPERATOR = "operator:root"
IDENTITIES: dict[str, Caller] = {
    "none": Caller(),
    "wrong key": Caller(refused=True),
    "own": Caller(OWNER),
    "operator": Caller(OPERATOR),
    "another": Caller("app:with-dash"),
    "listed": Caller("app:other"),
    "browserid": Caller(JOE),
    "browserid of a stranger": Caller("bid:ann@example.org"),
    "browserid forged": Caller(refused=True),
    "oidc": Caller(OIDC_JOE),
    "oidc of a stranger": Caller("oidc:ann@example.org"),
    "oidc forged": Caller(refused=True),
    "token of the owner": Caller(OWNER, VERBS),
    "token of the owner to read": Caller(OWNER, frozenset({"read"})),
    "token of the owner to append here": Caller(OWNER, frozenset({"append"}), "this"),
    "token of the owner to commit": Caller(OWNER, frozenset({"commit"})),
    "token of the owner to receive": Caller(OWNER, frozenset({"receive"})),
    "token of the owner for another queue": Caller(OWNER, VERBS, "another"),
    "token of the owner, of another server": Caller(refused=True),
    "token of joe": Caller(JOE, VERBS),
    "token of joe to read here": Caller(JOE, frozenset({"read"}), "this"),
    "token of joe to work here": Caller(JOE, frozenset({"read", "commit"}), "this"),
    "token of joe to receive here": Caller(JOE, frozenset({"receive"}), "this"),
    "token of joe for another queue": Caller(JOE, VERBS, "another"),
    "token of joe from another application": Caller(JOE, VERBS, here=False),
    "token of another application": Caller("app:with-dash", VERBS, here=False),
}
"""``app:other`` and joe are those whom the queues of the table list, where they list anybody."""


@dataclass(frozen=True)
class Route:
    """One operation, and the callers that may do it: an operator, the owner, those that may view or delete, any proven caller."""

    name: str
    method: str
    below: tuple[str, ...]
    needs: str
    verb: str
    given: tuple[tuple[str, Any], ...] = ()
    created: bool = False
    path: str | None = None
    """Where it is no path of the application's."""


ROUTES = [
    Route("list applications", "GET", (), "operator", "applications", path="/v1"),
    Route("last requests", "GET", (), "operator", "applications", (("params", {"requests": "true"}),), path="/v1"),
    Route("figures of the server", "GET", (), "operator", "applications", (("params", {"stats": "true"}),), path="/v1"),
    Route("settings", "GET", (), "operator", "applications", (("params", {"settings": "true"}),), path="/v1"),
    Route("list queues", "GET", (), "application", "list"),
    Route("figures", "GET", (), "application", "list", (("params", {"stats": "true"}),)),
    Route("figures by age", "GET", (), "application", "list", (("params", {"stats": "true", "sort": "age"}),)),
    Route("list keys", "GET", (), "application", "configure", (("params", {"keys": "true"}),)),
    Route("list arrivals", "GET", (), "application", "list", (("params", {"arrivals": "true"}),)),
    Route("list mine", "GET", (), "proven", "list", (("params", {"mine": "true"}),)),
    Route("get a token", "POST", (), "proven", "mint", created=True, path="/tokens/queuey"),
    Route(
        "get a token of a user",
        "POST",
        (),
        "owner of tokens",
        "mint",
        (("data", {"principal": JOE}),),
        True,
        "/tokens/queuey",
    ),
    Route("create queue", "POST", (), "application", "create", created=True),
    Route("change queue", "PUT", ("Q",), "owner", "configure", (("data", {"partitions": 1}),)),
    Route("read", "GET", ("Q",), "view", "read"),
    Route("read all", "GET", ("Q",), "view", "read", (("params", {"partitions": "all"}),)),
    Route("read as lines", "GET", ("Q",), "view", "read", (("headers", {"Accept": "application/x-ndjson"}),)),
    Route(
        "read as Arrow",
        "GET",
        ("Q",),
        "view",
        "read",
        (("headers", {"Accept": "application/vnd.apache.arrow.stream"}),),
    ),
    Route("read live", "GET", ("Q",), "view", "read", (("params", {"wait": "0"}),)),
    Route("look at the head", "HEAD", ("Q",), "view", "read"),
    Route("rights", "GET", ("Q",), "owner", "configure", (("params", {"rights": "anyone"}),)),
    Route("survey", "GET", ("Q",), "view", "read", (("params", {"survey": "true"}),)),
    Route("information", "GET", ("Q",), "owner", "configure", (("params", {"info": "true"}),)),
    Route("scheduled", "GET", ("Q",), "owner", "configure", (("params", {"scheduled": "true"}),)),
    Route("append", "POST", ("Q",), "owner", "append", (("data", b"x"),), created=True),
    Route("append batch", "POST", ("Q",), "owner", "append", (("json", {"messages": [{"body": "x"}]}),), created=True),
    Route("append a document", "POST", ("Q",), "owner", "append", (("json", {"kind": "order"}),), created=True),
    Route(
        "append in the new form",
        "POST",
        ("Q",),
        "owner",
        "append",
        (("headers", {"Content-Type": "application/vnd.queuey.batch+json"}), ("data", b'{"messages":[{"body":"x"}]}')),
        True,
    ),
    Route("append no Arrow", "POST", ("Q",), "owner", "append", (("params", {"batch": "true"}), ("data", b"x"))),
    Route("append nothing", "POST", ("Q",), "owner", "append", (("data", b""),)),
    Route("fetch", "GET", ("Q", "M"), "view", "read"),
    Route("fetch raw", "GET", ("Q", "M"), "view", "read", (("params", {"raw": "true"}),)),
    Route("fetch malformed", "GET", ("Q", "x"), "view", "read"),
    Route("put", "PUT", ("Q", "M"), "owner", "append", (("data", b"x"),)),
    Route("delete message", "DELETE", ("Q", ABSENT_ID), "delete", "delete"),
    Route("list groups", "GET", ("Q", "offsets"), "view", "read"),
    Route("see offsets", "GET", ("Q", "offsets", "mail"), "view", "read"),
    Route("see offsets malformed", "GET", ("Q", "offsets", "a b"), "view", "read"),
    Route("commit", "PUT", ("Q", "offsets", "mail"), "delete", "commit", (("json", {"offsets": [{"partition": 1}]}),)),
    Route("commit nothing", "PUT", ("Q", "offsets", "mail"), "delete", "commit", (("json", {}),)),
    Route("reset", "PUT", ("Q", "offsets", "mail"), "delete", "commit", (("json", {"reset": True, "to": "end"}),)),
    Route("forget group", "DELETE", ("Q", "offsets", "mail"), "delete", "commit"),
    Route("list lease groups", "GET", ("Q", "leases"), "view", "read"),
    Route("see lease group", "GET", ("Q", "leases", "work"), "view", "read"),
    Route("see backlog", "GET", ("Q", "leases", "work"), "view", "read", (("params", {"backlog": "true"}),)),
    Route("see leases", "GET", ("Q", "leases", "work"), "delete", "receive", (("params", {"leased": "true"}),)),
    Route("set up lease group", "PUT", ("Q", "leases", "work"), "owner", "configure", (("json", {}),)),
    Route("receive", "POST", ("Q", "leases", "work"), "delete", "receive", (("json", {"receive": {}}),)),
    Route("receive nothing", "POST", ("Q", "leases", "work"), "delete", "receive", (("json", {"receive": 0}),)),
    Route(
        "reset lease group", "POST", ("Q", "leases", "work", "reset"), "owner", "configure", (("json", {"to": "end"}),)
    ),
    Route(
        "preview redrive",
        "POST",
        ("Q", "leases", "work", "redrive"),
        "owner",
        "configure",
        (("json", {"preview": True}),),
    ),
    Route("redrive", "POST", ("Q", "leases", "work", "redrive"), "owner", "configure", (("json", {}),)),
    Route("see redrive", "GET", ("Q", "leases", "work", "redrive"), "owner", "configure"),
    Route("cancel redrive", "DELETE", ("Q", "leases", "work", "redrive"), "owner", "configure"),
    Route("redrive malformed", "POST", ("Q", "leases", "work", "redrive"), "owner", "configure", (("json", []),)),
    Route("forget lease group", "DELETE", ("Q", "leases", "work"), "owner", "configure"),
    Route("list tasks", "GET", ("Q", "tasks"), "owner", "configure"),
    Route("purge", "DELETE", ("Q", "messages"), "owner", "configure"),
    Route("see purge", "GET", ("Q", "tasks", "purge"), "owner", "configure"),
    Route("cancel purge", "DELETE", ("Q", "tasks", "purge"), "owner", "configure"),
    Route("delete queue", "DELETE", ("Q",), "owner", "configure"),
]
NO_QUEUE = {"operator", "application", "proven", "owner of tokens"}
"""What routes need that are about no single queue."""
BAD_REQUESTS = {"append nothing", "append no Arrow", "fetch malformed", "see offsets malformed", "commit nothing"} | {
    "receive nothing",
    "redrive malformed",
}
"""Refused with 400, yet only to a caller that may know of the queue."""
TASKS = {"purge", "redrive"}
