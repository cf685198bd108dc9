"""TrainingRunner runs one attempt on one device: check out, train, parse."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from functions.formats.metrics_block import (
    classify_failure,
    failure_tail,
    newest_lines,
    parse_block,
)
from functions.lanes import Failed, Halted, Trained, TrainingJob, TrainingResult, Unfit, Watcher
from state.errors import Invalid
from state.records import Footprint
from state.settings import Settings, host_name
from workers.attempt import stamps
from workers.attempt.child import Command, Ended, Pace, run_command
from workers.attempt.disk import free_mb
from workers.attempt.emptiness import look_until, memory_came_back
from workers.attempt.kept import Kept
from workers.attempt.running import runner_name
from workers.attempt.worktree import SCRIPT, Checkout, Unbuildable, checkout, read_inside
from workers.device import Device, Sampler

_log = logging.getLogger(__name__)

Tier = Literal["none", "limits"]

_CHILD_PATH = Path(__file__).with_name("child_path")
_PASSED = ("HOME", "LANG", "TZ", "USER")
_RESOLVE_S = 60.0
_MIB = 1024 * 1024
_DRIVER_PATIENCE_S = 10.0
_LIMITS = {"core": 0, "fsize": 16 * 1024**3, "nofile": 65536}
# not here: an address-space limit breaks CUDA, and a process limit counts the whole user


class TrainingRunner:
    """The lane `gpu` of one worker; implements functions.lanes.Runner.

    `command` is the operator's train command (default: the interpreter with train.py). The interpreter is
    `python`, else the repository's `.venv`, else what uv finds for the project, else Nightjar's own. Only an
    allow-list of `environ` reaches the script, and the names in `pass_env`.
    """

    def __init__(
        self,
        repo: Path,
        *,
        device: Device,
        settings: Settings,
        lab_identity: str,
        work_dir: Path,
        sampler: Sampler | None = None,
        kept: Kept | None = None,
        command: Sequence[str] | None = None,
        python: Path | None = None,
        tier: Tier = "limits",
        pass_env: tuple[str, ...] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._repo = repo.absolute()
        self._device = device
        self._stamp = f"{lab_identity}/{device.gpu_id}"
        self._work_dir = work_dir.absolute()
        self._sampler = sampler or Sampler()
        self._settings = settings
        self._kept = kept
        self._command = command
        self._python = python
        self._tier = tier
        self._pass_env = pass_env
        self._environ = os.environ if environ is None else environ
        self._pace = Pace(poll_s=settings.poll_s, term_grace_s=settings.term_grace_s)
        self._interpreter: Path | None = None
        if tier == "none":
            _log.warning("training scripts run without any limits (tier none)")

    async def run(self, job: TrainingJob, watcher: Watcher, *, metric: str) -> TrainingResult:
        """See functions.lanes.Runner."""
        try:
            async with checkout(self._repo, job, self._work_dir) as built:
                try:
                    ended = await self._train(job, built, watcher)
                except OSError as error:
                    return _no_start(error)
                result = self._result(ended, built, metric.lower())
                return await self._keep(result, built) if isinstance(result, Failed) else result
        except Unbuildable as error:
            return Failed("infra", error.detail + (f"; {error.hint}" if error.hint else ""))
        except Invalid as error:
            return Failed("other", error.detail)

    @property
    def name(self) -> str:
        """See functions.lanes.Runner."""
        return runner_name(host_name(), os.getpid())

    async def survey(self) -> Footprint | Unfit | None:
        """See functions.lanes.Runner."""
        try:
            free, least = free_mb(self._work_dir), self._settings.min_free_mb
        except OSError as error:
            return Unfit(f"the disk of its work folder is sick: {error}")
        if free < least:
            return Unfit(f"its disk has {free:.0f} MB free, under the least of {least:g} MB; make room there")
        return await look_until(self._sampler, self._device, patience_s=_DRIVER_PATIENCE_S)

    async def is_empty(self, job: TrainingJob, before: Footprint | None) -> bool:
        """See functions.lanes.Runner."""
        if not await asyncio.to_thread(stamps.kill_all, self._stamp_of(job)):
            return False
        return await memory_came_back(
            self._sampler,
            self._device,
            before,
            tolerance_mb=self._settings.memory_tolerance_mb,
            patience_s=_DRIVER_PATIENCE_S,
        )

    def _stamp_of(self, job: TrainingJob) -> str:
        return f"{self._stamp}/{job.experiment_id}/{job.attempt}/{job.fence}"

    async def interpreter(self) -> Path:
        """The python that trains, resolved once."""
        if self._interpreter is None:
            own = self._repo / ".venv" / "bin" / "python"
            if self._python is not None:
                self._interpreter = self._python
            elif _is_file(own):
                self._interpreter = own
            else:
                self._interpreter = await _found_by_uv(self._repo, self._environ) or Path(sys.executable)
        return self._interpreter

    async def _train(self, job: TrainingJob, built: Checkout, watcher: Watcher) -> Ended:
        python = str(await self.interpreter())
        argv = _argv(self._command, python)
        env = self._child_env(job, built, python)
        if not _can_start(argv[0], built.path, env["PATH"]):
            raise FileNotFoundError(errno.ENOENT, "no such program", argv[0])
        command = Command(
            argv=argv,
            cwd=built.path,
            env=env,
            stamp=self._stamp_of(job),
            log=built.folder / "log.txt",
            timeout_s=job.timeout_s,
            limits=_LIMITS if self._tier == "limits" else {},
            folder=built.folder,
            folder_bytes=self._settings.run_disk_mb * _MIB if self._tier == "limits" else math.inf,
        )
        return await run_command(command, watcher, self._pace)

    def _child_env(self, job: TrainingJob, built: Checkout, python: str) -> dict[str, str]:
        """Everything the script may know of this machine; nothing that opens the lab."""
        private = built.folder / "tmp"
        private.mkdir(exist_ok=True)
        asked = (name for name in self._pass_env if not name.startswith("NIGHTJAR_"))
        names = [*_PASSED, *(name for name in self._environ if name.startswith("LC_")), *asked]
        env = {name: self._environ[name] for name in names if name in self._environ}
        env |= {
            "PATH": os.pathsep.join(
                [str(Path(python).parent), self._environ.get("PATH", os.defpath)],
            ),
            "TMPDIR": str(private),
            "PYTHONPATH": str(_CHILD_PATH),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "NIGHTJAR_BUDGET_S": repr(job.budget_s),
            **self._device_env(),
        }
        if job.seed is not None:
            env["NIGHTJAR_SEED"] = str(job.seed)
        if job.traceparent is not None:
            env["TRACEPARENT"] = job.traceparent
        return env

    def _device_env(self) -> dict[str, str]:
        if self._device.uuid is not None:
            return {"CUDA_VISIBLE_DEVICES": self._device.uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        one_thread = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        return {"CUDA_VISIBLE_DEVICES": "", **dict.fromkeys(one_thread, "1")}

    async def _keep(self, failed: Failed, built: Checkout) -> Failed:
        """Keep what is left of the attempt, and say where."""
        place = await asyncio.to_thread(self._kept.keep, built.folder) if self._kept is not None else None
        if place is None:
            return failed
        reason, newline, tail = failed.error.partition("\n")
        where = f"its files are kept for a while on {host_name()}: {place}"
        return Failed(failed.kind, f"{reason}\n{where}{newline}{tail}")

    def _result(self, ended: Ended, built: Checkout, metric: str) -> TrainingResult:
        if ended.cause == "lost":
            return Halted("lost", newest_lines(ended.log))
        printed = parse_block(ended.log) or _results_file(built.path)
        value = printed.get(metric, math.nan)
        if ended.returncode == 0 and ended.cause not in ("timeout", "disk") and math.isfinite(value):
            return Trained(
                metrics={name: number for name, number in printed.items() if math.isfinite(number)},
                evaluator_hash=built.evaluator_hash,
                gpu_class=self._device.name,
                log_tail=newest_lines(ended.log),
                metric=value,
            )
        if ended.cause == "stop":
            return Halted("stop", newest_lines(ended.log))
        return _failed(ended, printed, metric)


def _failed(ended: Ended, printed: Mapping[str, float], metric: str) -> Failed:
    wanted = {metric: printed[metric]} if metric in printed else {}
    kind = classify_failure(ended.log, ended.returncode, timed_out=ended.cause == "timeout", metrics=wanted)
    if ended.cause == "disk":
        kind, reason = "disk", "its files took more of the disk than the worker allows (NIGHTJAR_RUN_DISK_MB)"
    elif ended.cause == "timeout":
        reason = "still running at its time limit"
    elif ended.returncode is not None and ended.returncode < 0:
        reason = f"ended by signal {-ended.returncode}"
    elif ended.returncode != 0:
        reason = f"exited with {ended.returncode}"
    elif metric in printed:
        reason = f"{metric} is {printed[metric]}"
    elif printed:
        reason = f"{metric} is not among the metrics printed: {', '.join(sorted(printed)[:20])}"
    else:
        reason = "exited with 0 but printed no metrics after a line `---`"
    return Failed(kind, f"{reason}\n{failure_tail(ended.log)}".rstrip())


def _no_start(error: OSError) -> Failed:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "make room on the worker's disk" if is_full else "check --command and --python of the worker"
    return Failed("infra", f"the run could not be started: {error}; {remedy}")


def _results_file(tree: Path) -> dict[str, float]:
    """Numbers of a `results.json` beside the script, for scripts that print no block."""
    content = read_inside(tree, "results.json")
    if content is None:
        return {}
    try:
        found: object = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    numbers: dict[str, float] = {}
    for name, value in list(found.items())[:256]:
        if isinstance(value, int | float) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):
                numbers[name.lower()] = float(value)
    return numbers


def _argv(command: Sequence[str] | None, python: str) -> list[str]:
    """The command, with its `python` (or `uv run`, whose child would outlive it) made the interpreter."""
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


async def _found_by_uv(repo: Path, environ: Mapping[str, str]) -> Path | None:
    """What uv takes for the interpreter of a uv project, if this is one and uv is there."""
    uv = shutil.which("uv", path=environ.get("PATH"))
    if uv is None or not _is_file(repo / "uv.lock"):
        return None
    process = await asyncio.create_subprocess_exec(
        *(uv, "python", "find", "--project", str(repo)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_RESOLVE_S):
            output, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found = Path(output.decode("utf-8", "replace").strip() or "/nonexistent")
    return found if process.returncode == 0 and _is_file(found) else None


def _can_start(program: str, tree: Path, path: str) -> bool:
    if os.sep in program:
        return os.access(tree / program, os.X_OK)
    return shutil.which(program, path=path) is not None


def _is_file(path: Path) -> bool:
    return path.is_file()
