"""Scripts of a later Python than ours are read, and set, as if we knew their syntax."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from functions.formats.constants import patch_constants, read_constants
from functions.formats.parsing import decoded, parsed
from functions.kernel.process.interpreter import imported
from state.errors import Invalid

LATER = {
    "same-quotes": 's = f"{d["x"]}"',
    "same-triple-quotes": "s = f'''{d['''x''']}\n'''",
    "backslash": 's = f"{"\\n".join(a)}"',
    "comment-and-lines": 's = f"{\n    d["x"]  # of x\n}"',
    "nested": 's = f"{f"{f"{1}"}"}"',
    "format": 's = f"{x["a"]:>{w["b"]}}"',
    "beside-another": 's = ("a"\n    f"{d["x"]}"\n    \'z\')',
    "not-ascii": 's = f"é {d["ü"]} 漢"; t = 1',
    "in-a-call": 'print(f"{", ".join(f"{k}={v}" for k, v in d.items())}".upper())',
    "template": 's = t"{x}"',
    "function": "def f[T: int](x: T) -> T:\n    return x",
    "function-over-lines": "def f[\n    T,\n\n    *Ts, **P\n](x: T):\n    return x",
    "async-function": "async def f[T](x): ...",
    "class": "class A[T]:\n    pass",
    "class-with-base": "class A[T = int](list[T]):\n    pass",
    "alias": "type Batch[T] = dict[str, T]",
    "lazy-import": "lazy import torch\nif 1:\n    lazy from torch import nn",
    "unpacking-in-comprehensions": "s = [*a for a in b], {*a for a in b}, {**d for d in e}, f(*a for a in b)",
    "exceptions": "try:\n    pass\nexcept A.B, C:\n    pass",
    "exception-groups": "try:\n    pass\nexcept* A, B:\n    pass",
}
BEHIND = "import torch\nLR = 3e-4\nx: list[int] = [1]\n"


@pytest.mark.parametrize("line", LATER.values(), ids=LATER)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_constants_of_a_script_for_a_later_python_are_read_and_set(line: str, newline: str) -> None:
    script = f"WIDTH = 64\n{line}\n{BEHIND}".replace("\n", newline)
    assert read_constants(script).items() >= {"WIDTH": 64, "LR": 3e-4, "x": [1]}.items()
    assert patch_constants(script, {"LR": 0.02, "WIDTH": 8}) == script.replace("3e-4", "0.02").replace(
        "64", "8"
    )
    assert imported(script) == ["torch"]


@pytest.mark.parametrize("source", ['s = f"{d["x"]}"\nx = = 1\n', 'f"{', "print 'x'\n", "def f[T(x): ...\n"])
def test_what_no_python_parses_is_invalid_with_the_line(source: str) -> None:
    with pytest.raises(Invalid, match=r"does not parse: .* \(line [12]\)"):
        parsed(source)


@pytest.mark.parametrize("part", ["(", "[", "not ", 'f"{', "a.", "1**", "'\"", "lambda: "])
def test_a_script_that_nests_without_end_is_refused_like_any_other(part: str) -> None:
    with pytest.raises(Invalid):
        parsed(f"x = = {part * 60_000}"[:250_000])


@pytest.mark.parametrize(
    ("script", "encoding"),
    [
        ("# é\n", "utf-8"),
        ("\ufeff# é\n", "utf-8"),
        ("# -*- coding: latin-1 -*-\n# é\n", "iso-8859-1"),
        ("#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\n# é €\n", "cp1252"),
    ],
)
def test_a_script_is_read_in_the_encoding_that_it_names(script: str, encoding: str) -> None:
    assert decoded(script.encode(encoding)) == (script, encoding)


@pytest.mark.parametrize("script", [b"# \xe9\n", b"# coding: latin-9000\n", b"# coding: rot13\n"])
def test_a_script_that_its_own_python_cannot_decode_is_invalid(script: bytes) -> None:
    with pytest.raises(Invalid) as refusal:
        decoded(script)
    assert refusal.value.hint == "save it as UTF-8"


class Finalized:
    """Garbage whose finalizer lets other threads run in the middle of what collects it."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        sum(range(200))


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_may_parse_at_once() -> None:
    script = "\n".join(f"A{i} = f(x[{i}], (1, [2, {{3: 4}}]))" for i in range(100))

    def parse(_: int) -> int:
        _garbage = [Finalized() for _ in range(20)]
        return len(parsed(script).body)

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(parse, range(50))) == {100}
