"""Long bodies and answers of requests that come together are read and written one in a turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from tests.labs import idea, open_tag
from triggers.http import answering, bodies
from triggers.http.bodies import LONG, LoopTurns

TOGETHER = 10


class Counted:
    """How often something is done in each turn of the event loop."""

    def __init__(self) -> None:
        self.done = 0
        self.in_turns: list[int] = []

    def one(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.done += 1
            return work(*arguments)

        return counted

    @asynccontextmanager
    async def counting(self) -> AsyncIterator[None]:
        async def count() -> None:
            while True:
                before = self.done
                await asyncio.sleep(0)
                self.in_turns.append(self.done - before)

        counter = asyncio.create_task(count())
        try:
            yield
        finally:
            await asyncio.sleep(0)
            counter.cancel()


async def test_what_is_long_or_fails_has_a_turn_for_itself_and_what_is_short_shares_one() -> None:
    fails = Mock(side_effect=ZeroDivisionError)
    for size, work, expected in ((LONG + 1, str, 1), (LONG, str, TOGETHER), (0, fails, 1)):
        turns, counted, of_size = LoopTurns(), Counted(), Mock(return_value=size)

        async with counted.counting():
            made = await asyncio.gather(
                *(turns.do(counted.one(work), of_size) for _ in range(TOGETHER)), return_exceptions=True
            )

        assert {type(one) for one in made} == {str if size else ZeroDivisionError}
        assert max(counted.in_turns) == expected


async def test_long_bodies_that_come_together_are_read_one_in_a_turn(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_tag(client)
    counted = Counted()
    monkeypatch.setattr(bodies, "parsed", counted.one(bodies.parsed))

    async with counted.counting():
        answers = await asyncio.gather(
            *(client.post("/api/experiment/register", json=idea(diff="+" * LONG)) for _ in range(TOGETHER))
        )

    assert {answer.status_code for answer in answers} == {200}
    assert counted.done == TOGETHER
    assert max(counted.in_turns) == 1


async def test_long_answers_that_come_together_are_written_one_in_a_turn(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted()
    await client.get("/api/function/list")
    monkeypatch.setattr(answering, "_response", counted.one(answering._response))

    async with counted.counting():
        answers = await asyncio.gather(*(client.get("/api/function/list") for _ in range(TOGETHER)))

    assert {answer.status_code for answer in answers} == {200}
    assert len(answers[0].content) > LONG
    assert max(counted.in_turns) == 1
