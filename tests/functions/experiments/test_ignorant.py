"""Whoever knows nothing of traces is answered what was answered before there were any; more fields are allowed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.ignorant import CALLS, session

RECORDED = Path(__file__).parents[2] / "data" / "ignorant.json"


def differences(before: Any, now: Any, where: str) -> Iterator[str]:
    """What was answered before, and is not now."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name, part in before.items():
            if name not in now:
                yield f"{where}.{name} is gone"
            else:
                yield from differences(part, now[name], f"{where}.{name}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for nth, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from differences(one, other, f"{where}[{nth}]")
    elif before != now:
        yield f"{where} was {before!r}, is {now!r}"


async def test_a_client_that_knows_no_traces_sees_what_it_always_saw(client: httpx.AsyncClient) -> None:
    recorded = json.loads(RECORDED.read_text())
    now = await session(client)
    assert len(recorded) == len(now) == len(CALLS)
    found = [d for old, new in zip(recorded, now, strict=True) for d in differences(old, new, old["call"])]
    assert found == []
