"""`nightjar doctor` checks this machine, and audits the lab if one runs.

`nightjar redis` sends one command to the lab's Redis, or prints the commands that make its users.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from functions.formats.metrics_block import deciding_line
from functions.formats.train_command import SCRIPT
from functions.kernel.git import (
    NAME_YOURSELF,
    check_repository,
    knows_user,
    no_project,
    project_around,
    repository_around,
)
from functions.kernel.process.interpreter import Interpreter, brief, find_interpreter, named, shortcomings
from functions.kernel.process.readiness import lab_at
from functions.kernel.process.remote import python_option
from functions.kernel.process.run_files import UPSTREAM_CACHE, left_behind, linked
from state.archive import archive_of
from state.client import LAYOUT, Lab
from state.embedded import broker_url, redis_url
from state.errors import Conflict, Forbidden, NightjarError, Unauthenticated, Unavailable
from state.program import PROGRAM
from state.redis_server import Finding, find_binary, lab_rules, look, setuser, worker_rules
from state.settings import Settings
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import EXISTING_FOLDER, json_option, with_all_settings
from triggers.cli.output import (
    AUTH,
    ERROR,
    OK,
    as_commands,
    counted,
    note,
    print_json,
    printable,
    printable_lines,
)
from triggers.cli.runs import names_of_tags, newest_remedies
from triggers.ports import check_port

NVML = Path(__file__).parents[2] / "workers" / "nvml.py"
LEAST_FREE_GB = 5
TRAINING = "training"
MOST_SKEW_S = 1.0
MOST_TAGS = 5
OPEN_TIERS = ("none", "limits")
"""Tiers in which a run may touch whatever its user may."""
REFUSED = "access"
"""The finding when the lab answers, but refuses our token."""


@click.command()
@with_all_settings
@click.option(
    "--repo", type=EXISTING_FOLDER, help="project to check [default: the one around the working directory]"
)
@python_option
@json_option
def doctor_command(settings: Settings, repo: Path | None, python: str | None, as_json: bool) -> int:
    """Check programs, the project, Redis, GPUs, disk, port and clock; audit the lab if one runs."""
    running = [*running_lab(settings)]
    has_worker = repo is None and any(f.what == TRAINING for f in running)
    findings = [
        *machine(settings),
        *project(repo, python, has_worker=has_worker),
        *asyncio.run(redis(settings)),
        *running,
    ]
    if as_json:
        print_json([vars(f) for f in findings])
    else:
        for f in findings:
            colour = {"ok": "green", "warning": "yellow", "error": "red"}[f.state]
            click.echo(f"{click.style(f'{f.state:<9}', colour)}{printable(f'{f.what}: {f.found}')}")
            if f.remedy:
                click.echo(f"{'':<9}-> {printable(f.remedy)}")
    wrong = {f.what for f in findings if f.state == "error"}
    if wrong == {REFUSED}:
        return AUTH
    return ERROR if wrong else OK


def failed(what: str, problem: NightjarError) -> Finding:
    return Finding(what, "error", problem.detail, problem.hint or "")


def machine(settings: Settings) -> Iterator[Finding]:
    """git, uv, GPUs, disk and port of this machine."""
    for program, needed in (("git", True), ("uv", False)):
        path = shutil.which(program)
        if path:
            yield Finding(program, "ok", path)
        elif needed:
            yield Finding(program, "error", "not found", f"install {program}")
        else:
            yield Finding(program, "ok", "not found: pip is used instead")
    yield from archive(settings)
    yield gpus()
    folder = next(p for p in (settings.data_dir, *settings.data_dir.parents) if p.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        yield Finding("data", "error", f"this user may not write in {folder}", "choose another --data")
    free = shutil.disk_usage(folder).free / 1e9
    low = free < LEAST_FREE_GB
    yield Finding(
        "disk",
        "warning" if low else "ok",
        f"{free:.0f} GB free at {folder}",
        "make room, or choose another --data" if low else "",
    )


def project(repo: Path | None, python: str | None, *, has_worker: bool) -> Iterator[Finding]:
    """The Python that would train the project, and missing modules and files. A worker knows more: its options."""
    found = repo.absolute() if repo is not None else project_around(Path.cwd())
    if found is None:
        here = Path.cwd()
        is_meant = repository_around(here) is not None or (here / SCRIPT).is_file()
        why = no_project(here)
        yield Finding("project", "warning" if is_meant else "ok", f"none here: {why.detail}", why.hint or "")
        return
    try:
        check_repository(found, None)
        chosen = Interpreter(named(python)) if python else asyncio.run(find_interpreter(found, os.environ))
    except NightjarError as problem:
        yield failed("project", problem)
        return
    yield Finding("project", "ok", f"{brief(found / SCRIPT)} is trained with {chosen.path}")
    left = [] if has_worker else left_behind_by(found)
    for lack in (*shortcomings(chosen, found, os.environ), *left):
        yield Finding("project", "warning", lack)
    if not knows_user(found):
        yield Finding(
            "project", "warning", "git does not know who you are: it makes no commit", NAME_YOURSELF
        )


def left_behind_by(repo: Path) -> list[str]:
    """Files named by the project that runs in the strongest isolation would lack."""
    try:
        links = linked(repo, ())
    except NightjarError as problem:
        return [f"{problem.detail}: {problem.hint}"]
    return left_behind(repo, links, (repo, Path(UPSTREAM_CACHE).expanduser()))


def archive(settings: Settings) -> Iterator[Finding]:
    """Whether the place of old patches takes a file and gives it back."""
    if (place := archive_of(settings.archive)) is None:
        return
    try:
        place.check()
    except Unavailable as problem:
        yield Finding("archive", "error", problem.detail, "mend NIGHTJAR_ARCHIVE, or what it names")
    else:
        yield Finding("archive", "ok", f"{place.place} takes patches and gives them back")


def gpus() -> Finding:
    """The GPUs of the NVIDIA driver, listed by another process, because a sick driver may hang."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(NVML), "list"], capture_output=True, text=True, timeout=60, check=False
        )
        found = json.loads(done.stdout or "[]")
    except (subprocess.TimeoutExpired, ValueError):
        return Finding("GPUs", "error", "the NVIDIA driver does not answer", "look at dmesg; reboot")
    if not found:
        return Finding("GPUs", "ok", "none: up uses one CPU slot")
    return Finding("GPUs", "ok", ", ".join(str(gpu.get("name")) for gpu in found))


async def redis(settings: Settings) -> list[Finding]:
    """The lab's Redis if it runs, else the binary that `up` would start."""
    try:
        url = redis_url(settings)
        broker_url(settings)
    except NightjarError as problem:
        return [_embedded(settings) if settings.redis_url is None else failed("Redis", problem)]
    try:
        async with lab_at(settings, url) as lab:
            return await _redis_facts(lab)
    except NightjarError as problem:
        return [failed("Redis", problem)]


def _embedded(settings: Settings) -> Finding:
    try:
        binary = find_binary(settings)
    except NightjarError as problem:
        return failed("Redis", problem)
    version = ".".join(map(str, binary.version))
    return Finding("Redis", "ok", f"not running; {binary.product} {version} would be started")


async def _redis_facts(lab: Lab) -> list[Finding]:
    facts = await lab.facts()
    skew = abs(await lab.now() - time.time())
    return [
        layout(lab.name, *await lab.command("MGET", lab.keys("layout"), lab.keys("schema"))),
        *look(facts),
        Finding(
            "clock",
            "warning" if skew > MOST_SKEW_S else "ok",
            f"{skew:.1f} s off Redis' clock",
            "synchronise the clocks (NTP)" if skew > MOST_SKEW_S else "",
        ),
    ]


def layout(name: str, found: str | None, of_earlier_version: str | None) -> Finding:
    """Whether this version of Nightjar reads the lab's data."""
    if of_earlier_version is not None:
        found = "0"
    if found is None:
        return Finding("layout", "ok", f"there is no lab {name!r} yet")
    if found != str(LAYOUT):
        remedy = "run the version of Nightjar that wrote it"
        return Finding("layout", "error", f"{found}, and this version reads {LAYOUT}", remedy)
    return Finding("layout", "ok", found)


def running_lab(settings: Settings) -> Iterator[Finding]:
    """The lab's audit and its hints; if no lab answers, whether the port is free."""
    try:
        http = LabHttp(settings)
        status = http.ask("GET", "/api/lab/status")
        audit = http.ask("POST", "/api/lab/audit", {})
    except (Unauthenticated, Forbidden) as problem:
        yield Finding(REFUSED, "error", f"not audited: {problem.detail}", problem.hint or "")
        return
    except NightjarError:
        yield port(settings)
        return
    yield Finding("lab", "ok", f"answers at {http.url}")
    for hint in status["hints"]:
        yield Finding("lab", "warning", as_commands(hint))
    yield from training(status["processes"])
    yield from isolation(status["processes"])
    yield from failures(http)
    if dead := status["events"]["dead_letters"]:
        told = counted(dead, "dead letter")
        yield Finding("events", "warning", told, f"{PROGRAM} call event::dead shows them")
    tags, slots = counted(audit["tags"], "tag"), counted(audit["gpus"], "slot")
    seen = f"{counted(audit['experiments'], 'experiment')} in {tags}, {slots}"
    if audit["ok"]:
        yield Finding("audit", "ok", seen)
    for violation in audit["violations"]:
        yield Finding("audit", "error", violation, "report this: it is a fault in Nightjar")


def training(processes: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """The training of each worker, and missing modules of its Python."""
    for process in processes:
        if told := process.get("training"):
            yield Finding(TRAINING, "ok", f"{process['name']}: {printable(told)}")
            for warning in process["warnings"]:
                yield Finding(TRAINING, "warning", f"{process['name']}: {printable(warning)}")


def failures(http: LabHttp) -> Iterator[Finding]:
    """Remedies for the newest failed runs of the newest tags."""
    for tag in names_of_tags(http)[:MOST_TAGS]:
        runs = http.ask("POST", "/api/experiment/history", {"tag": tag, "limit": 20})["experiments"]
        for remedy, run in newest_remedies(runs).items():
            reason = deciding_line(run["error"], run["error_kind"])
            yield Finding(
                "runs", "warning", printable(f"{run['experiment_id']}: {reason}"), printable(remedy)
            )


def isolation(processes: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    for process in processes:
        if found := process.get("isolation"):
            is_open = str(found).startswith(OPEN_TIERS)
            why = process.get("no_stronger_isolation")
            remedy = (
                "run it as a user of its own; bubblewrap, or Landlock (Linux 5.13 or later), isolates runs"
            )
            yield Finding(
                "isolation",
                "warning" if is_open else "ok",
                f"{process['name']}: {found}",
                printable(why) if why else (remedy if is_open else ""),
            )


def port(settings: Settings) -> Finding:
    """Whether `up` can listen on the port."""
    try:
        check_port(settings)
    except Conflict:
        return Finding("port", "warning", f"{settings.port} is taken, but no lab answers", "choose --port")
    return Finding("lab", "ok", f"not running; port {settings.port} is free")


@click.command(context_settings={"ignore_unknown_options": True})
@with_all_settings
@json_option
@click.argument("words", nargs=-1, required=True)
def redis_command(settings: Settings, as_json: bool, words: tuple[str, ...]) -> None:
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
        _print_answer(answer)


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


def _print_answer(answer: Any) -> None:
    match answer:
        case list() | set():
            for part in answer:
                _print_answer(part)
        case dict():
            for key, value in answer.items():
                click.echo(_text_of(f"{key}\t{value}"))
        case None:
            click.echo("(nil)")
        case _:
            click.echo(_text_of(str(answer)))


def _text_of(answer: str) -> str:
    """Text from Redis: escaped on a terminal, unchanged in a pipe or a file."""
    return "\t".join(map(printable_lines, answer.split("\t"))) if sys.stdout.isatty() else answer
