"""Systems of others, set up so that what they acknowledge is on disk, as far as they can be."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import ClassVar

import requests

from qdo.bench.systems import StartedSystem, found_program, free_port

ANSWER_SECONDS = 2.0


class StartedRedis(StartedSystem):
    """Redis with a log of its commands, which is synced before each answer."""

    drivers = ("redis-streams", "redis-lists")
    program = "redis-server"

    @property
    def options(self) -> dict[str, str]:
        return {"url": f"redis://127.0.0.1:{self.port}/0"}

    def command(self) -> list[str]:
        stored = ["--dir", str(self.folder), "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        return [self.path, "--bind", "127.0.0.1", "--port", str(self.port), *stored]

    def is_up(self) -> bool:
        # While it loads its log it answers with a refusal.
        return _answer(self.port, b"PING\r\n").startswith(b"+PONG")


class StartedNats(StartedSystem):
    """NATS with JetStream, which syncs each message."""

    drivers = ("nats",)
    program = "nats-server"

    @property
    def options(self) -> dict[str, str]:
        return {"url": f"nats://127.0.0.1:{self.port}"}

    def furnish(self) -> None:
        text = f'listen: "127.0.0.1:{self.port}"\njetstream: {{store_dir: "{self.folder}", sync_interval: always}}\n'
        (self.folder / "nats.conf").write_text(text)

    def command(self) -> list[str]:
        return [self.path, "-c", str(self.folder / "nats.conf")]

    def is_up(self) -> bool:
        return b"Server is ready" in self.said.read_bytes()


class StartedRabbit(StartedSystem):
    """RabbitMQ, with a register of Erlang's nodes of its own."""

    drivers = ("rabbitmq-classic", "rabbitmq-quorum")
    program = "rabbitmq-server"
    PROGRAM: ClassVar[Path] = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    """The one on the PATH becomes another user, and looks for its data where that one has them."""

    _register: subprocess.Popen[bytes] | None = None

    @property
    def options(self) -> dict[str, str]:
        return {"url": f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"}

    def furnish(self) -> None:
        self._register_port, self._nodes_port = free_port(), free_port()
        (self.folder / "plugins").write_text("[].\n")
        self._end_register()
        self._register = subprocess.Popen(
            [found_program("epmd") or "epmd", "-address", "127.0.0.1", "-port", str(self._register_port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def command(self) -> list[str]:
        return [str(self.PROGRAM) if self.PROGRAM.exists() and not self.given.get("program") else self.path]

    def variables(self) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")},
            "HOME": str(self.folder),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._register_port),
            "ERL_CRASH_DUMP": "/dev/null",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_DIST_PORT": str(self._nodes_port),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_NODENAME": f"bench-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            # After some kills its database would write a file into the folder in which the command was given.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-mnesia core_dir false",
            # So it becomes Erlang's process, and has none above it that would outlive a kill.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def is_up(self) -> bool:
        # It listens before it has started, and says so at the end.
        return b"Server startup complete" in self.said.read_bytes()

    def stop(self) -> None:
        super().stop()
        self._end_register()

    def _end_register(self) -> None:
        if self._register is not None:
            self._register.kill()
            self._register.wait()
            self._register = None


class StartedElasticMQ(StartedSystem):
    """ElasticMQ with its queues and messages in files. Its jars must be given."""

    drivers = ("sqs",)
    program = "java=openjdk-17-jre-headless"
    needed: ClassVar[Mapping[str, str]] = {"jars": "the folder of ElasticMQ's jars"}
    option_names: ClassVar[Mapping[str, str]] = {**StartedSystem.option_names, **needed}
    place_options = frozenset({"url", "access_key", "secret_key"})

    _SETTINGS = Template(
        'include classpath("application.conf")\n'
        'node-address { host = "127.0.0.1", port = $port }\n'
        'rest-sqs { bind-hostname = "127.0.0.1", bind-port = $port }\n'
        "rest-stats.enabled = false\n"
        'queues-storage { enabled = true, path = "$folder/queues.conf" }\n'
        'messages-storage { enabled = true, uri = "jdbc:h2:$folder/messages" }\n'
    )

    @property
    def options(self) -> dict[str, str]:
        return {"url": f"http://127.0.0.1:{self.port}", "access_key": "none", "secret_key": "none"}

    def furnish(self) -> None:
        text = self._SETTINGS.substitute(port=self.port, folder=self.folder)
        (self.folder / "elasticmq.conf").write_text(text)

    def command(self) -> list[str]:
        jars = Path(self.given["jars"]).resolve()
        settings = f"-Dconfig.file={self.folder / 'elasticmq.conf'}"
        return [self.path, "-Xmx512m", settings, "-cp", f"{jars}/*", "org.elasticmq.server.Main"]

    def is_up(self) -> bool:
        try:
            return requests.get(f"http://127.0.0.1:{self.port}/?Action=ListQueues", timeout=ANSWER_SECONDS).ok
        except requests.RequestException:
            return False


def _answer(port: int, asked: bytes) -> bytes:
    """What a server says to this; nothing if it does not."""
    try:
        with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as line:
            line.settimeout(ANSWER_SECONDS)
            line.sendall(asked)
            return line.recv(64)
    except OSError:
        return b""
