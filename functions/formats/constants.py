"""Top-level constants of a training script: reads and sets them without touching another byte; finds its seeds."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from functions.formats.overriding import bound_by_blocks, bound_names, overriding
from functions.formats.parsing import last_name, parsed
from functions.swarm.rules.scanning import is_budget
from state.errors import Invalid
from state.noise import is_seed

_LARGEST_BITS: Final = 4096
"""Largest result of `2**17` or `1 << 20`, in bits: a larger one is a trap, not a hyperparameter."""

_DEEPEST: Final = 50

_OPERATORS: dict[type[ast.operator], Callable[..., object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}
_SIGNS: dict[type[ast.unaryop], Callable[..., object]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
}


class _NotLiteral(Exception):
    """The expression has no value without running the script."""


def read_constants(source: str) -> dict[str, object]:
    """Every name that the module binds exactly once, to a literal, at its top level.

    `LR = 3e-4` and `N: int = 2**17` are such lines; a list or a product of numbers counts as a literal.

    Raises Invalid for a source that does not parse.
    """
    tree = parsed(source)
    bound = Counter(bound_names(tree))
    return {name: found[0][1] for name, found in _literals(tree).items() if bound[name] == 1}


def settable_constants(source: str) -> dict[str, object]:
    """Names that `patch_constants` can set, with the value of the last literal. Raises Invalid: no Python."""
    return {name: found[-1][1] for name, found in _literals(parsed(source)).items()}


def reseeded(constants: Mapping[str, object], seed: int) -> dict[str, object]:
    """The seeds among these constants, set to `seed`. A list of seeds becomes as many seeds from `seed` on."""
    found: dict[str, object] = {}
    for name, value in constants.items():
        if not is_seed(name):
            continue
        if type(value) is int:
            found[name] = seed
        elif isinstance(value, list | tuple) and value and all(type(each) is int for each in value):
            found[name] = type(value)(range(seed, seed + len(value)))
    return found


def lengthened(source: str, given: Mapping[str, object], times: float) -> dict[str, object]:
    """The constants of a script that hold its seconds of training, so many times as long; `given` has set some.

    Raises Invalid for a source that does not parse.
    """
    found: dict[str, object] = {}
    for name, value in {**read_constants(source), **given}.items():
        if is_budget(name) and isinstance(value, int | float) and not isinstance(value, bool):
            longer = value * times
            found[name] = round(longer) if isinstance(value, int) and longer == round(longer) else longer
    return found


def patch_constants(source: str, values: Mapping[str, object]) -> str:
    """The source with these constants set; everything but the text of the literals stays byte for byte.

    A value may be a bool, int, finite float, str, None, or a list, tuple or dict of those, and reads back
    exactly (3e-4 becomes `0.0003`). A literal that has its value already keeps its text. A name that the script binds
    again is set at each of its top-level literals; `with_checks` shows where it gets another value.

    Raises Invalid for a name that is missing or not bound to a literal, and for a value that no literal can express.
    """
    written = {name: _literal_text(name, value) for name, value in values.items()}
    if not written:
        return source
    tree = parsed(source)
    literals = _literals(tree)
    for name in written:
        if name not in literals:
            raise Invalid(_why_not(tree, name, sorted(literals)), hint="set only top-level literals")
    starts = _line_starts(source)
    new = [
        (*_span(statement.value, starts), written[name])
        for name in written
        for statement, present in literals[name]
        if statement.value is not None and ascii(present) != written[name]
    ]
    patched = _rewritten(source, new)

    now = _literals(parsed(patched))
    for name, literal in written.items():
        if any(ascii(value) != literal for _, value in now.get(name, [(None, None)])):
            raise Invalid(f"setting {name!r} to {literal} would change the meaning of the script")
    return patched


def with_seeds(source: str, seed: int) -> str:
    """The source with this seed for each that it spells out, in calls and functions. Raises Invalid: no Python."""
    starts = _line_starts(source)
    found = seed_literals(parsed(source))
    return _rewritten(
        source,
        [
            (*_span(literal, starts), ascii(str(seed) if isinstance(literal.value, str) else seed))
            for literal in found
        ],
    )


def trained_source(
    source: str, values: Mapping[str, object], seed: int | None, judge: str | None = None
) -> str:
    """The source that a run has: with its constants, and with its seed where it has one.

    The seed goes to the top-level seeds, or else to all that the script spells out. `judge`: see `with_checks`.

    Raises Invalid as `patch_constants` does.
    """
    seeds = {} if seed is None else reseeded(settable_constants(source), seed)
    wanted = {**seeds, **values}
    script = patch_constants(source, wanted)
    if seed is not None and not seeds:
        script = with_seeds(script, seed)
    return with_checks(script, wanted, judge) if wanted and judge is not None else script


def with_checks(source: str, names: Iterable[str], judge: str) -> str:
    """The source, which ends its run where a later statement gives one of these constants another value.

    A number or a text that the script binds once is looked at once more when the script ends: another module may have
    set it. Lines keep their numbers. `judge` is the path of `nightjar_constants.py`.
    """
    literals = _literals(tree := parsed(source))
    wanted = {name: literals[name] for name in names}
    set_by = [statement for found in wanted.values() for statement, _ in found]
    starts, inserted = _line_starts(source), list[tuple[int, int, str]]()
    for found in overriding(tree, wanted, set_by):
        begin, end = _span(found.statement, starts)
        before, after = _check(found.names, found.statement.lineno, judge)
        inserted += [(begin, begin, f"{before}; "), (end, end, f"; {after}")]
    bound = Counter(bound_names(tree))
    fixed = {
        name: found[0] for name, found in wanted.items() if bound[name] == 1 and _cannot_change(found[0][1])
    }
    if fixed:
        _, end = _span(
            max((statement for statement, _ in fixed.values()), key=lambda last: last.lineno), starts
        )
        values = ", ".join(f"{name!a}: {value!a}" for name, (_, value) in fixed.items())
        watch = f'__import__("runpy").run_path({judge!a})["watch"](globals(), {{{values}}})'
        inserted.append((end, end, f"; {watch}"))
    return _rewritten(source, inserted)


def _cannot_change(value: object) -> bool:
    """Whether a value stays what it is; a list or a dict may be changed in place by its own script."""
    if isinstance(value, tuple):
        return all(map(_cannot_change, value))
    return value is None or isinstance(value, int | float | str | bytes)


def _check(names: Iterable[str], line: int, judge: str) -> tuple[str, str]:
    """Statements before and after one that may set these names; no name of the script is bound or trusted."""
    now = [f"globals().get({name!a}, ...)" for name in names]
    kept = f'__import__("sys").nightjar_constants_{line}'  # one such statement may run another
    judged = f'__import__("runpy").run_path({judge!a})["judge"]'
    after = [
        f"{value} is {kept}[{place}] or {judged}({name!a}, {kept}[{place}], {value}, {line})"
        for place, (name, value) in enumerate(zip(names, now, strict=True))
    ]
    return f"{kept} = [{', '.join(now)}]", "; ".join(after)


_Literals = Mapping[str, Sequence[tuple[ast.Assign | ast.AnnAssign, object]]]


def _literals(tree: ast.Module) -> _Literals:
    """The statements at the top level that bind a name to a literal, with its value.

    Names that a loop or another block binds, too, are left out: they are no constants.
    """
    literals: dict[str, list[tuple[ast.Assign | ast.AnnAssign, object]]] = {}
    of_blocks = bound_by_blocks(tree)
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=expression):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as expression):
                pass
            case _:
                continue
        if name in of_blocks:
            continue
        try:
            value = _value(expression)
        except (_NotLiteral, ArithmeticError, TypeError, ValueError):
            continue
        literals.setdefault(name, []).append((statement, value))
    return literals


def literal_of(expression: ast.expr) -> object:
    """The value of a literal, or of simple arithmetic over numbers; None: it has none without running the script."""
    try:
        return _value(expression)
    except (_NotLiteral, ArithmeticError, TypeError, ValueError):
        return None


def _value(node: ast.expr, depth: int = 0) -> object:
    """The value of a literal or of simple arithmetic over numbers, with its work bounded."""
    if depth > _DEEPEST:
        raise _NotLiteral
    match node:
        case ast.Constant(value=value) if value is None or isinstance(value, int | float | str | bytes):
            return value
        case ast.List(elts=items):
            return [_value(item, depth + 1) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item, depth + 1) for item in items)
        case ast.Dict(keys=keys, values=values) if None not in keys:  # as in {**other}
            pairs = zip(filter(None, keys), values, strict=True)
            return {_value(key, depth + 1): _value(value, depth + 1) for key, value in pairs}
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)](_number(operand, depth))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            a, b = _number(left, depth), _number(right, depth)
            _check_size(op, a, b)
            result = _OPERATORS[type(op)](a, b)
            if isinstance(result, int | float):
                return result
    raise _NotLiteral


def _number(node: ast.expr, depth: int) -> int | float:
    value = _value(node, depth + 1)
    if not isinstance(value, int | float):
        raise _NotLiteral
    return value


def _check_size(op: ast.operator, a: float, b: float) -> None:
    if not (isinstance(a, int) and isinstance(b, int)):
        return
    if isinstance(op, ast.Pow):
        bits = a.bit_length() * abs(b)
    elif isinstance(op, ast.LShift):
        bits = a.bit_length() + max(b, 0)
    else:
        bits = a.bit_length() + b.bit_length()
    if bits > _LARGEST_BITS:
        raise _NotLiteral


def _why_not(tree: ast.Module, name: str, available: list[str]) -> str:
    count = [*bound_names(tree)].count(name)
    if count == 0:
        fault = "is not a top-level name of the script"
    elif count > 1 and name in bound_by_blocks(tree):
        fault = "is bound by a loop or another block, too"
    else:
        fault = "is not assigned a literal"
    shown = ", ".join(available[:50]) + (", ..." if len(available) > 50 else "")
    return f"constant {name!r} {fault}; available: {shown or 'none'}"


def _literal_text(name: str, value: object) -> str:
    _check_value(name, value, 0)
    try:
        return ascii(value)  # like repr, and safe in a file of any encoding
    except ValueError as error:
        raise Invalid(f"the value of constant {name!r} is too large") from error


def _check_value(name: str, value: object, depth: int) -> None:
    kind = type(value)
    if depth > _DEEPEST:
        raise Invalid(f"the value of constant {name!r} is nested deeper than {_DEEPEST}")
    if isinstance(value, float) and not math.isfinite(value):
        raise Invalid(f"constant {name!r} must be finite, not {value!r}")
    if value is None or kind in (bool, int, float, str):
        return
    if isinstance(value, dict) and kind is dict:
        items = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple) and kind in (list, tuple):
        items = list(value)
    else:
        raise Invalid(f"constant {name!r} cannot be set to a {kind.__name__}")
    for item in items:
        _check_value(name, item, depth + 1)


def _rewritten(source: str, parts: Iterable[tuple[int, int, str]]) -> str:
    """The source with other texts, in ASCII, in the place of these parts of its bytes."""
    encoded = source.encode()
    for begin, end, text in sorted(parts, reverse=True):
        encoded = encoded[:begin] + text.encode("ascii") + encoded[end:]
    return encoded.decode()


def _line_starts(source: str) -> list[int]:
    """Byte offset of every line as Python's own tokenizer counts lines."""
    begin = 3 if source.startswith("\ufeff") else 0  # the bytes of a byte order mark
    return [begin, *(found.end() for found in re.finditer(rb"\r\n|\r|\n", source.encode()))]


def _span(node: ast.expr | ast.stmt, starts: Sequence[int]) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


# -- Seeds that a script spells out, as in `random.seed(1)`, `Forest(random_state=1)` or `{"seed": 1}`.

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
