"""The worker's supervisor: one keeper per GPU or CPU slot. `python -P -m workers.supervisor`."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import shlex
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from functions.formats.train_command import SCRIPT, scripts_of
from functions.kernel.git import check_data_dir, check_repository
from functions.kernel.process.alive import beating
from functions.kernel.process.forking import Threads
from functions.kernel.process.interpreter import Interpreter, brief, find_interpreter, named, shortcomings
from functions.kernel.process.logs import start_logging
from functions.kernel.process.remote import Isolation, alone_in, isolation_options, python_option, remote_of
from functions.kernel.process.run_files import SYSTEM, UPSTREAM_CACHE, left_behind, linked
from functions.kernel.process.running import ended, exit_with, started
from functions.kernel.process.supervision import ProcessGroup, ProcessSpec, stopping_on_signals
from state.client_settings import host_name
from state.errors import Forbidden, Invalid, NightjarError
from state.program import PROGRAM
from state.settings import Settings
from workers import keeper
from workers.attempt.isolation import CONFINED, chosen, described, roots_of
from workers.attempt.job import delivered
from workers.attempt.processes import Orphans
from workers.gpu import preload
from workers.lab_client import RemoteLab, announce, calling, found
from workers.slot import Device, Slot, WorkerOptions, command_line, discover

log = logging.getLogger(__name__)

NO_SLOT = "no GPU is seen and no CPU slot is asked for: this worker serves nothing (--cpu 1 adds a slot)"


NO_SCRIPT = (
    "--command does not say which Python file it runs: no constant can be set, and another seed reaches it by"
    " NIGHTJAR_SEED alone"
)


def keeper_spec(options: WorkerOptions, device: Device, slots: int, silent_s: float) -> ProcessSpec:
    """The keeper of a slot as a child process. Its run may finish, without a time limit, before it ends."""
    slot = Slot(**options.model_dump(), device=device, slots=slots)
    argument = slot.model_dump_json()
    name, argv = f"keeper-{device.gpu_id.replace(':', '-')}", started("workers.keeper", argument)
    return ProcessSpec(name, argv, None, math.inf, silent_s, partial(keeper.main, argument))


async def supervise(
    options: WorkerOptions, devices: list[Device], settings: Settings, *, why: str | None = None
) -> None:
    """Run the keepers until a signal; then let their runs finish. `why`: see isolation.TierChoice."""
    threads = Threads()
    python = await chosen_python(options)
    if not options.remote:
        preload()  # import the modules of the slots' processes before they are forked
    parent, orphans = os.getppid(), Orphans()
    specs = [keeper_spec(options, device, len(devices), settings.silent_s) for device in devices]
    group = ProcessGroup(specs, settings.data_dir / "logs", lambda line: log.warning("%s", line))
    isolation = described(options.tier, network=options.network)
    facts: dict[str, Any] = {
        "slots": len(devices),
        "repo": str(options.repo),
        "training": f"{trained(options)} with {python.path} on {counted(devices)}, isolation {isolation}",
        "warnings": [
            *([] if devices else [NO_SLOT]),
            *([] if scripts_of(options.command) else [NO_SCRIPT]),
            *await asyncio.to_thread(warnings, options, python, settings.data_dir),
        ],
        "isolation": isolation,
        "no_stronger_isolation": why,
    }
    with stopping_on_signals(group) as stop:
        async with serving(options, settings) as lab:
            threads.end()
            await group.start()
            log.info("training %s (%s)", facts["training"], ", ".join(d.gpu_id for d in devices))
            for warning in facts["warnings"]:
                log.warning("%s", warning)
            if why is not None:
                log.info("no stronger isolation: %s", why)
            sweeping = asyncio.create_task(sweep(orphans, lab, facts, settings.heartbeat_s), name="sweep")
            try:
                await group.run_until(stop, sweeping)
            finally:
                await ended(sweeping)
            if os.getppid() != parent:
                group.force()
            await group.drain()
            await asyncio.to_thread(orphans.end_all, ())
            with suppress(NightjarError):
                await announce(lab, "supervisor", ended=True)


@asynccontextmanager
async def serving(options: WorkerOptions, settings: Settings) -> AsyncIterator[RemoteLab]:
    """The lab of these settings, once it answers. Raises Unavailable: no answer. Forbidden: no worker's token."""
    alone = alone_in(settings.data_dir) if options.remote else nullcontext()
    with alone:
        async with (
            beating(),
            calling(await found(settings, remote=options.remote), ("token::whoami", "pool::announce")) as lab,
        ):
            check_role(await delivered(lambda: lab.call("token::whoami", {})))
            yield lab


def check_role(identity: Mapping[str, Any]) -> None:
    """Check that the token is a worker's. Raises Forbidden: it has another role."""
    if identity["role"] not in ("worker", "operator", "local"):
        raise Forbidden(
            f"this token is an {identity['role']}'s",
            hint="ask the lab's operator for one of the role worker: ./nightjar token issue NAME --role worker",
        )


async def chosen_python(options: WorkerOptions) -> Interpreter:
    """The interpreter that the operator has named, else the project's."""
    if options.python is not None:
        return Interpreter(options.python)
    return await find_interpreter(options.repo, os.environ)


def warnings(options: WorkerOptions, python: Interpreter, data: Path) -> list[str]:
    """Warnings about files that runs miss, and about the interpreter where it runs the script."""
    cache = Path(UPSTREAM_CACHE).expanduser()
    known = (options.repo, data, cache, *options.data_dirs, *roots_of(python.path))
    found = left_behind(options.repo, options.links, known if options.tier in CONFINED else None)
    if command_line(options.command, str(python.path))[0] != str(python.path):
        return found  # another program knows what it needs
    return [*shortcomings(python, options.repo, os.environ), *found]


def check_hidden_data(options: WorkerOptions, data: Path) -> None:
    """Raise Invalid if runs could read the hidden data: they have to lie outside all that runs may read."""
    if options.hidden_data is None:
        return
    if options.tier not in CONFINED:
        raise Invalid(
            f"in the isolation {options.tier} runs read whatever this user reads, hidden data too",
            hint="--isolation landlock or bwrap, or leave --hidden-data out",
        )
    hidden, python = options.hidden_data.resolve(), options.python or Path(sys.executable)
    read = [options.repo, *options.data_dirs, *roots_of(python), data, *map(Path, (*SYSTEM, UPSTREAM_CACHE))]
    for place in (each.expanduser().resolve() for each in read):
        if hidden.is_relative_to(place) or place.is_relative_to(hidden):
            raise Invalid(
                f"the hidden data {hidden} and {place}, which runs may read, lie in each other",
                hint="name a folder of its own: --hidden-data DIR",
            )


def trained(options: WorkerOptions) -> str:
    """The script, or the project and its command, for people."""
    if options.command is None:
        return brief(options.repo / SCRIPT)
    return f"{brief(options.repo)} by `{shlex.join(options.command)}`"


def counted(devices: Sequence[Device]) -> str:
    """How many slots, for example `1 GPU and 2 CPU slots`."""
    counts = Counter("GPU" if device.kind == "gpu" else "CPU slot" for device in devices)
    return " and ".join(f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in counts.items()) or "no slot"


async def sweep(orphans: Orphans, lab: RemoteLab, facts: Mapping[str, Any], pause_s: float) -> None:
    """Keep ending the orphans of runs whose keepers have died, and keep announcing this process."""
    while True:
        try:
            await announce(lab, "supervisor", **facts)
        except NightjarError as problem:
            log.warning("cannot say that the worker is alive: %s", problem.detail)
        await asyncio.to_thread(orphans.end)
        await asyncio.sleep(pause_s)


def devices_for(host: str, gpu: str, cpu: int | None) -> list[Device]:
    """The devices to serve, under this host's name; one CPU slot if there is no GPU and `cpu` is None."""
    found = discover(host, gpu=gpu, cpu=cpu or 0)
    if not found and cpu is None:
        found = discover(host, gpu="none", cpu=1)
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--repo", type=click.Path(path_type=Path), default=Path(), help="git repository with train.py")
@click.option("--gpu", default="all", help="all, none, or the index of one GPU")
@click.option("--cpu", type=click.IntRange(0, 256), help="CPU slots; 1 when no GPU is seen")
@click.option("--command", help="train command, instead of python train.py")
@python_option
@isolation_options
@click.option("--pass-env", multiple=True, metavar="NAME", help="environment variable for runs")
@click.option(
    "--remote", is_flag=True, hidden=True, help="reach the lab as remote.json in the data directory says"
)
# triggers.cli.worker reads the next four before this process starts; they are here for --help
@click.option("--data", metavar="PATH", expose_value=False, help="state directory [NIGHTJAR_DATA]")
@click.option("--lab", expose_value=False, help="name of the lab [NIGHTJAR_LAB]")
@click.option("--url", expose_value=False, help="URL of a lab on another machine")
@click.option("--token", expose_value=False, help="a token or enroll token for --url [NIGHTJAR_TOKEN]")
def main(
    repo: Path,
    gpu: str,
    cpu: int | None,
    command: str | None,
    python: str | None,
    isolation: Isolation,
    network: str,
    data_dirs: tuple[Path, ...],
    hidden_data: Path | None,
    links: tuple[str, ...],
    pass_env: tuple[str, ...],
    remote: bool,
) -> None:
    """Train for the lab on this machine's GPUs.

    It serves the lab of its data directory, or with --url one elsewhere: after the first start the URL is enough.
    """
    settings = Settings()
    start_logging(settings, "supervisor")
    try:
        choice, repo = chosen(isolation), repo.expanduser().absolute()
        check_repository(repo, command)
        data = linked(repo, links)
        options = WorkerOptions.model_validate(
            {
                "repo": repo,
                "command": tuple(shlex.split(command)) if command else None,
                "python": named(python) if python else None,
                "tier": choice.tier,
                "network": network == "on",
                "data_dirs": [*(folder.absolute() for folder in data_dirs), *data.values()],
                "hidden_data": hidden_data and hidden_data.absolute(),
                "links": [*data],
                "pass_env": pass_env,
                "remote": remote,
            }
        )
        check_data_dir(settings.data_dir, options.repo, options.data_dirs)
        check_hidden_data(options, settings.data_dir)
        host = remote_of(settings.data_dir).name if remote else host_name()
        asyncio.run(supervise(options, devices_for(host, gpu, cpu), settings, why=choice.why))
    except NightjarError as problem:
        sys.exit(exit_with(problem))


def run(*arguments: str) -> int:
    """Run with these arguments; answers the exit code."""
    return int(main([*arguments], prog_name=f"{PROGRAM} worker", standalone_mode=True) or 0)


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
