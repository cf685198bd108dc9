"""Finds the seeds that a script spells out, as in `random.seed(1)`, `Forest(random_state=1)` or `{"seed": 1}`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from functions.formats.parsing import last_name
from state.noise import is_seed

_OPTIONS = frozenset({"add_argument", "option", "Option", "DEFINE_integer"})
"""Functions that declare an option of a command line, whose name comes first."""
_GENERATORS = frozenset({"Random", "PCG64", "PCG64DXSM", "Philox", "MT19937", "SFC64"})
"""Generators of random numbers that get their seed first."""
_PASS_ON = frozenset({"int", "field", "Field"})
"""Functions that answer what they get."""


def seed_literals(tree: ast.Module) -> list[ast.Constant]:
    """The integers of a script that are seeds, by the name of what gets them; those in texts of digits, too."""
    found = {id(literal): literal for value in _seeds(tree) for literal in _integers(value)}
    return list(found.values())


def _seeds(tree: ast.Module) -> Iterator[ast.expr]:
    """What is given to seeds: to variables, parameters, keys, and functions such as `manual_seed`."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                yield from (value for name, value in zip(names, values, strict=False) if is_seed(_name(name)))
            case ast.Assign(targets=targets, value=value) if any(
                is_seed(_name(target)) for target in targets
            ):
                yield value
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.NamedExpr(target=target, value=value)
            ) if is_seed(_name(target)):
                yield value
            case ast.keyword(arg=str() as name, value=value) if is_seed(name):
                yield value
            case ast.arguments():
                yield from _defaults(node)
            case ast.Dict(keys=keys, values=values):
                yield from (value for key, value in zip(keys, values, strict=True) if is_seed(_text(key)))
            case ast.Call(func=called, args=[first, *others], keywords=keywords):
                if is_seed(_name(called)) or _name(called) in _GENERATORS or _is_key(called):
                    yield first
                named = [is_seed(_text(name)) for name in (first, *others)]
                yield from (value for value, follows in zip(others, named, strict=False) if follows)
                if any(named) and _name(called) in _OPTIONS:
                    yield from (word.value for word in keywords if word.arg == "default")


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
        case ast.Constant(value=str() as text) if text.isdecimal():  # os.environ.get("SEED", "1")
            yield value
        case ast.BinOp(left=left, right=right) | ast.IfExp(body=left, orelse=right):  # 1337 + rank
            yield from (*_integers(left), *_integers(right))
        case ast.Call(func=called, args=args, keywords=words) if _name(called) in _PASS_ON:
            for given in (*args[:1], *(word.value for word in words if word.arg == "default")):
                yield from _integers(given)
        case ast.BoolOp(values=items) | ast.List(elts=items) | ast.Tuple(elts=items):
            for item in items:
                yield from _integers(item)


def _is_key(called: ast.expr) -> bool:
    """Whether this is `jax.random.key`."""
    match called:
        case ast.Attribute(value=module, attr="key"):
            return _name(module) in ("random", "jr", "jrandom")
    return False


def _name(node: ast.expr) -> str:
    """The last part of a name, or the key of an entry."""
    return _text(node.slice) if isinstance(node, ast.Subscript) else last_name(node)


def _text(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text
    return ""
