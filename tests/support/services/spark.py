"""A standalone Spark: a master and two workers on 127.0.0.1, from the jars that come with pyspark; and Spark's Kafka source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pyspark
import requests

from tests.support.services.guard import held
from tests.support.services.jars import jars
from tests.support.services.ports import free_ports
from tests.support.services.process import Process, ServiceError
from tests.support.services.service import eventually

SPARK = Path(pyspark.__file__).parent
ADDRESS = "127.0.0.1"
WORKERS = 2
WORKER_MEMORY = "1g"
SUBMIT_SECONDS = 240


def kafka_jars() -> str:
    """What ``spark.jars`` must be for ``format("kafka")``."""
    return ",".join(str(jar) for jar in sorted(jars("spark-kafka").iterdir()))


class SparkCluster:
    """As a context manager it runs, and leaves no process behind, however this process ends."""

    def __init__(self, folder: Path) -> None:
        """:param folder: for logs, and for what is handed over to executors; removed at the end."""
        self.folder = folder.resolve()
        port, web_port, *worker_ports = free_ports(2 + WORKERS, [ADDRESS])
        self.url = f"spark://{ADDRESS}:{port}"
        self._web = f"http://{ADDRESS}:{web_port}"
        at = ["--host", ADDRESS]
        self.master = self._process("master", "Master", [*at, "--port", str(port), "--webui-port", str(web_port)])
        self.workers = [
            self._process(
                f"worker-{number}",
                "Worker",
                [*at, "--webui-port", str(worker_port), "--cores", "1", "--memory", WORKER_MEMORY],
                ["--work-dir", str(self.folder / f"worker-{number}" / "work"), self.url],
            )
            for number, worker_port in enumerate(worker_ports, start=1)
        ]
        self._running = ExitStack()

    def _process(self, name: str, kind: str, *arguments: list[str]) -> Process:
        program = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}"]
        said = [word for words in arguments for word in words]
        # `env` and `spark-class` both become what they start, so the process id stays the same.
        variables = [f"{variable}={value}" for variable, value in _variables().items()]
        return Process(self.folder / name, ["env", *variables, *program, *said])

    def __enter__(self) -> Self:
        with ExitStack() as running:
            running.enter_context(held(self.folder))
            running.callback(shutil.rmtree, self.folder, ignore_errors=True)
            for process in (self.master, *self.workers):
                running.callback(process.stop)
                process.start()
            eventually(self._has_workers, f"the workers of Spark have not joined, see {self.master.log},")
            self._running = running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _has_workers(self) -> bool:
        for process in (self.master, *self.workers):
            if process.pid is None:
                raise ServiceError(f"{process.folder.name} of Spark ended and said:\n{process.log_end()}")
        try:
            state = requests.get(f"{self._web}/json/", timeout=30).json()
        except requests.RequestException:
            return False  # its pages come one after the other
        return bool(state["aliveworkers"] == WORKERS)

    def submit(
        self,
        program: Path,
        *arguments: str,
        options: Sequence[str] = (),
        folder: Path,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """``spark-submit`` to this master, from a folder; what the program printed.

        :param options: of ``spark-submit``, besides the master and its network.
        :raises ServiceError: it failed; with the end of what it said.
        """
        network = ["--conf", f"spark.driver.host={ADDRESS}", "--conf", f"spark.driver.bindAddress={ADDRESS}"]
        network += ["--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=WARN"]
        # The driver ends with this process, and its executors end with the driver.
        ending = ["setpriv", "--pdeathsig", "KILL"]
        submit = [str(SPARK / "bin" / "spark-submit"), "--master", self.url, *network, *options]
        done = subprocess.run(
            [*ending, *submit, str(program), *arguments],
            cwd=folder,
            env={**os.environ, **_variables(), **(variables or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SUBMIT_SECONDS,
            check=False,
        )
        if done.returncode:
            last = "\n".join((done.stdout + done.stderr).splitlines()[-100:])
            raise ServiceError(f"spark-submit ended with {done.returncode} and said at last:\n{last}")
        return done.stdout


def _variables() -> dict[str, str]:
    return {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": ADDRESS, "PYSPARK_PYTHON": sys.executable}
