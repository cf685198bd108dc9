"""Finds the statements that may give a constant another value after the line that sets it.

Such a statement assigns or imports the name, or it writes names that only a run knows: `exec`, a star import,
`globals().update(...)`. A statement that computes the new value from the old one is none: a program may halve its
batch or let a rate decay.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from functions.formats.parsing import last_name

_LOOKUPS = frozenset({"get", "getenv", "setdefault", "pop", "getattr", "float", "int", "str", "bool"})
"""Functions that hand a default on: `LR = args.get("lr", LR)` computes nothing."""
_READERS = frozenset(
    {"dict", "list", "set", "sorted", "len", "print", "repr", "str", "tuple", "iter", "dir", "vars"}
)
"""Functions that only read a namespace."""
_WRITERS = frozenset(
    {"update", "setdefault", "pop", "popitem", "clear", "__setitem__", "__delitem__", "__setattr__"}
)
_SETTINGS = frozenset(
    {"argv", "arg", "getopt", "environ", "items", "open", "line", "readlines", "splitlines"}
)
"""Names in the header of a loop over the command line or a file of settings."""
_NAMESPACES = frozenset({"globals", "locals", "vars"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Loop = ast.For | ast.AsyncFor | ast.While
_UNREACHED = (ast.Return, ast.Raise, ast.Break, ast.Continue)


@dataclass(frozen=True)
class Overriding:
    """A simple statement after which these constants may have another value."""

    statement: ast.stmt
    names: Sequence[str]


def overriding(tree: ast.Module, names: Collection[str], literals: Collection[ast.stmt]) -> list[Overriding]:
    """The statements of a script that may override these constants, which the statements `literals` set."""
    search = _Search.of(tree, frozenset(names), {id(statement) for statement in literals})
    search.visit(tree.body, _Place(search.names))
    return search.found


def bound_names(tree: ast.Module) -> Iterator[str]:
    """Each name as often as the module's scope binds it: in branches and loops too, in functions by `global`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from node.names
    for statement in _statements(tree.body):
        yield from _bound_by_header(statement) if _is_block(statement) else _bound_by(statement)


def bound_by_blocks(tree: ast.Module) -> set[str]:
    """Names that a block of the module's scope binds, such as `for LR in rates:` or `def LR():`."""
    blocks = filter(_is_block, _statements(tree.body))
    return {name for block in blocks for name in _bound_by_header(block)}


@dataclass(frozen=True)
class _Place:
    """Where a statement stands."""

    own: frozenset[str]
    """Constants that an assignment there binds."""
    superseded: frozenset[str] = frozenset()
    """Constants that a literal sets afterwards, whatever happens there."""
    loop: ast.stmt | None = None
    """The outermost loop that it runs in."""
    call: ast.Call | None = None
    """The call of its function in that loop."""
    end: int = 0
    """The last line of that function."""
    skipped: frozenset[str] = frozenset()
    """Constants that some rounds of that loop do not bind."""


@dataclass
class _Search:
    names: frozenset[str]
    literals: Collection[int]
    reads: Mapping[str, Sequence[int]]
    """The lines that read each name."""
    called_in_loops: Mapping[str, _Place]
    """Where functions are called in loops, by their names."""
    namespaces: frozenset[str]
    """Variables that hold the module's namespace."""
    found: list[Overriding] = field(default_factory=list)

    @classmethod
    def of(cls, tree: ast.Module, names: frozenset[str], literals: Collection[int]) -> _Search:
        reads: dict[str, list[int]] = {name: [] for name in names}
        calls: dict[str, _Place] = {}
        spaces: set[str] = {"__main__"}
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name, ctx=ast.Load()) if name in names:
                    reads[name].append(node.lineno)
                case ast.For() | ast.AsyncFor() | ast.While() if not _is_over_settings(node):
                    branches = [branch for branch in ast.walk(node) if isinstance(branch, ast.If | ast.Match)]
                    sometimes = {id(inner) for branch in branches for inner in ast.walk(branch)}
                    for inner in ast.walk(node):
                        if isinstance(inner, ast.Call) and (called := last_name(inner.func)):
                            skipped = names if id(inner) in sometimes else frozenset()
                            calls.setdefault(called, _Place(names, loop=node, call=inner, skipped=skipped))
                case ast.alias(name="__main__", asname=str() as name):
                    spaces.add(name)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_namespace(value, spaces):
                    spaces.add(name)
        return cls(names, literals, reads, calls, frozenset(spaces))

    def visit(self, statements: Sequence[ast.stmt], place: _Place) -> None:
        for statement in reversed(statements):
            if id(statement) in self.literals:
                place = replace(place, superseded=place.superseded | set(_bound_by(statement)))
            elif isinstance(statement, _Function):
                self._visit_function(statement)
            elif isinstance(statement, ast.ClassDef):
                for inner in statement.body:
                    if isinstance(inner, _Function):
                        self._visit_function(inner)
            elif isinstance(statement, _Loop):
                within = replace(place, superseded=frozenset())
                if place.loop is None and not _is_over_settings(statement):
                    within = replace(within, loop=statement, skipped=frozenset())
                self.visit(statement.body, within)
                self.visit(statement.orelse, place)
            elif blocks := _blocks_of(statement):
                if isinstance(statement, ast.If | ast.Match):
                    place = replace(place, skipped=place.skipped | (self.names - _always_bound([statement])))
                for block in blocks:
                    self.visit(block, place)
            else:
                self._look_at(statement, place)

    def _visit_function(self, function: _Function) -> None:
        own = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
        place = self.called_in_loops.get(function.name, _Place(self.names))
        self.visit(function.body, replace(place, own=self.names & own, end=function.end_lineno or 0))

    def _look_at(self, statement: ast.stmt, place: _Place) -> None:
        if isinstance(statement, _UNREACHED):
            return
        if self._writes_any(statement):
            names = self.names
        else:
            names = frozenset(
                name for name in place.own & set(_bound_by(statement)) if self._gives(statement, name, place)
            )
        if names := names - place.superseded:
            self.found.append(Overriding(statement, sorted(names)))

    def _gives(self, statement: ast.stmt, name: str, place: _Place) -> bool:
        """Whether an assignment replaces the value before a run has begun with it."""
        if place.loop is not None:
            reads = self.reads[name]
            if name not in place.skipped:  # else a round that does not bind it may come first
                here, until = statement.lineno, (place.call or statement).lineno
                reads = [line for line in reads if line < until and not here <= line <= place.end]
            if any(line <= (place.loop.end_lineno or 0) for line in reads):
                return False
        return not _computes(statement, name)

    def _writes_any(self, statement: ast.stmt) -> bool:
        """Whether a statement may write names of the module that the script does not spell out."""
        for node in _expressions(statement):
            match node:
                case ast.ImportFrom(names=[ast.alias(name="*")]):
                    return True
                case ast.Subscript(value=held, ctx=ast.Store() | ast.Del()) if self._is_namespace(held):
                    return True
                case ast.Attribute(value=held, ctx=ast.Store() | ast.Del()) if self._is_namespace(held):
                    return True
                case ast.AugAssign(target=held) if self._is_namespace(held):
                    return True
                case ast.Call() if self._call_writes(node):
                    return True
        return False

    def _call_writes(self, call: ast.Call) -> bool:
        match call.func:
            case ast.Name(id="exec" | "execfile") | ast.Attribute(value=ast.Name(id="builtins"), attr="exec"):
                return True
            case ast.Name(id="eval"):
                return any(isinstance(given, ast.Call) for given in call.args)  # eval(compile(...))
            case ast.Attribute(value=held, attr=attribute) if self._is_namespace(held):
                return attribute in _WRITERS
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        return last_name(call.func) not in _READERS and any(self._is_namespace(value) for value in given)

    def _is_namespace(self, node: ast.expr) -> bool:
        return _is_namespace(node, self.namespaces)


def _is_over_settings(loop: ast.stmt) -> bool:
    """Whether a loop reads settings: no training is under way in it."""
    return any(isinstance(node, ast.expr) and last_name(node) in _SETTINGS for node in _of_header(loop))


def _always_bound(block: Sequence[ast.stmt]) -> set[str]:
    """Names that a block binds on each way through it."""
    found: set[str] = set()
    for statement in block:
        if isinstance(statement, ast.If):
            found |= _always_bound(statement.body) & _always_bound(statement.orelse)
        elif not _is_block(statement):
            found |= set(_bound_by(statement))
    return found


def _is_namespace(node: ast.expr, known: Collection[str]) -> bool:
    """Whether an expression is the module, or its names as a mapping."""
    match node:
        case ast.Name(id=name):
            return name in known
        case ast.Call(func=ast.Name(id=name), args=[]):
            return name in _NAMESPACES
        case ast.Call(func=ast.Name(id="vars"), args=[held]):
            return _is_namespace(held, known)
        case ast.Attribute(value=held, attr="__dict__"):
            return _is_namespace(held, known)
        case (
            ast.Call(args=[ast.Constant(value="__main__")])
            | ast.Subscript(value=ast.Attribute(attr="modules"))
        ):
            return True
    return False


def _computes(statement: ast.stmt, name: str) -> bool:
    """Whether the new value of a name is computed from its old one."""
    match statement:
        case ast.AugAssign(target=ast.Name(id=target)) if target == name:
            return True
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            return _uses(value, name, inside=False)
    return False


def _uses(node: ast.AST, name: str, *, inside: bool) -> bool:
    match node:
        case ast.Name(id=used):
            return inside and used == name
        case ast.IfExp(body=body, orelse=other):  # what it tests does not become the value
            return _uses(body, name, inside=inside) or _uses(other, name, inside=inside)
        case ast.BinOp() | ast.UnaryOp() | ast.JoinedStr():
            inside = True
        case ast.Call(func=called):
            inside = inside or last_name(called) not in _LOOKUPS
    return any(_uses(child, name, inside=inside) for child in ast.iter_child_nodes(node))


def _bound_by(statement: ast.stmt) -> Iterator[str]:
    """Names that a simple statement binds in its scope."""
    for node in _expressions(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.alias(name=name, asname=asname):
                yield asname or name.split(".")[0]


def _expressions(node: ast.AST, without: Collection[int] = ()) -> Iterator[ast.AST]:
    """A node and what is evaluated with it: no body of a lambda, and no variable of a comprehension."""
    yield node
    for child in ast.iter_child_nodes(node):
        if id(child) in without or isinstance(child, ast.Lambda):
            continue
        if isinstance(child, ast.comprehension):
            for expression in (child.iter, *child.ifs):
                yield from _expressions(expression)
        else:
            yield from _expressions(child, without)


def _of_header(statement: ast.stmt) -> Iterator[ast.AST]:
    """A statement and what is evaluated with it, without the statements of its blocks."""
    return _expressions(statement, without={id(inner) for body in _blocks_of(statement) for inner in body})


def _blocks_of(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a compound statement, in their order; none of a simple one."""
    match statement:
        case ast.Match(cases=cases):
            return [case.body for case in cases]
        case (
            ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last)
            | ast.TryStar(body=body, handlers=handlers, orelse=other, finalbody=last)
        ):
            return [body, *(handler.body for handler in handlers), other, last]
        case ast.For() | ast.AsyncFor() | ast.While() | ast.If():
            return [statement.body, statement.orelse]
        case ast.With(body=body) | ast.AsyncWith(body=body):
            return [body]
    return []


def _is_block(statement: ast.stmt) -> bool:
    return isinstance(statement, _Function | ast.ClassDef) or bool(_blocks_of(statement))


def _statements(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a scope, with those of its blocks, outside functions and classes."""
    for statement in block:
        yield statement
        for inner in _blocks_of(statement):
            yield from _statements(inner)


def _bound_by_header(block: ast.stmt) -> Iterator[str]:
    if isinstance(block, _Function | ast.ClassDef):
        yield block.name
        return
    for node in _of_header(block):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name):
                yield name
            case ast.MatchStar(name=str() as name) | ast.MatchMapping(rest=str() as name):
                yield name
