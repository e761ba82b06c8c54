"""A real standalone Spark, a master and two workers, whose Python knows of Queuey only what ``spark-submit`` hands over."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qdo.client import Client
from tests.support.bare import Bare, packages_of
from tests.support.client import new_name
from tests.support.packaging import build_wheel
from tests.support.pipeline import APPLICATION, KEY, fill
from tests.support.servers import RunningServer
from tests.support.services.spark import SparkCluster

pytestmark = pytest.mark.long

PARTITIONS = 4
MESSAGES = 500
OF_WORKERS = ("pyarrow", "numpy", "requests", "urllib3", "idna", "certifi", "charset-normalizer")
"""What must be installed on workers that are handed the package alone: docs/pipeline-cluster.md."""
PROGRAM = """
import json
import os
import sys

from pyspark.sql import SparkSession

import qdo.pipeline
from qdo.pipeline.jobs.archive import Archive, archive

url, application, token_file, queue, copies = sys.argv[1:]
spark = qdo.pipeline.install(SparkSession.builder.getOrCreate())
options = {"url": url, "application": application, "tokenFile": token_file}


def whereabouts(_):
    import qdo

    return sys.executable, qdo.__file__, os.getcwd()


rows = spark.read.format("queuey").options(**options, subscribe=queue).load()
rows.select("body").write.format("queuey").options(**options, queue=copies).mode("append").save()
columns = "count(*) AS rows", "count(DISTINCT message_id) AS ids", "count(DISTINCT partition) AS partitions"
found = rows.selectExpr(*columns).first().asDict()
found["whereabouts"] = spark.sparkContext.range(0, 8, numSlices=8).map(whereabouts).distinct().collect()
folder = os.path.join(os.getcwd(), "archive")
found["archived"] = archive(spark, folder, options={**options, "subscribe": queue})
found["in_archive"] = Archive(spark, folder).read().selectExpr("count(DISTINCT body)").first()[0]
print("FOUND " + json.dumps(found))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster") / "spark") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has what workers need, and no Queuey: what is installed here, laid out once more."""
    environment = Bare(tmp_path_factory.mktemp("bare"))
    environment.lay_out(OF_WORKERS)
    return environment.folder


class Job:
    """One run of the program above: it reads a queue, copies it to another, says where, and archives it."""

    def __init__(self, cluster: SparkCluster, running: RunningServer, client: Client, folder: Path) -> None:
        self._cluster, self._server, self._client = cluster, running, client
        self.folder = folder
        self.queue = fill(client, partitions=PARTITIONS, messages=MESSAGES)
        self.copies = new_name()
        client.create_queue(self.copies, partitions=PARTITIONS)

    def run(self, *options: str, **variables: str) -> Any:
        """Submitted from its own folder."""
        (program := self.folder / "program.py").write_text(PROGRAM)
        (token_file := self.folder / "token").write_text(f"{KEY}\n")
        said = self._cluster.submit(
            program,
            *(self._server.url, APPLICATION, str(token_file), self.queue, self.copies),
            options=options,
            folder=self.folder,
            variables=variables,
        )
        return json.loads(said.partition("FOUND ")[2])

    def bodies(self, queue: str) -> list[str]:
        return sorted(message.text for message in self._client.iterate(queue))


@pytest.fixture
def job(cluster: SparkCluster, running: RunningServer, client: Client, tmp_path: Path) -> Job:
    """From a folder with nothing in it but itself."""
    (folder := tmp_path / "job").mkdir()
    return Job(cluster, running, client, folder)


def check(job: Job, found: Any) -> None:
    assert (found["rows"], found["ids"], found["partitions"]) == (PARTITIONS * MESSAGES,) * 2 + (PARTITIONS,)
    assert job.bodies(job.copies) == job.bodies(job.queue)
    assert (found["archived"], found["in_archive"]) == (PARTITIONS * MESSAGES,) * 2
    workers = {name for _, _, folder in found["whereabouts"] for name in Path(folder).parts if "worker-" in name}
    assert workers == {"worker-1", "worker-2"}


def test_workers_have_the_package_from_a_zip(job: Job, bare: Path, wheel: Path, tmp_path: Path) -> None:
    python = str(bare / "bin" / "python")
    refused = subprocess.run([python, "-c", "import qdo"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "No module named 'qdo'" in refused.stderr
    # A wheel is a zip file, and Spark goes by the name.
    package = shutil.copy(wheel, tmp_path / "queuey.zip")

    # What plans a stream beside the driver has of Spark no path to what is handed over.
    found = job.run("--py-files", str(package), PYSPARK_PYTHON=python, PYTHONPATH=str(package))

    check(job, found)
    assert {(program, "/queuey.zip/qdo/" in module) for program, module, _ in found["whereabouts"]} == {(python, True)}


def test_workers_have_everything_from_a_packed_environment(job: Job, bare: Path, wheel: Path) -> None:
    environment, packed = job.folder / "env", job.folder / "env.tar.gz"
    shutil.copytree(bare, environment, symlinks=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages_of(environment))
    pack = Path(sys.executable).with_name("venv-pack")
    subprocess.run([pack, "-q", "-p", environment, "-o", packed, "--compress-level", "1"], check=True)

    found = job.run("--archives", "env.tar.gz#env", "--conf", "spark.pyspark.python=./env/bin/python")

    check(job, found)
    assert {program.endswith("/env/bin/python") for program, _, _ in found["whereabouts"]} == {True}
