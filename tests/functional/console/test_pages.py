"""Each page, as people use it without a script."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime

import pytest

from qdo.client import Client
from qdo.tasks.schedules import Schedule, ScheduleBook
from queuey.security.app_keys import digest_of, label_of
from tests.support.client import BATCH, Server, new_name
from tests.support.servers import APPLICATIONS, eventually
from tests.support.visitors import Markup, OpenConsole, Visitor, signed_in

MANY = 3_000
"""Messages of a queue that is deeper than those of all other tests."""
BATCH_OF_MANY = json.dumps({"messages": [{"body": "x"}] * MANY}).encode()


def test_a_browser_gets_a_first_page_and_a_program_what_it_got_before(stranger: Visitor, v1: Server) -> None:
    assert "/console" in Markup(stranger.get("/")).addresses()
    assert v1.request("GET", "/", headers={"Accept": "*/*"}).json()["code"] == "NotFound"
    assert v1.request("POST", "/", headers={"Accept": "text/html"}).json()["code"] == "NotFound"


def test_a_queue_is_made_changed_emptied_and_deleted(owner: Visitor, v1: Server) -> None:
    name = new_name()
    base = f"/console/a/queuey/{name}"

    assert owner.goes("/console/new/queuey", queue_name=name, partitions="2") == f"{base}?told=created"
    assert "The queue was made." in owner.get(f"{base}?told=created")
    owner.send("/console/new/queuey", status=409, queue_name=name)
    owner.send(f"{base}/edit", partitions="3", principles="app:other")
    found = v1.call("GET", name, params={"info": "true"}).json()
    assert (found["partitions"], found["principles"]) == (3, ["app:other"])

    v1.post(name)
    assert "It cannot be undone." in owner.get(f"{base}/confirm/purge")
    owner.send(f"{base}/confirm/purge", status=400, name="another")
    owner.send(f"{base}/confirm/purge", name=name)
    eventually(lambda: v1.call("GET", name, params={"info": "true"}).json()["depth"] == 0)
    assert "purge" in owner.get(base)
    assert owner.goes(f"{base}/confirm/delete", name=name) == "/console/a/queuey?told=deleted"
    owner.get(base, status=404)


def test_queues_come_by_prefix_a_page_at_a_time(owner: Visitor, v1: Server) -> None:
    prefix = new_name()
    names = [f"{prefix}-{number:02d}" for number in range(30)]
    for name in names:
        v1.create(name)
    v1.post(names[0])

    first = owner.get(f"/console/a/queuey?prefix={prefix}")
    (following,) = [found for found in Markup(first).addresses() if "offset=" in found]
    second = owner.get(f"/console/a/queuey{following}")

    assert [f">{name}<" in first for name in names] == [True] * 25 + [False] * 5
    assert [f">{name}<" in second for name in names] == [False] * 25 + [True] * 5
    assert "No queue" in owner.get(f"/console/a/queuey?prefix={prefix}-x")


def test_queues_in_use_come_by_depth_age_or_rate(owner: Visitor, v1: Server) -> None:
    prefix = new_name()
    for name, messages in (("a", 1), ("b", 5), ("c", 3)):
        v1.create(f"{prefix}-{name}")
        for _ in range(messages):
            v1.post(f"{prefix}-{name}")

    def order(sort: str) -> list[str]:
        return re.findall(rf">{prefix}-(.)</a>", owner.get(f"/console/a/queuey?prefix={prefix}&sort={sort}"))

    assert (order("depth"), order("age")) == (["b", "c", "a"], ["a", "b", "c"])
    order("rate")  # from now on they are counted, if no other test has looked before
    v1.add_batch(f"{prefix}-a", *({"body": "x"} for _ in range(20)))
    v1.post(f"{prefix}-c")
    assert order("rate")[0] == "a"
    assert order("depth") == ["a", "b", "c"]
    owner.get(f"/console/a/queuey?prefix={prefix}&sort=size", status=400)


def test_messages_are_sent_and_read_from_any_place_without_being_taken(owner: Visitor, v1: Server) -> None:
    queue = v1.queue(partitions="3")
    base = f"/console/a/queuey/{queue}"

    stored = owner.goes(f"{base}/send", body='{"a": [1, true]}', content_type="application/json", headers="Kind: order")
    page = owner.get(stored)
    assert ["Kind" in page, "order" in page, "json-number" in page, "json-word" in page] == [True] * 4
    for number in range(60):
        v1.post(queue, f"message {number}")
    later = owner.goes(f"{base}/send", body="later", delay="3600")

    newest, oldest = owner.get(f"{base}/messages"), owner.get(f"{base}/messages?from=oldest")
    assert ["message 59" in newest, "message 3<" in newest, "message 59" in oldest] == [True, False, False]
    (more,) = [found for found in Markup(newest).addresses() if "order=descending" in found]
    assert "message 3<" in owner.get(more)
    seconds = min(one["timestamp"] for one in v1.call("GET", queue, params={"partitions": "all"}).json()["messages"])
    assert "json-number" in owner.get(f"{base}/messages?from=at&at={seconds}")
    assert "json-number" in owner.get(f"{base}/messages?from=at&at=10m")
    assert "No message is readable here." in owner.get(f"{base}/messages?from=at&at=2100-01-01")
    owner.get(f"{base}/messages?from=at&at=yesterday", status=400)
    assert "later" in owner.get(later)
    assert v1.call("GET", queue, params={"info": "true"}).json()["depth"] == 62

    owner.send(f"{base}/send", status=400, body="x", partition="first")
    owner.send(f"{base}/send", status=400, body="x", ttl="9" * 60)
    owner.send(f"{base}/send", status=400, body="x", headers="no colon")


def test_every_message_is_on_one_of_the_pages_in_order(owner: Visitor, v1: Server) -> None:
    """Partitions are merged, and one that has more than a page reads of it hides no other's messages."""
    queue = v1.queue(partitions="60")
    for number in range(90):
        v1.post(queue, f"m-{number:03d}", **{"X-Partition": str(1 if number % 3 else number % 60 + 1)})

    seen: list[str] = []
    path: str | None = f"/console/a/queuey/{queue}/messages?from=oldest"
    while path:
        page = owner.get(path)
        seen += [line.partition("</span>")[0] for line in page.split('class="line-of-body">')[1:]]
        path = next((found for found in Markup(page).addresses() if "from=at" in found), None)

    assert list(dict.fromkeys(seen)) == [f"m-{number:03d}" for number in range(90)]


def test_a_picture_is_shown_only_if_its_bytes_are_one(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    picture = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
    keys = [
        v1.post(queue, body, **{"Content-Type": kind}).json()["messages"][0]["key"]
        for body, kind in ((picture, "text/html"), (b"<svg onload=alert(1)>\xff", "image/svg+xml"))
    ]

    shown = owner.request("GET", f"/console/a/queuey/{queue}/picture/1:{keys[0]}")

    assert (shown.status_code, shown.headers["content-type"], shown.content) == (200, "image/png", picture)
    owner.get(f"/console/a/queuey/{queue}/picture/1:{keys[1]}", status=404)
    assert "3c 73 76 67" in owner.get(f"/console/a/queuey/{queue}/m/1:{keys[1]}")


def test_offsets_show_their_lag_and_are_reset_after_a_preview(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    base = f"/console/a/queuey/{queue}"
    ids = [v1.post(queue).json()["messages"][0]["key"] for _ in range(3)]
    v1.call(
        "PUT", queue, "offsets", "mail", json={"offsets": [{"partition": 1, "message_id": ids[0]}], "generation": 1}
    )

    assert '/g/mail">mail</a></th><td class="n"><span title="2">2</span></td>' in owner.get(base)
    assert '<td class="n">2</td>' in owner.get(f"{base}/g/mail")
    preview = owner.send(f"{base}/g/mail/preview", status=200, to="beginning").text
    assert ids[0] in preview
    assert v1.call("GET", queue, "offsets", "mail").json()["offsets"][0]["message_id"] == ids[0]
    owner.send(f"{base}/g/mail/reset", to="end")
    assert v1.call("GET", queue, "offsets", "mail").json()["offsets"][0]["message_id"] == ids[2]
    owner.send(f"{base}/g/mail/forget")
    assert v1.call("GET", queue, "offsets").json()["groups"] == []


def test_a_lease_group_shows_what_it_holds_and_its_dead_letters_go_back(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    base = f"/console/a/queuey/{queue}/l/workers"
    for number in range(3):
        v1.post(queue, f"job {number}")
    held = v1.call("POST", queue, "leases", "workers", json={"receiver": "worker-7", "receive": {"max": 3}}).json()
    assert "worker-7" in owner.get(base)
    rejected = [{"receipt": one["receipt"], "reason": f"bad {one['body']}"} for one in held["messages"]]
    v1.call("POST", queue, "leases", "workers", json={"reject": rejected})

    page = owner.get(f"{base}/dead")
    assert [f"bad job {number} (1)" in page for number in range(3)] == [True] * 3
    assert page.count("Retry this one") == 3
    assert owner.get(f"{base}/dead?reason=job+1").count("Retry this one") == 1
    assert (
        'Retry <span title="1">1</span> dead letters?'
        in owner.send(f"{base}/dead/preview", status=200, reason="job 1").text
    )
    shown = owner.send(f"{base}/dead/preview", status=200, since="1h", until="10m").text
    kept = {name: float(moment) for name, moment in re.findall(r'name="(since|until)" value="([0-9.]+)"', shown)}
    assert kept["until"] - kept["since"] == pytest.approx(3000), "what was counted is moved, however much later"
    letters = v1.call("GET", f"{queue}-dead").json()["messages"]
    assert len(letters) == 3
    assert "A dead letter" in owner.get(f"/console/a/queuey/{queue}-dead/m/1:{letters[0]['message_id']}")
    assert f'href="{base}/dead"' in owner.get(f"/console/a/queuey/{queue}")

    first = next(letter for letter in letters if letter["body"] == "job 0")  # they are moved side by side
    owner.send(f"{base}/dead/retry", one=first["timestamp"])
    eventually(lambda: len(v1.call("GET", f"{queue}-dead").json()["messages"]) == 2)
    eventually(lambda: ">done<" in owner.get(f"{base}/dead"))
    assert 'title="0"' in owner.send(f"{base}/dead/preview", status=200, key="k").text
    assert 'title="0"' in owner.send(f"{base}/dead/preview", status=200, header="Kind: order").text
    owner.send(f"{base}/dead/preview", status=400, header="order")
    owner.send(f"{base}/dead/retry", reason="job 1", rate="100")
    eventually(lambda: len(v1.call("GET", f"{queue}-dead").json()["messages"]) == 1)
    moved = [one["body"] for one in v1.call("GET", queue).json()["messages"]]
    assert sorted(moved) == ["job 0", "job 0", "job 1", "job 1", "job 2"]


def test_a_queue_shows_rates_of_partitions_and_the_oldest_message_of_its_groups(owner: Visitor, v1: Server) -> None:
    queue = v1.queue(partitions="2")
    base, group = f"/console/a/queuey/{queue}", (queue, "leases", "workers")
    v1.add_batch(queue, {"body": "first", "partition": 1}, {"body": "second", "partition": 2})
    (first,) = v1.call("POST", *group, json={"receive": {"partitions": [1]}}).json()["messages"]
    assert "Counted from now on" in owner.get(base)
    v1.add_batch(queue, *({"body": "x", "partition": 2} for _ in range(20)))

    details = v1.call("GET", queue, params={"info": "true"}).json()["partition_details"]
    assert [details[0]["rate"], details[1]["rate"] > 0] == [0, True]
    assert "Counted from now on" not in owner.get(base)

    def oldest() -> list[str | None]:
        return [one["oldest"] for one in v1.call("GET", *group).json()["partitions"]]

    (second, *_) = v1.call("GET", queue, params={"partitions": "2"}).json()["messages"]
    assert oldest() == [first["message_id"], second["message_id"]]
    assert f"{base}/m/1:{first['message_id']}" in owner.get(f"{base}/l/workers")
    v1.call("POST", *group, json={"acknowledge": [first["receipt"]]})
    assert oldest() == [None, second["message_id"]]
    assert f"{base}/m/1:{first['message_id']}" not in owner.get(f"{base}/l/workers")


def test_what_a_receiver_holds_that_is_gone_is_released(owner: Visitor, v1: Server) -> None:
    queue = v1.queue(partitions="2")
    base, group = f"/console/a/queuey/{queue}/l/workers", (queue, "leases", "workers")
    for number in range(4):
        v1.post(queue, f"job {number}", **{"X-Partition": str(number % 2 + 1)})
    gone = v1.call("POST", *group, json={"receiver": "gone", "receive": {"max": 3, "visibility": 3600}}).json()
    v1.call("POST", *group, json={"receiver": "here", "receive": {"max": 1, "visibility": 3600}})
    links = {found for found in Markup(owner.get(base)).addresses() if "release?" in found}
    assert links == {f"{base}/release?receiver=gone", f"{base}/release?receiver=here"}

    preview = owner.get(f"{base}/release?receiver=gone")
    assert [one["message_id"] in preview for one in gone["messages"]] == [True] * 3
    assert owner.goes(f"{base}/release", receiver="gone") == f"{base}?told=released&done=3"
    assert "Messages that were released: 3." in owner.get(f"{base}?told=released&done=3")

    held = v1.call("GET", *group, params={"leased": "true"}).json()["leases"]
    assert sorted((one["receiver"], one["state"], one["failures"]) for one in held if one["state"] == "leased") == [
        ("here", "leased", 0)
    ]
    late = v1.call("POST", *group, json={"acknowledge": [gone["messages"][0]["receipt"]]}).json()
    assert late["settled"]["stale"] == [gone["messages"][0]["receipt"]]
    again = v1.call("POST", *group, json={"receiver": "next", "receive": {"max": 9}}).json()["messages"]
    assert sorted(one["message_id"] for one in again) == sorted(one["message_id"] for one in gone["messages"])
    assert [one["failures"] for one in again] == [0, 0, 0]
    owner.send(f"{base}/release", status=400, receiver="gone")
    assert "It holds no message" in owner.get(f"{base}/release?receiver=gone")


def test_only_the_owner_gets_the_receipts_of_others(v1: Server) -> None:
    queue = v1.queue(principles="app:queuey, app:other")
    v1.post(queue)
    v1.call("POST", queue, "leases", "workers", json={"receive": {}})

    def members(server: Server) -> set[str]:
        answer = server.request("GET", f"/v1/queuey/{queue}/leases/workers", params={"leased": "true"})
        (one,) = answer.json()["leases"]
        return set(one)

    with Server(v1.running, "other") as other:
        assert members(v1) - members(other) == {"receipt"}


def test_a_dead_letter_is_edited_and_sent_again(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    base, group = f"/console/a/queuey/{queue}/l/workers", (queue, "leases", "workers")
    entries = [
        {"body": '{"to": "nobody"}', "key": "k1", "content_type": "application/json", "headers": {"Kind": "order"}},
        {"body": "gICA", "encoding": "base64"},
    ]
    v1.call("POST", queue, data=json.dumps({"messages": entries}).encode(), headers={"Content-Type": BATCH})
    held = v1.call("POST", *group, json={"receive": {"max": 2}}).json()["messages"]
    v1.call("POST", *group, json={"reject": [{"receipt": one["receipt"], "reason": "who?"} for one in held]})
    letters = v1.call("GET", f"{queue}-dead").json()["messages"]
    text, binary = (f"{one['partition']}:{one['message_id']}" for one in letters)
    links = [found for found in Markup(owner.get(f"{base}/dead")).addresses() if "/edit/" in found]
    assert links == [f"{base}/dead/edit/{text}"]

    form = owner.get(links[0])
    assert ["nobody" in form, "Kind: order" in form, 'value="k1"' in form, "queuey-dead-letter" in form] == [
        True,
        True,
        True,
        False,
    ]
    fields = {"body": '{"to": "ann"}', "key": "k1", "content_type": "application/json", "headers": "Kind: order"}
    shown = owner.goes(links[0], **fields)

    assert "The message was stored." in owner.get(shown)
    stored = v1.call("GET", queue).json()["messages"][-1]
    origin = json.loads(stored["headers"].pop("queuey-redriven"))
    assert (stored["body"], stored["key"], stored["headers"]) == ('{"to": "ann"}', "k1", {"Kind": "order"})
    assert (origin["message_id"], origin["reason"]) == (held[0]["message_id"], "who?")
    assert [one["body"] for one in v1.call("GET", f"{queue}-dead").json()["messages"]] == ["gICA"]
    owner.get(links[0], status=404)
    owner.get(f"{base}/dead/edit/{binary}", status=400)
    owner.get(f"/console/a/queuey/{queue}/l/other/dead/edit/{binary}", status=404)


def test_scheduled_messages_are_listed_by_time_cancelled_and_run(owner: Visitor, v1: Server) -> None:
    queue = v1.queue(partitions="2")
    base = f"/console/a/queuey/{queue}"
    entries = [
        {"body": "third", "delay": 9000},
        {"body": "first", "delay": 3000, "key": "k", "ttl": 5000, "headers": {"Kind": "order"}},
        {"body": "second", "delay": 6000, "partition": 2},
    ]
    document = json.dumps({"messages": [{"body": "now"}, *entries]}).encode()
    v1.call("POST", queue, data=document, headers={"Content-Type": BATCH})

    def listed(query: str = "") -> dict[str, str]:
        page = owner.get(f"{base}/scheduled{query}")
        lines = re.findall(r'class="line-of-body">([^<]*)<', page)
        return dict(zip(lines, dict.fromkeys(re.findall(r'name="place" value="([^"]*)"', page)), strict=True))

    places = listed()
    assert list(places) == ["first", "second", "third"]
    later = places["second"].partition(":")[2]
    assert list(listed(f"?at={later}")) == ["second", "third"]
    assert owner.goes(f"{base}/scheduled/cancel", place=places["third"]) == f"{base}/scheduled?told=deleted"
    assert list(listed()) == ["first", "second"]

    shown = owner.goes(f"{base}/scheduled/now", place=places["first"])

    assert "first" in owner.get(shown)
    assert list(listed()) == ["second"]
    stored = v1.call("GET", queue, params={"partitions": "all", "columns": "body,key,headers,timestamp,expires"}).json()
    (ran,) = [one for one in stored["messages"] if one["body"] == "first"]
    assert (ran["key"], ran["headers"]) == ("k", {"Kind": "order"})
    assert float(ran["expires"]) - float(ran["timestamp"]) == pytest.approx(5000, abs=1)
    owner.send(f"{base}/scheduled/now", status=404, place=places["first"])
    owner.send(
        f"{base}/scheduled/now", status=404, place=shown.rpartition("/")[2].partition("?")[0].replace("%3A", ":")
    )


def test_schedules_show_their_next_times_and_are_paused_sent_and_removed(v1: Server) -> None:
    name = "with-dash"
    with Server(v1.running, name) as server, signed_in(v1.running.url, APPLICATIONS[name][0]) as owner:
        page = f"/console/schedules/{name}"
        assert "There is none." in owner.get(page)
        with Client(server.url, name, server.key) as client:
            book = ScheduleBook(client)
            jobs = f"jobs-{new_name()}"
            server.create(jobs)
            report = "Bericht für heute"
            book.set(Schedule(name=report, cron="0 6 * * *", queue=jobs, task="shop.report", body='{"kind": "long"}'))
            found = book.get(report)
            assert found is not None
            due = found.line.after(found.since)

            shown = owner.get(page)
            assert datetime.fromtimestamp(due, UTC).strftime("%Y-%m-%dT06:00:00") in shown
            (place,) = set(re.findall(r'name="place" value="([^"]*)"', shown))
            owner.send(f"{page}/pause", place=place, pause="true")
            assert ">Go on<" in owner.get(page)
            paused = book.get(report)
            assert paused is not None
            assert (paused.paused, paused.what, paused.revision) == (True, found.what, found.revision)
            owner.send(f"{page}/pause", place=place, pause="false")
            for _ in range(2):  # a second click sends nothing
                owner.send(f"{page}/now", place=place, once="of one page")
            (sent,) = server.call("GET", jobs).json()["messages"]
            assert (sent["body"], sent["headers"]["queuey-task"], sent["headers"]["queuey-schedule"]) == (
                '{"kind": "long"}',
                "shop.report",
                report,
            )
            owner.send(f"{page}/remove", place=place)
            assert book.get(report) is None
            assert not list(book.all())
            assert "There is none." in owner.get(page)
            owner.send(f"{page}/now", status=404, place=place)


def test_an_overview_names_the_deepest_queues(owner: Visitor, operator: Visitor, v1: Server) -> None:
    queue = v1.queue()
    v1.call("POST", queue, data=BATCH_OF_MANY, headers={"Content-Type": BATCH})

    page = owner.get("/console/overview/queuey")

    row = page.partition(f">{queue}</a>")[2].partition("</tr>")[0]
    assert f'title="{MANY:,}"' in row
    assert 'href="/console/a/queuey?sort=age"' in page
    assert f">queuey/{queue}</a>" in operator.get("/console/overview")
    oldest = operator.request("GET", "/console/v1?stats=true&sort=age&limit=2").json()
    first, second = (float(one["oldest_timestamp"]) for one in oldest["queues"])
    assert (first <= second, oldest["complete"]) == (True, True)
    operator.get("/console/v1?stats=true&sort=rate", status=400)
    assert "queues" not in operator.request("GET", "/console/v1?stats=true").json()


def test_a_key_has_the_moment_of_its_last_use(owner: Visitor, v1: Server) -> None:
    used, other = APPLICATIONS["queuey"]
    owner.get("/console/access/queuey")

    keys = {one["label"]: one for one in v1.call("GET", params={"keys": "true"}).json()["keys"]}

    assert time.time() - float(keys[label_of(digest_of(used))]["last_used"]) < 3600
    assert keys[label_of(digest_of(other))].keys() == {"label", "created", "last_used"}
    assert "Last use" in owner.get("/console/access/queuey")


def test_a_lease_group_is_paused_resumed_reset_and_forgotten(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    base = f"/console/a/queuey/{queue}/l/workers"
    v1.call("POST", queue, "leases", "workers", json={"receive": {}})

    owner.send(f"{base}/pause", pause="true")
    assert "paused in the console" in owner.get(base)
    owner.send(f"{base}/pause", pause="false")
    assert "paused in the console" not in owner.get(base)
    assert "It goes on behind" in owner.send(f"{base}/preview", status=200, to="end").text
    owner.send(f"{base}/preview", status=400, to="at", at="yesterday")
    owner.send(f"{base}/reset", to="end")
    owner.send(f"{base}/forget")
    owner.get(base, status=404)


def test_an_operator_sees_the_server_and_every_application(operator: Visitor, owner: Visitor) -> None:
    home, later = operator.get("/console"), operator.get("/console?offset=other")
    assert ["fresh-000<" in home, "other<" in later, "queuey<" in later] == [True, True, True]
    assert "Readers waiting" in operator.get("/console/overview")
    assert "[limits] max_body_bytes" in operator.get("/console/server")
    assert ["[tokens] keys" in one.get("/console/access/queuey") for one in (operator, owner)] == [True, False]
    operator.get("/console/a/other")
    for path in ("/console/overview", "/console/server"):
        owner.get(path, status=403)


def test_an_operator_finds_a_refusal_by_its_request_id(operator: Visitor, neighbour: Visitor, v1: Server) -> None:
    queue, name = v1.queue(), f"look-for-{new_name()}"
    with Server(v1.running, "other") as other:
        refused = other.request("GET", f"/v1/queuey/{queue}", headers={"X-Request-Id": name})
    assert (refused.status_code, refused.headers["x-request-id"]) == (403, name)

    page = operator.get("/console/server")
    row = page.partition(f"<code>{name}</code>")[2].partition("</tr>")[0]
    assert ["app:other" in row, f"GET queuey/{queue}" in row, "403 Forbidden" in row] == [True] * 3
    listed = operator.request("GET", "/console/v1?requests=true&limit=3").json()
    assert len(listed["refused"]) <= 3
    assert neighbour.request("GET", "/console/v1?requests=true").status_code == 403


def test_the_tester_answers_by_the_table(owner: Visitor, v1: Server) -> None:
    queue = v1.queue(principles="bid:joe@example.org")

    page = owner.get(f"/console/access/queuey?queue={queue}&principal=bid:joe@example.org")

    rows = {row.partition("</th>")[0]: "yes" in row.partition("</tr>")[0] for row in page.split('<th scope="row">')[1:]}
    assert {verb: rows[verb] for verb in ("read", "receive", "append", "configure")} == {
        "read": True,
        "receive": True,
        "append": False,
        "configure": False,
    }
    owner.get(f"/console/access/queuey?queue={queue}&principal=nobody", status=400)
    all_of_them = owner.get(f"/console/access/queuey?queue={queue}")
    assert [
        f'<th scope="col">{one}</th>' in all_of_them for one in ("app:queuey", "bid:joe@example.org", "anyone")
    ] == [True] * 3


def test_figures_of_an_application_are_those_of_v1(owner: Visitor, v1: Server) -> None:
    through_console = owner.request("GET", "/console/v1/queuey?stats=true&limit=1")
    through_v1 = v1.call("GET", params={"stats": "true", "limit": "1"})

    assert through_console.json().keys() == through_v1.json().keys()
    assert "Since the server began" in owner.get("/console/overview/queuey")


def test_a_change_leaves_a_line_in_the_log_with_its_caller(owner: Visitor, open_console: OpenConsole) -> None:
    name = new_name()

    owner.send("/console/new/queuey", queue_name=name)
    owner.send(f"/console/a/queuey/{name}/edit", status=400, partitions="0")

    def told() -> list[tuple[str, str, str, list[str]]]:
        return [
            (line["audit"], line["path"], line["outcome"], line["principals"])
            for line in open_console.log()
            if "audit" in line and line["path"].startswith("/v1/queuey")
        ]

    # The line is written when the answer may have been read already.
    eventually(lambda: ("PUT", f"/v1/queuey/{name}", "InvalidParameter", ["app:queuey"]) in told())
    assert ("POST", "/v1/queuey", "done", ["app:queuey"]) in told()


@pytest.mark.parametrize(
    "path", ["/console/nothing", "/console/a/queuey/gone", "/console/static/console.py", "/console/a"]
)
def test_what_is_not_there_is_a_page_that_says_so(owner: Visitor, path: str) -> None:
    assert "<h1>" in owner.get(path, status=404)
