"""`python -m functions` prints the function table; with `--markdown` as it stands in docs/functions.md."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from functions.kernel.contract import Function
from functions.kernel.table import table


def markdown() -> str:
    rows = ["| function | fired by | role | what it does |", "|---|---|---|---|"]
    for name, declared in table().items():
        fired = "<br>".join(f"`{trigger}`" for trigger in declared.triggers)
        rows.append(f"| `{name}` | {fired} | {_audience(declared)} | {declared.description} |")
    return "\n".join(rows)


def _audience(declared: Function[Any, Any]) -> str:
    roles = ", ".join(declared.roles)
    return f"{roles}; by default anyone" if declared.is_public else roles


def main() -> None:
    if "--markdown" in sys.argv[1:]:
        print(markdown())
        return
    printed = Table("function", "fired by", "role", "lane", "description", title="Nightjar's functions")
    for name, declared in table().items():
        fired = "\n".join(map(str, declared.triggers))
        printed.add_row(name, fired, ", ".join(declared.roles), declared.lane, declared.description)
    Console().print(printed)


if __name__ == "__main__":
    main()
