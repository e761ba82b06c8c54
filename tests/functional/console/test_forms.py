"""What people type into the forms of the console, and what v1 gets of it."""

from __future__ import annotations

import html
import re

import pytest

from tests.support.client import Server
from tests.support.visitors import Visitor


@pytest.mark.parametrize("delay", ["nan", "inf", "1e999", "soon"])
def test_a_delay_that_is_no_number_sends_nothing(owner: Visitor, v1: Server, delay: str) -> None:
    queue = v1.queue()

    refused = owner.send(f"/console/a/queuey/{queue}/send", status=400, body="hello", delay=delay)

    assert "delay: must be a number of seconds" in refused.text
    assert v1.call("GET", queue, params={"info": "true"}).json()["depth"] == 0


@pytest.mark.parametrize("rate", ["nan", "-inf", "fast"])
def test_a_rate_that_is_no_number_moves_nothing(owner: Visitor, v1: Server, rate: str) -> None:
    queue = v1.queue()
    v1.call("POST", queue, "leases", "workers", json={"receive": {}})

    refused = owner.send(f"/console/a/queuey/{queue}/l/workers/dead/retry", status=400, rate=rate)

    assert "rate: must be a number of letters a second" in refused.text


def test_a_form_has_room_for_each_message_that_v1_takes(owner: Visitor, v1: Server) -> None:
    queue, body = v1.queue(), "é" * (1 << 19)

    owner.send(f"/console/a/queuey/{queue}/send", body=body)
    owner.send(f"/console/a/queuey/{queue}/send", status=413, body=body + "é")

    (stored,) = v1.call("GET", queue).json()["messages"]
    assert stored["body"] == body


def test_a_pause_that_has_ended_is_none(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    v1.call("POST", queue, "leases", "workers", json={"receive": {}})
    base = f"/console/a/queuey/{queue}"

    def paused(until: float) -> tuple[bool, str]:
        v1.call("PUT", queue, "leases", "workers", json={"paused_until": until})
        page = owner.get(f"{base}/l/workers")
        button = "Resume" if "<button>Resume</button>" in page else "Pause"
        return "<td>paused</td>" in owner.get(base), button + "".join(re.findall(r"It is (paused[^<:]*)", page))

    assert paused(1000.0) == (False, "Pause")
    assert paused(4e9) == (True, "Resumepaused, and goes on ")
    assert paused(32_503_680_000) == (True, "Resumepaused until somebody resumes it")


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_run_now_takes_each_of_two_messages_with_the_same_id(
    owner: Visitor, v1: Server, order: tuple[int, int]
) -> None:
    queue = v1.queue(partitions="2")
    later = v1.add(queue, "report", X_Delay="3600", X_Partition="1")["key"]
    v1.call("PUT", queue, f"2:{later}", data=b"report")

    for partition in order:
        owner.send(f"/console/a/queuey/{queue}/scheduled/now", place=f"{partition}:{later}")

    assert v1.call("GET", queue, params={"info": "true"}).json()["depth"] == 2


def test_a_queue_leads_to_all_of_its_groups(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    names = [f"workers-{number:03}" for number in range(101)]
    for name in names:
        v1.call("PUT", queue, "leases", name, json={})
    seen, query = list[str](), "?"

    while query:
        page = owner.get(f"/console/a/queuey/{queue}{query}")
        seen += re.findall(r'/l/([^"/]*)"', page)
        query = "".join(re.findall(r'href="([?]leases=[^"]*)"', page))

    assert seen == names


def test_of_a_header_that_is_there_twice_none_is_dropped(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()

    refused = owner.send(f"/console/a/queuey/{queue}/send", status=400, body="x", headers="Kind: order\nKind: invoice")

    assert "headers: has a name twice" in refused.text
    assert v1.call("GET", queue, params={"info": "true"}).json()["depth"] == 0


def _named(page: str) -> str:
    found = re.search(r'name="once" value="([^"]+)"', page)
    assert found is not None
    return found[1]


def test_a_second_click_sends_no_second_message(owner: Visitor, v1: Server) -> None:
    path = f"/console/a/queuey/{(queue := v1.queue())}/send"
    once = _named(owner.get(path))

    first = owner.send(path, body="hello", once=once)
    second = owner.send(path, body="hello", once=once)
    owner.send(path, body="something else", once=once)
    owner.send(path, body="hello", once=_named(owner.get(path)))

    assert second.headers["Location"] == first.headers["Location"]
    bodies = [one["body"] for one in v1.call("GET", queue).json()["messages"]]
    assert sorted(bodies) == ["hello", "hello", "something else"]


def _was(page: str) -> str:
    found = re.search(r'name="was" value="([^"]+)"', page)
    assert found is not None
    return html.unescape(found[1])


def test_a_form_of_settings_undoes_no_change_that_it_has_not_shown(owner: Visitor, v1: Server) -> None:
    path = f"/console/a/queuey/{(queue := v1.queue())}/edit"
    was = _was(owner.get(path))
    owner.send(path, principles="app:shop", was=was)

    refused = owner.send(path, status=409, partitions="4", was=was)

    assert "Somebody has changed the settings" in refused.text
    settings = v1.call("GET", queue, params={"info": "true"}).json()
    assert (settings["principles"], settings["partitions"]) == (["app:shop"], 1)
    owner.send(path, principles="app:shop", partitions="4", was=_was(owner.get(path)))
    assert v1.call("GET", queue, params={"info": "true"}).json()["partitions"] == 4
