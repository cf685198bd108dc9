"""The worker's supervisor: one keeper per GPU or CPU slot. `python -P -m workers.supervisor`."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import shlex
import sys
from pathlib import Path

import click

from functions.process.alive import announced
from functions.process.isolation_options import Isolation, isolation_options
from functions.process.logs import start_logging
from functions.process.neighbours import REACHES_LAB
from functions.process.own_modules import started
from functions.process.project import check_data_dir, check_repository
from functions.process.readiness import connected, until_ready
from functions.process.running import ended, exit_with
from functions.process.supervision import ProcessGroup, ProcessSpec, stopping_on_signals
from state.embedded import redis_url
from state.errors import Invalid, NightjarError
from state.settings import Settings, host_name
from workers.attempt.isolation import chosen, described, reaches_lab
from workers.attempt.strangers import Strangers
from workers.device import Device, discover
from workers.options import WorkerOptions
from workers.slot import Slot

log = logging.getLogger(__name__)


def keeper_spec(options: WorkerOptions, device: Device, slots: int, silent_s: float) -> ProcessSpec:
    """The keeper of one of the slots as a child process; its run may finish, without a time limit, before it ends."""
    slot = Slot(**options.model_dump(), device=device, slots=slots)
    argv = started("workers.keeper", slot.model_dump_json())
    return ProcessSpec(f"keeper-{device.gpu_id.replace(':', '-')}", argv, None, math.inf, silent_s)


async def supervise(
    options: WorkerOptions, devices: list[Device], settings: Settings, *, why: str | None = None
) -> None:
    """Run the keepers until a signal; then let their runs finish. `why`: see isolation.Choice."""
    parent, strangers = os.getppid(), Strangers()
    specs = [keeper_spec(options, device, len(devices), settings.silent_s) for device in devices]
    group = ProcessGroup(specs, settings.data_dir / "logs", lambda line: log.warning("%s", line))
    isolation = described(options.tier, network=options.network)
    facts = {
        "slots": len(devices),
        "repo": str(options.repo),
        "isolation": isolation,
        "no_stronger_isolation": why,
        REACHES_LAB: reaches_lab(options.tier, network=options.network),
    }
    with stopping_on_signals(group) as stop:
        async with connected(settings, worker=True) as lab:
            await until_ready(lab)
            async with announced("supervisor", settings, lab, facts=lambda: facts):
                await group.start()
                where = ", ".join(d.gpu_id for d in devices)
                log.info("training from %s on %s, isolation %s", options.repo, where, isolation)
                if why is not None:
                    log.info("no stronger isolation: %s", why)
                sweeping = asyncio.create_task(sweep(strangers, settings.heartbeat_s), name="sweep")
                try:
                    await group.run_until(stop, sweeping)
                finally:
                    await ended(sweeping)
                if os.getppid() != parent:
                    group.force()
                await group.drain()
                await asyncio.to_thread(strangers.end_all, ())


async def sweep(strangers: Strangers, pause_s: float) -> None:
    """Again and again end what runs of dead keepers have left."""
    while True:
        await asyncio.to_thread(strangers.end)
        await asyncio.sleep(pause_s)


def devices_for(gpu: str, cpu: int | None) -> list[Device]:
    """The devices to serve; one CPU slot if there is no GPU and `cpu` is None.

    Raises:
        Invalid: there is no device.
    """
    found = discover(host_name(), gpu=gpu, cpu=cpu or 0)
    if not found and cpu is None:
        found = discover(host_name(), gpu="none", cpu=1)
    if not found:
        raise Invalid("no GPU is visible and no CPU slot was asked for", hint="add --cpu 1")
    return found


@click.command()
@click.option("--repo", type=click.Path(path_type=Path), default=Path(), help="git repository with train.py")
@click.option("--gpu", default="all", help="all, none, or the index of one GPU")
@click.option("--cpu", type=click.IntRange(0, 256), default=None, help="CPU slots; 1 when no GPU is seen")
@click.option("--command", default=None, help="train command, instead of python train.py")
@click.option("--python", type=click.Path(path_type=Path), default=None, help="interpreter that trains")
@isolation_options
@click.option("--pass-env", multiple=True, metavar="NAME", help="environment variable for runs")
def main(
    repo: Path,
    gpu: str,
    cpu: int | None,
    command: str | None,
    python: Path | None,
    isolation: Isolation,
    network: str,
    data_dirs: tuple[Path, ...],
    pass_env: tuple[str, ...],
) -> None:
    """Train for the lab on this machine's GPUs."""
    settings = Settings()
    start_logging(settings, "supervisor")
    try:
        choice = chosen(isolation)
        options = WorkerOptions.model_validate(
            {
                "repo": repo.expanduser().absolute(),
                "command": tuple(shlex.split(command)) if command else None,
                "python": python.absolute() if python else None,
                "tier": choice.tier,
                "network": network == "on",
                "data_dirs": [folder.absolute() for folder in data_dirs],
                "pass_env": pass_env,
            }
        )
        check_repository(options.repo, options.command)
        check_data_dir(settings.data_dir, options.repo, options.data_dirs)
        redis_url(settings, worker=True)
        asyncio.run(supervise(options, devices_for(gpu, cpu), settings, why=choice.why))
    except NightjarError as problem:
        sys.exit(exit_with(problem))


if __name__ == "__main__":
    main()
