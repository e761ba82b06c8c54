"""What ``queuey doctor`` finds on this machine: settings, files, clock and program. Nothing here changes anything."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from queuey.clock import Clock
from queuey.errors import ConfigurationError, QueueyError
from queuey.file_limit import most_files
from queuey.security.claims import unix_now
from queuey.server.open_files import files_for, more_files
from queuey.settings import SETTINGS, Settings
from queuey.settings.issuers import is_this_machine
from queuey.terminal.options import store_files
from queuey.terminal.sizes import shown_size

__all__ = ["Diagnosis", "FindingLevel", "machine_findings", "serving_process"]

CERTIFICATE_DAYS = 14
"""A certificate that ends earlier is worth a notice."""
RESERVES_FREE = 10
"""Free disk below this number of reserves is worth a notice."""
LOCKS = Path("/proc/locks")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_STA_UNSYNC = 0x40
_STATUS_AT = 40
"""The offset of ``status`` in the kernel's ``struct timex``, on machines of 64 bits."""
_UNSURE_CLOCK_SECONDS = 0.25
_HEADER = b"SQLite format 3\0"


class FindingLevel:
    """How a finding weighs."""

    OK = "ok"
    NOTICE = "notice"
    WRONG = "wrong"


class Diagnosis(NamedTuple):
    """One thing that was looked at."""

    level: str
    about: str
    found: str
    mend: str = ""
    """What to do; empty if nothing needs to be done."""


def machine_findings(settings: Settings, config: str | None, clock: Clock) -> Iterator[Diagnosis]:
    """Everything that can be looked at without a server."""
    for look in (
        _settings_findings(settings, config),
        _data_findings(settings),
        _store_findings(settings),
        _trust_findings(settings, clock),
        _certificate_findings(settings, unix_now(clock)),
        _clock_findings(),
        _limit_findings(settings),
        _program_findings(settings),
    ):
        yield from _as_far_as_allowed(look)


def _as_far_as_allowed(look: Iterator[Diagnosis]) -> Iterator[Diagnosis]:
    """What a look finds. A file that this user may not look at ends this look, and no other."""
    try:
        yield from look
    except PermissionError as error:
        yield Diagnosis(
            FindingLevel.WRONG,
            "permissions",
            f"{error.filename}: {error.strerror}",
            "run this command as the user of the server",
        )


def _settings_findings(settings: Settings, config: str | None) -> Iterator[Diagnosis]:
    yield Diagnosis(FindingLevel.OK, "settings", f"{config or 'the environment and defaults'} can be read")
    for notice in settings.notices:
        yield Diagnosis(
            FindingLevel.NOTICE, "settings", notice, "say it in today's words: 'queuey config doc' lists all settings"
        )
    if config is not None and _has_secrets(settings):
        mode = Path(config).stat().st_mode
        if mode & stat.S_IRWXO:
            yield Diagnosis(
                FindingLevel.WRONG,
                "permissions",
                f"every user of this machine may read {config} (mode {stat.S_IMODE(mode):04o}), which has secrets in it",
                f"chmod o-rwx {config}, or give the secrets as QUEUEY_* variables",
            )


def _has_secrets(settings: Settings) -> bool:
    """Whether the ini file itself has a secret. One that it names as ``${NAME}`` counts as well, as it may not be there."""
    in_file = [row for row in SETTINGS if row.secret and settings.value(row) and _is_of_file(settings, row.name)]
    return bool(in_file or settings.application_keys)


def _is_of_file(settings: Settings, name: str) -> bool:
    origin = settings.origins.get(name, "")
    return bool(origin) and not origin.startswith("QUEUEY_") and origin != "command line"


def _data_findings(settings: Settings) -> Iterator[Diagnosis]:
    """The folder of an embedded store."""
    if settings.storage.backend != "sqlite":
        return
    from queuey.file_system import file_system_of, network_file_system_of

    folder = Path(settings.server.data).resolve()
    if folder.exists() and not folder.is_dir():
        yield Diagnosis(FindingLevel.WRONG, "store", f"{folder} is no folder", "name another one as [server] data")
        return
    if not folder.is_dir():
        yield Diagnosis(
            FindingLevel.NOTICE, "store", f"there is no folder {folder} yet", "the first 'queuey serve' makes it"
        )
        return
    network = network_file_system_of(folder)
    if network is not None:
        yield Diagnosis(
            FindingLevel.WRONG,
            "store",
            f"{folder} is on a network file system ({network}), where an acknowledged write could be lost",
            "choose a folder on a local disk with [server] data",
        )
    mode, owner = folder.stat().st_mode, folder.stat().st_uid
    if mode & stat.S_IWOTH:
        yield Diagnosis(
            FindingLevel.WRONG,
            "permissions",
            f"every user of this machine may write in {folder}",
            f"chmod o-rwx {folder}",
        )
    if owner != os.geteuid():
        yield Diagnosis(
            FindingLevel.NOTICE,
            "permissions",
            f"{folder} belongs to user {owner}, and this command runs as user {os.geteuid()}",
            "run commands on the store as the user of the server, so that it owns all files",
        )
    free, reserve = shutil.disk_usage(folder).free, settings.storage.reserve_mb << 20
    said = f"{shown_size(free)} free for {folder} ({file_system_of(folder) or 'unknown file system'})"
    if free < reserve:
        yield Diagnosis(
            FindingLevel.WRONG,
            "disk",
            f"{said}: under the reserve, so appends are refused",
            "free space, or use a larger disk",
        )
    elif free < RESERVES_FREE * reserve:
        yield Diagnosis(
            FindingLevel.NOTICE,
            "disk",
            f"{said}: under {RESERVES_FREE} times [storage] reserve_mb",
            "plan for a larger disk",
        )
    else:
        yield Diagnosis(FindingLevel.OK, "disk", said)


def _store_findings(settings: Settings) -> Iterator[Diagnosis]:
    if settings.storage.backend == "memory":
        yield Diagnosis(
            FindingLevel.NOTICE,
            "store",
            "messages are kept in memory: a stop loses everything",
            "[storage] backend = sqlite",
        )
        return
    if settings.storage.backend == "cassandra":
        yield from _cassandra_findings(settings)
        return
    for file in store_files(settings):
        if file.is_file():
            yield from _file_findings(file)
        else:
            yield Diagnosis(
                FindingLevel.NOTICE, "store", f"there is no store {file} yet", "the first 'queuey serve' makes it"
            )


def _file_findings(file: Path) -> Iterator[Diagnosis]:
    """One file of an embedded store. It is read as a file, so that SQLite touches nothing beside it."""
    from queuey.storage.sqlite.health import beside
    from queuey.storage.sqlite.mark import refuse_foreign_log

    try:
        with file.open("rb") as reading:
            head = reading.read(len(_HEADER))
    except OSError as error:
        yield Diagnosis(
            FindingLevel.WRONG, "permissions", f"{file}: {error.strerror}", "run this command as the user of the server"
        )
        return
    if head and head != _HEADER:
        yield Diagnosis(
            FindingLevel.WRONG, "store", f"{file} is no store", "put the last backup in its place with 'queuey restore'"
        )
        return
    try:
        refuse_foreign_log(file.resolve())
    except ConfigurationError as error:
        yield Diagnosis(
            FindingLevel.WRONG, "store", str(error), "put the last backup in its place with 'queuey restore'"
        )
        return
    for one in (file, *beside(file)):
        if _others_may(one):
            yield Diagnosis(
                FindingLevel.WRONG,
                "permissions",
                f"others than its owner may read or write {one}",
                f"chmod go-rwx {one}",
            )
    process = serving_process(file)
    served = f", served by process {process}" if process else ", and no server runs on it"
    yield Diagnosis(FindingLevel.OK, "store", f"{file}: {shown_size(file.stat().st_size)}{served}")


def _others_may(file: Path) -> bool:
    """Whether others than its owner may read or write a file; nobody may if there is none."""
    try:
        return bool(file.stat().st_mode & _OTHERS)
    except (FileNotFoundError, NotADirectoryError):  # a log goes when its server stops
        return False


def serving_process(file: Path) -> int | None:
    """The process whose server holds the lock of this store; None if no server runs, or the kernel does not say.

    It asks the kernel, and takes no lock: a server that starts at this moment is not kept from it.
    """
    try:
        told = file.with_name(f"{file.name}.lock").stat()
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return None
    place = f"{os.major(told.st_dev):02x}:{os.minor(told.st_dev):02x}:{told.st_ino}"
    for line in lines:
        words = line.split()
        if "FLOCK" in words and place in words:
            return int(words[words.index(place) - 1])
    return None


def _cassandra_findings(settings: Settings) -> Iterator[Diagnosis]:
    import socket

    for text in settings.cassandra.hosts.split(","):
        host, _, port = text.strip().partition(":")
        number = int(port) if port.isdecimal() else settings.cassandra.port
        try:
            with closing(socket.create_connection((host, number), timeout=3)):
                yield Diagnosis(FindingLevel.OK, "store", f"the node {host}:{number} takes connections")
        except OSError as error:
            yield Diagnosis(
                FindingLevel.WRONG,
                "store",
                f"the node {host}:{number} cannot be reached: {error}",
                "start Cassandra there, or mend [cassandra] hosts and the network between",
            )
    if not settings.cassandra.strict_durability:
        yield Diagnosis(
            FindingLevel.NOTICE,
            "store",
            "[cassandra] strict_durability is off: a server also starts on a cluster that is weaker than it promises",
            "set it to true once the cluster has three nodes",
        )


def _trust_findings(settings: Settings, clock: Clock) -> Iterator[Diagnosis]:
    """Issuers and their keys in files. No address is fetched."""
    from queuey.security.schemes import Trust

    try:
        Trust(settings, clock).read_files()
    except QueueyError as error:
        yield Diagnosis(FindingLevel.WRONG, "issuers", str(error), "mend the section, or the file that it names")
        return
    if settings.issuers:
        yield Diagnosis(FindingLevel.OK, "issuers", f"{len(settings.issuers)} trusted")
    secret = Path(settings.server.data, "sqs.secret")
    if _others_may(secret):
        yield Diagnosis(
            FindingLevel.WRONG, "permissions", f"others than its owner may read {secret}", f"chmod go-rwx {secret}"
        )


def _certificate_findings(settings: Settings, now: float) -> Iterator[Diagnosis]:
    """The server's own certificate, if it has one.

    :param now: seconds since 1970.
    """
    from queuey.server.tls import ServerTls

    try:
        tls = ServerTls.of(settings)
    except ConfigurationError as error:
        yield Diagnosis(FindingLevel.WRONG, "certificate", str(error), "mend the files that the text names")
        return
    if tls is None:
        return
    days = (tls.expires - now) / 86400
    if days < CERTIFICATE_DAYS:
        level = FindingLevel.WRONG if days < 0 else FindingLevel.NOTICE
        found = f"{settings.server.tls_cert} {'ended' if days < 0 else 'ends in'} {abs(days):.0f} days"
        mend = "renew it: the server reads the new files by itself"
        yield Diagnosis(level, "certificate", f"{found}{' ago' if days < 0 else ''}", mend)
    else:
        yield Diagnosis(FindingLevel.OK, "certificate", f"{settings.server.tls_cert} is good for {days:.0f} days")


def _clock_findings() -> Iterator[Diagnosis]:
    """Whether the kernel trusts its clock: ``adjtimex`` without a mode only reads."""
    timex = ctypes.create_string_buffer(256)
    try:
        answered = ctypes.CDLL(None, use_errno=True).adjtimex(timex)
    except (OSError, AttributeError):
        return
    if answered < 0:
        return
    fields = {"worst": 24, "status": _STATUS_AT}
    worst = ctypes.c_long.from_buffer(timex, fields["worst"]).value / 1e6
    status = ctypes.c_int.from_buffer(timex, fields["status"]).value
    if status & _STA_UNSYNC:
        yield Diagnosis(
            FindingLevel.NOTICE,
            "clock",
            "the kernel says that no time service keeps this machine's clock",
            "run chrony or another NTP service: ids are moments, and on Cassandra a wrong clock stops appends",
        )
    elif worst > _UNSURE_CLOCK_SECONDS:
        yield Diagnosis(
            FindingLevel.NOTICE,
            "clock",
            f"the clock may be off by {worst:.3g} s, says the kernel",
            "look at 'chronyc tracking', and choose time servers that are nearer",
        )
    else:
        yield Diagnosis(FindingLevel.OK, "clock", f"kept by a time service, off by {worst:.3g} s at most")


def _limit_findings(settings: Settings) -> Iterator[Diagnosis]:
    most, needed = most_files(), files_for(settings.server.connections)
    if most < needed:
        yield Diagnosis(
            FindingLevel.NOTICE,
            "limits",
            f"a process may open {most:,} files here, and [server] connections may need {needed:,}",
            more_files(needed),
        )
    else:
        yield Diagnosis(
            FindingLevel.OK, "limits", f"{settings.server.connections:,} connections fit in the limit on open files"
        )


_EXTRAS: Mapping[str, tuple[str, ...]] = {
    "cassandra": ("cassandra",),
    "arrow": ("pyarrow", "numpy"),
    "telemetry": ("opentelemetry",),
}


def _program_findings(settings: Settings) -> Iterator[Diagnosis]:
    from queuey.interpreter import has_pgo

    if not has_pgo():
        yield Diagnosis(
            FindingLevel.NOTICE,
            "program",
            "this Python was built without PGO: an append takes a sixth more time",
            "make the environment with an interpreter such as Debian's",
        )
    backends = {settings.storage.backend, settings.metadata.backend}
    for extra, modules in _EXTRAS.items():
        if all(find_spec(name) for name in modules):
            continue
        if extra in backends:
            yield Diagnosis(
                FindingLevel.WRONG,
                "program",
                f"backend = {extra} needs a library that is not installed",
                f"install the extra {extra}",
            )
        elif extra == "arrow":
            yield Diagnosis(
                FindingLevel.NOTICE,
                "program",
                "answers as Arrow get 406: pyarrow is not installed",
                "install the extra arrow",
            )
        elif settings.telemetry.endpoint:
            yield Diagnosis(
                FindingLevel.WRONG,
                "program",
                "[telemetry] endpoint needs the libraries of OpenTelemetry, which are not installed",
                "install the extra telemetry",
            )
    if not is_this_machine(settings.server.host):
        yield from _network_findings(settings)


def _network_findings(settings: Settings) -> Iterator[Diagnosis]:
    """What other machines that reach the server may do."""
    if not settings.server.tls_cert:
        yield Diagnosis(
            FindingLevel.NOTICE,
            "network",
            f"[server] host = {settings.server.host}: other machines reach the server without TLS",
            "give it a certificate ([server] tls_cert), or let a proxy with TLS listen there (etc/nginx.conf)",
        )
    if settings.sqs.auth == "open":
        yield Diagnosis(
            FindingLevel.WRONG,
            "network",
            "[sqs] auth = open: each of these machines may do everything",
            "[sqs] auth = signature",
        )
