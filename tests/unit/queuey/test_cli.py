"""The command line's parts: exit codes, wrong usage, and what needs no server."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from qdo.client import Message, NewMessage
from queuey._version import __version__
from queuey.cli import main
from queuey.cli.get import _formatter, _write
from queuey.cli.put import _headers
from queuey.cli.reading import QueueMessage
from queuey.cli.sending import BATCH_BYTES, BATCH_MESSAGES, portions
from queuey.cli.serve import first_words
from queuey.errors import error_classes
from queuey.ids import MessageId
from queuey.security.access_keys import MasterSecrets, account_of
from queuey.security.app_keys import digest_of, label_of
from queuey.settings import SETTINGS, load_settings

KEY = "0123456789abcdef" * 4
HEX = "1f9f6640e56711f189bf02fc00000001"


def run(*arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"QUEUEY_DATA": None, **variables}, prog_name="queuey")


# put and get.


@given(st.lists(st.binary(max_size=BATCH_BYTES // 8), max_size=40), st.integers(0, 2 * BATCH_MESSAGES))
def test_portions_keep_everything_in_order_and_stay_small(bodies: list[bytes], more: int) -> None:
    everything = bodies + [b"x"] * more

    batches = [[message.raw for message in batch] for batch in portions(map(NewMessage, everything))]

    assert [body for batch in batches for body in batch] == everything
    assert all(batch for batch in batches)
    assert max(map(len, batches), default=0) <= BATCH_MESSAGES
    assert all(len(batch) == 1 or sum(map(len, batch)) <= BATCH_BYTES for batch in batches)


def test_the_content_type_is_told_from_other_headers() -> None:
    assert _headers(["Content-Type: text/plain", "traceparent:00-1"]) == ("text/plain", {"traceparent": "00-1"})


@pytest.mark.parametrize(("header", "said"), [("x-ttl: 5", "use --ttl"), ("none", "NAME:VALUE"), (":x", "NAME:VALUE")])
def test_headers_with_an_option_of_their_own_are_refused(header: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        _headers([header])


def test_a_format_puts_bodies_in_as_they_are() -> None:
    message = Message(MessageId.parse(HEX), 3, b"\xff{id}\n", key="k", headers={"kind": b"\xfe"})
    form = r"{id}\t{partition} {queue} {key}{content_type} {unclosed {header:kind}{header:none}{body}\0\\n"

    line = _formatter(form)(QueueMessage("q", message))

    assert line == HEX.encode() + b"\t3 q k {unclosed \xfe\xff{id}\n\0\\n\n"


def test_a_list_that_is_followed_is_whole_when_it_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    def pages() -> Iterator[list[QueueMessage]]:
        yield [QueueMessage("q", Message(MessageId.parse(HEX), 1, b"0"))]
        raise KeyboardInterrupt

    _write(pages(), "json", names_queues=False, follows=True)

    assert [one["body"] for one in json.loads(capsys.readouterr().out)] == ["0"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("put", "q", "text", "--lines"), "--lines and TEXT exclude each other"),
        (("put", "q", "text", "--delay", "1s", "--at", "now"), "--delay and --at"),
        (("put", "q", "text", "--partition", "1", "--key", "k"), "--partition and --key"),
        (("put", "q", ""), "cannot be empty"),
        (("put", "q", "x", "--ttl", "0"), "whole number of seconds from 1 on"),
        (("put", "q", "x", "--at", HEX), "expected a time"),
        (("put", "q", "x", "-H", "content-type:a/b", "-H", "Content-Type:c/d"), "stands twice"),
        (("redrive", "q", "g", "--header", "a:1", "--header", "a:2", "--dry-run"), "a stands twice"),
        (("get", "q", "--follow", "--until", "now"), "--follow has no end"),
        (("get", "q", "--raw", "--format", "x"), "exclude each other"),
        (("get", "q", "--since", "1h", "--until", "2h"), "--until lies before --since"),
        (("get", "q", "--cursor", "f", "--group", "g"), "--cursor and --group exclude each other"),
        (("get", "q", "--cursor", "f", "--last", "3"), "--cursor goes on without a gap"),
        (("get", "q", "--group", "g", "--order", "descending"), "--group goes on without a gap"),
        (("get", "a", "b", "--follow", "--partitions", "1"), "leave out --partitions"),
        (("put", "q", "--file", __file__, "text"), "--file and TEXT exclude each other"),
        (("put", "q", "x", "--format", "{body}"), "it goes with --lines"),
        (("put", "q", "--lines", "--format", "{key}{body}"), "nothing stands between {key} and {body}"),
        (("put", "q", "--lines", "--format", "{key}"), "it has no {body}"),
        (("put", "q", "--lines", "--format", "{key} {body}", "--partition", "1"), "{key} in --format exclude"),
        (("show", "q", "abc"), "is no id of a message"),
        (("rm", "q", f"x:{HEX}", "--yes"), "is no number of a partition"),
        (("get", "q", "--context", "c", "--url", "http://127.0.0.1:1"), "--context and --url exclude each other"),
        (("get", "q", "--format", "{nothing}"), "{nothing} is not one of"),
        (("get", "q", "--partitions", "1,x"), "is not 'all' or a comma list"),
        (("get", "q", "--partitions", "0"), "from 1 to 200"),
        (("queue", "edit", "q"), "Nothing to change"),
        (("queue", "edit", "q", "--principal", "app:a", "--no-principals"), "exclude each other"),
        (("queue", "rm", "q"), "Say --yes"),
        (("key", "rm", "a", "b"), "Say --yes"),
        (("get", "q", "-o", "yaml"), "'yaml' is not one of"),
        (("got", "q"), "No such command 'got'. Did you mean get?"),
    ],
)
def test_wrong_usage_is_told_and_exits_2(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments, QUEUEY_URL="http://127.0.0.1:1")

    assert said in result.stderr
    assert (result.exit_code, result.stdout) == (2, "")


def test_every_option_can_be_a_variable() -> None:
    result = run("put", "q", "x", QUEUEY_PUT_TTL="0s")

    assert "QUEUEY_PUT_TTL" in result.stderr or "'0s' is not" in result.stderr
    assert result.exit_code == 2


# Commands that need no server.


def test_config_show_tells_values_origins_and_no_keys(tmp_path: Path) -> None:
    ini = tmp_path / "queuey.ini"
    ini.write_text(f"[server]\nport = 1\n[application_keys]\napp = {KEY}\n")

    result = run("config", "show", "-c", str(ini), QUEUEY_THREADS="9")

    rows = {(row["section"], row["key"]): row for row in map(json.loads, result.stdout.splitlines())}
    shown = {at: (row["value"], row["origin"]) for at, row in rows.items()}
    assert shown["server", "port"] == ("1", str(ini))
    assert shown["server", "threads"] == ("9", "QUEUEY_THREADS")
    assert shown["application_keys", "app"] == ("(1 hidden)", "ini file")
    assert KEY not in result.output


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("[server]\nport = 1\n", 0, "ok"),
        ("[metlog]\nlogger = x\n", 1, "notice: [metlog] has no meaning any more"),
        ("[server]\nprot = 1\n", 2, "ConfigurationError: "),
    ],
)
def test_config_check_exits_by_what_it_found(tmp_path: Path, text: str, code: int, said: str) -> None:
    ini = tmp_path / "queuey.ini"
    ini.write_text(text)

    result = run("config", "check", "-c", str(ini))

    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_config_doc_lists_every_setting_and_its_sample_loads(tmp_path: Path) -> None:
    rows = json.loads(run("config", "doc", "-o", "json").stdout)
    (tmp_path / "sample.ini").write_text(run("config", "doc", "--ini").stdout)

    assert [row["variable"] for row in rows] == [setting.variable for setting in SETTINGS]
    assert load_settings(str(tmp_path / "sample.ini"), {}, None).origins == {}


def test_errors_lists_every_code_and_explains_one() -> None:
    rows = [json.loads(line) for line in run("errors").stdout.splitlines()]
    one = json.loads(run("errors", "queuenotfound").stdout)

    assert [row["code"] for row in rows] == sorted(error_classes())
    assert (one["code"], one["status"], one["key"]) == ("QueueNotFound", 404, "InvalidQueueName")


def test_an_unknown_error_code_is_not_found_but_a_near_one_named() -> None:
    result = run("errors", "QueueNotFond")

    assert (result.exit_code, result.stdout) == (3, "")
    assert "did you mean QueueNotFound?" in result.stderr


def test_version_and_completion_print_what_they_say() -> None:
    assert json.loads(run("version").stdout)["queuey"] == __version__
    assert run("--version").stdout == f"queuey {__version__}\n"
    assert "_QUEUEY_COMPLETE=bash_complete" in run("completion", "bash").stdout
    assert run("completion", SHELL="/bin/tcsh").exit_code == 2


def test_every_command_has_help() -> None:
    def commands(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
        for name in group.list_commands(click.Context(group)):
            command = group.get_command(click.Context(group), name)
            yield (*above, name)
            if isinstance(command, click.Group):
                yield from commands(command, *above, name)

    for path in commands(main):
        result = run(*path, "--help")
        assert result.exit_code == 0, path
        assert len(result.stdout.splitlines()) > 4, path


def test_no_command_needs_a_traceback_for_a_store_it_cannot_have(tmp_path: Path) -> None:
    missing = run("key", "ls", "--data", str(tmp_path / "none"))
    memory = run("key", "new", "app", QUEUEY_STORAGE_BACKEND="memory")
    nothing = run("backup", str(tmp_path / "copy.db"), "--data", str(tmp_path / "none"))

    search = run("verify", "--data", str(tmp_path / "none"))

    assert [result.exit_code for result in (missing, memory, nothing, search)] == [2, 2, 2, 2]
    told = f"there is no store at {tmp_path / 'none' / 'queuey.db'}: say where it is with --data or --config"
    assert "server's memory" in memory.stderr
    for result in (missing, nothing, search):
        assert told in result.stderr
    assert not (tmp_path / "none").exists()


def test_keys_are_made_listed_and_removed_without_a_server(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))

    made = run("key", "new", "app", *data)
    run("key", "new", "other", *data)
    key = made.stdout.strip()
    listed = [json.loads(line) for line in run("key", "ls", "app", *data).stdout.splitlines()]
    label = label_of(digest_of(key))
    removed = run("key", "rm", "app", label, "--yes", *data)
    again = run("key", "rm", "app", label, "--yes", *data)

    assert len(key) == 64
    assert [(row["application"], row["label"]) for row in listed] == [("app", label)]
    assert (removed.exit_code, again.exit_code) == (0, 3)
    assert run("key", "ls", "app", *data).stderr == "application app has no key in the store\n"
    assert [json.loads(line)["application"] for line in run("key", "ls", *data).stdout.splitlines()] == ["other"]


def test_keys_of_operators_are_kept_apart_from_those_of_applications(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))

    run("key", "new", "root", *data)
    made = json.loads(run("key", "new", "--operator", "root", "-o", "json", *data).stdout)

    def listed(*more: str) -> list[tuple[str | None, str | None]]:
        rows = map(json.loads, run("key", "ls", *more, *data).stdout.splitlines())
        return [(row["application"], row["operator"]) for row in rows]

    assert (made["operator"], "application" in made) == ("root", False)
    assert set(listed()) == {("root", None), (None, "root")}
    assert listed("root") == [("root", None)]
    assert listed("--operator") == listed("--operator", "root") == [(None, "root")]
    assert run("key", "rm", "root", made["label"], "--yes", *data).exit_code == 3
    assert run("key", "rm", "--operator", "root", made["label"], "--yes", *data).exit_code == 0
    assert listed() == [("root", None)]


def test_an_access_key_is_made_listed_and_removed_like_any_other(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))

    made = json.loads(run("key", "new", "app", "--sqs", "-o", "json", *data).stdout)
    shell = run("key", "new", "app", "--sqs", *data)
    listed = [json.loads(line) for line in run("key", "ls", "app", *data).stdout.splitlines()]
    gone = run("key", "rm", "app", made["access_key_id"], "--yes", *data)
    left = [json.loads(line)["label"] for line in run("key", "ls", *data).stdout.splitlines()]

    assert made["label"] == made["access_key_id"]
    assert MasterSecrets((), tmp_path / "data/sqs.secret").secret_of(made["access_key_id"]) == made["secret_access_key"]
    assert (listed[0]["application"], listed[0]["label"]) == ("app", made["access_key_id"])
    assert gone.exit_code == 0
    assert [f"export AWS_ACCESS_KEY_ID={label} " in shell.stdout for label in left] == [True]


def test_no_access_key_is_an_operator_s_or_made_without_a_master_secret(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    run("key", "new", "app", *data)
    (tmp_path / "data/sqs.secret").write_text("short\n")

    damaged = run("key", "new", "app", "--sqs", *data)

    assert run("key", "new", "root", "--operator", "--sqs", *data).exit_code == 2
    assert run("key", "new", "a/b", "--sqs", *data).exit_code == 2
    assert (damaged.exit_code, damaged.stdout) == (2, "")
    assert "holds no master secret" in damaged.stderr
    assert len(run("key", "ls", *data).stdout.splitlines()) == 1


def test_applications_are_listed_with_their_accounts(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    run("key", "new", "demo", "--sqs", *data)
    run("key", "new", "--operator", "root", *data)
    run("key", "new", "app", *data)

    listed = [json.loads(line) for line in run("application", "ls", *data).stdout.splitlines()]
    shown = json.loads(run("application", "show", "demo", "-o", "json", *data).stdout)
    missing = run("application", "show", "root", *data)

    assert [row["application"] for row in listed] == ["app", "demo"]
    assert shown == listed[1] == {"application": "demo", "account": account_of("demo")}
    assert missing.exit_code == 3
    assert "queuey key new root" in missing.stderr


def test_a_key_can_be_had_as_json_and_a_name_is_checked(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))

    made = json.loads(run("key", "new", "app", "-o", "json", *data).stdout)

    assert (made["application"], made["label"]) == ("app", label_of(digest_of(made["key"])))
    assert run("key", "new", "a/b", *data).exit_code == 2


def test_a_backup_never_takes_the_place_of_a_file_unless_told(tmp_path: Path) -> None:
    data, copy = ("--data", str(tmp_path / "data")), tmp_path / "copy.db"
    run("key", "new", "app", *data)

    first = run("backup", str(copy), *data)
    run("key", "new", "other", *data)
    before = copy.read_bytes()
    refused = run("backup", str(copy), *data)
    kept = copy.read_bytes()
    forced = run("backup", str(copy), "--force", *data)

    assert [result.exit_code for result in (first, refused, forced)] == [0, 2, 0]
    assert before == kept
    assert copy.read_bytes() != kept
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "data"]


def damage(store: Path) -> None:
    """A message whose checksum is not its own."""
    file = sqlite3.connect(store)
    file.execute(
        "insert into messages (seq, partition_key, ticks, tail, expires, checksum, body) values (1, x'00', 1, 1, 1, 1, '')"
    )
    file.commit()
    file.close()


def test_verify_tells_a_sound_store_from_a_damaged_one(tmp_path: Path) -> None:
    data, copy = ("--data", str(tmp_path / "data")), tmp_path / "copy.db"
    run("key", "new", "app", *data)
    run("backup", str(copy), *data)
    sound = [run("verify", *data), run("verify", str(copy), *data), run("verify", "--repair", *data)]
    damage(copy)

    damaged = run("verify", str(copy), "-o", "json", *data)

    assert [result.exit_code for result in sound] == [0, 0, 0], [result.stderr for result in sound]
    assert damaged.exit_code == 1
    assert json.loads(damaged.stdout)[0]["what"] == "messages that do not match their checksum"
    assert run("verify", str(tmp_path / "none.db"), *data).exit_code == 2


def test_a_backup_is_restored_unless_it_is_damaged(tmp_path: Path) -> None:
    data, copy = ("--data", str(tmp_path / "data")), tmp_path / "copy.db"
    run("key", "new", "app", *data)
    run("backup", str(copy), *data)
    run("key", "new", "other", *data)

    restored = run("restore", str(copy), *data)

    assert restored.exit_code == 0, restored.stderr
    assert "queuey.db.before-restore" in restored.stderr
    assert "other" not in run("key", "ls", *data).stdout
    damage(copy)
    assert run("restore", str(copy), *data).exit_code == 2
    assert run("restore", "--force", str(copy), *data).exit_code == 0
    assert run("restore", str(tmp_path / "none.db"), *data).exit_code == 2


def test_metadata_of_its_own_is_copied_beside(tmp_path: Path) -> None:
    elsewhere = {"QUEUEY_METADATA_PATH": str(tmp_path / "meta.db"), "QUEUEY_DATA": str(tmp_path / "data")}
    run("key", "new", "app", **elsewhere)

    result = run("backup", str(tmp_path / "copy.db"), **elsewhere)

    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "copy.db").exists()
    assert (tmp_path / "copy.db.metadata").exists()


# serve.


def test_the_first_words_show_the_key_once_and_what_to_type() -> None:
    words = first_words("http://127.0.0.1:5000", "demo", KEY, chosen=False)

    # The address as well, though commands know it: what the documentation says for curl and Python needs it.
    assert f"export QUEUEY_URL=http://127.0.0.1:5000 QUEUEY_KEY={KEY}\n" in words
    assert "queuey put demo hello\n" in words
    assert "http://127.0.0.1:5000/console" in words


def test_a_key_that_was_chosen_is_not_shown() -> None:
    words = first_words("http://127.0.0.1:81", "demo", KEY, chosen=True, has_console=False)

    assert KEY not in words
    assert "Made the application" not in words  # it may have been there for long
    assert "/console" not in words
    assert "export QUEUEY_URL=http://127.0.0.1:81 QUEUEY_KEY=...\n" in words


def test_heavy_modules_are_not_imported_before_they_are_needed() -> None:
    script = (
        "import sys; from queuey.cli import main\n"
        "for words in (['--help'], ['put', '--help'], ['queue', 'ls', '--help'], ['config', 'doc'], ['errors']):\n"
        "    main(words, standalone_mode=False)\n"
        "heavy = {'apsw', 'asyncio', 'httptools', 'pyarrow', 'pyramid', 'requests', 'urllib3', 'uvloop', 'webob'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )

    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ended.stderr == "[]\n"


def test_a_variable_of_any_command_is_no_setting() -> None:
    for name in main.list_commands(click.Context(main)):
        load_settings(environ={f"QUEUEY_{name.upper()}_OPTION": "x"})
