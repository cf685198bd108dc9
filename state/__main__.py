"""`python -m state` prints the key families, and the number of keys of each in a running lab."""

from __future__ import annotations

import asyncio
import re
from collections import Counter

from rich.console import Console
from rich.table import Table

from state.client import Lab
from state.embedded import redis_url
from state.errors import Unavailable
from state.keys import FAMILIES, Family
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


def family_table(settings: Settings) -> Table:
    """Every family of keys."""
    found = asyncio.run(counts(settings))
    printed = Table("key", "type", "meaning", *(["keys"] if found is not None else []))
    for family in FAMILIES:
        row = [f"{{{settings.lab}}}:{family.pattern}", family.kind, family.meaning]
        printed.add_row(*row, *([str(found[family.pattern])] if found is not None else []))
    return printed


def main() -> None:
    Console().print(family_table(Settings()))


if __name__ == "__main__":
    main()
