"""Streams of figures and of new messages, with the session of a browser in place of a key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from tests.support.client import Server
from tests.support.in_process import timed_server
from tests.support.servers import APPLICATIONS, shipped
from tests.support.visitors import TIMEOUT_SECONDS, Visitor

EVENTS = {"Accept": "text/event-stream"}


@contextmanager
def events(visitor: Visitor, path: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The data of the events of a stream."""
    with visitor.session.get(visitor.url + path, headers=EVENTS, stream=True, timeout=TIMEOUT_SECONDS) as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
        lines = answer.iter_lines()
        yield (json.loads(line[6:]) for line in lines if line.startswith(b"data: "))


def test_figures_come_by_themselves(operator: Visitor, owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    with events(owner, "/console/v1/queuey?stats=true") as figures:
        first = next(figures)
        v1.post(queue)
        second = next(event for event in figures if event["counters"]["appended"] > first["counters"]["appended"])
    assert second["counters"]["appended"] == first["counters"]["appended"] + 1
    assert second["time"] > first["time"]
    assert "server" not in second

    with events(operator, "/console/v1?stats=true") as figures:
        appended = second["counters"]["appended"]
        of_server = next(event for event in figures if event["counters"]["appended"] >= appended)
    assert of_server["server"]["memory_bytes"] > 0


def test_new_messages_come_by_themselves(owner: Visitor, v1: Server) -> None:
    queue = v1.queue(partitions="2")
    with events(owner, f"/console/v1/queuey/{queue}?partitions=all") as news:
        next(news)  # the opening
        v1.post(queue, "two chairs")
        assert next(news)["body"] == "two chairs"


def test_a_stream_is_refused_like_any_other_call(neighbour: Visitor, owner: Visitor, stranger: Visitor) -> None:
    for path in ("/console/v1/queuey?stats=true", "/console/v1?stats=true"):
        assert neighbour.request("GET", path, headers=EVENTS).status_code == 403
        assert stranger.request("GET", path, headers=EVENTS).status_code in (303, 403)


def test_a_sample_is_taken_every_second(operator: Visitor) -> None:
    with events(operator, "/console/v1?stats=true") as figures:
        for _ in range(3):
            newest = next(figures)
    answer = operator.request("GET", "/console/v1?stats=true&history=3600").json()

    assert newest["sample"]["requests"] >= 0
    samples = answer["history"]["samples"]
    assert len(samples) >= 2
    assert [len(sample) for sample in samples] == [len(answer["history"]["fields"])] * len(samples)


def test_without_the_console_nothing_of_it_is_there(tmp_path: Path) -> None:
    with shipped(tmp_path, settings="[console]\nenabled = false\n") as running:
        for path in ("/", "/console", "/console/sign-in", "/console/static/console.css"):
            answer = requests.get(running.url + path, headers={"Accept": "text/html"}, timeout=TIMEOUT_SECONDS)
            assert (answer.status_code, answer.json()["code"]) == (404, "NotFound")


def test_the_wsgi_application_serves_it_too(tmp_path: Path) -> None:
    with timed_server(tmp_path, "memory") as timed, Visitor(timed.server.url) as visitor:
        visitor.session.mount(visitor.url, timed.server.session.adapters[visitor.url])
        queue = timed.server.queue()
        jar = visitor.request("GET", "/console/sign-in").headers["set-cookie"].partition(";")[0]
        visitor.session.headers["Cookie"] = jar
        signed = visitor.send("/console/sign-in", credential=APPLICATIONS["queuey"][0])
        visitor.session.headers["Cookie"] = signed.headers["set-cookie"].partition(";")[0]

        assert queue in visitor.get("/console/a/queuey")
        timed.clock.advance(12 * 3600 + 1)
        assert visitor.request("GET", "/console/a/queuey").status_code == 303
