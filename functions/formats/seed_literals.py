"""Finds the seeds that a script spells out, as in `random.seed(1)`, `Forest(random_state=1)` or `{"seed": 1}`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from state.seeds import is_seed

_OPTIONS = frozenset({"add_argument", "option", "Option", "DEFINE_integer"})
"""Functions that declare an option of a command line, whose name comes first."""


def seed_literals(tree: ast.Module) -> list[ast.Constant]:
    """The integers of a script that are seeds, by the name of what gets them."""
    found = {id(literal): literal for value in _seeds(tree) for literal in _integers(value)}
    return list(found.values())


def _seeds(tree: ast.Module) -> Iterator[ast.expr]:
    """What is given to seeds: to variables, parameters, keys, and functions such as `manual_seed`."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[target], value=value)
                | ast.AnnAssign(target=target, value=ast.expr() as value)
            ) if is_seed(_name(target)):
                yield value
            case ast.keyword(arg=str() as name, value=value) if is_seed(name):
                yield value
            case ast.arguments():
                yield from _defaults(node)
            case ast.Dict(keys=keys, values=values):
                yield from (value for key, value in zip(keys, values, strict=True) if is_seed(_text(key)))
            case ast.Call(func=called, args=[first, *_]) if is_seed(_name(called)):
                yield first
            case ast.Call(func=called, args=[*names], keywords=keywords) if _name(called) in _OPTIONS:
                if any(is_seed(_text(name)) for name in names):
                    yield from (*names[1:2], *(word.value for word in keywords if word.arg == "default"))


def _defaults(of: ast.arguments) -> Iterator[ast.expr]:
    positional = [*of.posonlyargs, *of.args]
    for parameter, value in zip(positional[len(positional) - len(of.defaults) :], of.defaults, strict=True):
        if is_seed(parameter.arg):
            yield value
    for parameter, given in zip(of.kwonlyargs, of.kw_defaults, strict=True):
        if given is not None and is_seed(parameter.arg):
            yield given


def _integers(value: ast.expr) -> Iterator[ast.Constant]:
    match value:
        case ast.Constant(value=number) if type(number) is int:
            yield value
        case ast.BinOp(left=left, right=right):  # 1337 + rank
            yield from (*_integers(left), *_integers(right))
        case ast.List(elts=items) | ast.Tuple(elts=items):
            for item in items:
                yield from _integers(item)


def _name(node: ast.expr) -> str:
    """The last part of a name."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _text(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text
    return ""
