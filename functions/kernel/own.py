"""Functions of your own: files of a folder, and modules that installed packages name, join the table.

A mistake in one names its file and line, and the process does not start.
"""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any, get_args

from pydantic import PydanticUserError

from functions.branches.rules import schedulers
from functions.branches.rules.schedulers import Parameter, TraceScheduler, checked_params, scheduler_named
from functions.kernel import yours
from functions.kernel.contract import BadTable, Call, Function, Request, Trigger
from functions.kernel.rules.access import CallerRole
from functions.kernel.schemas import YOURS, schema_of
from functions.kernel.table import HOMES, OWN, table
from functions.swarm.rules import sampling
from functions.swarm.rules.proposals import ConfigSampler
from state.errors import Invalid
from state.events import CATALOGUE
from state.own import Own
from state.policy import Policy
from state.settings import Settings

PACKAGE = "nightjar_functions"
"""The package that the folder is while a process runs: its files import each other as `.name`."""
GROUP = "nightjar.functions"
"""The group of entry points with which an installed package names a module."""
ROLES = {"anyone", *get_args(CallerRole)}
METHODS = ("GET", "POST", "DELETE")


def load(settings: Settings) -> None:
    """Add them to the table, events, schedulers and samplers, once. Raises Invalid, naming file and line."""
    if PACKAGE in sys.modules:
        return
    sys.modules.setdefault("nightjar", yours)  # an installed wheel has such a package
    folder = settings.functions and settings.functions.expanduser().absolute()
    package = sys.modules[PACKAGE] = ModuleType(PACKAGE)
    package.__path__ = [str(folder)] if folder else []
    named = {path.stem: f"{PACKAGE}.{path.stem}" for path in (folder.glob("[!_]*.py") if folder else ())}
    if folder and not named:
        raise Invalid(f"{folder} has no Python file with functions", hint="name another folder: --functions")
    for entry in entry_points(group=GROUP):
        if named.setdefault(entry.name, entry.module) != entry.module:
            raise Invalid(f"two modules of functions have the name {entry.name!r}", hint="rename one")
    YOURS.update(named.values())
    modules = {name: _imported(module) for name, module in sorted(named.items())}
    nouns = dict.fromkeys((*HOMES, *(event.partition(".")[0] for event in CATALOGUE)), "Nightjar")
    found: list[Function[Any, Any]] = []
    for name, module in modules.items():
        for value in [*vars(module).values()]:
            if isinstance(value, Function) and _is_of(value.handler.__module__, module.__name__):
                if problem := _problem(value):
                    raise _mistake(_place(value), f"{value.name!r}: {problem}")
                noun = value.name.partition("::")[0]
                if nouns.setdefault(noun, name) != name:
                    raise _mistake(_place(value), f"the noun {noun!r} is that of {nouns[noun]}")
                found.append(value)
            elif isinstance(value, type) and _is_of(value.__module__, module.__name__):
                _add_rule(name, module, value)
        events = getattr(module, "EVENTS", {})
        if not isinstance(events, dict):
            raise _mistake(_line(module, "EVENTS"), "EVENTS is no dict of names and meanings")
        for event, meaning in events.items():
            if not re.fullmatch(r"[a-z]+\.[a-z_]+", event) or nouns.get(event.partition(".")[0]) != name:
                problem = f"{event!r} is not <noun>.<name> with a noun of this file"
                raise _mistake(_line(module, event), problem)
            CATALOGUE[event] = str(meaning)
    for declared in found:
        try:
            if OWN.setdefault(declared.name, declared) is not declared:
                raise BadTable(f"{declared.name!r} is declared twice")
            table.cache_clear()
            table()
            schema_of(declared.request, "request"), schema_of(declared.response, "answer")
        except (BadTable, PydanticUserError) as problem:
            raise _mistake(_place(declared), str(problem).partition("\n")[0]) from problem


def check_policy(policy: Policy) -> None:
    """Raise Invalid for a policy that names an unknown scheduler, sampler, parameter or value."""
    name = policy.traces.scheduler
    checked_params(name, scheduler_named(name), policy.traces.scheduler_params)
    sampling.sampler_named(policy.sampler)


def _imported(name: str) -> ModuleType:
    try:
        return import_module(name)
    except (Exception, SystemExit) as problem:  # a foreign file may raise anything
        file, line = name, 1
        for frame, number in walk_tb(problem.__traceback__):
            if _is_of(frame.f_globals.get("__name__", ""), name.partition(".")[0]):
                file, line = frame.f_code.co_filename, number
        if isinstance(problem, SyntaxError) and Path(problem.filename or "").is_file():
            file, line = problem.filename or name, problem.lineno or 1
        text = str(problem) if isinstance(problem, BadTable) else f"{type(problem).__name__}: {problem}"
        if isinstance(problem, ImportError) and Path(file).with_name(f"{problem.name}.py").exists():
            text += f"; import a file beside it as .{problem.name}"
        raise _mistake(f"{file}:{line}", text.replace(yours.__name__, "nightjar")) from problem


def _is_of(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def _problem(declared: Function[Any, Any]) -> str | None:
    """Why a function cannot be one of yours; None where `check` decides."""
    wanted: tuple[object, ...] = declared.triggers
    if not re.fullmatch(r"[a-z]+::[a-z_]+", declared.name):
        return "the name is not noun::verb in small letters"
    if wrong := sorted({*map(str, declared.roles or ())} - ROLES):
        return f"there is no role {', '.join(map(repr, wrong))}, only {', '.join(sorted(ROLES))}"
    if not (isinstance(declared.request, type) and issubclass(declared.request, Request)):
        return f"the request {declared.request!r} is no Request"
    if others := [kind for kind in declared.needs.values() if kind not in (Call, Own)]:
        return f"it asks for {others[0]!r}: after the request a handler may ask for Call and Own"
    if not inspect.iscoroutinefunction(declared.handler):
        return "declare its handler with async def"
    if declared.lane != "web" or declared.accept is not None:
        return "functions of your own have the lane web"
    if strange := [trigger for trigger in wanted if not isinstance(trigger, Trigger)]:
        return f"{strange[0]!r} is no trigger: use Http, On, Every or Cron"
    begins = f"/api/{declared.name.partition('::')[0]}/"
    for door in declared.doors:
        if door.method not in METHODS or not door.path.startswith(begins):
            return f"the route {door} is no {', '.join(METHODS)} of a path that begins with {begins}"
    return None


def _add_rule(name: str, module: ModuleType, rule: type) -> None:
    """Make a scheduler or sampler: `<file>.<Class>` in a policy."""
    if rule.__name__.startswith("_") or not issubclass(rule, (TraceScheduler, ConfigSampler)):
        return
    place, full = _line(module, f"class {rule.__name__}"), f"{name}.{rule.__name__}"
    try:
        made = rule()
    except Exception as problem:  # a foreign class may raise anything
        raise _mistake(place, f"{type(problem).__name__}: {problem}") from problem
    if isinstance(made, ConfigSampler):
        sampling.OWN[full] = made
    elif all(isinstance(each, Parameter) for each in made.parameters.values()):
        schedulers.OWN[full] = made
    else:
        raise _mistake(place, f"the parameters of {full!r} are no Parameter")


def _place(declared: Function[Any, Any]) -> str:
    code = declared.handler.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def _line(module: ModuleType, text: str) -> str:
    """The first line of a module with this text."""
    lines = inspect.getsource(module).splitlines()
    number = next((number for number, line in enumerate(lines, 1) if text in line), 1)
    return f"{module.__file__}:{number}"


def _mistake(place: str, problem: str) -> Invalid:
    return Invalid(f"{place}: {problem}", hint="mend that file; nothing was started")
