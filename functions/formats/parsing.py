"""Reads Python scripts, also of a later Python than the one that runs us."""

from __future__ import annotations

import ast
import io
import re
import threading
import tokenize
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from state.errors import Invalid

if TYPE_CHECKING:
    from tree_sitter import Node

_LAZY: Final = re.compile(rb"^([ \t]*lazy)[ \t](?=[ \t]*(?:import|from)\b)", re.MULTILINE)
LONGEST_SCRIPT: Final = 256 * 1024
"""Characters of an agent's script that is parsed: that takes up to a thousand times as many bytes of memory."""
_PARSING: Final = threading.Lock()
"""CPython counts the depth of a tree once for all threads: two that parse at once may end in a SystemError."""


def decoded(script: bytes) -> tuple[str, str]:
    """A script's text and encoding: UTF-8, or what its first two lines name. Raises Invalid: it is no such text."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(script).readline)
        encoding = "utf-8" if encoding == "utf-8-sig" else encoding  # the mark stays in the text
        return script.decode(encoding), encoding
    except (SyntaxError, UnicodeDecodeError, LookupError) as problem:
        raise Invalid(
            f"the script is not text in its encoding: {problem}", hint="save it as UTF-8"
        ) from problem


def parsed(source: str, longest: int = LONGEST_SCRIPT) -> ast.Module:
    """The tree of a script; a byte order mark is no part of it.

    What our Python cannot parse is parsed with stand-ins for later syntax. Formatted strings, type parameters, lists
    of exceptions, lazy imports and unpacking in comprehensions become plain code of the same length. All else keeps
    its place.

    Raises:
        Invalid: it does not parse.
    """
    if len(source) > longest:
        raise Invalid(f"the script has {len(source):,} characters: none over {longest:,} is parsed")
    text = source.removeprefix("\ufeff")
    try:
        return _tree(text)
    except SyntaxError as error:
        try:
            return _tree(_with_stand_ins(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise Invalid(f"the script does not parse: {error.msg} (line {error.lineno})") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise Invalid(f"the script does not parse: {type(error).__name__}") from error


def last_name(node: ast.AST | None) -> str:
    """The last part of a name such as `a.b`; empty where it is none."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _tree(text: str) -> ast.Module:
    with _PARSING, warnings.catch_warnings(action="ignore"):  # a stray backslash is the script's own affair
        return ast.parse(text)


def _with_stand_ins(text: str) -> str:
    import tree_sitter_python  # few scripts need it
    from tree_sitter import Language, Parser

    written = _LAZY.sub(rb"\1;", text.encode())
    code = bytearray(written)
    for node in _nodes(Parser(Language(tree_sitter_python.language())).parse(written).root_node):
        if node.type == "type_parameter":
            _replace_type_parameters(code, node)
        elif node.type == "type_alias_statement":
            _replace_keyword(code, node)
        elif node.type == "except_clause" and len(kinds := node.children_by_field_name("value")) > 1:
            _replace(code, kinds[0].start_byte, kinds[-1].end_byte)
        elif _is_unpacked(node):
            stars = node.children[0]
            code[stars.start_byte : stars.end_byte] = b" " * len(stars.text or b"")
        elif _is_replaced(node):
            _replace(code, node.start_byte, node.end_byte)
    return code.decode()


def _nodes(root: Node) -> Iterator[Node]:
    """All nodes but those within another that is replaced."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if not _is_replaced(node):
            waiting += node.children


def _is_replaced(node: Node) -> bool:
    if node.type == "concatenated_string":
        return any(_is_replaced(part) for part in node.children)
    return node.type == "string" and any(
        part.type == "interpolation" or (part.type == "string_start" and b"t" in (part.text or b"").lower())
        for part in node.children
    )


def _is_unpacked(node: Node) -> bool:
    """Whether it is the `*a` or `**a` of a comprehension."""
    if node.type == "dictionary_splat":
        return any(part.is_error for part in node.children)  # the parser does not know it either
    within = node.parent.type if node.type == "list_splat" and node.parent else ""
    return within.endswith("_comprehension") or within == "generator_expression"


def _replace(code: bytearray, begin: int, end: int, stand_in: bytes = b"(_)") -> None:
    """Write a stand-in there and spaces for the rest; what stands between brackets may have several lines."""
    for place in range(begin, end):
        if code[place] not in b"\r\n":
            code[place] = ord(" ")
    code[begin : begin + len(stand_in) - 1] = stand_in[:-1]
    code[end - 1] = stand_in[-1]


def _replace_keyword(code: bytearray, alias: Node) -> None:
    """`type X = int` becomes `type,X = int`: that binds X, too. A call such as `type(x).y = 1` stays."""
    behind = alias.start_byte + len("type")
    if code[behind] in b" \t":
        code[behind] = ord(",")


def _replace_type_parameters(code: bytearray, node: Node) -> None:
    """`def f[T](x)` becomes `def f(   x)`, and `class A[T]:` becomes `class A( ):`."""
    behind, above = node.next_sibling, node.parent
    if above is not None and above.type == "generic_type":
        alias = above.parent and above.parent.parent
        if alias is not None and alias.child_by_field_name("left") == above.parent:
            _replace(
                code, node.start_byte, node.end_byte, b"  "
            )  # else `list[int]`, which every Python knows
    elif behind is not None and behind.type in ("parameters", "argument_list"):
        _replace(code, node.start_byte, node.end_byte, b"( ")
        code[behind.start_byte] = ord(" ")
    else:
        _replace(code, node.start_byte, node.end_byte, b"()")
