"""The day's budget of the language model: never overdrawn, and never given back by a process that was killed."""

from __future__ import annotations

import asyncio

import pytest

from functions.kernel.process.lifecycle import Process
from state.author_budget import AuthorBudget, Cost, UsedUp

LIMITS = Cost(tokens=1000, micro_usd=1_000_000)


@pytest.fixture
def budget(process: Process) -> AuthorBudget:
    return AuthorBudget(process.lab)


async def reserved(budget: AuthorBudget, tokens: int, micro_usd: int = 0) -> str:
    found = await budget.reserve(Cost(tokens, micro_usd), LIMITS)
    assert isinstance(found, str)
    return found


async def test_what_is_reserved_counts_as_spent_until_it_is_closed_once(budget: AuthorBudget) -> None:
    first = await reserved(budget, 600, 300)
    assert await budget.today() == Cost(600, 300)

    await asyncio.gather(*(budget.close(first, Cost(50, 20)) for _ in range(2)))
    await budget.close(first, Cost(50, 20))
    assert await budget.today() == Cost(50, 20)

    await budget.close(await reserved(budget, 600), Cost(2000, 7))  # more than was reserved counts too
    assert await budget.today() == Cost(2050, 27)
    assert isinstance(await budget.reserve(Cost(1, 0), LIMITS), UsedUp)


async def test_the_rest_of_the_day_is_reserved_and_no_more_than_that(budget: AuthorBudget) -> None:
    await reserved(budget, 600, 600_000)

    for over in (Cost(401, 0), Cost(0, 400_001)):
        found = await budget.reserve(over, LIMITS)
        assert isinstance(found, UsedUp)
        assert 0 < found.renewed_in_s <= 86400
        assert await budget.today() == Cost(600, 600_000)

    await reserved(budget, 400, 400_000)
    assert await budget.today() == Cost(1000, 1_000_000)


async def test_many_at_once_never_overdraw_it(budget: AuthorBudget) -> None:
    found = await asyncio.gather(*(budget.reserve(Cost(30, 0), LIMITS) for _ in range(100)))
    assert sum(isinstance(each, str) for each in found) == 33
    assert await budget.today() == Cost(990, 0)


async def test_another_day_begins_anew_and_owes_nothing(process: Process, budget: AuthorBudget) -> None:
    old = await reserved(budget, 1000)
    await process.lab.command("HSET", process.lab.keys("author_budget"), "day", "1")
    assert await budget.today() == Cost(0, 0)

    await reserved(budget, 10)
    await budget.close(old, Cost(5, 5))

    assert await budget.today() == Cost(10, 0)
