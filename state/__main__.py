"""`python -m state` prints the key families, with how many keys of each a running lab has.

`python -m state --policy` prints the policy values, each with its default and the functions that read it;
`python -m state --events` prints the event types with what each says.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter

from rich.console import Console
from rich.table import Table

from state.client import Lab
from state.embedded import redis_url
from state.errors import Unavailable
from state.events import CATALOGUE
from state.keys import FAMILIES, Family
from state.policy import Policy, names
from state.policy_readers import readers
from state.settings import Settings


async def counts(settings: Settings) -> Counter[str] | None:
    """Keys per family of the running lab; None where none runs."""
    try:
        lab = Lab(settings.lab, redis_url(settings), timeout_s=settings.redis_timeout_s)
    except Unavailable:
        return None
    found: Counter[str] = Counter()
    try:
        async for key in lab.scan():
            family = family_of(key.removeprefix(lab.keys() + ":"))
            found[family.pattern if family else "(unknown)"] += 1
    except Unavailable:
        return None
    finally:
        await lab.close()
    return found


def family_of(name: str) -> Family | None:
    """The family that a key belongs to, its name without the lab; the most specific one."""
    fitting = [f for f in FAMILIES if re.fullmatch(pattern_of(f), name)]
    return max(fitting, key=lambda f: f.pattern.count(":"), default=None)


def pattern_of(family: Family) -> str:
    """A regular expression for the keys of a family; only GPU and function names hold colons."""
    parts = re.split(r"(<\w+>)", family.pattern)
    inner = {"<gpu_id>": ".+", "<function>": ".+"}
    return "".join(inner.get(p, "[^:]+") if p.startswith("<") else re.escape(p) for p in parts)


def policy_table() -> Table:
    """Every policy value with its default and its readers."""
    printed, read_by, default = Table("value", "default", "read by"), readers(), Policy()
    for name in names():
        value: object = default
        for part in name.split("."):
            value = getattr(value, part)
        printed.add_row(name, json.dumps(value), "\n".join(read_by.get(name, [])))
    return printed


def family_table(settings: Settings) -> Table:
    """Every family of keys."""
    found = asyncio.run(counts(settings))
    printed = Table("key", "type", "meaning", *(["keys"] if found is not None else []))
    for family in FAMILIES:
        row = [f"{{{settings.lab}}}:{family.pattern}", family.kind, family.meaning]
        printed.add_row(*row, *([str(found[family.pattern])] if found is not None else []))
    return printed


def event_table() -> Table:
    """Every type of event."""
    printed = Table("event", "meaning")
    for name, meaning in CATALOGUE.items():
        printed.add_row(name, meaning)
    return printed


def main() -> None:
    match sys.argv[1:]:
        case ["--policy"]:
            printed = policy_table()
        case ["--events"]:
            printed = event_table()
        case _:
            printed = family_table(Settings())
    Console().print(printed)


if __name__ == "__main__":
    main()
