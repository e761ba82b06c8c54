"""Each page, as people use it without a script."""

from __future__ import annotations

import re

import pytest

from tests.support.client import Server, new_name
from tests.support.servers import eventually
from tests.support.visitors import Markup, OpenConsole, Visitor


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

    assert "mail" in owner.get(base)
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
    letters = v1.call("GET", f"{queue}-dead").json()["messages"]
    assert len(letters) == 3
    assert "A dead letter" in owner.get(f"/console/a/queuey/{queue}-dead/m/1:{letters[0]['message_id']}")
    assert f'href="{base}/dead"' in owner.get(f"/console/a/queuey/{queue}")

    owner.send(f"{base}/dead/retry", one=letters[0]["timestamp"])
    eventually(lambda: len(v1.call("GET", f"{queue}-dead").json()["messages"]) == 2)
    eventually(lambda: ">done<" in owner.get(f"{base}/dead"))
    owner.send(f"{base}/dead/retry", reason="job 1", rate="100")
    eventually(lambda: len(v1.call("GET", f"{queue}-dead").json()["messages"]) == 1)
    moved = [one["body"] for one in v1.call("GET", queue).json()["messages"]]
    assert sorted(moved) == ["job 0", "job 0", "job 1", "job 1", "job 2"]


def test_a_message_s_page_says_how_far_each_group_is_with_it(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    first, second = [v1.post(queue).json()["messages"][0]["key"] for _ in range(2)]

    def states(message_id: str) -> dict[str, str]:
        table = (
            owner.get(f"/console/a/queuey/{queue}/m/1:{message_id}").partition("<h2>Groups")[2].partition("</table>")[0]
        )
        return dict(re.findall(r">(\w+)</a></th><td>([^<]*)</td>", table))

    assert states(first) == {}
    offset = {"partition": 1, "message_id": first}
    v1.call("PUT", queue, "offsets", "mail", json={"offsets": [offset], "generation": 1})
    held = v1.call("POST", queue, "leases", "workers", json={"receiver": "worker-7", "receive": {}}).json()["messages"][
        0
    ]
    assert states(first) == {"mail": "finished", "workers": "leased"}
    assert "worker-7" in owner.get(f"/console/a/queuey/{queue}/m/1:{first}")
    assert states(second) == {"mail": "not finished yet", "workers": "settled, or not handed out yet"}
    v1.call("POST", queue, "leases", "workers", json={"acknowledge": [held["receipt"]]})
    assert states(first)["workers"] == "settled"
    assert states(second)["workers"] == "not handed out yet"


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
    operator.get("/console/a/other")
    for path in ("/console/overview", "/console/server"):
        owner.get(path, status=403)


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
