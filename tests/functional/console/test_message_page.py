"""The page of one message: what each group did with it, and where it came from and went."""

from __future__ import annotations

import json
import re
from base64 import b64encode

from tests.support.client import Server
from tests.support.servers import eventually
from tests.support.visitors import Markup, Visitor

ENDED = ("released", "released, not counted", "ran out")
"""How the lease of each of the first messages ended."""


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
    assert states(second) == {"mail": "not finished yet", "workers": "not handed out yet"}
    v1.call("POST", queue, "leases", "workers", json={"acknowledge": [held["receipt"]]})
    assert states(first)["workers"] == "settled"
    assert states(second)["workers"] == "not handed out yet"


def test_a_message_s_page_names_the_trace_of_the_request_that_stored_it(owner: Visitor, v1: Server) -> None:
    queue, trace = v1.queue(), "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    traced = v1.call("POST", queue, data=b"one", headers=headers).json()["messages"][0]["key"]
    plain = v1.post(queue).json()["messages"][0]["key"]

    assert f"a request of trace <code>{trace}</code>" in owner.get(f"/console/a/queuey/{queue}/m/1:{traced}")
    assert "a request without a trace" in owner.get(f"/console/a/queuey/{queue}/m/1:{plain}")


def test_a_message_says_how_its_lease_ended_and_where_it_went(owner: Visitor, v1: Server) -> None:
    queue = v1.queue(partitions="2")
    base, group = f"/console/a/queuey/{queue}", (queue, "leases", "workers")
    v1.add_batch(queue, *({"body": f"job {number}", "partition": 2} for number in range(5)))
    wanted = {"receiver": "worker-7", "receive": {"max": 5, "visibility": 3600}}
    held = {one["body"]: one for one in v1.call("POST", *group, json=wanted).json()["messages"]}
    receipts = {body: one["receipt"] for body, one in held.items()}
    settled = {
        "release": [
            {"receipt": receipts["job 0"], "delay": 3600},
            {"receipt": receipts["job 1"], "delay": 3600, "count": False},
        ],
        "extend": [{"receipt": receipts["job 2"], "visibility": 0}],
        "reject": [{"receipt": receipts["job 3"], "reason": "no <b>JSON</b>"}],
    }
    v1.call("POST", *group, json=settled)

    def page(body: str) -> str:
        return owner.get(f"{base}/m/2:{held[body]['message_id']}")

    assert [f"<td>{text}</td>" in page(f"job {number}") for number, text in enumerate(ENDED)] == [True] * 3
    assert ["<td>leased</td>" in page("job 4"), "<td>leased</td>" in page("job 0")] == [True, False]
    (letter,) = v1.call("GET", f"{queue}-dead").json()["messages"]
    place = f"/console/a/queuey/{queue}-dead/m/{letter['partition']}:{letter['message_id']}"
    assert [place in page("job 3"), place in page("job 4")] == [True, False]
    assert "<td>given up: <a" in page("job 3")
    v1.call("POST", *group, json={"acknowledge": [receipts["job 4"]]})
    assert "<td>settled</td>" in page("job 4")
    links = Markup(owner.get(place)).addresses()
    assert f"{base}/m/2:{held['job 3']['message_id']}" in links
    (way_back,) = [one for one in links if one.startswith(f"{base}/l/workers/dead")]
    assert "Retry this one" in owner.get(way_back)
    assert "Retry this one" not in owner.get(f"{base}/l/workers/dead?at=1h")

    owner.send(f"{base}/l/workers/dead/retry", reason="no <b>JSON</b>")
    again = eventually(
        lambda: [
            one
            for one in v1.call("GET", queue, params={"partitions": "all"}).json()["messages"]
            if "queuey-redriven" in one.get("headers", {})
        ]
    )
    new = f"{base}/m/{again[0]['partition']}:{again[0]['message_id']}"
    eventually(lambda: new in page("job 3"))
    shown = owner.get(new)
    assert f"{base}/m/2:{held['job 3']['message_id']}" in Markup(shown).addresses()
    assert "no &lt;b&gt;JSON&lt;/b&gt;" in shown


def test_what_a_page_shows_whole_is_called_no_beginning(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    picture = b64encode(b"\x89PNG\r\n\x1a\n" + bytes(3000)).decode()
    bodies = [{"body": json.dumps(["x" * 9000])}, {"body": picture, "encoding": "base64"}]
    v1.add_batch(queue, *bodies)

    assert "This is the beginning" not in owner.get(f"/console/a/queuey/{queue}/messages")
    v1.add_batch(queue, {"body": "x" * 9000})
    assert "This is the beginning of 8.8 KiB." in owner.get(f"/console/a/queuey/{queue}/messages")


def test_a_message_s_page_says_where_there_are_more_groups(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    page = f"/console/a/queuey/{queue}/m/1:{v1.add(queue)['key']}"
    for number in range(10):
        v1.call("PUT", queue, "leases", f"workers-{number}", json={})
    assert "these are the first" not in owner.get(page)

    v1.call("PUT", queue, "leases", "workers-x", json={})

    assert "Of each kind these are the first 10." in owner.get(page)
