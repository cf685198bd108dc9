"""Functions of your own: files of a folder, and modules that installed packages name, join the table.

A mistake in one names its file and line, and the process does not start.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, get_args

from pydantic import BaseModel

from functions.branches.rules import schedulers
from functions.branches.rules.schedulers import Parameter, TraceScheduler, checked_params, scheduler_named
from functions.kernel import yours
from functions.kernel.contract import BadTable, Call, Function, Request
from functions.kernel.rules.access import CallerRole
from functions.kernel.table import HOMES, OWN, check, table
from functions.swarm.rules import sampling
from functions.swarm.rules.proposals import ConfigSampler
from state.errors import Invalid
from state.events import CATALOGUE
from state.own import Own
from state.policy import Policy
from state.settings import Settings

PACKAGE = "nightjar_functions"
"""The package that the folder is while a process runs: its files import each other as `._name`."""
GROUP = "nightjar.functions"
"""The group of entry points with which an installed package names a module."""
ROLES = {"anyone", *get_args(CallerRole)}


def load(settings: Settings) -> None:
    """Add them to the table, the events, the schedulers and the samplers, once in a process.

    Raises:
        Invalid: one cannot be used; the message names its file and line.
    """
    if PACKAGE in sys.modules:
        return
    sys.modules.setdefault("nightjar", yours)  # an installed wheel has such a package
    folder = settings.functions and settings.functions.expanduser().absolute()
    package = sys.modules[PACKAGE] = ModuleType(PACKAGE)
    package.__path__ = [str(folder)] if folder else []
    named = {path.stem: f"{PACKAGE}.{path.stem}" for path in _files(folder)}
    for entry in entry_points(group=GROUP):
        if named.setdefault(entry.name, entry.module) != entry.module:
            raise Invalid(
                f"two modules with functions have the name {entry.name!r}", hint="rename one of them"
            )
    modules = {name: _imported(module, folder) for name, module in named.items()}
    nouns = dict.fromkeys((*HOMES, *(event.partition(".")[0] for event in CATALOGUE)), "Nightjar")
    found: list[Function[Any, Any]] = []
    for name, module in modules.items():
        for declared in _declared(module):
            noun = declared.name.partition("::")[0]
            if problem := _problem(declared):
                raise _mistake(_place(declared), problem)
            if nouns.setdefault(noun, name) != name:
                raise _mistake(_place(declared), f"the noun {noun!r} is that of {nouns[noun]}")
            found.append(declared)
        _add_rules(name, module)
        for event, meaning in getattr(module, "EVENTS", {}).items():
            if not re.fullmatch(r"[a-z]+\.[a-z_]+", event) or nouns.get(event.partition(".")[0]) != name:
                raise _mistake(
                    _line(module, event), f"{event!r} is not <noun>.<name> with a noun of this file"
                )
            CATALOGUE[event] = str(meaning)
    whole = dict(table())
    _check_models({module.__name__ for module in modules.values()})
    for declared in found:
        try:
            if declared.name in whole:
                raise BadTable(f"{declared.name!r} is declared twice")
            whole[declared.name] = declared
            check(whole)
        except BadTable as problem:
            raise _mistake(_place(declared), str(problem)) from problem
        OWN[declared.name] = declared
    table.cache_clear()


def check_policy(policy: Policy) -> None:
    """Refuse a policy that names no scheduler or sampler, or parameters that its scheduler does not have.

    Raises:
        Invalid: no such scheduler, sampler, parameter or value.
    """
    name = policy.traces.scheduler
    checked_params(name, scheduler_named(name), policy.traces.scheduler_params)
    sampling.sampler_named(policy.sampler)


def _files(folder: Path | None) -> list[Path]:
    """The files of the folder; one whose name begins with _ is for the others to import."""
    if folder is None:
        return []
    if found := sorted(path for path in folder.glob("*.py") if not path.stem.startswith("_")):
        return found
    raise Invalid(f"{folder} has no Python file with functions", hint="name another folder: --functions")


def _imported(name: str, folder: Path | None) -> ModuleType:
    try:
        return import_module(name)
    except (Exception, SystemExit) as problem:  # a foreign file may raise anything
        if folder is None or not name.startswith(f"{PACKAGE}."):
            spec = find_spec(name.partition(".")[0])
            folder = Path(spec.origin).parent if spec and spec.origin else Path("/")
        frames = [f for f in extract_tb(problem.__traceback__) if Path(f.filename).is_relative_to(folder)]
        places = [f"{f.filename}:{f.lineno}" for f in frames]
        if isinstance(problem, SyntaxError) and Path(problem.filename or "").is_relative_to(folder):
            places.append(f"{problem.filename}:{problem.lineno}")
        text = str(problem) if isinstance(problem, BadTable) else f"{type(problem).__name__}: {problem}"
        raise _mistake(places[-1] if places else name, text) from problem


def _declared(module: ModuleType) -> Iterator[Function[Any, Any]]:
    """The functions that a module, or one inside it, declares."""
    for value in {id(value): value for value in vars(module).values()}.values():
        if isinstance(value, Function) and _is_of(value.handler.__module__, module.__name__):
            yield value


def _is_of(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def _problem(declared: Function[Any, Any]) -> str | None:
    """Why a function cannot be one of yours; None where `check` decides."""
    name, noun = declared.name, declared.name.partition("::")[0]
    if not re.fullmatch(r"[a-z]+::[a-z_]+", name):
        return f"{name!r} is not noun::verb in small letters"
    if wrong := sorted(set(declared.roles) - ROLES):
        return f"{name!r}: there is no role {', '.join(map(repr, wrong))}, only {', '.join(sorted(ROLES))}"
    if not (isinstance(declared.request, type) and issubclass(declared.request, Request)):
        return f"{name!r}: the request {declared.request!r} is no Request"
    if others := [kind for kind in declared.needs.values() if kind not in (Call, Own)]:
        return f"{name!r} asks for {others[0]!r}: after the request a handler may ask for Call and Own"
    if not inspect.iscoroutinefunction(declared.handler):
        return f"{name!r}: declare its handler with async def"
    if declared.lane != "web" or declared.accept is not None:
        return f"{name!r}: functions of your own have the lane web"
    if door := next((door for door in declared.doors if not door.path.startswith(f"/api/{noun}/")), None):
        return f"{name!r}: the route {door} does not begin with /api/{noun}/"
    return None


def _add_rules(name: str, module: ModuleType) -> None:
    """Make the schedulers and samplers that a module declares: `<file>.<Class>` in a policy."""
    for value in [*vars(module).values()]:
        if not isinstance(value, type) or not _is_of(value.__module__, module.__name__):
            continue
        full = f"{name}.{value.__name__}"
        if value.__name__.startswith("_") or not {TraceScheduler, ConfigSampler} & {*value.__mro__}:
            continue
        place = _line(module, f"class {value.__name__}")
        try:
            made = value()
        except Exception as problem:  # a foreign class may raise anything
            raise _mistake(place, f"{type(problem).__name__}: {problem}") from problem
        if not isinstance(made, TraceScheduler):
            sampling.OWN[full] = made
            continue
        if not all(isinstance(each, Parameter) for each in made.parameters.values()):
            raise _mistake(place, f"the parameters of {full!r} are no Parameter")
        schedulers.OWN[full] = made


def _check_models(modules: set[str]) -> None:
    """Refuse two models of one name, once all of ours are imported: names are those of schemas in /openapi.json."""
    models = [*_below(BaseModel)]
    known = {
        model.__name__.casefold(): model.__module__
        for model in models
        if model.__module__.partition(".")[0] in ("functions", "state")
    }
    for model in models:
        is_there = getattr(sys.modules.get(model.__module__), model.__name__, None) is model
        if is_there and any(_is_of(model.__module__, module) for module in modules):
            other = known.setdefault(model.__name__.casefold(), model.__module__)
            if other != model.__module__:
                place = _line(sys.modules[model.__module__], f"class {model.__name__}")
                raise _mistake(place, f"{other} has a model {model.__name__!r}, too: give yours another name")


def _below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for below in model.__subclasses__():
        yield below
        yield from _below(below)


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
