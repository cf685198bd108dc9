"""`nightjar backup` writes the whole lab to one file, while it runs; `nightjar restore` makes a lab from it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
from rich.filesize import decimal

from functions.kernel.process.readiness import lab_at
from state.backup import BackedUp, Restored, back_up, read_manifest, restore
from state.embedded import serving
from state.errors import Conflict, Unavailable
from state.settings import Settings
from triggers.cli.options import NEW_FILE, json_option, with_all_settings
from triggers.cli.output import print_json
from triggers.cli.tables import counting


@click.command()
@with_all_settings
@click.option("--force", is_flag=True, help="overwrite an existing file")
@json_option
@click.argument("file", type=NEW_FILE)
def backup_command(settings: Settings, force: bool, as_json: bool, file: Path) -> None:
    """Write the lab at one moment to FILE, for `nightjar restore`.

    The lab may run: its writers wait for at most 0.6 of NIGHTJAR_REDIS_TIMEOUT_S.
    """
    if file.exists() and not force:
        raise Conflict(
            f"{str(file)!r} exists already", hint="name another file, or overwrite it with --force"
        )
    if not file.absolute().parent.is_dir():
        raise Unavailable(f"there is no folder {str(file.absolute().parent)!r}", hint="create it first")
    with serving(settings, make=False) as url:
        done = asyncio.run(_back_up(settings, url, file))
    if as_json:
        print_json({"file": str(file), "keys": done.keys, "bytes": done.size, "paused_s": done.paused_s})
    else:
        waited = f"; its writers waited {done.paused_s:.2f} s" if done.paused_s else ""
        click.echo(f"{file}: {done.keys} keys, {decimal(done.size)}{waited}")


async def _back_up(settings: Settings, url: str, file: Path) -> BackedUp:
    async with lab_at(settings, url) as lab:
        with counting("asking the lab", "keys read") as tell:
            return await back_up(lab, file, alive_s=1.5 * settings.heartbeat_s, tell=tell)


@click.command()
@with_all_settings
@json_option
@click.argument("file", type=click.Path(path_type=Path))
def restore_command(settings: Settings, as_json: bool, file: Path) -> None:
    """Make a lab from FILE, which `nightjar backup` wrote; no lab of that name may exist.

    Experiments that were running are queued again. A restore that was killed can be repeated.
    """
    keys = read_manifest(file).keys  # fails before Redis is started
    with serving(settings, make=True) as url:
        done = asyncio.run(_restore(settings, url, file, keys))
    if as_json:
        print_json(
            {"lab": settings.lab, "keys": done.manifest.keys, "waiting_again": list(done.waiting_again)}
        )
        return
    of = done.manifest
    click.echo(f"lab {settings.lab!r} restored: {of.keys} keys, as {of.lab!r} was at {of.time}")
    if done.waiting_again:
        click.echo(f"to run again: {', '.join(done.waiting_again)}")


async def _restore(settings: Settings, url: str, file: Path, keys: int) -> Restored:
    async with lab_at(settings, url) as lab:
        with counting("checking the file", "keys written", keys) as tell:
            return await restore(lab, file, tell=tell)
