"""`nightjar redis` sends one command to the lab's Redis, or prints the commands that make its users."""

from __future__ import annotations

import asyncio
import secrets
import sys
from typing import Any

import click

from functions.kernel.process.readiness import lab_at
from state.embedded import redis_url
from state.redis_endpoint import lab_rules, setuser, worker_rules
from state.settings import Settings
from triggers.cli.options import json_option, with_all_settings
from triggers.cli.output import note, print_json, printable_lines


@click.command(context_settings={"ignore_unknown_options": True})
@with_all_settings
@json_option
@click.argument("words", nargs=-1, required=True)
def command(settings: Settings, as_json: bool, words: tuple[str, ...]) -> None:
    """Send WORDS to the lab's Redis, for example: KEYS '*' or HGETALL '{lab}:tags:mar11'.

    The word `acl` sends nothing: it prints the commands that make the lab's two users, with new passwords.
    """
    if words == ("acl",):
        _print_users(settings.lab)
        return
    answer = asyncio.run(_send(settings, words))
    if as_json:
        print_json(answer)
    else:
        _print(answer)


def _print_users(lab: str) -> None:
    """Print the commands for redis-cli to standard output, and the settings to standard error."""
    ours, workers = (
        (f"nightjar.{lab}", secrets.token_hex(24)),
        (f"nightjar-worker.{lab}", secrets.token_hex(24)),
    )
    click.echo(setuser(*ours, lab_rules(lab)))
    click.echo(setuser(*workers, worker_rules()))
    note(
        "for web, events, clock, up, backup and restore:\n"
        f"  NIGHTJAR_REDIS_URL=redis://{':'.join(ours)}@HOST:6379/0\n"
        "for workers that up starts, also this; for other workers, as NIGHTJAR_REDIS_URL:\n"
        f"  NIGHTJAR_WORKER_REDIS_URL=redis://{':'.join(workers)}@HOST:6379/0"
    )


async def _send(settings: Settings, words: tuple[str, ...]) -> Any:
    async with lab_at(settings, redis_url(settings)) as lab:
        return await lab.raw(words)


def _print(answer: Any) -> None:
    match answer:
        case list() | set():
            for part in answer:
                _print(part)
        case dict():
            for key, value in answer.items():
                click.echo(_text(f"{key}\t{value}"))
        case None:
            click.echo("(nil)")
        case _:
            click.echo(_text(str(answer)))


def _text(answer: str) -> str:
    """Text from Redis: escaped on a terminal, unchanged in a pipe or a file."""
    return "\t".join(map(printable_lines, answer.split("\t"))) if sys.stdout.isatty() else answer
