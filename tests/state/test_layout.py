"""A lab whose data this version does not read is refused, and a process ends when its lab was made anew."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from functions.kernel.process.lifecycle import opened
from state.client import LAYOUT, Lab
from state.embedded import EmbeddedRedis
from state.errors import Unavailable
from state.presence import Presence
from state.settings import Settings
from tests.labs import before_next_commit


@pytest.fixture
async def lab(settings: Settings, redis_server: EmbeddedRedis) -> AsyncIterator[Lab]:
    found = Lab(settings.lab, redis_server.url)
    await found.check()
    yield found
    await found.close()


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [("layout", str(LAYOUT + 1), LAYOUT + 1), ("layout", "0", 0), ("schema", "7", 0)],
    ids=["of a newer version", "of an earlier version", "of version 0.1"],
)
async def test_a_lab_of_another_version_is_refused_in_one_line_and_not_written(
    lab: Lab, settings: Settings, key: str, value: str, found: int
) -> None:
    if key == "schema":
        await lab.command("DEL", lab.keys("layout"))
    await lab.command("SET", lab.keys(key), value)
    before = sorted([name async for name in lab.scan()])

    with pytest.raises(Unavailable, match=f"its layout is {found}, this version reads {LAYOUT}") as refusal:
        async with opened("web", settings):
            pytest.fail("it was opened")

    assert "\n" not in refusal.value.detail
    assert "run the version that wrote it" in str(refusal.value.hint)
    assert sorted([name async for name in lab.scan()]) == before


async def test_two_processes_that_make_a_lab_at_once_make_one(
    lab: Lab, redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lab.command("DEL", lab.keys("layout"), lab.keys("identity"))
    first, second = (Lab(lab.name, redis_server.url) for _ in range(2))
    before_next_commit(monkeypatch, first.check)

    await second.check()

    assert first.identity == second.identity
    await first.close()
    await second.close()


@pytest.mark.parametrize(("key", "said"), [("layout", "has layout 99 now"), ("identity", "was made anew")])
async def test_a_process_knows_when_its_lab_was_made_anew_or_outgrew_it(
    lab: Lab, key: str, said: str
) -> None:
    assert await lab.outlived() is None
    await lab.command("SET", lab.keys(key), "99")
    assert said in (await lab.outlived() or "")
    with pytest.raises(Unavailable, match="made anew" if key == "identity" else "its layout is 99"):
        await lab.check()


@pytest.mark.process
async def test_a_process_ends_in_order_when_the_lab_outgrows_it(
    lab: Lab, redis_server: EmbeddedRedis, tmp_path: Path
) -> None:
    own = {"NIGHTJAR_LAB": lab.name, "NIGHTJAR_REDIS_URL": redis_server.url, "NIGHTJAR_STALE_S": "2.4"}
    clock = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "triggers.clock"),
        env=os.environ | own | {"NIGHTJAR_DATA": str(tmp_path)},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        while not await Presence(lab).alive(60):  # noqa: ASYNC110 - it is another process that comes
            await asyncio.sleep(0.05)
        await lab.command("SET", lab.keys("identity"), "another")
        _, said = await asyncio.wait_for(clock.communicate(), 60)
    finally:
        if clock.returncode is None:
            clock.kill()

    assert clock.returncode == 0
    assert b"ends: the lab" in said
