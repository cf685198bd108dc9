"""`python -m functions` prints the function table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from functions.contract import table


def main() -> None:
    printed = Table("function", "fired by", "role", "lane", "description", title="Nightjar's functions")
    for name, declared in table().items():
        printed.add_row(
            name,
            "\n".join(map(str, declared.triggers)),
            ", ".join(declared.roles),
            declared.lane,
            declared.description,
        )
    Console().print(printed)


if __name__ == "__main__":
    main()
