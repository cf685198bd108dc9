"""`nightjar restore` makes a lab from a backup."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from functions.kernel.process.readiness import lab_at
from state.backup import Restored, read_manifest, restore
from state.embedded import serving
from state.settings import Settings
from triggers.cli.counting import counting
from triggers.cli.options import json_option, with_all_settings
from triggers.cli.output import print_json


@click.command()
@with_all_settings
@json_option
@click.argument("file", type=click.Path(path_type=Path))
def command(settings: Settings, as_json: bool, file: Path) -> None:
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
