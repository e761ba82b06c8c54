"""``queuey backup``, ``restore`` and ``verify``: the files of an embedded store."""

from __future__ import annotations

from pathlib import Path

import click

from queuey.errors import ConfigurationError
from queuey.settings import Settings
from queuey.terminal.options import store_files, with_settings
from queuey.terminal.output import ProgressBar, output_option, say, write_rows

DAMAGED = 1
"""Exit code."""


@click.command("backup")
@click.argument("dest", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Take the place of a file that is there, once the copy is whole.")
@output_option
@with_settings
def backup_command(settings: Settings, dest: Path, force: bool, output: str | None) -> None:
    """Copy the store while its server runs.

    The new file DEST is the store as it was at one moment. Metadata in a file of its own goes to DEST.metadata. "queuey restore" puts
    it back.
    """
    from queuey.storage.sqlite.backup import backup

    files = store_files(settings)
    targets = [dest, dest.with_name(f"{dest.name}.metadata")][: len(files)]
    for target in targets:
        if target.is_dir() or (target.exists() and not force):
            raise ConfigurationError(f"{target} exists already: choose another name, or say --force")
    for source, target in zip(files, targets, strict=True):
        whole = target.with_name(f"{target.name}.new") if target.exists() else target
        with ProgressBar(f"copying {source.name}", 0) as progress:
            backup(source, whole, progress.reach)
        if whole != target:
            whole.replace(target)
        say(f"copied {source} to {target}")
    if output is not None:
        rows = [{"from": str(one), "to": str(target)} for one, target in zip(files, targets, strict=True)]
        write_rows(rows, ("from", "to"), output)


@click.command("restore")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Also a backup that is damaged.")
@output_option
@with_settings
def restore_command(settings: Settings, source: Path, force: bool, output: str | None) -> None:
    """Put a backup in the place of the store, whose server must be stopped.

    SOURCE is a file that "queuey backup" made; metadata in a file of its own comes from SOURCE.metadata. It is checked for damage first. The former store stays beside
    the new one.
    """
    from queuey.storage.sqlite.restore import restore
    from queuey.storage.sqlite.verify import verify

    files = store_files(settings)
    sources = [source, source.with_name(f"{source.name}.metadata")][: len(files)]
    for one in sources:
        with ProgressBar(f"searching {one.name}", 0) as progress:
            found = verify(one, progress=progress.reach)
        if found and not force:
            raise ConfigurationError(
                f"{one} is damaged: see 'queuey verify {one}', choose another backup, or say --force"
            )
    rows = []
    for one, target in zip(sources, files, strict=True):
        with ProgressBar(f"copying {one.name}", 0) as progress:
            kept = restore(one, target, progress.reach)
        say(f"restored {target} from {one}" + (f"; as it was it lies in {kept}" if kept else ""))
        rows.append({"from": str(one), "to": str(target), "kept": kept and str(kept)})
    if output is not None:
        write_rows(rows, ("from", "to", "kept"), output)


@click.command("verify")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--repair", is_flag=True, help="Build the indexes anew from the messages. The server must be stopped.")
@output_option
@with_settings
@click.pass_context
def verify_command(ctx: click.Context, settings: Settings, file: Path | None, repair: bool, output: str | None) -> None:
    """Search the store, or a backup, for damage.

    Compares indexes with tables, packs with their messages and messages with their checksums, and lists what is wrong by queue and partition. FILE is a backup; without
    it the settings name the store, whose server may run meanwhile. Exit code 1: there is damage. --repair rebuilds the indexes, keeps a copy of the damaged file beside it, and lists what it could not
    repair.
    """
    from queuey.storage.sqlite import verify as sqlite_verify

    files = [file] if file else store_files(settings)
    names = Path(f"{file}.metadata") if file else files[-1]
    if repair:
        for one in files:
            say(f"{one} has new indexes; as it was it lies in {sqlite_verify.repair(one)}")
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
