"""The files for container engines, where there is none: their form, and that what they name exists."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import jsonschema_rs
import pytest
import yaml

from queuey.cli import main
from queuey.settings import load_settings
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


def test_the_image_installs_extras_that_exist_and_runs_a_command_that_does() -> None:
    installed = re.search(r"/src\[([a-z,]+)\]", IMAGE.read_text())
    assert installed is not None
    extras = re.findall(r"^([a-z]+) =$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)
    assert set(installed[1].split(",")) <= set(extras)

    (command,) = (json.loads(text) for name, text in instructions() if name == "CMD")
    assert command[0] == "queuey"
    assert command[1] in commands(main)
    assert load_settings(environ=image_environment()).server.host == "0.0.0.0"  # noqa: S104  a container's own
