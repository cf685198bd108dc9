"""What a lab on one machine consists of: the processes that `up` starts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from functions.process.author_keys import may_write
from functions.process.own_modules import started
from functions.process.supervision import ProcessSpec
from state.settings import Settings, own_environment
from triggers import clock, web
from triggers.events import serving

KINDS = {"web": web.main, "events": serving.main, "clock": clock.main}
"""The processes of every lab, and what each of them runs."""


@dataclass(frozen=True)
class LabParts:
    """The processes of a lab, and the slots of its workers."""

    settings: Settings
    repo: Path | None
    """Without one there is no worker."""
    cpu: int | None = None
    gpu: str = "all"
    command: str | None = None
    runs: Sequence[str] = ()
    """Further options of the worker: which Python trains, what its runs may reach."""

    def specs(self) -> list[ProcessSpec]:
        """web, events, clock; pi where a language model is set up; with a repository the workers' supervisor.

        Raises:
            Invalid: a language model is named that has no key.
        """
        settings = self.settings
        env = own_environment() | {
            "NIGHTJAR_DATA": str(settings.data_dir),
            "NIGHTJAR_LAB": settings.lab,
            "NIGHTJAR_PORT": str(settings.port),
        }
        silent_s = settings.silent_s
        clone = {} if self.repo is None else {"NIGHTJAR_CLONE": str(settings.clone or self.repo)}
        found = [
            ProcessSpec(kind, started(f"triggers.{kind}"), env | clone, 15.0, silent_s, main)
            for kind, main in KINDS.items()
        ]
        if may_write(settings):
            found.append(ProcessSpec("pi", started("workers.pi"), env | clone, 15.0, silent_s, _of_author))
        if self.repo is not None:
            argv = ["--repo", str(self.repo), "--gpu", self.gpu]
            argv += ["--cpu", str(self.cpu)] if self.cpu is not None else []
            argv += ["--command", shlex.join(shlex.split(self.command))] if self.command else []
            argv += self.runs
            env = env | settings.worker_environment
            main = partial(_of_workers, argv)
            command = started("workers.supervisor", *argv)
            found.append(ProcessSpec("worker", command, env, float("inf"), silent_s, main))
        return found


def _of_workers(argv: Sequence[str]) -> int:
    """Be the workers' supervisor. Only its own process imports workers."""
    return int(import_module("workers.supervisor").run(*argv))


def _of_author() -> int:
    """Be the process of the lane `pi`."""
    return int(import_module("workers.pi").main())
