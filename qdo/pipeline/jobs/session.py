"""The Spark session of a job.

It is on the cores of this machine, unless a cluster is named.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from qdo.pipeline import install, is_one_process
from queuey.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["DRIVER_MEMORY", "end", "lean_home", "session"]

LOCAL = "local[*]"
DRIVER_MEMORY = "2g"
"""On one machine the driver does all the work of the JVM. Python has its own memory beside it."""

_LAST_WORDS_SECONDS = 5.0
_ending = threading.Event()
"""Set when Spark is ended in the middle of its work."""

_ALWAYS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
_ON_ONE_MACHINE = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # A core has little to do in a small job, and 200 empty tasks would take longer than the job.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.driver.extraJavaOptions": " ".join(
        [
            f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
            # Arrow checks before each value whether it is null, and Spark has checked already.
            "-Darrow.enable_null_check_for_get=false",
        ]
    ),
}


def session(
    name: str,
    master: str | None = None,
    *,
    driver_memory: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session that exists, or a new one. It knows the format ``queuey``.

    :param name: of the application, as a cluster shows it.
    :param master: where it runs; None leaves it to ``spark-submit``, and without that to the cores of this machine.
    :param driver_memory: in Spark's syntax, ``4g``; None for :data:`DRIVER_MEMORY` on this machine. With ``spark-submit``
        the driver runs already: give it there.
    :param conf: more settings of Spark. They replace those of this module.
    :raises ConfigurationError: PySpark or Java is missing, or Spark refuses a setting.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    conf = conf or {}
    # Where Spark runs decides about other settings too: no executor of a cluster reaches a driver on the loopback.
    settings = {**_settings(conf.get("spark.master", master), driver_memory, submitted=submitted), **conf}
    builder = _builder(submitted=submitted).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        if not submitted:
            _start_apart({"spark.app.name": name, **settings})
        spark: SparkSession = builder.getOrCreate()
    except Exception as error:
        raise ConfigurationError(f"Spark does not start: {_reason(error)}") from error
    # Spark looks up a format in the session of the thread that asks. A session made in another thread is not that yet.
    jvm: Any = spark._jvm  # noqa: SLF001 - nothing public says so
    jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001
    if is_one_process(spark.sparkContext.master or ""):
        _light_checkpoints(spark)
    _keep_errors_short()
    return install(spark)


def _keep_errors_short() -> None:
    """Have no error of a query written with Java's whole stack before it is raised: a job says its reason in one line."""
    from pyspark.logger import PySparkLogger

    for kind in ("DataFrame", "SQL"):
        PySparkLogger.getLogger(f"{kind}QueryContextLogger").disabled = True


_CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
_LIGHT = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_LIGHT_SINCE = (4, 3)
"""The first version of Spark with this class."""


def _light_checkpoints(spark: SparkSession) -> None:
    """Have checkpoints written without programs of the system.

    A choice of the user stands.

    Spark's default starts 20 programs for each micro-batch, most of them ``readlink``. That takes 70 of its 150 ms
    (measured). Both ways write the same files, each aside and then renamed, and refuse to write a file twice.
    """
    version = tuple(int(number) for number in spark.version.split(".")[:2])
    if version >= _LIGHT_SINCE and spark.conf.get(_CHECKPOINTS, None) is None:
        spark.conf.set(_CHECKPOINTS, _LIGHT)


def _start_apart(settings: Mapping[str, str]) -> None:
    """Start the virtual machine, if none runs yet, so that Ctrl-C does not reach it.

    It ignores that signal itself, but the Python processes that it starts do not. They would die, and their tasks with
    them, before anybody could end the job in order. The virtual machine still ends with the process that started it, in
    whatever way that ends.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:  # noqa: SLF001 - nothing public tells
        return
    conf = SparkConf().setAll(list(settings.items()))
    reading, writing = os.pipe()
    words = _Words(reading)
    try:
        try:
            with lean_home(settings.get("spark.master", "")):
                gateway = launch_gateway(conf, {"start_new_session": True, "stderr": writing})  # type: ignore[no-untyped-call]
        finally:
            os.close(writing)
    except Exception as error:
        raise _NoGateway(words.to_the_end() or str(error)) from error
    SparkContext(conf=conf, gateway=gateway)
    words.release()


_HOME = ("bin", "conf", "jars", "sbin")


@contextmanager
def lean_home(master: str) -> Iterator[None]:
    """Start a virtual machine inside with a home of Spark's without PySpark.

    It is for work on this machine.

    PySpark is installed anyway. In Spark's home it is a zip, which comes first on the path of every Python process. Python
    compiles modules from a zip each time: that is most of the second that such a process needs to start (measured).
    """
    import pyspark

    installed = Path(pyspark.__file__).parent
    chosen = "SPARK_HOME" in os.environ or os.environ.get("PYSPARK_PYTHON") != sys.executable
    if chosen or not is_one_process(master):
        yield
        return
    made = TemporaryDirectory(prefix="queuey-spark-")
    _homes.append(made)
    for name in _HOME:
        if (installed / name).exists():
            Path(made.name, name).symlink_to(installed / name)
    os.environ["SPARK_HOME"] = made.name
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


_homes: list[TemporaryDirectory[str]] = []
"""Removed when this process ends."""


class _NoGateway(Exception):
    """There is no virtual machine. The text is what it wrote instead."""


class _Words:
    """What the virtual machine and its Python processes write.

    Their words are held back until Spark runs, because a failed start is reported in one sentence. Their words about the
    end interest nobody.
    """

    def __init__(self, reading: int) -> None:
        self._held: list[bytes] | None = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._pass_on, args=(reading,), name="spark-stderr", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Pass on what was held back. From here on everything is passed on at once."""
        with self._lock:
            held, self._held = self._held or [], None
            _say(b"".join(held))

    def to_the_end(self) -> str:
        """What was held back, once the virtual machine has ended."""
        self._thread.join(_LAST_WORDS_SECONDS)
        return b"".join(self._held or []).decode(errors="replace")

    def _pass_on(self, reading: int) -> None:
        begun = b""
        while said := os.read(reading, 1 << 16):
            said, begun = _worth_saying(begun + said)
            self._take(said)
        self._take(begun)
        os.close(reading)

    def _take(self, said: bytes) -> None:
        with self._lock:
            if self._held is not None:
                self._held.append(said)
            elif not _ending.is_set():
                _say(said)


_TRACEBACK = rb"Traceback \(most recent call last\):\n"
_FRAME = rb'(?:  File ".*pyspark/(?:daemon|serializers)\.py".*\n(?:    .*\n)*)'
_NOISE = re.compile(rb"WARNING: Using incubator modules: .*\n|" + _TRACEBACK + _FRAME + rb"+BrokenPipeError: .*\n")
"""Lines that no setting suppresses: Java's line about a module of Spark's, and the traceback of a Python process that Spark
ends, because it had no work for a minute or because everything ends (since SPARK-54344, except over Unix sockets)."""
_BEGUN = re.compile(_TRACEBACK + _FRAME + rb"*[^\n]{0,1000}\Z")
"""The beginning of text that may become such a traceback."""


def _worth_saying(said: bytes) -> tuple[bytes, bytes]:
    r"""The part of these words that matters, and an unfinished traceback.

    The traceback at their end may turn out not to matter.

    >>> _worth_saying(b"WARNING: Using incubator modules: jdk.incubator.vector\nText\nTraceback (most recent call last):\n  File")
    (b'Text\n', b'Traceback (most recent call last):\n  File')
    """
    said = _NOISE.sub(b"", said)
    begun = _BEGUN.search(said)
    end = begun.start() if begun else len(said)
    return said[:end], said[end:]


def _say(said: bytes) -> None:
    with suppress(OSError):  # nobody reads it
        os.write(2, said)


def _reason(error: Exception) -> str:
    """The reason in one line, without the names of Java's classes."""
    found = getattr(error, "java_exception", None)
    text = str(error if found is None else found.getMessage())
    thrown = _THROWN.search(text)
    if thrown is not None:
        return thrown[1]
    lines = [line for line in text.strip().splitlines() if not _BESIDE.match(line)]
    return lines[0] if lines else type(error).__name__


_THROWN = re.compile(r'Exception in thread "[^"]*" \S+: (.+)')
_BESIDE = re.compile(r"WARNING: |Using |[0-9/]+ [0-9:]+ WARN ")
"""What Java and Spark write at every start."""


def end(seconds: float) -> None:
    """End Spark from any thread, in the middle of any work, silently.

    Return once it is gone or the time is over.

    Its virtual machine ends with it, so this process cannot have another session.
    """
    _end_machine(seconds)
    for home in _homes:  # a process that ends at once does not remove them
        home.cleanup()


def _end_machine(seconds: float) -> None:
    # Not by an import: another thread may be in the middle of its own, and to enter it there is an error.
    contexts = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    gateway = getattr(contexts, "_gateway", None)
    if contexts is None or gateway is None:
        return
    context = contexts._active_spark_context  # noqa: SLF001 - nothing public tells
    _ending.set()
    process = getattr(gateway, "proc", None)
    stopping = threading.Thread(target=_stop, args=(context,), daemon=True)
    stopping.start()
    stopping.join(seconds)
    if process is not None:
        process.stdin.close()  # tells the virtual machine to end
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


def _stop(context: SparkContext | None) -> None:
    with suppress(Exception):  # it may have ended by itself
        if context is not None:
            # That server prints a traceback if the virtual machine ends before its connection.
            setattr(context._accumulatorServer, "handle_error", lambda *_: None)  # noqa: B010, SLF001 - nothing public
            context.setLogLevel("OFF")  # with spark-submit we do not filter what it writes
            context.stop()


def _builder(*, submitted: bool) -> SparkSession.Builder:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigurationError(f"the pipeline needs more: pip install '/path/to/queuey[spark]' ({error})") from error
    if not submitted:
        _demand_java()
    return SparkSession.builder


def _demand_java() -> None:
    """:raises ConfigurationError: there is no Java where Spark looks for it."""
    home = os.environ.get("JAVA_HOME")
    if home and not Path(home, "bin", "java").exists():
        raise ConfigurationError(
            f"Spark needs Java 17 or newer, and JAVA_HOME is {home}, which has no bin/java: correct or unset it"
        )
    if not home and shutil.which("java") is None:
        raise ConfigurationError(
            "Spark needs Java 17 or newer, and there is none: install it (on Debian: apt-get install "
            "openjdk-17-jre-headless) or set JAVA_HOME"
        )


def _settings(master: str | None, driver_memory: str | None, *, submitted: bool) -> dict[str, str]:
    """Settings for a new session.

    Those of ``spark-submit`` stand, except for a master that was named here.
    """
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
