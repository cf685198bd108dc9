"""`python -m triggers` prints what fires what."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from functions.kernel.contract import Cron, Every, Http, On
from functions.kernel.table import table


def main() -> None:
    kinds = {Http: "http", On: "event", Every: "clock", Cron: "clock"}
    rows = sorted(
        (kinds[type(trigger)], str(trigger), name)
        for name, declared in table().items()
        for trigger in declared.triggers
    )
    printed = Table("kind", "trigger", "function", title="Nightjar's triggers")
    for row in rows:
        printed.add_row(*row)
    Console().print(printed)


if __name__ == "__main__":
    main()
