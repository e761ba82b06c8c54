"""The Spark session of a job: this machine's cores, unless somebody named a cluster."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from queuey.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DRIVER_MEMORY", "session"]

LOCAL = "local[*]"
DRIVER_MEMORY = "2g"
"""On one machine the driver does all the work of the JVM; Python has its own memory beside it."""

_ALWAYS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
_ON_ONE_MACHINE = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # A core has little to do in a small job, and 200 tasks of nothing take longer than the job.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
}


def session(
    name: str,
    master: str | None = None,
    *,
    driver_memory: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session that there is, or a new one, which knows the format ``queuey``.

    :param name: of the application, as a cluster shows it.
    :param master: where it runs; None leaves it to ``spark-submit``, and without that to this machine's cores.
    :param driver_memory: as Spark writes it, ``4g``; None is :data:`DRIVER_MEMORY` on this machine. Under
        ``spark-submit`` the driver runs already: say it there.
    :param conf: more settings of Spark; they win over those of here.
    :raises ConfigurationError: PySpark or Java is missing, or Spark refuses a setting.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = {**_settings(master, driver_memory, submitted=submitted), **(conf or {})}
    builder = _builder(submitted=submitted).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        spark: SparkSession = builder.getOrCreate()
    except Exception as error:
        raise ConfigurationError(f"Spark does not start: {str(error).strip().splitlines()[0]}") from error
    import qdo.pipeline

    return qdo.pipeline.install(spark)


def _builder(*, submitted: bool) -> SparkSession.Builder:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigurationError(f"the pipeline needs more: pip install 'queuey[spark]' ({error})") from error
    if not submitted and not _has_java():
        raise ConfigurationError(
            "Spark needs Java 17 or newer, and there is none: install it (on Debian: apt-get install "
            "openjdk-17-jre-headless) or set JAVA_HOME"
        )
    return SparkSession.builder


def _has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return Path(home, "bin", "java").exists() if home else shutil.which("java") is not None


def _settings(master: str | None, driver_memory: str | None, *, submitted: bool) -> dict[str, str]:
    """What ``spark-submit`` was told stands, but for a master that was named here."""
    if submitted:
        return {**_ALWAYS, "spark.log.level": "WARN", **({"spark.master": master} if master else {})}
    master = master or LOCAL
    settings = {
        **_ALWAYS,
        "spark.master": master,
        "spark.driver.memory": driver_memory or DRIVER_MEMORY,
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
    }
    if not master.startswith("local"):
        return {**settings, "spark.log.level": "WARN"}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return {**settings, **_ON_ONE_MACHINE}
