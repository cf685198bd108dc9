"""What agents read: the names of their tools in place of routes, and short answers and refusals."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from functions.kernel.validation import NAMED
from state.errors import NightjarError
from triggers.mcp.tools import WHAT, Tool

ROUTE = re.compile(r"\b(GET|POST) (/api/[\w./:{}-]*[\w}])")
SENTENCES = ("next", "hint")
"""Fields of an answer with instructions."""
MOST_FAULTS = 20


class Wording:
    """Says things to an agent that has these tools."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._routes = [
            (door.method, re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(door.path))), _named(tool, what))
            for tool in tools.values()
            for what, declared in tool.choices.items()
            for door in declared.doors
        ]

    def with_tools(self, text: str) -> str:
        """The text, with tools for the routes that they stand for."""
        return ROUTE.sub(self._tool, text)

    def answer(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """A function's answer, with tools in its sentences."""
        sentences = {
            name: self.with_tools(text) for name in SENTENCES if isinstance(text := answer.get(name), str)
        }
        return {**answer, **sentences}

    def refusal(self, problem: NightjarError) -> str:
        """The problem and its remedy in one text: some clients show agents nothing else."""
        parts = [f"{problem.title}: {problem.detail}"]
        if problem.hint is not None:
            parts.append(f"Hint: {self.with_tools(problem.hint)}")
        parts += [f"- {fault}" for fault in _faults(problem)]
        if problem.retry_after is not None:
            parts.append(f"Try again in {problem.retry_after:g} s.")
        return "\n".join(parts)

    def _tool(self, found: re.Match[str]) -> str:
        method, path = found.groups()
        return next(
            (name for of, route, name in self._routes if of == method and route.fullmatch(path)), found[0]
        )


def _faults(problem: NightjarError) -> list[str]:
    """Problems of the fields that the detail does not name."""
    errors = problem.fields.get("errors")
    if not isinstance(errors, list) or len(errors) <= NAMED:
        return []
    return [f"{error['field']}: {error['problem']}" for error in errors[NAMED:MOST_FAULTS]]


def in_short(answer: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """An answer by these fields (none: by all), without null, and without a hint that `next` repeats."""
    is_repeated = answer.get("hint") and answer["hint"] in (answer.get("next") or "")
    return {
        name: _said(value)
        for name, value in answer.items()
        if value is not None and name in (fields or answer) and not (name == "hint" and is_repeated)
    }


def _said(value: Any) -> Any:
    match value:
        case dict():
            return {name: _said(of) for name, of in value.items() if of is not None}
        case list():
            return [_said(of) for of in value]
    return value


def _named(tool: Tool, what: str) -> str:
    return f"the tool {tool.name}" if what == tool.usual else f"the tool {tool.name} with {WHAT}={what}"
