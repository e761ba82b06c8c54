"""The page of workers: what they report, and what the groups themselves tell."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

from qdo import Worker
from qdo.client import Client
from qdo.groups.local import LocalCoordinator
from qdo.worker import RetryPolicy
from qdo.worker.reports import WorkerReports
from queuey.model.worker_reports import REPORTS
from tests.support.client import Server
from tests.support.hostile import EVIL, is_clean
from tests.support.servers import APPLICATIONS, eventually
from tests.support.visitors import Visitor, signed_in
from tests.support.worker_threads import at_work

NAME = "letters"
PAGE = f"/console/workers/{NAME}"


def test_workers_are_shown_with_what_they_report(v1: Server, tmp_path: Path) -> None:
    def process(message: Any, context: Any) -> None:
        if message.text == "job 1":
            raise ValueError("<b>out of chairs</b>")

    with Server(v1.running, NAME) as server, signed_in(v1.running.url, APPLICATIONS[NAME][0]) as owner:
        queue = server.queue(partitions="3")
        for number in range(3):
            server.post(queue, f"job {number}")
        client = partial(Client, server.url, NAME, server.key)
        place = LocalCoordinator("default", tmp_path)
        worker = Worker(process, [queue], place, client, group="reports", retry=RetryPolicy(attempts=1))
        reports = WorkerReports(worker, [queue], client)
        with at_work(worker), client() as own:
            eventually(lambda: worker.counts.done + worker.counts.dead == 3 and reports.report()["owned"] == 3)
            reports.write(own)
            shown, member = owner.get(PAGE), worker.name

        assert "Group reports, owned partitions" in shown
        row = shown.partition(f">{member}<")[2].partition("</tr>")[0]
        assert member
        assert [f">{queue}<" in row, '<td class="n">3</td>' in row] == [True, True]
        assert "&lt;b&gt;out of chairs&lt;/b&gt;" in shown
        assert "<b>" not in shown
        moved = shown.partition("What moved in the last hour")[2]
        assert re.search(r'<td class="n">\d</td><td class="n">3</td>', moved)


def test_a_worker_s_report_goes_when_it_ends(v1: Server, tmp_path: Path) -> None:
    with Server(v1.running, NAME) as server:
        queue = server.queue()
        client = partial(Client, server.url, NAME, server.key)
        worker = Worker(lambda message, context: None, [queue], None, client, lease=True, group=queue)

        def reported() -> list[Any]:
            found = server.call("GET", REPORTS).json().get("messages", [])
            return [one for one in map(json.loads, (one["body"] for one in found)) if one.get("group") == queue]

        with WorkerReports(worker, [queue], client):
            eventually(reported)
            (report,) = reported()
        assert (report["way"], report["name"], report["last_failure"]) == ("leases", worker.name, None)
        eventually(lambda: not reported())


def test_a_worker_whose_reports_are_refused_works_all_the_same(v1: Server) -> None:
    queue = v1.queue()
    for _ in range(3):
        v1.post(queue)
    client = partial(Client, v1.url, "queuey", v1.key)
    worker = Worker(lambda message, context: None, [queue], None, client, lease=True, exit_at_end=True)
    stranger = partial(Client, v1.url, "queuey", "nobody-s-key-at-all", retries=0)

    with WorkerReports(worker, [queue], stranger):
        worker.run()

    assert worker.counts.done == 3


def test_receivers_are_shown_whether_they_report_or_not(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    owner.get("/console/workers/queuey")  # from now on messages are counted, so this queue comes first
    v1.add_batch(queue, *({"body": "x"} for _ in range(300)))
    v1.call("POST", queue, "leases", "mail", json={"receiver": "worker-7", "receive": {"max": 3}})

    row = owner.get("/console/workers/queuey").partition(">worker-7<")[2].partition("</tr>")[0]

    assert [f">{queue}<" in row, ">mail<" in row, ">3</span>" in row] == [True] * 3


def test_a_message_s_page_has_what_a_worker_reports_of_its_failure(v1: Server) -> None:
    with Server(v1.running, NAME) as server, signed_in(v1.running.url, APPLICATIONS[NAME][0]) as owner:
        queue = server.queue()
        places = [f"1:{server.add(queue)['key']}" for _ in range(2)]
        group = (queue, "leases", "workers")
        failed, _ = server.call("POST", *group, json={"receive": {"max": 2}}).json()["messages"]
        server.call("POST", *group, json={"release": [{"receipt": failed["receipt"], "delay": 3600}]})
        failure = {
            "queue": queue,
            "partition": 1,
            "message_id": failed["message_id"],
            "traceback": "a\n<b>No chair</b>",
        }
        report = dict.fromkeys(("started", "done", "failed", "dead", "per_second", "owned", "prefetched", "pid"), 1)
        report |= {"time": 1, "lag_seconds": 0}
        texts = {"name": "worker-9", "group": queue, "way": "leases", "host": "here"}
        server.create(REPORTS)
        server.post(REPORTS, json.dumps({**report, **texts, "last_failure": {**failure, "time": 1.0}}))

        shown = [owner.get(f"/console/a/{NAME}/{queue}/m/{place}") for place in places]

    assert ["worker-9 reports a failure" in page for page in shown] == [True, False]
    assert ["&lt;b&gt;No chair&lt;/b&gt;" in page for page in shown] == [True, False]


def test_what_anybody_writes_there_is_text_or_left_out(v1: Server) -> None:
    name = "other"
    with Server(v1.running, name) as server, signed_in(v1.running.url, APPLICATIONS[name][0]) as visitor:
        server.create(REPORTS)
        whole: dict[str, Any] = {
            "time": 1.0,
            "started": 1.0,
            "done": 1,
            "failed": 1,
            "dead": 0,
            "per_second": 0.5,
            "owned": 1,
        }
        whole |= {"prefetched": 0, "lag_seconds": 0.0, "pid": 1, "moves": [[1.0, 0, 1], [EVIL[0]], EVIL[1]]}
        for text in EVIL:
            said = {"queue": text, "message_id": text, "partition": text, "traceback": text, "time": 1.0}
            report = {**whole, "name": text, "group": text, "way": text, "host": text, "queues": [text, 1]}
            server.post(REPORTS, json.dumps({**report, "last_failure": said}))
            server.post(REPORTS, json.dumps({**report, "done": text}))
            server.post(REPORTS, json.dumps({**report, "last_failure": text, "queues": text, "moves": text}))
        for body in ("", "[]", "1", "{}", "{", '"x"', '{"name": "x"}'):
            server.post(REPORTS, body or "x")

        page = visitor.get(f"/console/workers/{name}")

        is_clean(page)
        assert "&lt;script&gt;alert(1)" in page


def test_a_lease_group_that_holds_nothing_has_no_oldest_message(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    v1.call("POST", queue, "leases", "workers", json={"receive": {}})

    page = owner.get(f"/console/a/queuey/{queue}/l/workers")

    assert '<dt>Oldest unsettled</dt><dd><span class="quiet">none</span></dd>' in page
    assert "never" not in page
