"""`nightjar worker` trains for a lab on this machine: beside its Redis, or by its URL alone.

`nightjar join` lends this machine to a swarm: it finds the worker's directory, and becomes the worker.
`nightjar agent` starts coding agents on a tag, and keeps them at work.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import platformdirs
from pydantic import SecretStr, TypeAdapter, ValidationError

from functions.kernel.process.remote import (
    JoinedSwarm,
    Remote,
    joined_places,
    new_name,
    place_of,
    place_to_join,
    remembered,
)
from functions.kernel.process.running import started
from state.errors import Forbidden
from state.ids import Id
from state.settings import Settings, own_environment
from triggers.cli.lab_http import Bearer, LabHttp, given, named, warn_of_plain_http
from triggers.cli.options import (
    EXISTING_FOLDER,
    Duration,
    NameType,
    all_settings_from,
    data_option,
    lab_option,
    with_all_settings,
)
from triggers.cli.output import note


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False
)
@data_option
@lab_option
@click.option("--url", default=None)
@click.option("--token", default=None)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def worker_command(
    data: Path | None, lab: str | None, url: str | None, token: str | None, arguments: tuple[str, ...]
) -> None:
    """Train for the lab on this machine's GPUs; `workers.supervisor` answers --help."""
    if token is not None and url is None:
        raise click.UsageError("--token goes with --url: a worker beside the lab's Redis needs none")
    if url is None:
        settings = all_settings_from(data=data, lab=lab)
        chosen: Mapping[str, str] = settings.worker_environment
    else:
        settings, chosen, arguments = remote_worker(url, token, data), {}, ("--remote", *arguments)
    place = {"NIGHTJAR_DATA": str(settings.data_dir), "NIGHTJAR_LAB": settings.lab}
    # triggers may not import workers, so this process becomes one
    os.execve(
        sys.executable, started("workers.supervisor", *arguments), {**own_environment(), **place, **chosen}
    )


def remote_worker(url: str, token: str | None, data: Path | None) -> Settings:
    """Settings of a worker for the lab at `url`, its identity saved. A lab on this machine has another directory."""
    url = checked_url(url)
    settings = all_settings_from(data=data, url=url)
    if settings.data is None:
        data = Path(platformdirs.user_state_dir("nightjar"), "workers", place_of(url))
        settings = all_settings_from(data=data, url=url)
    check_no_lab(settings.data_dir)
    before = remembered(settings.data_dir, Remote)
    if before is not None and before.url != url:
        before = None
    bearer = named(token, "--token") if token else given(settings)
    name = before.name if before is not None else new_name()
    if bearer is None and before is not None:
        return settings
    Remote(url=url, token=accepted(settings, bearer, name), name=name).save(settings.data_dir)
    return settings


def checked_url(url: str) -> str:
    """The URL of a lab as it is written down. Raises click.UsageError: it is none."""
    if not re.match(r"https?://[^/?#]", url):
        raise click.UsageError(f"{url!r} is not a URL such as https://HOST")
    return url.rstrip("/")


def check_no_lab(data_dir: Path) -> None:
    """Refuse a lab's own data directory to a remote worker. Raises click.UsageError: it is one."""
    if (data_dir / "redis.json").exists():
        raise click.UsageError(
            f"{data_dir} is the data directory of a lab: name another one for this worker with --data"
        )


def accepted(settings: Settings, bearer: Bearer | None, name: str) -> SecretStr | None:
    """The token to serve with: the one that was given, or one of its own for an enroll token."""
    if bearer is None:
        return None
    http = LabHttp(settings, bearer=bearer)
    try:
        http.ask("GET", "/api/token/whoami")
    except Forbidden:  # an enroll token opens nothing else
        issued = http.ask("POST", "/api/token/enroll", {"enroll_token": bearer.text, "name": name})
        return SecretStr(issued["token"])
    return SecretStr(bearer.text)


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False
)
@data_option
@click.option("--url", default=None)
@click.option("--worker-id", default=None)
@click.option("--enroll-token", default=None)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def join_command(
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
    before = remembered(place, JoinedSwarm)
    if before is None or (url or before.url, worker_id or before.name) != (before.url, before.name):
        if url is None:
            who = "no worker" if before is None else f"{before.name}, and no other worker,"
            raise click.UsageError(f"{who} has joined a swarm from {place}: join with --url URL")
        warn_of_plain_http(url)
        is_named = settings.data is not None
        JoinedSwarm(url=url, name=worker_id or (new_name() if is_named else place.name)).save(place)
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


@click.command()
@with_all_settings
@click.option(
    "--tag",
    type=NameType(),
    required=True,
    help="the line of research; opened at HEAD of --repo if it does not exist",
)
@click.option("-n", "--count", type=click.IntRange(1, 64), default=1, show_default=True, help="agents")
@click.option(
    "--name",
    type=NameType(),
    default="agent",
    show_default=True,
    help="their name; several are NAME-1, NAME-2, ...",
)
@click.option(
    "--repo",
    type=EXISTING_FOLDER,
    help="the research repository, which each agent clones [default: the one around the working directory]",
)
@click.option(
    "--idle-after",
    type=Duration(),
    default="30m",
    show_default=True,
    help="start one again that has had no experiment of its own for so long",
)
@click.option(
    "--silent-after",
    type=Duration(),
    default="1h",
    show_default=True,
    help="start one again that has printed nothing for so long; 0: never",
)
@click.option(
    "--starts",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="give one up after so many starts in a row without an experiment",
)
@click.argument("words", metavar="-- COMMAND...", nargs=-1, required=True)
def agent_command(
    settings: Settings,
    tag: str,
    count: int,
    name: str,
    repo: Path | None,
    idle_after: float,
    silent_after: float,
    starts: int,
    words: tuple[str, ...],
) -> int:
    """Start COMMAND as a research agent, such as `claude -p ...` or `codex exec ...`, and keep it at work.

    Each agent has a clone of its own and gets program.md on standard input, made out to it; where a word of COMMAND
    has {program}, it gets the name of that file instead; {name} and {tag} stand for its own name and tag. It is
    started again when it exits, is silent or idle. The night ends with the tag's budget, a pause, or Ctrl-C.
    """
    from functions.kernel.git import repository_around
    from triggers.agents.keeper import Patience
    from triggers.agents.night import night

    names = [name] if count == 1 else [f"{name}-{nth + 1}" for nth in range(count)]
    repo = repo or repository_around(Path.cwd())
    if repo is None:
        raise click.UsageError("this folder is in no git repository: name one with --repo PATH")
    return night(
        settings,
        tag=tag,
        names=names,
        repo=repo.absolute(),
        command=words,
        patience=Patience(silent_after, idle_after, starts),
        say=note,
    )
