"""`nightjar join` lends this machine to a swarm: it finds the worker's directory, and becomes the worker."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from pydantic import TypeAdapter, ValidationError

from functions.kernel.process.own_modules import started
from functions.kernel.process.remote import Joined, joined_places, new_name, place_to_join, remembered
from state.ids import Id
from state.settings import Settings, own_environment
from triggers.cli.lab_http import warn_of_plain_http
from triggers.cli.options import all_settings_from, data_option
from triggers.cli.worker import check_no_lab, checked_url


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False
)
@data_option
@click.option("--url", default=None)
@click.option("--worker-id", default=None)
@click.option("--enroll-token", default=None)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    data: Path | None,
    url: str | None,
    worker_id: str | None,
    enroll_token: str | None,
    arguments: tuple[str, ...],
) -> None:
    """Join a swarm with your train.py; `workers.join` answers --help."""
    environment = own_environment()
    if not {"--help", "-h"} & {*arguments}:
        settings = joining_worker(url, worker_id, data)
        environment["NIGHTJAR_DATA"] = str(settings.data_dir)
        given = settings.enroll_token.get_secret_value() if settings.enroll_token is not None else None
        if enroll_token or given:
            environment["NIGHTJAR_ENROLL_TOKEN"] = enroll_token or given or ""
    # triggers may not import workers, so this process becomes one
    os.execve(sys.executable, started("workers.join", *arguments), environment)


def joining_worker(url: str | None, worker_id: str | None, data: Path | None) -> Settings:
    """The worker's settings, its identity saved. Raises click.UsageError: none is meant, or one of several."""
    url = None if url is None else checked_url(url)
    if worker_id is not None:
        _check_id(worker_id)
    settings = all_settings_from(data=data)
    place = settings.data_dir if settings.data is not None else _place(url, worker_id)
    check_no_lab(place)
    before = remembered(place, Joined)
    if before is None or (url or before.url, worker_id or before.name) != (before.url, before.name):
        if url is None:
            who = "no worker" if before is None else f"{before.name}, and no other worker,"
            raise click.UsageError(f"{who} has joined a swarm from {place}: join with --url URL")
        warn_of_plain_http(url)
        is_named = settings.data is not None
        Joined(url=url, name=worker_id or (new_name() if is_named else place.name)).save(place)
    return all_settings_from(data=place)


def _place(url: str | None, worker_id: str | None) -> Path:
    """The directory of this user's only matching worker, or of a new one."""
    known = [*joined_places(url, worker_id)]
    if len(known) == 1:
        return known[0]
    if known:
        names = ", ".join(sorted(f"{place.name} ({place.parent.name})" for place in known))
        raise click.UsageError(f"several workers have joined from here: {names}. Say which: --worker-id NAME")
    if url is None and (others := [place.name for place in joined_places(None, None)]):
        names = ", ".join(sorted(others))
        raise click.UsageError(f"no worker {worker_id!r} has joined from here; these have: {names}")
    if url is None:
        raise click.UsageError(
            "no worker has joined a swarm from here yet: join with --url URL --train-py PATH"
        )
    return place_to_join(url, worker_id or new_name())


def _check_id(worker_id: str) -> None:
    try:
        TypeAdapter(Id).validate_python(worker_id)
    except ValidationError as problem:
        raise click.UsageError(
            f"--worker-id {worker_id!r}: letters, digits, `.`, `_` and `-`, at most 96, the first a letter or digit"
        ) from problem
