"""`nightjar redis` sends one command to the lab's Redis."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from state.client import Lab
from state.embedded import redis_url
from state.settings import Settings
from triggers.cli.options import data_option, lab_option, settings_from
from triggers.cli.output import print_json


@click.command(context_settings={"ignore_unknown_options": True})
@data_option
@lab_option
@click.option("--json", "as_json", is_flag=True)
@click.argument("words", nargs=-1, required=True)
def command(data: str | None, lab: str | None, as_json: bool, words: tuple[str, ...]) -> None:
    """Send WORDS to the lab's Redis, for example: KEYS '*' or HGETALL '{lab}:tags:mar11'."""
    settings = settings_from(data=data, lab=lab)
    answer = asyncio.run(_send(settings, words))
    if as_json:
        print_json(answer)
    else:
        _print(answer)


async def _send(settings: Settings, words: tuple[str, ...]) -> Any:
    lab = Lab(settings.lab, redis_url(settings), timeout_s=settings.redis_timeout_s)
    try:
        return await lab.raw(words)
    finally:
        await lab.close()


def _print(answer: Any) -> None:
    match answer:
        case list() | set():
            for part in answer:
                _print(part)
        case dict():
            for key, value in answer.items():
                click.echo(f"{key}\t{value}")
        case None:
            click.echo("(nil)")
        case _:
            click.echo(str(answer))
