"""The function table: every declaration by name, collected from the homes of its noun and checked."""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, get_origin

from pydantic import BaseModel, RootModel

from functions.kernel.contract import BadTable, Cron, Every, Function, Http, On, Picture, Text
from functions.kernel.rules.firings import Schedule
from state.events import CATALOGUE
from state.settings import Settings

HOMES: Mapping[str, tuple[str, ...]] = {
    "agent": ("lab.status",),
    "cron": ("lab.schedules",),
    "dimension": ("swarm.dimensions", "swarm.proposals"),
    "event": ("lab.events",),
    "experiment": (
        "experiments.setup",
        "experiments.entering",
        "experiments.ending",
        "experiments.reading",
        "experiments.waiting",
        "trust.retests",
    ),
    "function": ("lab.status",),
    "gpu": ("runs.leases", "runs.training"),
    "hypothesis": ("beliefs.hypotheses", "beliefs.drafting", "beliefs.graph"),
    "invocation": ("experiments.reading",),
    "journal": ("beliefs.graph",),
    "lab": ("trust.audit", "lab.status"),
    "pipeline": ("pi.pipeline",),
    "pool": ("pool.gpus", "pool.lending", "pool.returning"),
    "program": ("pi.programs",),
    "report": ("people.briefs", "people.tables", "people.diffs", "people.plot"),
    "run": ("swarm.runs",),
    "search": ("search.searching",),
    "swarm": ("swarm.joining", "swarm.configs", "swarm.standings"),
    "tag": ("experiments.tags",),
    "token": ("people.tokens",),
    "trace": ("branches.traces", "branches.selecting", "branches.context"),
    "trust": ("trust.certificates", "trust.distilling", "trust.transferring"),
    "webhook": ("people.webhooks",),
}
"""The modules of `functions` that declare the functions of a noun."""
OWN: dict[str, Function[Any, Any]] = {}
"""Functions of your own, see `kernel.own.load`."""


@cache
def table() -> Mapping[str, Function[Any, Any]]:
    """Every function by name, in alphabetical order.

    Raises:
        BadTable: a function outside the homes of its noun, two of one name, a duplicate route, a GET that writes, a
            route that its request or answer does not fit, an event that nothing emits, no role.
    """
    found: dict[str, Function[Any, Any]] = {}
    for home in dict.fromkeys(home for homes in HOMES.values() for home in homes):
        for name, declared in _declared_in(home).items():
            if home not in HOMES.get(name.partition("::")[0], ()):
                raise BadTable(
                    f"{name!r} is declared in functions.{home}, which is no home of its noun: add it to HOMES"
                )
            if name in found:
                raise BadTable(f"{name!r} is declared twice")
            found[name] = declared
    found |= OWN
    check(found)
    return dict(sorted(found.items()))


def find(name: str) -> Function[Any, Any] | None:
    """The function of this name, without importing those of other nouns; None where there is none."""
    for home in HOMES.get(name.partition("::")[0], ()):
        if (declared := _declared_in(home).get(name)) is not None:
            return declared
    return None


def fault_of(names: Collection[str]) -> str:
    """The words for a fault of one of these functions."""
    return "a fault of a function of your own" if OWN.keys() & names else "a fault of Nightjar's own"


def chosen(names: Collection[str]) -> Mapping[str, Function[Any, Any]]:
    """These functions by name, without importing those of other nouns. Raises BadTable: there is none."""
    found = {name: find(name) for name in names}
    if missing := [name for name, declared in found.items() if declared is None]:
        raise BadTable(f"there is no function {', '.join(missing)}")
    return {name: declared for name, declared in found.items() if declared is not None}


@cache
def _declared_in(home: str) -> Mapping[str, Function[Any, Any]]:
    """The functions that a module declares, by name. Those that only accept work for another lane are not
    among them.
    """
    module = importlib.import_module(f"functions.{home}")
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, Function) and value.handler.__module__ == module.__name__
    ]
    accepting = {id(declared.accept) for declared in own}
    found: dict[str, Function[Any, Any]] = {}
    for declared in own:
        if id(declared) not in accepting:
            if declared.name in found:
                raise BadTable(f"{declared.name!r} is declared twice in functions.{home}")
            found[declared.name] = declared
    return found


def check(found: Mapping[str, Function[Any, Any]]) -> None:
    """Refuse a table that cannot work."""
    routes: dict[tuple[str, str], str] = {}
    for name, declared in found.items():
        if declared.name != name:
            raise BadTable(f"{declared.name!r} is declared in the file of {name!r}")
        if not declared.roles:
            raise BadTable(f"{name!r} names no role")
        if declared.knows_caller and declared.roles != ("anyone",):
            raise BadTable(f"{name!r}: knows_caller is for the role anyone, other roles are always known")
        if declared.is_public and ("viewer" not in declared.roles or declared.writes):
            raise BadTable(f"{name!r}: only what a viewer reads is public")
        if declared.held_for and (declared.knows_caller or declared.is_public):
            raise BadTable(f"{name!r}: a call without a token cannot be held")
        if sum(isinstance(trigger, Every | Cron) for trigger in declared.triggers) > 1:
            raise BadTable(f"{name!r} has two triggers of the clock: declare two functions")
        for trigger in declared.triggers:
            if isinstance(trigger, On) and (unknown := set(trigger.events) - CATALOGUE.keys()):
                raise BadTable(f"{name!r} waits for {sorted(unknown)}, which nothing emits")
        for door in declared.doors:
            shape = re.sub(r"{\w+}", "{}", door.path)
            taken = routes.setdefault((door.method, shape), name)
            if taken != name:
                raise BadTable(f"{name!r} and {taken!r} share the route {door.method} {door.path}")
            if door.method == "GET" and declared.writes and declared.roles != ("worker",):
                raise BadTable(
                    f"{name!r} writes, but {door} may be fetched by any page or link: declare a POST"
                )
            if problem := contradiction(declared, door):
                raise BadTable(f"{name!r}, {door}: {problem}")
        if problem := unsendable(declared.answering):
            raise BadTable(f"{name!r}: {problem}")
    schedules(found, Settings.model_construct())


def schedules(functions: Mapping[str, Function[Any, Any]], settings: Settings) -> dict[str, Schedule]:
    """The schedule of every function that the clock fires, by name. Raises BadTable: one that cannot work."""
    return {
        name: trigger.schedule(name, settings)
        for name, declared in functions.items()
        if (trigger := declared.clock) is not None
    }


def fields_of_path(path: str) -> frozenset[str]:
    return frozenset(re.findall(r"{(\w+)}", path))


def contradiction(declared: Function[Any, Any], door: Http) -> str | None:
    """Why this route cannot serve the function; None where it can."""
    fields = declared.request.model_fields
    in_path = fields_of_path(door.path)
    of_body = () if door.body is None else (door.body,)
    required = {name for name, field in fields.items() if field.is_required()} - in_path
    if door.method != "POST" and (door.query or door.body is not None):
        return "only a POST declares query or body: the query of other methods has all fields"
    if unknown := {*in_path, *door.query, *of_body} - fields.keys():
        return f"{declared.request.__name__} has no field {_named(unknown)}"
    if twice := {
        name for name in (*door.query, *of_body) if (*in_path, *door.query, *of_body).count(name) > 1
    }:
        return f"{_named(twice)} would come from two places"
    if door.body is not None and (missing := required - {*door.query, door.body}):
        return f"no request can have {_named(missing)}: name it in the path or in query"
    if door.method == "POST" and door.body is None and (needed := required & {*door.query}):
        return f"{_named(needed)} may stand in the query or in the body: give it a default"
    if door.has_etag and door.method == "DELETE":
        return "a DELETE has no ETag"
    return None


def unsendable(declared: Function[Any, Any]) -> str | None:
    """Why the answer cannot be sent; None where it can."""
    answer: Any = declared.response
    if not isinstance(answer, type) or not issubclass(answer, BaseModel):
        return f"the answer {answer!r} is no model, nor a model or None"
    if issubclass(answer, RootModel) and get_origin(answer.model_fields["root"].annotation) is not list:
        return f"{answer.__name__} is no list: a RootModel answers a list[X]"
    if issubclass(answer, Picture | Text) and declared.keeps_answer:
        return f"{answer.__name__} cannot be kept for a repeated call: declare keeps_answer=False"
    return None


def _named(fields: set[str]) -> str:
    return ", ".join(map(repr, sorted(fields)))
