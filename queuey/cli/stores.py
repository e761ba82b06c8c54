"""``queuey backup``, ``restore`` and ``verify``: the files of an embedded store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import click

from queuey.cli.backup_places import METADATA, fetched, is_elsewhere, local_path, named, send
from queuey.errors import ConfigurationError
from queuey.settings import Settings
from queuey.terminal.ending import ended_by_signals
from queuey.terminal.options import refuse_missing_store, store_files, with_settings
from queuey.terminal.output import ProgressBar, output_option, say, write_rows

DAMAGED = 1
"""Exit code."""


@click.command("backup")
@click.argument("dest")
@click.option("--force", is_flag=True, help="Take the place of a file that is there, once the copy is whole.")
@output_option
@with_settings
def backup_command(settings: Settings, dest: str, force: bool, output: str | None) -> None:
    """Copy the store while its server runs.

    The new file DEST is the store as it was at one moment. In a folder, or with a slash at its end, it gets a name with that
    moment. DEST may also be an address that fsspec knows, such as s3://bucket/queuey/: the copy is made beside the store
    first, and sent then. Metadata in a file of its own goes to DEST.metadata. "queuey restore" puts it back.

    Example: queuey backup /backups/ --data /var/lib/queuey
    """
    files, dest = store_files(settings), named(dest, datetime.now(UTC))
    targets = [dest, f"{dest}{METADATA}"][: len(files)]
    for source, target in zip(files, targets, strict=True):
        _refuse_taken(source, target, force=force)
    for source, target in zip(files, targets, strict=True):
        with ended_by_signals():
            (_send if is_elsewhere(target) else _copy)(source, target, force=force)
        say(f"copied {source} to {target}")
    if output is not None:
        rows = [{"from": str(one), "to": str(target)} for one, target in zip(files, targets, strict=True)]
        write_rows(rows, ("from", "to"), output)


def _refuse_taken(source: Path, dest: str, *, force: bool) -> None:
    """Look at all places first: half a backup would be in the way of the next."""
    from queuey.storage.sqlite.backup import refuse_taken

    refuse_missing_store(source)
    if not is_elsewhere(dest):
        refuse_taken(source, Path(dest), force=force)


def _copy(source: Path, dest: str, *, force: bool) -> None:
    from queuey.storage.sqlite.backup import backup

    with ProgressBar(f"copying {source.name}", 0) as progress:
        backup(source, Path(dest), progress.reach, force=force)


def _send(source: Path, address: str, *, force: bool) -> None:
    from queuey.storage.sqlite.backup import copied, refuse_store_as_target

    if (local := local_path(address)) is not None:
        refuse_store_as_target(source, local)
    made = source.with_name(f"{source.name}.sending")  # no name that somebody gives to a backup: it is written over
    with ExitStack() as stack:
        with ProgressBar(f"copying {source.name}", 0) as progress:
            stack.enter_context(copied(source, made, progress.reach))
        with ProgressBar(f"sending {source.name}", 0) as progress:
            send(made, address, progress.reach, force=force)


@click.command("restore")
@click.argument("source")
@click.option("--force", is_flag=True, help="Also a backup that is damaged.")
@output_option
@with_settings
def restore_command(settings: Settings, source: str, force: bool, output: str | None) -> None:
    """Put a backup in the place of the store, whose server must be stopped.

    SOURCE is a file that "queuey backup" made, or its address; metadata in a file of its own comes from SOURCE.metadata. It is
    checked for damage first. The former store stays beside the new one.

    Example: queuey restore /backups/queuey.db --data /var/lib/queuey
    """
    from queuey.storage.sqlite.parting import refuse_parted_files

    files = store_files(settings)
    sources = [source, f"{source}{METADATA}"][: len(files)]
    with ended_by_signals(), ExitStack() as stack:
        here = [_here(one, file, stack) for one, file in zip(sources, files, strict=True)]
        for one in here:
            _check(one, force=force)
        if not force and settings.storage.backend == "sqlite":
            refuse_parted_files(here[0], here[-1])
        rows = _put_back(here, files, sources)
    if output is not None:
        write_rows(rows, ("from", "to", "kept"), output)


def _here(source: str, target: Path, stack: ExitStack) -> Path:
    """A backup as a file of this machine."""
    if not is_elsewhere(source):
        return Path(source)
    progress = stack.enter_context(ProgressBar(f"fetching {source}", 0))
    return stack.enter_context(fetched(source, target, progress.reach))


def _check(source: Path, *, force: bool) -> None:
    from queuey.storage.sqlite.verify import verify

    with ProgressBar(f"searching {source.name}", 0) as progress:
        found = verify(source, progress=progress.reach)
    if found and not force:
        raise ConfigurationError(
            f"{source} is damaged: see 'queuey verify {source}', choose another backup, or say --force"
        )


def _put_back(here: Sequence[Path], files: Sequence[Path], sources: Sequence[str]) -> list[dict[str, str | None]]:
    """:param sources: as the caller named them."""
    from queuey.storage.sqlite.restore import restore

    with ProgressBar("copying the backup", 0) as progress:
        former = restore([*zip(here, files, strict=True)], progress.reach)
    rows = []
    for source, target, kept in zip(sources, files, former, strict=True):
        say(f"restored {target} from {source}" + (f"; as it was it lies in {kept}" if kept else ""))
        rows.append({"from": source, "to": str(target), "kept": None if kept is None else str(kept)})
    return rows


@click.command("verify")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--repair",
    is_flag=True,
    help="Build the indexes anew from the tables, and mend rows of small tables. The server must be stopped.",
)
@output_option
@with_settings
@click.pass_context
def verify_command(ctx: click.Context, settings: Settings, file: Path | None, repair: bool, output: str | None) -> None:
    """Search the store, or a backup, for damage.

    Compares indexes with tables, packs with their messages, messages, lease groups and rows of small tables with their
    checksums, and messages with the queues that are known, and lists what is wrong by queue and partition. FILE is a backup;
    without it the settings name the store, whose server may run meanwhile. Exit code 1: there is damage. --repair makes a new
    file with the same rows and new indexes, keeps a copy of the damaged file beside it, names rows of small tables that it
    takes as they stand or leaves out, and lists what it could not repair. It takes the room of the store twice.

    Example: queuey verify --data /var/lib/queuey
    """
    from queuey.storage.sqlite import repairing
    from queuey.storage.sqlite import verify as sqlite_verify

    files = [file] if file else store_files(settings)
    for one in [] if file else files:
        refuse_missing_store(one)
    names = Path(f"{file}.metadata") if file else files[-1]
    if repair:
        for one in files:
            with ended_by_signals():
                repaired = repairing.repair(one)
            for told in repaired.mended:
                say(told)
            say(f"{one} has new indexes; as it was it lies in {repaired.kept}")
    damages = []
    for one in files:
        with ProgressBar(f"searching {one.name}", 0) as progress:
            damages += [
                {"file": str(one), **damage._asdict()}
                for damage in sqlite_verify.verify(one, names if names.is_file() else None, progress.reach)
            ]
    write_rows(damages, ("file", "queue", "partition", "found", "what"), output)
    say("the store is damaged" if damages else "the store is sound")
    ctx.exit(DAMAGED if damages else 0)
