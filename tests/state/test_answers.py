"""Idempotency keys: whose first request died with its process is not kept waiting."""

from __future__ import annotations

import asyncio

import pytest

from functions.kernel.process.lifecycle import Process
from functions.kernel.process.running import ended
from state import answers
from state.answers import Answers, StoredAnswer


def key_of(process: Process) -> str:
    return Answers(process.lab)._key("f::g", "k")


async def test_a_request_whose_process_died_is_free_again_within_seconds_and_one_at_work_is_not(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await process.answers.claim("f::g", "k", "digest") == "claimed"
    assert await process.answers.claim("f::g", "k", "digest") == "in_flight"
    assert 0 < int(await process.lab.command("TTL", key_of(process))) <= 10

    await process.lab.command("EXPIRE", key_of(process), 5)
    monkeypatch.setattr(answers, "IN_FLIGHT_TTL_S", 9)
    working = asyncio.create_task(process.answers.keep_in_flight("f::g", "k"))
    try:
        async with asyncio.timeout(60):
            while int(await process.lab.command("TTL", key_of(process))) <= 5:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    finally:
        await ended(working)
    await process.lab.command("PEXPIRE", key_of(process), 1)
    await asyncio.sleep(0.01)
    assert await process.answers.claim("f::g", "k", "digest") == "claimed"


async def test_saying_that_it_is_worked_on_never_shortens_the_life_of_an_answer(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await process.answers.claim("f::g", "k", "digest")
    await process.answers.store("f::g", "k", "digest", "{}")
    monkeypatch.setattr(answers, "IN_FLIGHT_TTL_S", 0.03)
    working = asyncio.create_task(process.answers.keep_in_flight("f::g", "k"))
    await asyncio.sleep(0.1)
    await ended(working)

    assert int(await process.lab.command("TTL", key_of(process))) > 80_000
    monkeypatch.undo()
    assert await process.answers.claim("f::g", "k", "digest") == StoredAnswer("digest", "{}")
