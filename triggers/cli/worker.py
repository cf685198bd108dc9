"""`nightjar worker` trains for a lab on this machine: beside its Redis, or by its URL alone."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import platformdirs
from pydantic import SecretStr

from functions.kernel.process.own_modules import started
from functions.kernel.process.remote import Remote, new_name, place_of, remembered
from state.errors import Forbidden
from state.settings import Settings, own_environment
from triggers.cli.lab_http import Bearer, LabHttp, given, named
from triggers.cli.options import all_settings_from, data_option, lab_option


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False
)
@data_option
@lab_option
@click.option("--url", default=None)
@click.option("--token", default=None)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
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
