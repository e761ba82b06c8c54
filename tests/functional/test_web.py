"""The shops of examples/web: each with FastAPI, Flask or Django sends, stores an order with its messages, and notifies."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests
import uvicorn

from qdo.adapters.clients import is_done
from qdo.adapters.outbox import OutboxRelay
from qdo.client import Client, NewMessage
from qdo.worker.dead_letters import letters
from queuey.errors import Forbidden, QueueyError, Unauthenticated
from tests.support import servers
from tests.support.client import Server, emptied
from tests.support.servers import RunningServer, eventually
from tests.support.source import ROOT
from tests.support.trusting import MAKES_TOKENS

Post = Callable[[str, dict[str, str]], Any]
PAGES = ("fastapi", "flask", "django")
IN_NODE = f"""
import {{ Client }} from "{(ROOT / "clients/javascript/queuey.js").as_uri()}";
const fetched = globalThis.fetch;
globalThis.fetch = (where, how) => fetched(new URL(where, process.env.SHOP), how); // as for a page of the shop
const show = (text) => {{
  console.log(text);
  process.exit(0);
}};
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that makes tokens."""
    with servers.shipped(tmp_path_factory.mktemp("web"), settings=MAKES_TOKENS) as found:
        yield found


@pytest.fixture
def server(running: RunningServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """An application without queues, which the environment names."""
    with Server(running, "fresh-001") as seen, emptied(seen) as found:
        for name, value in found.variables.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client() as found:
        yield found


def bodies(client: Client, queue: str) -> list[str]:
    return [message.text for message in client.iterate(queue)]


def shop_works(client: Client, post: Post, get: Callable[[str], Any], relay: Callable[[], object]) -> None:
    """What the three shops have in common."""
    assert post("/feedback", {"text": "good"})["id"]
    assert post("/orders", {"customer": "ann", "item": "lamp"})["order"] == 1
    relay()
    relay()

    assert bodies(client, "feedback") == ['{"text": "good"}']
    assert bodies(client, "sales") == ['{"order": 1, "item": "lamp"}']
    notices = get("/notices/ann")
    with Client(notices["url"], notices["application"], token=notices["token"]) as browser:
        with_notice = next(iter(browser.follow(notices["queue"])))
        assert [message.text for message in with_notice.messages] == ["We have your order 1"]
        with pytest.raises(Forbidden):
            browser.read("sales")


def script_of(page: str) -> str:
    """The script that a page of the documentation shows."""
    (found,) = re.findall(r"^```js\n(.*?)^```$", (ROOT / f"docs/{page}.md").read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


def shown_in_a_browser(shop: str, script: str, folder: Path) -> str:
    """What the script shows first."""
    (program := folder / "page.mjs").write_text(IN_NODE + script)
    done = subprocess.run(
        ["node", str(program)],
        env={**os.environ, "SHOP": shop},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def served(app: Any) -> Iterator[str]:
    """An ASGI application on a port of its own: its address."""
    server = uvicorn.Server(uvicorn.Config(app, log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            eventually(lambda: server.started)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(60)


def test_the_shop_with_fastapi(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE", f"sqlite:///{tmp_path / 'shop.db'}")
    from examples.web import fastapi_shop

    with served(fastapi_shop.app) as url:

        def post(path: str, body: dict[str, str]) -> Any:
            answer = requests.post(url + path, json=body, timeout=60)
            answer.raise_for_status()
            return answer.json()

        rows = fastapi_shop.outbox.on(fastapi_shop.engine)
        relay = OutboxRelay(rows, client).send_waiting
        shop_works(client, post, lambda path: requests.get(url + path, timeout=60).json(), relay)
        assert requests.get(f"{url}/notices/Ann", timeout=60).status_code == 422
        (script,) = {script_of(page) for page in PAGES}
        assert shown_in_a_browser(url, script, tmp_path) == "We have your order 1\n"
    fastapi_shop.engine.dispose()


def test_the_shop_with_flask(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE", f"sqlite:///{tmp_path / 'shop.db'}")
    from examples.web import flask_shop

    prepared = flask_shop.app.test_cli_runner().invoke(args=["prepare"])
    assert prepared.exit_code == 0, prepared.output
    visitor = flask_shop.app.test_client()

    def post(path: str, body: dict[str, str]) -> Any:
        answer = visitor.post(path, json=body)
        assert answer.status_code in (201, 202), answer.text
        return answer.get_json()

    rows = flask_shop.outbox.on(flask_shop.engine)
    shop_works(client, post, lambda path: visitor.get(path).get_json(), OutboxRelay(rows, client).send_waiting)
    flask_shop.engine.dispose()


class Site:
    """The site with Django, in this process, with a database of its own."""

    def __init__(self, file: Path) -> None:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.web.django_shop.settings")
        import django
        from django.db import connections
        from django.test import Client as Visitor

        django.setup()
        connections.settings["default"]["NAME"] = str(file)
        connections.close_all()
        self._connections = connections
        self.visitor = Visitor()
        self.command("migrate", run_syncdb=True, verbosity=0)

    def command(self, name: str, *given: str, **options: Any) -> str:
        """What a command of ``manage.py`` prints."""
        from django.core.management import call_command

        said = StringIO()
        call_command(name, *given, stdout=said, **options)
        return said.getvalue()

    def post(self, path: str, body: dict[str, str]) -> Any:
        answer = self.visitor.post(path, body, content_type="application/json")
        assert answer.status_code in (201, 202), answer.content
        return answer.json()

    def get(self, path: str) -> Any:
        return self.visitor.get(path).json()

    def close(self) -> None:
        from tests.support.tasks_of_django import tasks

        tasks.task_backends["default"].close()
        self._connections.close_all()


@pytest.fixture
def site(server: Server, tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path / "shop.sqlite")
    yield found
    found.close()


def test_the_shop_with_django(site: Site, client: Client) -> None:
    shop_works(client, site.post, site.get, lambda: site.command("queuey_outbox", once=True))


def test_the_migrations_make_the_table_as_it_is_declared(site: Site) -> None:
    assert "No changes" in site.command("makemigrations", "queuey", check_changes=True, dry_run=True)


def test_an_order_that_is_rolled_back_sends_nothing(site: Site, client: Client) -> None:
    from django.db import transaction

    from qdo.adapters.django import outbox

    with transaction.atomic():
        outbox.add("sales", "never")
        transaction.set_rollback(True)
    outbox.add("sales", "once")

    assert site.command("queuey_outbox", once=True) == "1 sent\n"
    assert bodies(client, "sales") == ["once"]


def test_the_relay_of_django_ends_with_a_sentence_if_it_cannot_begin(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.core.management.base import CommandError

    from qdo.adapters.django.models import OutboxMessage

    said = "cannot read the table of the outbox"
    with pytest.raises(CommandError, match=f"{said}: The connection 'nope' doesn't exist"):
        site.command("queuey_outbox", once=True, database="nope")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(OutboxMessage._meta, "db_table", "nowhere")
        with pytest.raises(CommandError, match=f"{said}: no such table: nowhere"):
            site.command("queuey_outbox", once=True)
    monkeypatch.setenv("QUEUEY_URL", "127.0.0.1:5000")
    with pytest.raises(CommandError, match="is no address of a server"):
        site.command("queuey_outbox", once=True)


def test_tasks_of_django_run_and_have_results(site: Site, client: Client) -> None:
    from examples.web.django_shop import tasks
    from tests.support import tasks_of_django

    status_of = tasks_of_django.tasks.TaskResultStatus
    site.post("/orders", {"customer": "ann", "item": "lamp"})
    counted = tasks.count_orders.enqueue("ann")
    failed = tasks.fail.enqueue()
    doubled = tasks.double.enqueue(number=21)
    thanked = tasks.thank.enqueue("bob")
    assert tasks_of_django.tasks.default_task_backend.get_result(counted.id).status == status_of.READY

    site.command("queuey_tasks", exit_at_end=True, threads=2)

    for result in (counted, failed, doubled, thanked):
        result.refresh()
    assert (counted.status, counted.return_value, counted.attempts) == (status_of.SUCCESSFUL, 1, 1)
    assert (doubled.return_value, thanked.return_value) == (42, "thank you, bob (attempt 1)")
    assert failed.status == status_of.FAILED
    assert failed.errors[0].exception_class is ValueError
    assert "no luck" in failed.errors[0].traceback
    assert counted.enqueued_at <= counted.started_at <= counted.finished_at
    assert tasks.count_orders.get_result(counted.id).args == ["ann"]


def test_a_task_of_django_waits_in_the_store_until_it_is_due(site: Site, client: Client) -> None:
    from examples.web.django_shop.tasks import double
    from tests.support.tasks_of_django import tasks

    later = double.using(run_after=datetime.now(UTC) + timedelta(hours=1)).enqueue(2)

    site.command("queuey_tasks", exit_at_end=True, queue=["default"])

    later.refresh()
    assert later.status == tasks.TaskResultStatus.READY
    assert client.queue_info("default").scheduled == 1


def test_a_task_of_django_whose_worker_died_runs_again_and_counts_it(site: Site, client: Client) -> None:
    from examples.web.django_shop.tasks import double
    from tests.support.tasks_of_django import tasks

    sent = double.enqueue(2)
    (delivery,) = client.receive("default", "django", visibility=30)
    backend: Any = tasks.default_task_backend
    begun = backend.waiting("default", delivery)
    begun.worker_ids.append("dead")
    backend.record(begun)
    client.set_lease_group("default", "django", backoff={"first": 0, "most": 0})
    delivery.release()

    site.command("queuey_tasks", exit_at_end=True, queue=["default"])

    sent.refresh()
    assert (sent.return_value, sent.attempts, sent.worker_ids[0]) == (4, 2, "dead")


def test_a_task_of_django_that_returns_too_much_has_failed_and_runs_once(site: Site, client: Client) -> None:
    from examples.web.django_shop.tasks import double
    from tests.support.tasks_of_django import tasks

    client.create_queue("default", retention="acknowledged", leases={"backoff": {"first": 0, "most": 0}})
    sent = double.enqueue("x" * 600_000)

    site.command("queuey_tasks", exit_at_end=True, queue=["default"])

    sent.refresh()
    assert (sent.status, sent.attempts) == (tasks.TaskResultStatus.FAILED, 1)
    assert sent.errors[0].exception_class_path == "queuey.errors.MessageTooLarge"


def test_a_task_of_django_with_no_room_for_its_result_is_a_dead_letter(site: Site, client: Client) -> None:
    from examples.web.django_shop.tasks import double

    client.create_queue("default", retention="acknowledged", leases={"backoff": {"first": 0, "most": 0}})
    double.enqueue("x" * ((1 << 20) - 200))

    said = site.command("queuey_tasks", exit_at_end=True, queue=["default"])

    assert said.endswith("0 done, 1 given up\n")
    (reason,) = [letter.story.reason for _, letter in letters(client, "default-dead")]
    assert reason.startswith("what became of it cannot be stored: MessageTooLarge")


def test_a_task_of_django_that_is_done_is_not_run_again_if_its_worker_died_then(site: Site, client: Client) -> None:
    """It had recorded the end, and not acknowledged the message. That is no failure: it may have held others as well."""
    from examples.web.django_shop.tasks import double
    from qdo.adapters.django.tasks import TaskRunner
    from tests.support.tasks_of_django import tasks

    sent = double.enqueue(2)
    (delivery,) = client.receive("default", "django", visibility=30)
    context: Any = SimpleNamespace(queue="default", member="dead", attempt=1, generation=1)
    TaskRunner(cast(Any, tasks.default_task_backend))(delivery, context)
    delivery.release(0, count=False)

    site.command("queuey_tasks", exit_at_end=True, queue=["default"])

    sent.refresh()
    assert (sent.return_value, sent.worker_ids) == (4, ["dead"])
    assert is_done(client, "default", "django")


def test_a_result_that_a_site_may_not_read_is_not_one_that_does_not_exist(
    site: Site, client: Client, server: Server
) -> None:
    from examples.web.django_shop.tasks import double
    from qdo.adapters.django.tasks import QueueyTaskBackend

    sent = double.enqueue(2)
    url, application = client.url, client.application

    for options, refused in (
        ({"url": url, "application": application, "key": "of another server"}, Unauthenticated),
        ({"url": url, "application": application}, Forbidden),
        ({"url": url, "application": "nobody", "key": server.variables["QUEUEY_KEY"]}, QueueyError),
    ):
        with pytest.raises(refused):
            QueueyTaskBackend("default", {"OPTIONS": options}).get_result(sent.id)


def test_what_the_backend_cannot_do_is_refused(site: Site, client: Client) -> None:
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management.base import CommandError

    from examples.web.django_shop.tasks import double
    from qdo.adapters.django.tasks import QueueyTaskBackend
    from tests.support.tasks_of_django import InvalidTask, TaskResultDoesNotExist, tasks

    with pytest.raises(InvalidTask, match="priority"):
        double.using(priority=5)
    with pytest.raises(InvalidTask, match="not valid"):
        double.using(queue_name="strange")
    with pytest.raises(TypeError):
        double.enqueue(object())
    for missing in ("default/1:" + "0" * 32, "nonsense", ""):
        with pytest.raises(TaskResultDoesNotExist):
            tasks.default_task_backend.get_result(missing)
    with pytest.raises(ImproperlyConfigured, match="unknown option color: expected application, group, key, url"):
        QueueyTaskBackend("default", {"OPTIONS": {"color": 1}})
    with pytest.raises(CommandError, match="strange is no queue"):
        site.command("queuey_tasks", queue=["strange"])


def test_a_message_that_is_no_task_of_the_site_is_a_dead_letter(site: Site, client: Client) -> None:
    from examples.web.django_shop.tasks import double

    done = double.enqueue(1)
    client.append("default", "no task")

    said = site.command("queuey_tasks", exit_at_end=True, queue=["default"])

    done.refresh()
    assert done.return_value == 2
    assert len(bodies(client, "default-dead")) == 1
    assert said == "works on default; Ctrl-C ends once the tasks under way are done\n1 done, 1 given up\n"


def test_a_task_that_the_site_does_not_have_yet_is_tried_again(
    site: Site, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Senders may be brought out before workers. It was a dead letter at once."""
    monkeypatch.setattr("qdo.worker.job.UNKNOWN_ATTEMPTS", 2)
    headers = {"queuey-django-task": "examples.web.django_shop.tasks.of_tomorrow"}
    client.create_queue("default")
    client.append("default", NewMessage('{"args": [], "kwargs": {}, "enqueued_at": "2026-11-27"}', headers=headers))

    site.command("queuey_tasks", exit_at_end=True, queue=["default"])

    assert "attempt 1 failed, again in 1 s: no task of this site: ImportError" in caplog.text
    assert len(bodies(client, "default-dead")) == 1


def test_a_worker_of_django_waits_for_a_server_that_is_away(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from qdo.adapters.django.management.commands.queuey_tasks import TasksCommand
    from tests.support.tasks_of_django import tasks

    monkeypatch.setenv("QUEUEY_URL", "http://127.0.0.1:9")
    backend = tasks.task_backends["default"]
    backend.close()
    said = StringIO()

    TasksCommand(stderr=cast("Any", said))._make_queues(backend)

    backend.close()
    assert said.getvalue() == "no server answers at http://127.0.0.1:9. Waiting for it.\n"
