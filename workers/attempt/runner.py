"""TrainingRunner runs one attempt on one device: check out, train, read the result, check that nothing is left."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from functions.formats.metrics_block import failure_tail, with_remedies
from functions.kernel.process.interpreter import find_interpreter
from functions.kernel.process.process_identity import birth_name
from functions.pool.rules.health import MIN_FREE_MB
from state.client_settings import host_name
from state.errors import Invalid, NightjarError
from state.records import Footprint
from state.settings import Settings
from workers.attempt import processes
from workers.attempt.child import EndedCommand, RunCommand, RunTiming, run_command
from workers.attempt.isolation import Reach
from workers.attempt.job import (
    FailedTraining,
    HaltedRun,
    TrainedRun,
    TrainingJob,
    TrainingResult,
    Unfit,
    Watcher,
)
from workers.attempt.outcome import FailedRun, not_started, outcome
from workers.attempt.scoring import UNCONFINED, ScoringWatcher, is_changed, scored, set_stage
from workers.attempt.source import Unbuildable, UntrainableCode
from workers.attempt.usage import Ceilings, free_mb, threads_here
from workers.attempt.worktree import Checkout, Checkouts, checkout
from workers.slot import HealthSampler, Slot, can_start, command_line, look_until, memory_came_back

_log = logging.getLogger(__name__)

_CHILD_PATH = Path(__file__).with_name("child_path")
_PASSED = ("HOME", "LANG", "TZ", "USER")
_TEMPORARY, _LOG = "tmp", "log.txt"
_MIB = 1024 * 1024
PACE = RunTiming()
_DRIVER_PATIENCE_S = 10.0
_LIMITS = {"core": 0, "fsize": 16 * 1024**3, "nofile": 65536, "oom": 500}
# no limit of address space, which breaks CUDA
MOST_PROCESSES = 512
"""Processes that a run may have at once. The run is killed beyond it."""
_THREADS_EACH = 4
"""Average threads of a process in a run with as many processes as allowed. The limit keeps a fork bomb killable."""


class TrainingRunner:
    """The lane `gpu` of one slot; implements workers.attempt.job.Runner.

    The script sees only an allow-list of `environ` and the names in the slot's `pass_env`. With `alone`, this process
    runs nothing else and adopts orphans, so all its descendants belong to the attempt. With `apart`, runs get no
    signal from this process's terminal. `checkouts` makes the tree of a job, by default from its commit.
    """

    def __init__(
        self,
        slot: Slot,
        settings: Settings,
        *,
        lab_identity: str,
        sampler: HealthSampler,
        environ: Mapping[str, str] = os.environ,
        alone: bool = False,
        apart: bool = False,
        pace: RunTiming = PACE,
        checkouts: Checkouts | None = None,
    ) -> None:
        self._slot = slot
        self._settings = settings
        self._label = f"{lab_identity}/{slot.gpu_id}"
        self._sampler = sampler
        self._environ = environ
        self._work_dir = slot.work_dir(settings)
        self._pace = pace
        self._is_alone = alone
        self._is_apart = apart
        self._checkouts = checkouts or partial(checkout, scripts=slot.scripts, links=slot.links)
        self._is_buried = False
        self._reach_of_run: Reach | None = None
        self._is_limited = slot.tier != "none"
        self._access = slot.access(settings)
        if slot.tier == "none":
            _log.warning("training scripts run without any limits (isolation none)")

    async def run(self, job: TrainingJob, watcher: Watcher, *, metric: str) -> TrainingResult:
        try:
            async with self._checkouts(self._slot.repo, job, self._work_dir) as built:
                if await watcher.built(built.source) == "lost":
                    return HaltedRun("lost")
                try:
                    result = await self._result(job, built, watcher, metric.lower())
                except OSError as error:
                    return not_started(error)
                if isinstance(result, FailedTraining):
                    slot, reach, data = self._slot, self._reach_of_run, self._settings.data_dir
                    missed = FailedRun(built, slot.repo, slot.links, reach, data)
                    remedies = await asyncio.to_thread(missed.remedies, result.error)
                    kept = await self._keep(result, built)
                    return FailedTraining(kept.kind, with_remedies(kept.error, remedies))
                return result
        except UntrainableCode as error:
            return FailedTraining(error.kind, _told(error))
        except Unbuildable as error:
            return FailedTraining("infra", _told(error))
        except Invalid as error:
            return FailedTraining("other", error.detail)

    @property
    def gpu_id(self) -> str:
        return self._slot.gpu_id

    @property
    def name(self) -> str:
        return birth_name(host_name(), os.getpid())

    async def survey(self) -> Footprint | Unfit | None:
        try:
            free = free_mb(self._work_dir)
        except OSError as error:
            return Unfit(f"the disk of its work folder cannot be read: {error}")
        if free < MIN_FREE_MB:
            return Unfit(
                f"its disk has {free:.0f} MB free, under the least of {MIN_FREE_MB:g} MB; make room there"
            )
        return await look_until(self._sampler, self._slot.device, patience_s=_DRIVER_PATIENCE_S)

    async def is_empty(self, job: TrainingJob, before: Footprint | None) -> bool:
        # once the run's last process has ended, none can follow
        if not self._is_buried and not await asyncio.to_thread(
            processes.kill_all, self._label_of(job), spare=self._spare()
        ):
            return False
        return await memory_came_back(self._sampler, self._slot.device, before, patience_s=_DRIVER_PATIENCE_S)

    def _spare(self) -> list[int] | None:
        if not self._is_alone:
            return None
        return [self._sampler.pid] if self._sampler.pid is not None else []

    def _label_of(self, job: TrainingJob) -> str:
        return f"{self._label}/{job.experiment_id}/{job.attempt}/{job.fence}"

    async def _result(
        self, job: TrainingJob, built: Checkout, watcher: Watcher, metric: str
    ) -> TrainingResult:
        """Train; where the tag's evaluator has a command, let it score what the training has left."""
        if job.splits and self._access is None:
            return FailedTraining("infra", UNCONFINED)
        try:
            python = str(self._slot.python or (await find_interpreter(self._slot.repo, self._environ)).path)
        except Invalid as error:
            return FailedTraining("infra", _told(error))
        training = self._training(job, built, python, metric)
        begun = time.monotonic()
        if job.check is not None:
            if (failed := await self._checked(job, training, watcher, python)) is not None:
                return failed
            training = replace(training, timeout_s=max(0.0, job.timeout_s - (time.monotonic() - begun)))
        ended = await self._run(training, watcher, self._pace)
        is_scored = job.evaluator_command is not None
        result = outcome(ended, built, metric, self._slot.device.name, is_scored=is_scored)
        if job.evaluator_command is None or not isinstance(result, TrainedRun):
            return result
        if not ended.is_empty:
            return FailedTraining(
                "infra", "a process of the training could not be ended, so it cannot be scored"
            )
        stage = await set_stage(self._slot, job, built)
        if is_changed(stage, built):
            return FailedTraining("infra", "the clone no longer has the evaluator that it had before the run")
        scoring = replace(
            training,
            argv=stage.argv(
                python,
                job.evaluator_command,
                built.path,
                _CHILD_PATH,
                training.reach,
                self._reach_of_predictors(training.reach),
            ),
            reach=None,  # score.py confines the evaluator
            tick_source="report",
            has_hidden=bool(job.splits),
            cwd=stage.files,
            env=stage.env(training.env, built.path),
            log=stage.log,
            timeout_s=max(0.0, job.timeout_s - (time.monotonic() - begun)),
        )
        # an evaluator may wait for an idle predictor
        patient = replace(self._pace, silence_s=math.inf)
        ended = await self._run(scoring, ScoringWatcher(watcher, result.log_tail), patient)
        return scored(ended, result, stage, built, metric)

    async def _checked(
        self, job: TrainingJob, training: RunCommand, watcher: Watcher, python: str
    ) -> TrainingResult | None:
        """Run the command of the tag's guards where the training will run; None: it passed."""
        argv = command_line(shlex.split(job.check or ""), python)
        if not can_start(argv[0], training.cwd, training.env["PATH"]):
            return FailedTraining("infra", f"the guard's command needs {argv[0]!r}, which this worker lacks")
        limit_s = min(job.check_s, job.timeout_s)
        check = replace(training, argv=argv, timeout_s=limit_s, metric="", tick_source="report")
        ended = await self._run(check, ScoringWatcher(watcher, "", "the check"), self._pace)
        if ended.cause in ("lost", "stop"):
            return HaltedRun(ended.cause)
        if not ended.is_empty:
            return FailedTraining("infra", "a process of the guard's command could not be ended")
        if ended.cause == "exit" and ended.returncode == 0:
            return None
        how = {"timeout": f"did not end within {limit_s:g} s", "excess": "took more than a run may"}
        why = how.get(ended.cause, f"exited with {ended.returncode}")
        return FailedTraining(
            "guard", f"guard check: `{job.check}` {why}\n{failure_tail(ended.log)}".rstrip()
        )

    async def _run(self, command: RunCommand, watcher: Watcher, pace: RunTiming) -> EndedCommand:
        self._is_buried = False
        ended = await run_command(command, watcher, pace)
        self._is_buried = ended.is_empty
        return ended

    def _training(self, job: TrainingJob, built: Checkout, python: str, metric: str) -> RunCommand:
        argv = command_line(self._slot.command, python)
        env = self._child_env(job, built, python)
        if not can_start(argv[0], built.path, env["PATH"]):
            raise FileNotFoundError(errno.ENOENT, "no such program", argv[0])
        self._reach_of_run = self._reach(built, python, env["PATH"])
        return RunCommand(
            argv=argv,
            cwd=built.path,
            env=env,
            label=self._label_of(job),
            log=built.folder / _LOG,
            timeout_s=job.timeout_s,
            metric=metric,
            limits=self._limits() if self._is_limited else {},
            folder=built.folder,
            ceilings=self._ceilings(),
            spare=self._spare(),
            reach=self._reach_of_run,
            apart=self._is_apart,
            tick_source=job.tick_source,
        )

    def _ceilings(self) -> Ceilings | None:
        if not self._is_limited:
            return None
        settings = self._settings
        return Ceilings(
            disk_bytes=settings.run_disk_mb * _MIB,
            processes=MOST_PROCESSES,
            memory_bytes=self._slot.memory_bytes(settings),
        )

    def _limits(self) -> Mapping[str, int]:
        """Limits by the kernel. `nproc` counts threads: of the run in namespaces, elsewhere of the whole user."""
        threads = _THREADS_EACH * MOST_PROCESSES
        has_namespaces = self._access is not None and self._access.bwrap is not None
        return {**_LIMITS, "nproc": threads if has_namespaces else threads + threads_here()}

    def _reach(self, built: Checkout, python: str, path: str) -> Reach | None:
        if self._access is None:
            return None
        folder = built.folder
        return self._access.reach(
            built.path, folder / _TEMPORARY, folder / _LOG, Path(python), path, _CHILD_PATH
        )

    def _reach_of_predictors(self, training: Reach | None) -> Reach | None:
        """What each predictor may touch, without its own folder. None: whatever its user may."""
        if not self._is_limited:
            return None
        unread = Reach((), None, network=False, leaves=False)
        if training is None:
            return unread
        return training._replace(writes=(), together=None, network=False, leaves=False)

    def _child_env(self, job: TrainingJob, built: Checkout, python: str) -> dict[str, str]:
        """The script's whole environment, without any access to the lab."""
        private = built.folder / _TEMPORARY
        private.mkdir(exist_ok=True)
        asked = (name for name in self._slot.pass_env if not name.startswith("NIGHTJAR_"))
        names = [*_PASSED, *(name for name in self._environ if name.startswith("LC_")), *asked]
        env = {name: self._environ[name] for name in names if name in self._environ}
        env |= {
            "PATH": os.pathsep.join([str(Path(python).parent), self._environ.get("PATH", os.defpath)]),
            "TMPDIR": str(private),
            "PYTHONPATH": str(_CHILD_PATH),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "NIGHTJAR_BUDGET_S": repr(job.budget_s),
            **self._device_env(),
        }
        if self._access is not None:
            env = {**self._access.environment(), **env}
        if job.seed is not None:
            env["NIGHTJAR_SEED"] = str(job.seed)
        if job.traceparent is not None:
            env["TRACEPARENT"] = job.traceparent
        return env

    def _device_env(self) -> dict[str, str]:
        if self._slot.device.uuid is not None:
            return {"CUDA_VISIBLE_DEVICES": self._slot.device.uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        one_thread = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        return {"CUDA_VISIBLE_DEVICES": "", **dict.fromkeys(one_thread, "1")}

    async def _keep(self, failed: FailedTraining, built: Checkout) -> FailedTraining:
        """Keep the files of a failed attempt and name their folder in the error."""
        place = await asyncio.to_thread(self._slot.kept(self._settings).keep, built.folder)
        if place is None:
            return failed
        reason, newline, tail = failed.error.partition("\n")
        where = f"its files are kept for a while on {host_name()}: {place}"
        return FailedTraining(failed.kind, f"{reason}\n{where}{newline}{tail}")


def _told(error: NightjarError) -> str:
    return with_remedies(error.detail + (f"; {error.hint}" if error.hint else ""), ())
