"""The modules that a Python script imports, by the names that lie on its path."""

from __future__ import annotations

import ast

from functions.formats.parsing import last_name, parsed
from state.errors import Invalid

_CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
"""Exceptions that a script catches if it can do without a module."""


def imported(source: str) -> list[str]:
    """The first names of the modules that a script needs; none where it is no Python."""
    try:
        tree = parsed(source)
    except Invalid:
        return []
    return [*dict.fromkeys(_below(tree))]


def _below(tree: ast.AST) -> list[str]:
    found: list[str] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found += [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module.partition(".")[0]] if node.module and not node.level else []
        else:
            waiting += reversed(_needed(node))
    return found


def _needed(node: ast.AST) -> list[ast.AST]:
    """The parts of a node that may not fail to import anything."""
    match node:
        case ast.Try(body=_, handlers=handlers, orelse=rest, finalbody=last) if any(map(_forgives, handlers)):
            return [*handlers, *rest, *last]
        case ast.With(items=items) if any(_suppresses(item.context_expr) for item in items):
            return []
        case ast.If(test=test, orelse=rest) if last_name(test) == "TYPE_CHECKING":
            return [*rest]
    return [*ast.iter_child_nodes(node)]


def _forgives(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches a module that is not there."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or last_name(kind) in _CAUGHT for kind in kinds)


def _suppresses(expression: ast.expr) -> bool:
    if not isinstance(expression, ast.Call) or last_name(expression.func) != "suppress":
        return False
    return any(last_name(kind) in _CAUGHT for kind in expression.args)
