"""The settings: what loads, what is refused and in which words, and files of the first Queuey."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.errors import ConfigurationError
from queuey.settings import SECTIONS, SETTINGS, Setting, Settings, describe, load_settings, sample_ini
from queuey.settings.issuers import Issuer
from queuey.settings.setting import rows_of

KEY = "f25bfb8fe200475c8a0532a9cbe7651e"
OTHER_KEY = "a_second_key_of_some_length"

ETC = Path(__file__).parents[3] / "etc"

Write = Callable[..., str]


def refusal(path: str | None, environ: dict[str, str] | None = None, **overrides: dict[str, Any]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(path, environ or {}, overrides)
    return str(caught.value)


def test_without_any_source_every_setting_has_its_default() -> None:
    settings = load_settings(None, {}, None)

    assert settings == Settings()
    assert [setting.name for setting in SETTINGS if settings.value(setting) != setting.default] == []
    assert (settings.server.port, settings.storage.backend, settings.limits.max_body_bytes) == (5000, "sqlite", 1 << 20)
    assert (settings.origins, settings.notices, settings.application_keys) == ({}, (), {})


@pytest.mark.parametrize("section", [*SECTIONS.values(), Issuer])
def test_a_setting_has_the_type_that_its_dataclass_states(section: type) -> None:
    """mypy takes ``True`` for an int, so a row's kind and the type at use could differ there."""
    stated = get_type_hints(section)

    kinds = {row.key: row.kind for row in rows_of("section", section)}

    assert {key: get_origin(stated[key]) or stated[key] for key in kinds} == kinds
    assert kinds.keys() == stated.keys() - {"name"}


def test_a_secret_is_not_in_the_text_of_the_settings() -> None:
    settings = load_settings(None, {"QUEUEY_CASSANDRA_PASSWORD": "swordfish", "QUEUEY_TOKENS_KEYS": KEY * 2})

    assert settings.cassandra.password == "swordfish"
    assert not any(text in repr(settings) for text in ("swordfish", KEY))


def test_the_command_line_beats_the_environment_beats_the_file(ini: Write) -> None:
    path = ini("[server]\nport = 1\nthreads = 2\nhost = ::1\n")

    settings = load_settings(path, {"QUEUEY_PORT": "3", "QUEUEY_THREADS": "4"}, {"server": {"port": 5, "host": None}})

    assert (settings.server.port, settings.server.threads, settings.server.host) == (5, 4, "::1")
    assert dict(settings.origins) == {
        "server.port": "command line",
        "server.threads": "QUEUEY_THREADS",
        "server.host": path,
    }


def test_variables_of_other_sections_carry_the_section() -> None:
    settings = load_settings(None, {"QUEUEY_LOG_REQUESTS": "yes", "QUEUEY_STORAGE_BACKEND": "memory"}, None)

    assert (settings.log.requests, settings.storage.backend) == (True, "memory")


def test_variables_of_the_client_commands_are_no_settings() -> None:
    environ = {"QUEUEY_KEY": KEY, "QUEUEY_URL": "http://x", "QUEUEY_OUTPUT": "json", "QUEUEY_PUT_TTL": "3d"}

    assert load_settings(None, environ, None).origins == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[server]\nprot = 1\n", ("[server] prot is unknown", "did you mean port?")),
        ("[server]\nmax_body_bytes = 1\n", ("[server] max_body_bytes is unknown", "belongs in [limits]")),
        ("[server]\nzzz = 1\n", ("[server] zzz is unknown", "expected one of host, port")),
        ("[sever]\nport = 1\n", ("section [sever] is unknown", "did you mean server?")),
        ("[server]\nport = many\n", ("[server] port = 'many'", "expected 0 to 65535")),
        ("[server]\nport = 65536\n", ("[server] port = '65536'", "expected 0 to 65535")),
        ("[server]\nport = \n", ("[server] port = ''", "expected 0 to 65535")),
        ("[server]\nhost = \n", ("[server] host = ''", "expected a text")),
        ("[server]\nport =\n  1\n  2\n", ("[server] port has 2 lines", "expected one")),
        ("[log]\nrequests = maybe\n", ("[log] requests = 'maybe'", "expected true or false")),
        ("[storage]\nbackend = sqlit\n", ("[storage] backend = 'sqlit'", "expected sqlite or cassandra or memory")),
        (
            "[metadata]\nbackend = x\n",
            ("[metadata] backend = 'x'", "expected nothing or sqlite or cassandra or memory"),
        ),
        ("[limits]\nmax_request_bytes = 9\n", ("max_body_bytes is over max_request_bytes",)),
        ("[cassandra]\nkeyspace = Queuey\n", ("[cassandra] keyspace = 'Queuey'", "small letters, digits and '_'")),
        ("[cassandra]\nmetadata_keyspace = a b\n", ("[cassandra] metadata_keyspace = 'a b'", "expected at most 48")),
        ("[cassandra]\nread_delay_ms = 1999\n", ("[cassandra] read_delay_ms = 1999", "which is 2000")),
        ("[cassandra]\nwrite_budget_ms = 1501\n", ("write_budget_ms + 2 * clock_error_ms", "which is 2001")),
        ("[cassandra]\nclock_error_ms = 300\n", ("write_budget_ms + 2 * clock_error_ms", "which is 2100")),
        ("[server]\ntrusted_proxies = 10.0.0.0/33\n", ("'10.0.0.0/33'", "an address or a network such as 10.0.0.0/8")),
        ("[server]\ntls_cert = a.pem\n", ("[server] tls_cert is given without tls_key", "both, or none")),
        ("[server]\ntls_key = a.pem\n", ("[server] tls_key is given without tls_cert", "both, or none")),
        ("[metrics]\nqueues = jobs\n", ("[metrics] queues: 'jobs'", "expected application/queue")),
        ("[metrics]\nqueues = " + " ".join(f"a/{n}" for n in range(101)) + "\n", ("101 queues: expected 100 at most",)),
        ("port = 1\n", ("line 1", "expected a [section] first")),
        ("[server]\nport\n", ("line 2", "expected key = value")),
        ("[server]\nport = 1\nport = 2\n", ("line 3", "[server] port is given twice")),
        ("[server]\n[server]\n", ("line 2", "section [server] is given twice")),
        ("[server]\nhost = ${NOT_THERE}\n", ("${NOT_THERE} is not in the environment",)),
        ("[DEFAULT]\nextends = gone.ini\n", ("gone.ini: no such file",)),
        ("[DEFAULT]\nextends = queuey.ini\n", ("this file extends itself",)),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_the_file(ini: Write, text: str, said: tuple[str, ...]) -> None:
    path = ini(text)

    error = refusal(path)

    assert str(Path(path).parent) in error
    assert [part for part in said if part not in error] == []


def test_a_file_that_extends_itself_by_another_name_is_refused(ini: Write, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()

    assert "this file extends itself" in refusal(ini("[DEFAULT]\nextends = x/../queuey.ini\n"))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "none.ini: no such file" in refusal(str(tmp_path / "none.ini"))


def test_a_folder_or_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.ini").write_bytes(b"[server]\nhost = \xe4\n")

    assert "cannot be read" in refusal(str(tmp_path))
    assert "not UTF-8" in refusal(str(tmp_path / "latin.ini"))


def test_an_unknown_variable_is_refused_with_a_close_match() -> None:
    error = refusal(None, {"QUEUEY_PROT": "1"})

    assert "QUEUEY_PROT is unknown: did you mean QUEUEY_PORT?" in error


def test_a_variable_out_of_range_names_the_variable() -> None:
    assert refusal(None, {"QUEUEY_PORT": "x"}) == "QUEUEY_PORT: [server] port = 'x': expected 0 to 65535"


def test_an_option_out_of_range_is_refused_as_the_others() -> None:
    assert "command line: [server] threads = '0'" in refusal(None, server={"threads": 0})


# The value rules (queuey-api-v1 section 9).


def test_here_names_and_quotes_are_replaced(ini: Write, tmp_path: Path) -> None:
    path = ini("[server]\ndata = %(here)s/data\nhost = ${HOST}\n[storage]\npath = \"a 'b' ${\"\n")

    settings = load_settings(path, {"HOST": '"::1"'}, None)

    assert settings.server.data == f"{tmp_path}/data"
    assert settings.server.host == '"::1"', "what the environment says is taken as it is"
    assert settings.storage.path == "a 'b' ${"


def test_a_percent_sign_means_nothing_else(ini: Write) -> None:
    assert load_settings(ini("[storage]\npath = 100%/%(x)s\n"), {}, None).storage.path == "100%/%(x)s"


def test_a_value_on_the_following_line_is_a_value(ini: Write) -> None:
    assert load_settings(ini("[server]\nport =\n   80\n"), {}, None).server.port == 80


def test_extended_files_fill_in_what_is_missing(ini: Write, tmp_path: Path) -> None:
    ini("[server]\nport = 1\nthreads = 1\nhost = third\n", "third.ini")
    ini("[DEFAULT]\nextends = third.ini\n[server]\nport = 2\nthreads = 2\n[log]\nlevel = debug\n", "second.ini")
    ini("[storage]\npath = %(here)s/x.db\n[log]\nlevel = error\n", "other.ini")
    path = ini("[DEFAULT]\nextends =\n   second.ini\n\n   other.ini\n[server]\nport = 3\n")

    settings = load_settings(path, {}, None)

    assert (settings.server.port, settings.server.threads, settings.server.host) == (3, 2, "third")
    assert (settings.log.level, settings.storage.path) == ("debug", f"{tmp_path}/x.db")
    assert settings.origins["server.host"] == str(tmp_path / "third.ini")


def test_both_forms_of_application_keys_load(ini: Write) -> None:
    path = ini(f'[application_keys]\nQueuey = {KEY}\nmy-app =\n    {KEY[::-1]}\n\n    "{OTHER_KEY}"\n')

    settings = load_settings(path, {}, None)

    assert settings.application_keys == {"Queuey": (KEY,), "my-app": (KEY[::-1], OTHER_KEY)}
    assert KEY not in repr(settings)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("app = short_key", "at least 16"),
        (f"app =\n  {KEY}\n  short_key", "key 2 of 2: expected at least 16"),
        ("app = short_key_but_with;semicolon", "without ';'"),
        ("app = short_key_but with a blank", "visible ASCII"),
        ("app = short_key_ünd_ümläute", "visible ASCII"),
        ("app =", "expected a key"),
        (f"a/b = {KEY}", "expected a name of 1 to 50"),
        (f".. = {KEY}", "expected a name of 1 to 50"),
        (f"app = {KEY}\nother = {KEY}", "key 1 is also a key of app"),
    ],
)
def test_keys_that_cannot_serve_are_refused_and_not_repeated(ini: Write, lines: str, said: str) -> None:
    error = refusal(ini(f"[application_keys]\n{lines}\n"))

    assert said in error
    assert KEY not in error
    assert "short_key" not in error


def test_a_broken_line_of_a_key_is_not_repeated(ini: Write) -> None:
    assert KEY not in refusal(ini(f"[application_keys]\napp = {KEY}\n{KEY}\n"))


# What is shown.


def test_describe_tells_value_and_origin_and_hides_keys(ini: Write) -> None:
    path = ini(f"[application_keys]\napp =\n  {KEY}\n  {OTHER_KEY}\n[log]\nrequests = on\n")

    rows = describe(load_settings(path, {"QUEUEY_PORT": "81", "QUEUEY_CASSANDRA_PASSWORD": "swordfish"}, None))

    shown = {(row.section, row.key): (row.value, row.origin) for row in rows}
    assert shown["server", "port"] == ("81", "QUEUEY_PORT")
    assert shown["server", "host"] == ("127.0.0.1", "default")
    assert shown["log", "requests"] == ("true", path)
    assert shown["application_keys", "app"] == ("(2 hidden)", "ini file")
    assert shown["cassandra", "password"] == ("(hidden)", "QUEUEY_CASSANDRA_PASSWORD")
    assert KEY not in repr(rows)
    assert "swordfish" not in repr(rows)


def test_the_sample_changes_nothing_and_with_its_marks_removed_states_every_default(ini: Write) -> None:
    sample = sample_ini()
    stated = "".join(
        f"{line[1:]}\n" if line.startswith("#") and not line.startswith("# ") else f"{line}\n"
        for line in sample.splitlines()
    )

    assert load_settings(ini(sample), {}, None) == Settings()
    assert replace(load_settings(ini(stated), {}, None), origins={}) == Settings()
    assert len(load_settings(ini(stated), {}, None).origins) == len(SETTINGS)


def test_every_setting_has_a_help_a_default_it_accepts_and_names_of_its_own() -> None:
    for setting in SETTINGS:
        assert setting.help.endswith(".")
        assert setting.parse(setting.to_text(setting.default), "test") == setting.default
    assert len({setting.variable for setting in SETTINGS}) == len(SETTINGS)
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)


@pytest.mark.parametrize("name", ["queuey.ini", "queuey-dev.ini"])
def test_the_files_that_ship_load_without_a_notice(name: str) -> None:
    assert load_settings(str(ETC / name), {}, None).notices == ()


def test_the_proxy_that_ships_takes_no_more_than_the_server() -> None:
    (size,) = re.findall(r"client_max_body_size ([0-9]+)m;", (ETC / "nginx.conf").read_text())

    assert int(size) << 20 == Settings().limits.max_request_bytes


BOUND_TO_OTHERS = {
    *("max_body_bytes", "max_request_bytes"),
    *("write_budget_ms", "clock_error_ms", "read_delay_ms"),
    *("server.tls_cert", "server.tls_key"),
}
"""Settings that not every value of fits the defaults of the others."""


def values_of(setting: Setting) -> st.SearchStrategy[Any]:
    if setting.kind is bool:
        return st.booleans()
    if setting.kind is int:
        return st.integers(setting.low, setting.high)
    if setting.words:
        return st.sampled_from(setting.words)
    if setting.key == "cors_origins":
        return st.lists(st.from_regex(r"https?://[a-z.]{1,20}(:[0-9]{1,5})?", fullmatch=True), unique=True).map(tuple)
    if setting.name == "metrics.queues":
        return st.lists(st.from_regex(r"[a-z]{1,9}/[a-z]{1,9}", fullmatch=True), max_size=3, unique=True).map(tuple)
    if setting.key == "trusted_proxies":
        return st.lists(st.ip_addresses().map(str), max_size=3, unique=True).map(tuple)
    if setting.kind is tuple:
        return st.lists(st.text("abc0-=/", min_size=32, max_size=40), max_size=3, unique=True).map(tuple)
    if setting.name == "metrics.token":
        return st.text("abc0-=/", min_size=16, max_size=40)
    if setting.name == "sqs.host":
        return st.from_regex(r"(https?://)?[a-z.]{1,20}(:[0-9]{1,5})?", fullmatch=True)
    if setting.name in ("console.url", "telemetry.endpoint"):
        return st.from_regex(r"https?://[a-z.]{1,20}(:[0-9]{1,5})?", fullmatch=True)
    if setting.key.endswith("keyspace"):
        return st.from_regex(r"[a-z][a-z0-9_]{0,47}", fullmatch=True)
    visible = st.characters(categories=("L", "N", "P", "S", "Zs"), exclude_characters="$%")
    return st.text(visible, min_size=1, max_size=40)


@pytest.mark.parametrize("token", ["short", "with a blank in the middle", "x" * 20 + ";"])
def test_a_token_for_metrics_is_hard_to_guess_and_not_repeated(token: str) -> None:
    with pytest.raises(ConfigurationError, match=r"\[metrics\] token: expected at least 16") as caught:
        load_settings(None, {"QUEUEY_METRICS_TOKEN": token}, None)
    assert token not in str(caught.value)


def test_no_server_checks_no_signature_for_a_network_unless_told_twice() -> None:
    unchecked, network = {"QUEUEY_SQS_AUTH": "open"}, "0.0.0.0"  # noqa: S104 - it must be refused

    with pytest.raises(
        ConfigurationError, match=r"QUEUEY_SQS_AUTH: \[sqs\] auth = open, and \[server\] host = '0.0.0.0'"
    ):
        load_settings(None, unchecked, {"server": {"host": network}})

    for allowed in (
        unchecked,
        {**unchecked, "QUEUEY_HOST": "::1"},
        {**unchecked, "QUEUEY_HOST": "localhost"},
        {**unchecked, "QUEUEY_HOST": network, "QUEUEY_SQS_OPEN_TO_NETWORK": "true"},
    ):
        assert load_settings(None, allowed, None).sqs.auth == "open"


def test_a_master_secret_is_hard_to_guess_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match=r"\[sqs\] secrets: secret 2 of 2: expected at least 32") as caught:
        load_settings(None, {"QUEUEY_SQS_SECRETS": "x" * 32 + "\nshort"}, None)
    assert "short" not in str(caught.value)


@pytest.mark.parametrize("host", ["https://a.example/path", "a b", "user@a.example", "ftp://a.example", "a:b", "//a"])
def test_a_host_of_queue_urls_is_a_host(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"\[sqs\] host = .*: expected a host such as"):
        load_settings(None, {"QUEUEY_SQS_HOST": host}, None)


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "grpc://127.0.0.1", "http://", "http://a b", "http://a/b c"])
def test_a_collector_is_an_address(endpoint: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"TELEMETRY_ENDPOINT: \[telemetry\] endpoint = .*: expected an address"
    ):
        load_settings(None, {"QUEUEY_TELEMETRY_ENDPOINT": endpoint}, None)
    assert load_settings(None, {"QUEUEY_TELEMETRY_ENDPOINT": "https://o.example:4318/x"}, None).telemetry.endpoint


@given(st.data())
def test_any_value_survives_a_file_and_a_variable(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    setting = data.draw(st.sampled_from([s for s in SETTINGS if BOUND_TO_OTHERS.isdisjoint((s.key, s.name))]))
    value = data.draw(values_of(setting))
    path = tmp_path_factory.getbasetemp() / "any.ini"
    text = setting.to_text(value)
    written = "".join(f"\n  {line}" for line in value) if setting.kind is tuple else f'"{text}"'
    path.write_text(f"[{setting.section}]\n{setting.key} = {written}\n", encoding="utf-8")

    from_file = load_settings(str(path), {}, None)
    from_variable = load_settings(None, {setting.variable: text}, None)
    from_option = load_settings(None, {}, {setting.section: {setting.key: value}})

    assert from_file.value(setting) == value
    assert replace(from_file, origins={}) == replace(from_variable, origins={}) == replace(from_option, origins={})


@given(st.text(max_size=60))
def test_any_text_is_a_value_or_a_configuration_error(text: str) -> None:
    for setting in SETTINGS:
        with contextlib.suppress(ConfigurationError):
            assert isinstance(setting.parse(text, "test"), setting.kind)
