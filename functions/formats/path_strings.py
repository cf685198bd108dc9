"""The paths that a program's text names."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST_TEXT = 1_000_000
"""Characters that are read of one text."""
_STRING = re.compile(r"""(['"`])((?:(?!\1)[^\\\n]){1,400})\1""")
_WORD = re.compile(r"(?<![\w.@+~/-])(?:~|\.{1,2})?/?[\w.@+-]{1,200}(?:/[\w.@+-]{1,200})+/?")
_VALUE = re.compile(r"[:=][ \t]{0,9}([\w.@+-]{1,200})[ \t]{0,9}$", re.MULTILINE)
_VARIABLE = re.compile(r"\$?\{[^{}\n]{0,200}\}/|\$\w{1,100}/")
_OUTPUT = (
    r"(?i:(?:\b|_)(?:out(?:put)?s?|results?|save|logs?|reports?|figures?|plots?|te?mp)"
    r"(?:[_-]?(?:dir|path|file|folder|root|name|prefix)s?)?)"
)
"""Name of an option or a variable for what a script writes."""
_WRITES = re.compile(
    r"(?:\b|_)(?:(?:save|dump|mkdir|makedirs|write)\w{0,40}|imwrite|basicConfig)\("
    r"|\bto_(?:csv|json|parquet|pickle|feather|hdf|excel)\("
    r"|\b[A-Z]\w{0,40}(?:Writer|Logger|Handler|Checkpoint)\("
    r"|,\s{0,9}(?:mode\s{0,9}=\s{0,9})?['\"][awx][bt]?\+?['\"]"
    rf"|{_OUTPUT}['\"]?(?::\s{{0,9}}(?:str|Path)\s{{0,9}})?\s{{0,9}}"
    r"(?:[:=]\s{0,9}(?:[\w.]{0,40}(?:join|Path)\()?[\[(rf]{0,2}['\"]|:\s{1,9}\[?[\w./$]|,.{0,200}\bdefault\s{0,9}=)"
)
_LONGEST_LINE = 1000


def strings_of(text: str) -> Iterator[str]:
    """What stands in quotes, and as in a configuration or an error words with a slash, and values at a line's end."""
    text = text[:LONGEST_TEXT].replace("$HOME/", "~/")
    text = _VARIABLE.sub("", text)  # f"{HERE}/data", ${here}/data
    yield from (found[2] for found in _STRING.finditer(text))
    yield from (found[0] for found in _WORD.finditer(text))
    yield from (found[1] for found in _VALUE.finditer(text))


def is_write(line: str) -> bool:
    """Whether a line of a program or a configuration names what a run writes."""
    return len(line) <= _LONGEST_LINE and _WRITES.search(line) is not None


def strings_read(text: str) -> Iterator[str]:
    """The strings of a program's text, without those of lines that name what it writes."""
    lines = text[:LONGEST_TEXT].splitlines()
    yield from strings_of("\n".join(line for line in lines if not is_write(line)))
