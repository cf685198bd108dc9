"""Reads the other values of a script's text constants, and its hyperparameters that are no constants."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from functions.formats.constants import literal_of
from functions.formats.parsing import parsed

_LIST = re.compile(r"\(([^()]+)\)|\[([^\[\]]+)\]|\{([^{}]+)\}")
_LEAD = re.compile(r"^.*:\s|^\W*(?:one of|either|choices|options|may be|can be|supports?)\s+", re.IGNORECASE)
_ALSO = re.compile(r"^(?:also|or|alternatives?|others?|vs\.?|versus)\b\W*(?:be\s+)?", re.IGNORECASE)
_BETWEEN = re.compile(r"\s*(?:[,|/;]|\b(?:or|and|vs|versus)\b\.?)\s*")
_DEFAULT = re.compile(r"[(\[]default\b[^()\[\]]*[)\]]|\bdefault\b", re.IGNORECASE)
_WORD = re.compile(r"[\w.+-]+")
_TABLES = (ast.Dict, ast.List, ast.Set, ast.Tuple, ast.DictComp, ast.ListComp, ast.SetComp, ast.Lambda)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_SETTINGS = re.compile(r"config|cfg|args|arguments|param|setting|option|flags|hyper", re.IGNORECASE)


def choices_in(source: str) -> dict[str, list[str]]:
    """All values that each text among the top-level constants may have, its present one too.

    A comment on the line or above it lists them, or a `Literal`, or the script compares the constant with them.

    Raises:
        Invalid: it does not parse.
    """
    tree, lines = parsed(source), source.removeprefix("\ufeff").encode().splitlines()
    found: dict[str, list[str]] = {}
    for statement in tree.body:
        name, value = _assigned(statement)
        if name is None or not isinstance(present := _literal(value), str):
            continue
        of_type = _texts(statement.annotation) if isinstance(statement, ast.AnnAssign) else []
        listed = _listed(_comments(lines, statement), present)
        choices = listed or of_type or [present, *_compared(tree, name)]
        if len(set(choices)) > 1 and present in choices:
            found[name] = [*dict.fromkeys(choices)]
    return found


def found_elsewhere(source: str) -> dict[str, str]:
    """Hyperparameters where no swarm can set them, by name: their value, their place, and how to vary them.

    They are defaults of options of a command line, and fields of classes and entries of dictionaries with settings.

    Raises:
        Invalid: it does not parse.
    """
    found: dict[str, str] = {}
    for name, value, line, what in _defaults(parsed(source)):
        if _NAME.fullmatch(name):
            shown, top = ascii(value)[:60], name.upper()
            how = f"write `{top} = {shown}` at the top level and {top} there"
            found.setdefault(name, f"{shown} is {what} (line {line}). To vary it, {how}")
    return found


def computed_at_top(source: str, constants: Mapping[str, object]) -> dict[str, str]:
    """Names in capitals at the top level that are no constants, and why. Raises Invalid: it does not parse."""
    found: dict[str, str] = {}
    for statement in parsed(source).body:
        name, value = _assigned(statement)
        if name is not None and name.isupper() and name not in constants and not isinstance(value, _TABLES):
            why = "computed" if _literal(value) is None else "set again"
            found.setdefault(
                name, f"{why} (line {statement.lineno}): only a literal that is set once is varied"
            )
    return found


def _assigned(statement: ast.stmt) -> tuple[str | None, ast.expr | None]:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return name, value
    return None, None


def _literal(expression: ast.expr | None) -> object:
    return None if expression is None else literal_of(expression)


# -- what else a text may be


def _comments(lines: Sequence[bytes], statement: ast.stmt) -> Iterator[str]:
    """The comment behind a statement, then the lines of comments above it."""
    behind = lines[(statement.end_lineno or 1) - 1][statement.end_col_offset or 0 :].strip()
    above = [behind]
    for line in reversed(lines[: statement.lineno - 1]):
        if not line.startswith(b"#"):
            break
        above.append(line)
    for line in above:
        if line.startswith(b"#"):
            yield line.decode().strip("# \t")


def _listed(comments: Iterator[str], present: str) -> list[str]:
    """The first list of words in these comments that has the present value."""
    for comment in comments:
        inner = [part for found in _LIST.findall(comment) for part in found if part]
        for text in (comment, _LEAD.sub("", comment), *inner):
            others, is_rest = _ALSO.subn("", text)
            words = [word.strip(" \t\"'`.") for word in _BETWEEN.split(_DEFAULT.sub("", others))]
            words = [present] * is_rest + [word for word in words if word]
            if len(words) > 1 and present in words and all(map(_WORD.fullmatch, words)):
                return words
    return []


def _compared(tree: ast.Module, name: str) -> Iterator[str]:
    """The texts that a script compares a name with, or looks up by it."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=ast.Name(id=compared), comparators=others) if compared == name:
                yield from (text for other in others for text in _texts(other))
            case ast.Subscript(value=ast.Dict(keys=keys), slice=ast.Name(id=compared)) if compared == name:
                yield from (text for key in keys if key is not None for text in _texts(key))
            case ast.Subscript(value=ast.Name(id=table), slice=ast.Name(id=compared)) if compared == name:
                yield from _keys_of(tree, table)
            case ast.Match(subject=ast.Name(id=compared), cases=cases) if compared == name:
                yield from (text for case in cases for text in _texts(case.pattern))


def _keys_of(tree: ast.Module, table: str) -> Iterator[str]:
    for target, value in map(_assigned, tree.body):
        if target == table and isinstance(value, ast.Dict):
            yield from (text for key in value.keys if key is not None for text in _texts(key))


def _texts(node: ast.AST) -> list[str]:
    constants = [n for n in ast.walk(node) if isinstance(n, ast.Constant)]
    return [n.value for n in constants if isinstance(n.value, str)]


# -- defaults elsewhere


def _defaults(tree: ast.Module) -> Iterator[tuple[str, object, int, str]]:
    """Name, value, line and kind of each."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.ClassDef | ast.Assign)]
    for node in sorted(nodes, key=lambda n: n.lineno):
        match node:
            case ast.ClassDef():
                of_node = _of_class(node)
            case ast.Call():
                of_node = _of_option(node)
            case _:
                of_node = _of_dictionary(node)
        for name, expression, what in of_node:
            value = literal_of(expression)
            if isinstance(value, bool | int | float | str):
                yield name, value, expression.lineno, what


def _of_option(call: ast.Call) -> Iterator[tuple[str, ast.expr, str]]:
    """`add_argument("--lr", default=3e-4)`, an option of click, or `DEFINE_float("lr", 3e-4, ...)`."""
    names = [
        text for argument in call.args if isinstance(argument, ast.Constant) for text in _texts(argument)
    ]
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    options = [name for name in names if name.startswith("-")]
    if not options and ast.unparse(call.func).endswith(".add_argument"):
        options = names  # of an argument without a name
    if options and "default" in given:
        dest = _texts(given["dest"]) if "dest" in given else []
        name = (dest or [max(options, key=len).lstrip("-")])[0].replace("-", "_")
        yield name, given["default"], "the default of an option"
    elif "DEFINE_" in ast.unparse(call.func) and names and len(call.args) > 1:
        yield names[0], call.args[1], "the default of a flag"


def _of_dictionary(node: ast.Assign) -> Iterator[tuple[str, ast.expr, str]]:
    """Entries of `config = {"lr": 3e-4}` and `config = dict(lr=3e-4)`."""
    name, value = _assigned(node)
    if name is None or not _SETTINGS.search(name):
        return
    entries: list[tuple[str | None, ast.expr]] = []
    if isinstance(value, ast.Dict):
        keys = (key.value if isinstance(key, ast.Constant) else None for key in value.keys)
        entries = [
            (key, entry) for key, entry in zip(keys, value.values, strict=True) if isinstance(key, str)
        ]
    elif isinstance(value, ast.Call) and ast.unparse(value.func) == "dict":
        entries = [(keyword.arg, keyword.value) for keyword in value.keywords]
    yield from ((key, entry, f"an entry of {name}") for key, entry in entries if key)


def _of_class(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr, str]]:
    """Fields of dataclasses and the like, and of classes whose name says that they hold settings."""
    decorated = any(
        "dataclass" in (text := ast.unparse(by)) or "define" in text for by in node.decorator_list
    )
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    if not (decorated or _SETTINGS.search(node.name) or bases & {"BaseModel", "BaseSettings", "NamedTuple"}):
        return
    for statement in node.body:
        name, value = _assigned(statement)
        if isinstance(value, ast.Call):  # field(default=3e-4), Field(3e-4)
            given = (keyword.value for keyword in value.keywords if keyword.arg == "default")
            value = next(given, value.args[0] if value.args else None)
        if name is not None and value is not None:
            yield name, value, f"a field of {node.name}"
