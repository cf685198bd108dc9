"""Plug-ins: external schedulers, `package.module:Class`, that a setting allows a tag's policy to name."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Collection

from functions.branches.rules.schedulers import (
    SCHEDULERS,
    Parameter,
    TraceScheduler,
    checked_params,
    scheduler_named,
)
from state.errors import Conflict
from state.policy import Policy


class Schedulers:
    """Schedulers of traces by name: Nightjar's own, and the plug-ins that `NIGHTJAR_PLUGINS` lists.

    A plug-in is imported when it is first asked for, and made without arguments.
    """

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self._allowed = allowed
        self._loaded: dict[str, TraceScheduler] = {}

    async def named(self, name: str) -> TraceScheduler:
        """The scheduler of this name.

        Raises:
            Invalid: there is none, or it is not allowed. Conflict: it is a plug-in that does not work.
        """
        if name in self._allowed and name not in self._loaded:
            # In a thread: its imports may take long, and the loop has to announce that the process is alive.
            self._loaded[name] = await asyncio.to_thread(_load, name)
        return scheduler_named(name, self._loaded, self._allowed)

    async def check(self, policy: Policy) -> None:
        """Refuse a policy that names no scheduler, or parameters that its scheduler does not have.

        Raises:
            Invalid: no such scheduler, parameter or value. Conflict: a plug-in that does not work.
        """
        name = policy.traces.scheduler
        checked_params(name, await self.named(name), policy.traces.scheduler_params)


def _load(name: str) -> TraceScheduler:
    module, _, attribute = name.partition(":")
    try:
        importlib.invalidate_caches()  # it may have been installed since we started
        made = getattr(importlib.import_module(module), attribute)()
    except Exception as problem:  # a foreign module may raise anything
        raise _broken(name, f"{type(problem).__name__}: {problem}") from problem
    if not isinstance(made, TraceScheduler):
        raise _broken(name, "it is no functions.branches.rules.schedulers.TraceScheduler")
    if not all(isinstance(each, Parameter) for each in made.parameters.values()):
        raise _broken(name, "its parameters are no functions.branches.rules.schedulers.Parameter")
    return made


def _broken(name: str, problem: str) -> Conflict:
    return Conflict(
        f"the scheduler {name!r} cannot be used: {problem}",
        hint="install the plug-in into the lab's .venv and mend it, or name one of "
        f"{', '.join(SCHEDULERS)} with POST /api/trace/configure",
    )
