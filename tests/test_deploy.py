"""The files for container engines, where there is none: their form, and that what they name exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import jsonschema_rs
import kubernetes_validate
import pytest
import yaml

from queuey.cli import main
from queuey.errors import ConfigurationError
from queuey.settings import load_settings
from tests.support import servers
from tests.support.source import ROOT

COMPOSE = ROOT / "etc" / "compose.yaml"
IMAGE = ROOT / "etc" / "Dockerfile"
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Z_]+):(?P<how>[-?])(?P<text>[^}]*)\}")

DURATION = {"type": "string", "pattern": "^([0-9]+(h|m|s|ms|us))+$"}
TEXTS = {"type": "array", "items": {"type": "string"}}
NAME = "^[a-zA-Z0-9._-]+$"
COMPOSE_RULES = {
    # The part of the Compose Specification that the file makes use of; anything else is a slip.
    "type": "object",
    "additionalProperties": False,
    "required": ["services"],
    "patternProperties": {"^x-": {}},
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "volumes": {"type": "object", "propertyNames": {"pattern": NAME}, "additionalProperties": {"type": "null"}},
        "services": {"type": "object", "propertyNames": {"pattern": NAME}, "additionalProperties": {"$ref": "#/$defs/service"}},
    },
    "$defs": {
        "service": {
            "type": "object",
            "additionalProperties": False,
            "required": ["image"],
            "properties": {
                "image": {"type": "string"},
                "build": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["context"],
                    "properties": {"context": {"type": "string"}, "dockerfile": {"type": "string"}},
                },
                "command": TEXTS,
                "init": {"type": "boolean"},
                "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
                "stop_grace_period": DURATION,
                "ulimits": {"type": "object", "additionalProperties": {"type": "integer"}},
                # Numbers and truth values change their form on the way through YAML: they are quoted.
                "environment": {"type": "object", "additionalProperties": {"type": "string"}},
                "ports": {"type": "array", "items": {"type": "string", "pattern": r"^127\.0\.0\.1:.+:[0-9]+$"}},
                "volumes": {"type": "array", "items": {"type": "string", "pattern": "^[a-z0-9-]+:/[a-z/]+$"}},
                "depends_on": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["condition"],
                        "properties": {
                            "condition": {
                                "enum": ["service_started", "service_healthy", "service_completed_successfully"]
                            }
                        },
                    },
                },
                "healthcheck": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["test"],
                    "properties": {
                        "test": {"type": "array", "prefixItems": [{"enum": ["CMD", "CMD-SHELL"]}], "items": {"type": "string"}},
                        "interval": DURATION,
                        "timeout": DURATION,
                        "retries": {"type": "integer", "minimum": 1},
                        "start_period": DURATION,
                    },
                },
            },
        }
    },
}  # fmt: skip


def with_variables(value: Any, given: dict[str, str]) -> Any:
    """As an engine reads it: variables filled in, those that must be given and are not refused."""
    if isinstance(value, dict):
        return {key: with_variables(inner, given) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_variables(inner, given) for inner in value]
    if not isinstance(value, str):
        return value

    def fill(variable: re.Match[str]) -> str:
        name = variable["name"]
        if variable["how"] == "?" and not given.get(name):
            raise KeyError(name)
        return given.get(name) or variable["text"]

    return _VARIABLE.sub(fill, value)


def commands(group: click.Group) -> set[str]:
    return set(group.list_commands(click.Context(group)))


@pytest.fixture(scope="module")
def raw() -> dict[str, Any]:
    read = yaml.safe_load(COMPOSE.read_text())
    assert isinstance(read, dict)
    return read


@pytest.fixture(scope="module")
def services(raw: dict[str, Any]) -> dict[str, dict[str, Any]]:
    filled = with_variables(raw, {"QUEUEY_KEY": "0" * 64})
    assert "${" not in json.dumps(filled)
    return dict(filled["services"])


def test_compose_has_the_form_that_engines_read(raw: dict[str, Any]) -> None:
    assert [
        (list(wrong.instance_path), wrong.message)
        for wrong in jsonschema_rs.validator_for(COMPOSE_RULES).iter_errors(raw)
    ] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["services", "queuey", "enviroment"], {}),
        (["services", "queuey", "depends_on", "tables"], {"condition": "healthy"}),
        (["services", "queuey", "healthcheck", "interval"], "5 seconds"),
        (["services", "queuey", "environment", "QUEUEY_CASSANDRA_REPLICATION"], 3),
        (["services", "zookeeper", "ports"], ["2181:2181"]),
        (["volume"], {}),
    ],
)
def test_a_slip_in_compose_is_found(raw: dict[str, Any], path: list[str], value: object) -> None:
    spoiled = json.loads(json.dumps(raw))
    inner = spoiled
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value

    assert not jsonschema_rs.validator_for(COMPOSE_RULES).is_valid(spoiled)


def test_what_compose_names_exists(raw: dict[str, Any], services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        for needed, how in service.get("depends_on", {}).items():
            assert needed in services, name
            assert how["condition"] != "service_healthy" or "healthcheck" in services[needed], name
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in raw["volumes"], name
        if "build" in service:
            assert (COMPOSE.parent / service["build"]["context"]).resolve() == ROOT
            assert ROOT / service["build"]["dockerfile"] == IMAGE
        for host in service["environment"].get("QUEUEY_CASSANDRA_HOSTS", "").split(","):
            assert host.strip() in {*services, ""}
    assert set(raw["volumes"]) == {
        volume.partition(":")[0] for service in services.values() for volume in service.get("volumes", [])
    }


def test_queuey_takes_the_settings_that_compose_gives_it(services: dict[str, dict[str, Any]]) -> None:
    settings = load_settings(environ={**image_environment(), **services["queuey"]["environment"]})

    assert settings.storage.backend == "cassandra"
    assert settings.cassandra.replication == "3"
    assert settings.cassandra.strict_durability
    assert settings.server.port == 5000
    assert services["tables"]["command"][0] == "queuey"
    assert services["tables"]["command"][1] in commands(main)


def test_compose_keeps_no_secret_and_asks_for_it(raw: dict[str, Any]) -> None:
    with pytest.raises(KeyError, match="QUEUEY_KEY"):
        with_variables(raw, {})

    secret = [
        (name, value)
        for service in raw["services"].values()
        for name, value in service["environment"].items()
        if re.search("KEY|PASSWORD|SECRET", name) and not _VARIABLE.fullmatch(value)
    ]
    assert secret == []


def instructions() -> list[tuple[str, str]]:
    """The image file's instructions, each on one line."""
    text = re.sub(r"\\\n", " ", IMAGE.read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def image_environment() -> dict[str, str]:
    pairs = (word.partition("=") for name, text in instructions() if name == "ENV" for word in shlex.split(text))
    return {name: value for name, _, value in pairs if name.startswith("QUEUEY_")}


def test_the_image_is_made_of_files_that_exist_and_are_sent() -> None:
    sent = {
        line[1:] for line in (IMAGE.parent / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")
    }
    copied = {source for name, text in instructions() if name == "COPY" for source in text.split()[:-1]}

    assert next(name for name, _ in instructions()) == "FROM"
    assert copied == sent
    assert [source for source in copied if not Path(ROOT, source).exists()] == []


def within(root: Path, text: str) -> str:
    """A step of the image's shell, with its folders below another root; users are made in the files there."""
    below = re.sub(r"(?<![\w./-])/(?=(src|opt)\b)", f"{root}/", text)
    return re.sub(r"\b(groupadd|useradd)\b", rf"\1 --prefix {root}", below)


@pytest.mark.long
def test_the_steps_of_the_image_make_a_server_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    for folder in ("etc", "opt", "var/lib", "usr/sbin"):
        (root / folder).mkdir(parents=True)
    for name in ("passwd", "group", "shadow", "gshadow"):
        (root / "etc" / name).touch()
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")

    for name, text in instructions():
        if name == "COPY":
            *sources, target = text.split()
            for source in sources:
                into = root / target.strip("/") / ("" if target.endswith("/") else ".")
                into.mkdir(parents=True, exist_ok=True)
                subprocess.run(
                    ["cp", "-r", f"{source}{'' if target.endswith('/') else '/.'}", into], cwd=ROOT, check=True
                )
        elif name == "RUN":
            subprocess.run(["sh", "-euc", within(root, text)], check=True)

    assert "queuey:x:999:" in (root / "etc/passwd").read_text()
    assert not (root / "src").exists()
    monkeypatch.setenv("QUEUEY_LOG_FORMAT", image_environment()["QUEUEY_LOG_FORMAT"])
    programs = root / "opt/queuey/bin"
    with servers.shipped(tmp_path, program=[str(programs / "queuey")]) as running:
        assert running.beats()
    for module in ("queuey.storage.cassandra", "pyarrow", "jwt", "cryptography"):
        subprocess.run([programs / "python", "-c", f"import {module}"], cwd=tmp_path, check=True)


def test_the_image_installs_extras_that_exist_and_runs_a_command_that_does() -> None:
    installed = re.search(r"/src\[([a-z,]+)\]", IMAGE.read_text())
    assert installed is not None
    extras = re.findall(r"^([a-z]+) =$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)
    assert set(installed[1].split(",")) <= set(extras)

    (command,) = (json.loads(text) for name, text in instructions() if name == "CMD")
    assert command[0] == "queuey"
    assert command[1] in commands(main)
    assert load_settings(environ=image_environment()).server.host == "0.0.0.0"  # noqa: S104  a container's own


# Kubernetes

MANIFESTS = sorted((ROOT / "etc" / "kubernetes").glob("*.yaml"))
KUBERNETES = "1.33"
SECRETS = {"METRICS_TOKEN": "t" * 64, "CASSANDRA_PASSWORD": "p" * 16, "CONSOLE_SECRET": "c" * 64}


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def pods(path: Path) -> list[dict[str, Any]]:
    """The specification of each pod of a file."""
    return [one["spec"]["template"]["spec"] for one in documents(path) if "template" in one.get("spec", {})]


def wrong_in(document: dict[str, Any]) -> str:
    """What Kubernetes' own schema has against a document; members that it does not know count as wrong."""
    try:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error.message)
    return ""


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_have_the_form_that_kubernetes_reads(path: Path) -> None:
    assert {one["kind"]: wrong for one in documents(path) if (wrong := wrong_in(one))} == {}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["spec", "replica"], 1),
        (["spec", "replicas"], "one"),
        (["spec", "template", "spec", "containers", 0, "readinesProbe"], {}),
        (["spec", "template", "spec", "containers", 0, "ports", 0, "containerPort"], "http"),
    ],
)
def test_a_slip_in_a_manifest_is_found(path: list[Any], value: object) -> None:
    (spoiled,) = [one for one in documents(ROOT / "etc/kubernetes/embedded.yaml") if one["kind"] == "StatefulSet"]
    inner: Any = spoiled
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value

    assert wrong_in(spoiled)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_pod_gets_settings_that_load_and_an_end_that_is_long_enough(path: Path, tmp_path: Path) -> None:
    (told,) = [one["data"]["queuey.ini"] for one in documents(path) if one["kind"] == "ConfigMap"]
    (tmp_path / "queuey.ini").write_text(told)
    settings = load_settings(str(tmp_path / "queuey.ini"), SECRETS)

    for pod in pods(path):
        (container,) = pod["containers"]
        given = {variable["name"] for variable in container["env"]}
        assert {name for name in SECRETS if f"${{{name}}}" in told} <= given
        assert container["command"][0] == "queuey"
        assert container["command"][1] in commands(main)
        assert container["command"][-1] == "/etc/queuey/queuey.ini"
        if "ports" not in container:
            continue
        pause = int(container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [0])[-1])
        assert pod["terminationGracePeriodSeconds"] > settings.server.drain_seconds + pause
        assert container["ports"][0]["containerPort"] == settings.server.port
        paths = {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
        assert paths == {"/__lbheartbeat__", "/__heartbeat__"}


def test_the_variables_of_a_service_are_no_settings() -> None:
    """Kubernetes would give each pod QUEUEY_PORT for the service `queuey`, and no server would start."""
    with pytest.raises(ConfigurationError, match="QUEUEY_PORT"):
        load_settings(None, {"QUEUEY_PORT": "tcp://10.0.0.1:5000"})
    with pytest.raises(ConfigurationError, match="QUEUEY_SERVICE_HOST"):
        load_settings(None, {"QUEUEY_SERVICE_HOST": "10.0.0.1"})


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_pod_has_no_rights_and_the_user_of_the_image(path: Path) -> None:
    (user,) = re.findall(r"useradd --system --uid ([0-9]+)", IMAGE.read_text())

    for pod in pods(path):
        assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, int(user))
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False  # see the test of what they would be
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            claims = [one.get("spec", {}).get("volumeClaimTemplates", ()) for one in documents(path)]
            known = {volume["name"] for volume in pod["volumes"]}
            known |= {claim["metadata"]["name"] for several in claims for claim in several}
            assert mounted <= known


# Monitoring

MONITORING = ROOT / "etc" / "compose.monitoring.yaml"


def test_what_the_monitored_server_is_made_of_exists() -> None:
    raw = yaml.safe_load(MONITORING.read_text())
    given = {"QUEUEY_KEY": "k" * 64, "QUEUEY_METRICS_TOKEN": "m" * 64, "GRAFANA_PASSWORD": "g" * 16}
    services = with_variables(raw, given)["services"]

    for missing in given:
        with pytest.raises(KeyError, match=missing):
            with_variables(raw, {name: value for name, value in given.items() if name != missing})
    for service in services.values():
        for port in service["ports"]:
            assert port.startswith("127.0.0.1:")
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert (MONITORING.parent / source).is_dir() if source.startswith(".") else source in raw["volumes"]
    scraped = yaml.safe_load((ROOT / "etc/prometheus/prometheus.yml").read_text())["scrape_configs"][0]
    (secret,) = services["prometheus"]["secrets"]
    assert raw["secrets"] == {secret: {"environment": "QUEUEY_METRICS_TOKEN"}}
    assert scraped["authorization"]["credentials_file"] == f"/run/secrets/{secret}"
    assert scraped["static_configs"][0]["targets"] == ["queuey:5000"]
    (source,) = yaml.safe_load((ROOT / "etc/grafana/provisioning/datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    (boards,) = yaml.safe_load((ROOT / "etc/grafana/provisioning/dashboards/queuey.yaml").read_text())["providers"]
    assert f"./grafana/boards:{boards['options']['path']}:ro" in services["grafana"]["volumes"]
    load_settings(None, dict(services["queuey"]["environment"]))


# Units


@pytest.mark.parametrize("name", ["queuey.service", "queuey@.service", "queuey-backup.service"])
def test_units_run_commands_that_exist(name: str) -> None:
    text = (ROOT / "etc" / name).read_text()
    run = re.findall(r"^Exec\w+=/opt/queuey/bin/queuey ([a-z]+)", text, re.MULTILINE)

    assert run
    assert set(run) <= commands(main)
    # systemd asks the main process alone whether to start again. A file of the first Queuey has notices, and is served.
    assert "ExecStartPre" not in text
    if "backup" not in name:
        assert "ExecReload=/bin/kill -HUP $MAINPID" in text
        (drain,) = re.findall(r"^drain_seconds = ([0-9]+)$", (ROOT / "etc/queuey.ini").read_text(), re.MULTILINE)
        (stop,) = re.findall(r"^TimeoutStopSec=([0-9]+)$", text, re.MULTILINE)
        assert int(stop) > int(drain)
