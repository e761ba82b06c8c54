"""Names, bodies, headers and addresses made to run a script, and people that look where they may not."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from queuey.model.dead_letters import REDRIVEN_HEADER, STORY_HEADER
from tests.support.client import BATCH, Server, new_name
from tests.support.hostile import EVIL, is_clean
from tests.support.servers import APPLICATIONS, eventually
from tests.support.visitors import Markup, OpenConsole, Visitor, signed_in


def test_bodies_headers_and_keys_are_text(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    entries = [{"body": text, "content_type": "text/html", "headers": {"Kind": text}} for text in EVIL]
    entries += [{"body": json.dumps({text: [text, {text: text}]}), "key": EVIL[0]} for text in EVIL]
    document = json.dumps({"messages": entries}).encode()
    stored = v1.call("POST", queue, data=document, headers={"Content-Type": BATCH}).json()["messages"]

    pages = [owner.get(f"/console/a/queuey/{queue}/messages{query}") for query in ("", "?from=oldest")]
    pages += [owner.get(f"/console/a/queuey/{queue}/m/1:{one['key']}") for one in stored]

    for page in pages:
        is_clean(page)
    assert "&lt;script&gt;alert(1)" in pages[0]
    assert "{{ 7 * 7 }}" in pages[0]
    assert "\u202e" not in pages[0]


@pytest.mark.parametrize("text", EVIL)
def test_what_an_address_says_is_text(owner: Visitor, text: str) -> None:
    given = quote(text, safe="")
    for path in (
        f"/console/a/queuey?prefix={given}",
        f"/console/access/queuey?queue=q&principal={given}",
        f"/console/sign-in?next={given}",
        f"/console/a/queuey?prefix={given}&sort=depth",
        f"/console/a/queuey?sort={given}",
        f"/console?application={given}&told={given}",
    ):
        answer = owner.request("GET", path)
        if answer.text:
            is_clean(answer.text)
    for path in (
        f"/console/a/queuey/{given}",
        f"/console/a/{given}",
        f"/console/a/queuey/q/m/{given}",
        f"/console/{given}",
    ):
        answer = owner.request("GET", path)
        assert answer.status_code >= 300
        assert "<script>alert" not in answer.text
        assert Markup(answer.text).handlers() == []


def forged(v1: Server, queue: str, header: str, text: str) -> str:
    """The place of a message with a header of Queuey's own. A header of HTTP would have another name."""
    document = {"messages": [{"body": "forged", "headers": {header: text}}]}
    stored = v1.call("POST", queue, data=json.dumps(document).encode(), headers={"Content-Type": BATCH})
    (one,) = stored.json()["messages"]
    return f"{one['partition']}:{one['key']}"


def test_the_story_of_a_dead_letter_is_text(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    for text in EVIL:
        v1.post(queue, text.encode())
    held = v1.call("POST", queue, "leases", "workers", json={"receiver": EVIL[0], "receive": {"max": 10}}).json()
    is_clean(owner.get(f"/console/a/queuey/{queue}/l/workers"))
    reasons = [text.replace("\u202e", "") for text in EVIL]  # no reason may have it
    rejected = [
        {"receipt": one["receipt"], "reason": reason} for one, reason in zip(held["messages"], reasons, strict=True)
    ]
    settled = v1.call("POST", queue, "leases", "workers", json={"reject": rejected})
    assert settled.status_code == 200, settled.text
    v1.call("PUT", queue, "leases", "workers", json={"paused_until": 32503680000, "paused_reason": EVIL[1]})
    story: dict[str, Any] = {"queue": queue, "group": "workers"}
    forged(v1, f"{queue}-dead", STORY_HEADER, json.dumps(story))
    forged(v1, f"{queue}-dead", STORY_HEADER, json.dumps(story | {"partition": EVIL[0]}))
    forged(v1, f"{queue}-dead", STORY_HEADER, "[[1")
    for odd in (EVIL[0], [EVIL[0]], {EVIL[0]: 1}, "nan", "1e999", -1, True, None):
        story |= {"partition": 1, "message_id": "0" * 32}
        story |= dict.fromkeys(("first_delivered", "given_up", "failures", "deliveries", "reason", "traceback"), odd)
        place = forged(v1, f"{queue}-dead", STORY_HEADER, json.dumps(story))
        is_clean(owner.get(f"/console/a/queuey/{queue}-dead/m/{place}"))
        is_clean(owner.get(f"/console/a/queuey/{queue}/l/workers/dead/edit/{place}"))
        again = story | {"queue": odd, "partition": odd, "message_id": odd}
        place = forged(v1, queue, REDRIVEN_HEADER, json.dumps(again))
        is_clean(owner.get(f"/console/a/queuey/{queue}/m/{place}"))

    is_clean(owner.get(f"/console/a/queuey/{queue}/l/workers"))
    page = owner.get(f"/console/a/queuey/{queue}/l/workers/dead")
    is_clean(page)
    assert page.count("Retry this one") == len(EVIL) + 10


def test_schedules_and_scheduled_messages_are_text(v1: Server) -> None:
    name = "letters"
    with Server(v1.running, name) as server, signed_in(v1.running.url, APPLICATIONS[name][0]) as visitor:
        queue = server.queue()
        server.create("schedules")
        server.create("schedules-due")
        for text in EVIL:
            schedule = dict.fromkeys(("name", "cron", "tz", "queue", "task", "body", "revision"), text)
            server.post("schedules", json.dumps(schedule))
            server.post("schedules", json.dumps({**schedule, "name": [text], "paused": text}))
            server.post("schedules-due", json.dumps({"schedule": schedule, "moment": 4_000_000_000}), X_Delay="3600")
            server.post(queue, text.encode(), X_Delay="3600")
        for body in ("[]", "1", "{", '{"name": "x"}', '{"x": 1}'):
            server.post("schedules", body)
            server.post("schedules-due", body, X_Delay="3600")

        page = visitor.get(f"/console/schedules/{name}")

        is_clean(page)
        is_clean(visitor.get(f"/console/a/{name}/{queue}/scheduled"))
        assert "&lt;script&gt;alert(1)" in page


def test_every_page_has_the_headers_that_keep_it_to_itself(owner: Visitor, stranger: Visitor, v1: Server) -> None:
    queue = v1.queue()
    answers = [owner.request("GET", path) for path in ("/console/a/queuey", f"/console/a/queuey/{queue}", "/console/x")]
    answers += [stranger.request("GET", path) for path in ("/", "/console/sign-in")]
    answers += [owner.request("POST", "/console/new/queuey"), owner.request("DELETE", "/console")]

    for answer in answers:
        policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == "'none'" or policy["script-src"].startswith("'nonce-")
        assert policy["style-src"] == policy["form-action"] == "'self'"
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.raw.headers.getlist("content-length") == [str(len(answer.content))]
    nonces = {answer.headers["content-security-policy"] for answer in answers[:3]}
    assert len(nonces) == 3


def test_nobody_sees_or_changes_what_is_another_application_s(
    neighbour: Visitor, stranger: Visitor, v1: Server
) -> None:
    queue = v1.queue()
    key = v1.post(queue, "for queuey alone").json()["messages"][0]["key"]
    v1.call("POST", queue, "leases", "workers", json={"receive": {}})
    base = f"/console/a/queuey/{queue}"
    pages = ["", "/messages", f"/m/1:{key}", f"/picture/1:{key}", "/edit", "/confirm/purge", "/confirm/delete", "/tail"]
    pages += ["/l/workers", "/l/workers/dead", "/g/mail", "/scheduled", "/l/workers/release?receiver=x"]
    pages += [f"/l/workers/dead/edit/1:{key}"]
    others = [
        "/console/access/queuey",
        "/console/overview/queuey",
        "/console/v1/queuey?stats=true",
        "/console/v1/queuey",
        "/console/workers/queuey",
        "/console/schedules/queuey",
    ]
    others += [f"/console/v1/queuey/{queue}", f"/console/v1/queuey/{queue}/1:{key}"]
    changes = [
        "/edit",
        "/confirm/purge",
        "/confirm/delete",
        "/send",
        f"/m/1:{key}",
        "/l/workers/reset",
        "/l/workers/forget",
    ]
    changes += ["/l/workers/pause", "/g/mail/reset", "/l/workers/dead/retry", "/cancel", "/l/workers/release"]
    changes += ["/scheduled/cancel", "/scheduled/now", f"/l/workers/dead/edit/1:{key}"]

    for path in [*(base + page for page in pages), *others]:
        answer = neighbour.request("GET", path)
        assert (answer.status_code, "for queuey alone" in answer.text) == (403, False), path
    for page in changes:
        given = {"name": queue, "body": "x", "to": "end", "pause": "true", "task": "purge", "place": f"1:{key}"}
        neighbour.send(base + page, status=403, **given)
        assert stranger.request("POST", base + page, data={"csrf": stranger.csrf(), **given}).status_code == 403
    for change in ("pause", "now", "remove"):
        neighbour.send(f"/console/schedules/queuey/{change}", status=403, place=f"1:{key}")
    assert neighbour.send("/console/new/queuey", status=403, queue_name="theirs").status_code == 403
    assert queue not in neighbour.get("/console/a/queuey")
    assert v1.call("GET", queue, params={"info": "true"}).json()["depth"] == 1


@pytest.mark.parametrize("name", ["raw=true", "limit=1"])
def test_the_reading_road_gives_json_and_events_alone(owner: Visitor, v1: Server, name: str) -> None:
    queue = v1.queue()
    key = v1.post(queue, "<script>alert(1)</script>", **{"Content-Type": "text/html"}).json()["messages"][0]["key"]

    answer = owner.request("GET", f"/console/v1/queuey/{queue}/1:{key}?{name}", headers={"Accept": "*/*"})

    assert answer.headers["content-type"] == "application/json"
    assert answer.headers.get("cache-control") == (None if answer.status_code != 200 else "no-store")
    assert (answer.status_code == 200) == (name == "limit=1")
    assert owner.request("POST", f"/console/v1/queuey/{queue}", data=b"x").status_code == 405


@pytest.mark.parametrize("word", ["messages", "offsets", "leases", "tasks", "x", "1:x"])
def test_what_else_v1_has_below_a_queue_is_no_message(owner: Visitor, v1: Server, word: str) -> None:
    """At one of these places v1 removes all messages."""
    queue = v1.queue()
    v1.post(queue, "stays")
    base = f"/console/a/queuey/{queue}"

    for page in (f"/m/{word}", f"/picture/{word}"):
        owner.get(base + page, status=404)
    owner.send(f"{base}/m/{word}", status=404)
    for change in ("cancel", "now"):
        owner.send(f"{base}/scheduled/{change}", status=404, place=word)

    assert v1.everything(queue) == ["stays"]


def test_a_form_for_one_message_takes_no_other_with_it(owner: Visitor, v1: Server) -> None:
    queue = v1.queue(partitions="2")
    first, second = (v1.post(queue, text).json()["messages"][0] for text in ("first", "second"))
    both = ",".join(f"{one['partition']}:{one['key']}" for one in (first, second))
    base = f"/console/a/queuey/{queue}"

    owner.get(f"{base}/m/{both}", status=404)
    owner.send(f"{base}/m/{both}", status=404)
    owner.send(f"{base}/scheduled/cancel", status=404, place=both)

    assert sorted(v1.everything(queue)) == ["first", "second"]


def test_an_address_adds_no_line_to_the_log(open_console: OpenConsole, stranger: Visitor) -> None:
    """A log of text shows what happened as it is, and anybody may come back from an issuer."""
    name = new_name()
    path = f"/console/sign-in/from/{name}%0Aaudit%3A%20DELETE"

    stranger.get(path, status=404)

    (line,) = eventually(lambda: [one for one in open_console.log() if name in str(one.get("path"))])
    assert line["path"] == path
    assert line["event"].isprintable()
