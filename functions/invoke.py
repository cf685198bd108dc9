"""The Invoker binds the table to a process's stores and calls functions by name, in one lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from functions.contract import BadTable, Call, Function, Lane, Request
from state.errors import Forbidden, Invalid, NotFound


class Invoker:
    """Calls the functions of `table` that `lane` can run, with what is `provided`, bound by type once.

    Raises:
        BadTable: a function of this lane asks for something that nobody provides.
    """

    def __init__(
        self, table: Mapping[str, Function[Any, Any]], provided: Sequence[object], lane: Lane = "web"
    ) -> None:
        self.table = table
        self._bound: dict[str, tuple[Function[Any, Any], dict[str, object]]] = {}
        for name, declared in table.items():
            runs = declared if declared.lane in ("web", lane) else declared.accept
            if runs is not None:
                self._bound[name] = (runs, _bind(name, runs, provided))

    async def call(self, name: str, request: BaseModel | Mapping[str, object], call: Call) -> BaseModel:
        """Check the caller's role, validate, run.

        Raises:
            NotFound: no such function. Forbidden: not this caller's. Invalid: the request does not validate.
        """
        if name not in self._bound:
            raise NotFound(f"there is no function {name!r}", hint="GET /api/function/list names them all")
        declared, needs = self._bound[name]
        if not declared.allows(call.role):
            raise Forbidden(
                f"{name} needs the role {' or '.join(declared.roles)}, the caller is {call.role}",
                hint="ask an operator for a token of that role",
            )
        arguments = {key: call if value is Call else value for key, value in needs.items()}
        answer: BaseModel = await declared.handler(validated(declared, request), **arguments)
        return answer

    def system(self, name: str) -> Call:
        """The call of an event or cron trigger: an operator's."""
        return Call(caller=name, role="operator", invoker=self)


def validated(declared: Function[Any, Any], request: BaseModel | Mapping[str, object]) -> Request:
    """`request` as the function's own model.

    Raises:
        Invalid: with one entry per field under `errors`.
    """
    model: type[Request] = declared.request
    if isinstance(request, model):
        return request
    try:
        return model.model_validate(request)
    except ValidationError as problem:
        raise invalid(problem) from problem


def invalid(problem: ValidationError) -> Invalid:
    """pydantic's findings as our own error, without the values (they may be megabytes, or secret)."""
    errors = [
        {"field": ".".join(str(part) for part in e["loc"])[:200] or "body", "problem": e["msg"]}
        for e in problem.errors(include_url=False, include_context=False, include_input=False)
    ]
    summary = "; ".join(f"{e['field']}: {e['problem']}" for e in errors[:3])
    more = f" (and {len(errors) - 3} more)" if len(errors) > 3 else ""
    return Invalid(
        summary + more,
        hint="correct the fields under `errors`; POST /api/function/list shows every request's schema",
        fields={"errors": errors[:50]},
    )


def _bind(name: str, declared: Function[Any, Any], provided: Sequence[object]) -> dict[str, object]:
    bound: dict[str, object] = {}
    for parameter, kind in declared.needs.items():
        found = [Call] if kind is Call else [thing for thing in provided if isinstance(thing, kind)]
        if len(found) != 1:
            have = "nobody provides" if not found else "several provide"
            raise BadTable(f"{name!r} asks for {parameter}: {kind.__name__}, which {have} here")
        bound[parameter] = found[0]
    return bound
