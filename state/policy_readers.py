"""Which functions read each policy value, found in their source: `python -m state --policy` prints it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from state.policy import Part, Policy

FUNCTIONS = Path(__file__).parents[1] / "functions"

Names = Mapping[str, type[Part]]
"""What the names of one source file stand for."""


def readers(folder: Path = FUNCTIONS) -> dict[str, list[str]]:
    """The files of `folder` that read each policy value, by the value's dotted name."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for file in sorted(folder.rglob("*.py")):
        for name in values_read(ast.parse(file.read_text())):
            found[name].add(file.relative_to(folder).as_posix())
    return {name: sorted(files) for name, files in found.items()}


def values_read(tree: ast.Module) -> Iterator[str]:
    """Every policy value that a module reads, by its dotted name: once for each place."""
    known = _names(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or (part := _part(node.value, known)) is None:
            continue
        if node.attr in part.model_fields and part.group(node.attr) is None:
            yield PREFIXES[part] + node.attr


def _prefixes(part: type[Part], prefix: str) -> dict[type[Part], str]:
    """The dotted name of each group of values, with its last dot."""
    found = {part: prefix}
    for name in part.model_fields:
        if inner := part.group(name):
            found |= _prefixes(inner, f"{prefix}{name}.")
    return found


PREFIXES = _prefixes(Policy, "")


def _names(tree: ast.Module) -> Names:
    """Names that are annotated with a group of values, or that a group is assigned to; `policy` is the whole."""
    classes = {part.__name__: part for part in PREFIXES}
    imported = {
        alias.asname or alias.name: classes[alias.name]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == Policy.__module__
        for alias in node.names
        if alias.name in classes
    }
    known: dict[str, type[Part]] = {"policy": Policy}
    for node in ast.walk(tree):
        match node:
            case (
                ast.arg(arg=name, annotation=ast.Name(id=kind))
                | ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id=kind))
            ) if kind in imported:
                known[name] = imported[kind]
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if part := _part(value, known):
                known[name] = part
    return known


def _part(value: ast.expr, known: Names) -> type[Part] | None:
    """The group of values that an expression stands for."""
    match value:
        case ast.Name(id=name):
            return known.get(name)
        case ast.Attribute(value=inner, attr=name) if part := _part(inner, known):
            return part.group(name) if name in part.model_fields else None
        case ast.Attribute(attr=name):
            return known.get(name)
    return None
