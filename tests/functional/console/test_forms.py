"""What people type into the forms of the console, and what v1 gets of it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from urllib.parse import urlencode

import pytest

from tests.support.client import Server, new_name
from tests.support.servers import eventually
from tests.support.visitors import OpenConsole, Visitor, signed_in


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
    later = v1.add(queue, "report", X_Delay="3600", x_partition="1")["key"]
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


def _field(page: str, name: str) -> str:
    found = re.search(rf'name="{name}"[^>]* value="([^"]*)"', page)
    assert found is not None
    return html.unescape(found[1])


def test_a_form_of_settings_undoes_no_change_that_it_has_not_shown(owner: Visitor, v1: Server) -> None:
    path = f"/console/a/queuey/{(queue := v1.queue())}/edit"
    tag = _field(owner.get(path), "tag")
    owner.send(path, principles="app:shop", tag=tag)

    again = owner.send(path, status=412, partitions="4", principles="app:mine", tag=tag).text

    assert "Somebody has changed the settings meanwhile" in again
    assert (v1.info(queue)["principles"], v1.info(queue)["partitions"]) == (["app:shop"], 1)
    assert (_field(again, "partitions"), _field(again, "principles")) == ("4", "app:mine")
    assert re.findall("stored now: ([^<]*)<", again) == ["1", "app:shop"]
    owner.send(path, principles="app:shop", partitions="4", tag=_field(again, "tag"))
    assert v1.info(queue)["partitions"] == 4


def test_a_form_of_settings_that_comes_again_asks_for_no_fewer_partitions(owner: Visitor, v1: Server) -> None:
    path = f"/console/a/queuey/{(queue := v1.queue())}/edit"
    tag = _field(owner.get(path), "tag")
    owner.send(path, partitions="4", tag=tag)

    again = owner.send(path, status=412, partitions="1", type="public", tag=tag).text

    assert _field(again, "partitions") == "4"
    owner.send(path, partitions="4", type="public", tag=_field(again, "tag"))
    assert v1.info(queue)["type"] == "public"


def test_a_form_of_settings_shows_what_is_stored_only_where_it_differs(owner: Visitor, v1: Server) -> None:
    path = f"/console/a/queuey/{v1.queue(principles='app:queuey, app:other')}/edit"
    tag = _field(page := owner.get(path), "tag")
    assert "stored now" not in page
    owner.send(path, type="public", principles="app:queuey, app:other", tag=tag)

    again = owner.send(path, status=412, type="user", principles="", tag=tag).text

    assert re.findall("stored now: ([^<]*)<", again) == ["public", "app:queuey, app:other"]


def test_a_second_click_makes_no_second_queue(owner: Visitor, v1: Server) -> None:
    path, name = "/console/new/queuey", new_name()
    page = owner.get(path)
    hidden = {field: _field(page, field) for field in ("once", "shown")}
    given = {"queue_name": name, "partitions": "2", "principles": "app:queuey,bid:ann@Example.org", **hidden}

    first, second = (owner.goes(path, **given) for _ in range(2))

    assert first == second == f"/console/a/queuey/{name}?told=created"
    owner.send(path, status=409, **{**given, "partitions": "3"})
    assert v1.info(name)["partitions"] == 2
    later = {field: _field(owner.get(path), field) for field in ("once", "shown")}
    refused = owner.send(path, status=409, **{**given, **later}).text
    assert "QueueExists" in refused


def test_a_second_click_draws_no_second_name(owner: Visitor) -> None:
    path = "/console/new/queuey"
    page = owner.get(path)
    hidden = {field: _field(page, field) for field in ("once", "shown")}

    first, second = (owner.goes(path, partitions="2", **hidden) for _ in range(2))
    other = owner.goes(path, partitions="3", **hidden)

    assert first == second != other
    assert re.fullmatch(r"/console/a/queuey/[0-9a-f]{32}[?]told=created", first)


def test_a_task_that_has_ended_is_not_told_to_stop(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    v1.call("DELETE", queue, "messages")
    eventually(lambda: v1.call("GET", queue, "tasks", "purge").json()["task"]["state"] == "done")

    page = owner.goes(f"/console/a/queuey/{queue}/cancel", task="purge")

    assert page.endswith("?told=ended")
    assert "The task had ended already." in owner.get(page)


def test_what_was_stored_is_said_where_the_other_message_stays(open_console: OpenConsole, v1: Server) -> None:
    queue = v1.queue()
    later = v1.add(queue, "report", X_Delay="3600")["key"]
    token = v1.request("POST", "/tokens/queuey", data={"verbs": "configure,append,read"}).json()["token"]

    with signed_in(open_console.url, token) as visitor:
        page = visitor.goes(f"/console/a/queuey/{queue}/scheduled/now", place=f"1:{later}")
        assert "may still be there: its deletion failed" in visitor.get(page)

    assert v1.bodies(queue) == ["report"]
    assert v1.info(queue)["depth"] == 2


def test_numbers_of_an_address_become_no_text_of_a_page(owner: Visitor, v1: Server) -> None:
    base = f"/console/a/queuey/{v1.queue()}"

    for done in ("<b>", "1" * 10, "", "\u0661", "{left}"):
        page = owner.get(f"{base}?{urlencode({'told': 'released-some', 'done': done, 'left': '7'})}")
        assert "Messages that were released: some. The leases of 7 more had ended meanwhile." in page


def test_a_schedule_that_was_removed_is_said_to_be_where_its_pause_stays(
    open_console: OpenConsole, next_fresh: Callable[[], str]
) -> None:
    name, schedule = next_fresh(), {"name": "report", "cron": "0 6 * * *", "queue": "jobs", "body": "{}"}
    with Server(open_console.running, name) as v1:
        v1.create("schedules", partitions="3")
        place = f"1:{v1.add('schedules', json.dumps(schedule), x_partition='1')['key']}"
        token = v1.request("POST", f"/tokens/{name}", data={"verbs": "list,append,read"}).json()["token"]
        with signed_in(open_console.url, token) as visitor:
            page = visitor.goes(f"/console/schedules/{name}/remove", place=place)
            assert "It was deleted. Its pause may still be there" in visitor.get(page)
            assert "There is none." in visitor.get(page)
