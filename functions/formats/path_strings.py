"""The paths that a program's text names."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST_TEXT = 1_000_000
"""Characters that are read of one text."""
_STRING = re.compile(r"""(['"`])((?:(?!\1)[^\\\n]){1,400})\1""")
_WORD = re.compile(r"(?<![\w.@+~/-])(?:~|\.{1,2})?/?[\w.@+-]{1,200}(?:/[\w.@+-]{1,200})+/?")
_VALUE = re.compile(r"[:=][ \t]{0,9}([\w.@+-]{1,200})[ \t]{0,9}$", re.MULTILINE)


def strings_of(text: str) -> Iterator[str]:
    """What stands in quotes, and as in a configuration or an error words with a slash, and values at a line's end."""
    text = text[:LONGEST_TEXT]
    for found in _STRING.finditer(text):
        yield found[2].rpartition("}/")[2]  # f"{HERE}/data"
    yield from (found[0] for found in _WORD.finditer(text))
    yield from (found[1] for found in _VALUE.finditer(text))
