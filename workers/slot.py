"""The GPUs and CPU slots of this machine: their health, memory that a run has left, and the options of their runs."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import psutil
from pydantic import BaseModel, ConfigDict, TypeAdapter

from functions.formats.train_command import SCRIPT, scripts_of
from functions.pool.rules.health import is_memory_back
from state.errors import Invalid
from state.records import Footprint
from state.settings import Settings
from workers.attempt.isolation import CONFINED, RunAccess, Tier, bubblewrap
from workers.attempt.job import HealthSample, Unfit
from workers.attempt.usage import KeptAttempts, below, machine_bytes, memory_of, waited_for

_log = logging.getLogger(__name__)

HELPER: tuple[str, ...] = (sys.executable, "-I", str(Path(__file__).with_name("nvml.py")))

_MIB = 1024 * 1024
_LIST_S = 60.0
_CPU_LOOK_S = 0.1
_MOST_LOOKED_AT = 1000
"""Processes of a CPU slot that a sample looks at."""
_HEALTH = TypeAdapter(HealthSample)


@dataclass(frozen=True)
class Device:
    """A GPU, or a share of the CPU."""

    gpu_id: str
    """`<host>:<uuid>` or `<host>:cpu<n>`."""
    index: int
    name: str
    """The GPU's model by its driver, or `cpu`."""
    vram_mb: int
    """0 for a CPU slot."""
    uuid: str | None
    driver: str | None
    kind: Literal["gpu", "cpu"]


def discover(
    host: str, *, gpu: str | int = "all", cpu: int = 0, helper: Sequence[str] = HELPER
) -> list[Device]:
    """The machine's GPUs (`all`, `none`, or the one with this index), then `cpu` CPU slots.

    Without a driver there are no GPUs. Blocks while the driver starts. Raises Invalid for an unknown index.
    """
    gpus = [] if gpu == "none" else _gpus(host, helper)
    if gpu not in ("all", "none"):
        there = ", ".join(f"{one.index} ({one.name})" for one in gpus) or "none"
        gpus = [one for one in gpus if str(one.index) == str(gpu)]
        if not gpus:
            raise Invalid(
                f"this machine has no GPU {gpu!r}; it has: {there}", hint="choose an index, `all` or `none`"
            )
    slots = [
        Device(f"{host}:cpu{n}", index=n, name="cpu", vram_mb=0, uuid=None, driver=None, kind="cpu")
        for n in range(cpu)
    ]
    return gpus + slots


class HealthSampler:
    """Samples devices through a helper process, which lives between samples and is killed when it hangs."""

    def __init__(
        self, *, timeout_s: float = 3.0, start_timeout_s: float = 15.0, helper: Sequence[str] = HELPER
    ) -> None:
        self._timeout_s = timeout_s
        self._start_timeout_s = start_timeout_s  # the driver takes seconds to start if no process uses it
        self._command = helper
        self._helper: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._slot_load = _SlotLoad()

    @property
    def pid(self) -> int | None:
        return self._helper.pid if self._helper is not None else None

    async def sample(self, device: Device) -> HealthSample:
        """The device's numbers now. Errors and timeouts are in `error`, not raised."""
        if device.kind == "cpu" or device.uuid is None:
            return await self._slot_load.sample()
        async with self._turn:
            try:
                return await self._ask(device.uuid)
            except TimeoutError:
                self._kill()
                return HealthSample(error=f"NVML did not answer within {self._timeout_s:g} s")
            except (OSError, ValueError) as error:
                self._kill()
                return HealthSample(error=f"the NVML helper failed: {error}")
            except BaseException:  # cancelled: the next sample would read this one's answer
                self._kill()
                raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Kill the helper and wait for it for at most a second."""
        self._kill()
        if self._helper is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._helper.wait()

    async def _ask(self, uuid: str) -> HealthSample:
        helper = await self._running_helper()
        assert helper.stdin is not None
        async with asyncio.timeout(self._timeout_s):
            helper.stdin.write(uuid.encode() + b"\n")
            answer = await _line(helper)
        return _HEALTH.validate_python(answer)

    async def _running_helper(self) -> asyncio.subprocess.Process:
        if self._helper is not None and self._helper.returncode is None:
            if self._helper.stdin is None or not self._helper.stdin.is_closing():
                return self._helper
            # it was killed because it hung in the driver; until it ends, a new one would hang too
            async with asyncio.timeout(self._timeout_s):
                await self._helper.wait()
        self._helper = await asyncio.create_subprocess_exec(
            *(*self._command, "sample"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(self._start_timeout_s):
            await _line(self._helper)
        return self._helper

    def _kill(self) -> None:
        if self._helper is None or self._helper.returncode is not None:
            return
        _log.warning("killing the NVML helper %d", self._helper.pid)
        with contextlib.suppress(ProcessLookupError):
            self._helper.kill()
        if self._helper.stdin is not None:
            self._helper.stdin.close()


async def _line(helper: asyncio.subprocess.Process) -> dict[str, object]:
    assert helper.stdout is not None
    line = await helper.stdout.readline()
    if not line:
        raise OSError("it ended")
    answer: object = json.loads(line)
    if not isinstance(answer, dict):
        raise ValueError("its answer is not an object")
    return answer


class _SlotLoad:
    """CPU time and memory of the processes below this one, which are a CPU slot's own."""

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None
        """Seconds by the clock and CPU seconds at the last look."""

    async def sample(self) -> HealthSample:
        """Utilization since the last sample; 100 %: one core, because a run of a CPU slot has one thread."""
        since, used_before = self._before or await self._first_look()
        (at, used), memory = await asyncio.to_thread(self._look)
        self._before = at, used
        share = max(used - used_before, 0.0) / max(at - since, _CPU_LOOK_S)
        return HealthSample(
            memory_used_mb=memory / _MIB,
            memory_total_mb=machine_bytes() / _MIB,
            utilization_percent=min(100.0 * share, 100.0),
        )

    async def _first_look(self) -> tuple[float, float]:
        found, _ = await asyncio.to_thread(self._look)
        await asyncio.sleep(_CPU_LOOK_S)
        return found

    def _look(self) -> tuple[tuple[float, float], int]:
        pids = below([os.getpid()], _MOST_LOOKED_AT)[1:]
        used = waited_for()
        for pid in pids:
            with contextlib.suppress(psutil.Error):  # it has ended
                times = psutil.Process(pid).cpu_times()
                used += times.user + times.system + times.children_user + times.children_system
        return (time.monotonic(), used), memory_of(pids, math.inf)


def _gpus(host: str, helper: Sequence[str]) -> list[Device]:
    try:
        done = subprocess.run([*helper, "list"], capture_output=True, timeout=_LIST_S, check=False)
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        _log.warning("the GPUs of this machine cannot be listed: %s", error)
        return []
    return [Device(gpu_id=f"{host}:{one['uuid']}", kind="gpu", **one) for one in found]


_PAUSE_S = 0.25


async def look(sampler: HealthSampler, device: Device) -> Footprint | Unfit | None:
    """What the device's memory holds now; None for a CPU slot."""
    if device.uuid is None:
        return None
    health = await sampler.sample(device)
    if health.error is not None or health.memory_used_mb is None:
        return Unfit(health.error or "its driver does not say how much memory is in use")
    return Footprint(used_mb=health.memory_used_mb, processes=health.processes)


async def look_until(
    sampler: HealthSampler, device: Device, *, patience_s: float
) -> Footprint | Unfit | None:
    """Look again until the driver answers, for at most `patience_s`."""
    give_up = asyncio.get_running_loop().time() + patience_s
    while isinstance(seen := await look(sampler, device), Unfit):
        if asyncio.get_running_loop().time() >= give_up:
            break
        await asyncio.sleep(_PAUSE_S)
    return seen


async def memory_came_back(
    sampler: HealthSampler, device: Device, before: Footprint | None, *, patience_s: float
) -> bool:
    """Whether the memory is as it was before the run; call it once all processes of the run have ended.

    Drivers free memory late, so it looks again for `patience_s`. No answer from the driver counts as no.
    """
    if before is None:
        return True
    give_up = asyncio.get_running_loop().time() + patience_s
    while True:
        now = await look(sampler, device)
        if isinstance(now, Footprint) and is_memory_back(before, now, strangers=_living(now)):
            return True
        if asyncio.get_running_loop().time() >= give_up:
            _log.error("the memory of %s did not come back: before %s, now %s", device.gpu_id, before, now)
            return False
        await asyncio.sleep(_PAUSE_S)


def _living(footprint: Footprint) -> set[int]:
    """Its living processes; the driver may also list ids of another pid namespace."""
    return {pid for pid in footprint.processes or {} if _lives(pid)}


def _lives(pid: int) -> bool:
    try:
        # not a zombie: its threads may still be in the driver and hold GPU memory
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


# -- A slot: the options of its runs, their command and folders.

_OF_MACHINE = 0.9
"""Share of a machine's memory that its runs may take."""
_KEPT_S = 12 * 3600.0
"""Seconds for which the folder of a failed run is kept."""
_KEPT_BYTES = 1024 * _MIB
"""Disk that the folders of failed runs may take, per GPU or CPU slot. The oldest go first."""


class WorkerOptions(BaseModel):
    """The repository, command and limits of every run of a worker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    repo: Path
    command: tuple[str, ...] | None = None
    python: Path | None = None
    tier: Tier = "limits"
    """See workers.attempt.isolation."""
    network: bool = False
    """Whether confined runs may use the network."""
    data_dirs: tuple[Path, ...] = ()
    """Further folders that confined runs may read."""
    hidden_data: Path | None = None
    """Folder of hidden splits: only evaluators of tags that have some may read it."""
    links: tuple[str, ...] = ()
    """Data of the project that runs get beside the files of a commit."""
    pass_env: tuple[str, ...] = ()
    remote: bool = False
    """Whether its lab is another machine's: then it asks for runs, and nothing rings for it."""


class Slot(WorkerOptions):
    """A device with the options of its runs; processes get it as JSON on their command line."""

    device: Device
    slots: int = 1
    """How many slots its worker has on this machine."""

    @property
    def gpu_id(self) -> str:
        return self.device.gpu_id

    @property
    def scripts(self) -> tuple[str, ...]:
        """The scripts whose constants are set. See scripts_of."""
        return scripts_of(self.command)

    def work_dir(self, settings: Settings) -> Path:
        return settings.data_dir / "work" / self._folder

    def access(self, settings: Settings) -> RunAccess | None:
        """What its runs may touch. None: whatever their user may."""
        if self.tier not in CONFINED:
            return None
        caches = settings.data_dir / "cache" / self._folder
        bwrap = bubblewrap() if self.tier == "bwrap" else None
        return RunAccess(
            self.repo, self.data_dirs, caches, self.network, bwrap, self.memory_bytes(settings) // 2
        )

    def memory_bytes(self, settings: Settings) -> int:
        """Memory that a run may take; by default its share of the machine's memory."""
        if settings.run_memory_mb is not None:
            return int(settings.run_memory_mb * _MIB)
        return int(machine_bytes() * _OF_MACHINE / self.slots)

    def kept(self, settings: Settings) -> KeptAttempts:
        """The kept folders of its failed attempts."""
        root = settings.data_dir / "failed" / self._folder
        return KeptAttempts(root, _KEPT_S, _KEPT_BYTES)

    def mark(self, settings: Settings) -> str:
        """First part of the labels of its runs' processes: no other lab's worker on this machine has the same."""
        return hashlib.sha256(f"{settings.lab} {settings.data_dir}".encode()).hexdigest()[:16]

    @property
    def _folder(self) -> str:
        return self.gpu_id.replace(":", "-")


def command_line(command: Sequence[str] | None, python: str) -> list[str]:
    """The operator's command, by default train.py, with our interpreter; `uv run` would leave a child behind."""
    if not command:
        return [python, SCRIPT]
    argv = list(command)
    if argv[:2] == ["uv", "run"] and len(argv) > 2 and not argv[2].startswith("-"):
        argv = argv[2:]
        if argv[0].endswith(".py"):
            argv.insert(0, python)
    if argv[0] in ("python", "python3"):
        argv[0] = python
    return argv


def can_start(program: str, tree: Path, path: str) -> bool:
    """Whether the program exists: relative to the tree, or by name in the folders of `path`."""
    if os.sep in program:
        return os.access(tree / program, os.X_OK)
    return shutil.which(program, path=path) is not None
