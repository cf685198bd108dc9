"""The connection that concurrent calls share: order, one lost caller, one lost connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import pytest
import redis

from state.client import Lab
from state.embedded import EmbeddedRedis
from state.errors import Unavailable
from state.settings import Settings
from tests.state.test_client import connected, silent


@pytest.fixture
async def lab(redis_server: EmbeddedRedis, settings: Settings) -> AsyncIterator[Lab]:
    found = Lab(settings.lab, redis_server.url)
    yield found
    await found.close()


@pytest.fixture
def admin(redis_server: EmbeddedRedis) -> Iterator[redis.Redis]:
    with closing(redis.Redis.from_url(redis_server.url)) as connection:
        yield connection


def clients(admin: redis.Redis) -> set[str]:
    return {client["id"] for client in admin.client_list()}


async def test_calls_at_once_get_their_own_replies_on_one_connection(lab: Lab, admin: redis.Redis) -> None:
    before = clients(admin)
    answers = await asyncio.gather(*(lab.pipeline([("ECHO", n), ("ECHO", -n)]) for n in range(500)))
    assert answers == [[str(n), str(-n)] for n in range(500)]
    assert len(clients(admin) - before) == 1


async def test_a_refused_command_fails_its_own_pipeline_alone(lab: Lab) -> None:
    key = lab.keys("text")
    await lab.command("SET", key, "text")

    refused = asyncio.create_task(lab.pipeline([("ECHO", "a"), ("LPUSH", key, "b"), ("SET", key, "c")]))
    fine = asyncio.create_task(lab.pipeline([("ECHO", "d")]))

    with pytest.raises(redis.ResponseError):
        await refused
    assert await fine == ["d"]
    assert await lab.command("GET", key) == "c"


async def test_callers_that_give_up_leave_the_others_their_replies(lab: Lab) -> None:
    for is_open in (False, True):
        calls = [asyncio.create_task(lab.command("ECHO", n)) for n in range(100)]
        await asyncio.sleep(0)

        for call in calls[::2]:
            call.cancel()
        answers = await asyncio.gather(*calls, return_exceptions=True)

        assert answers[1::2] == [str(n) for n in range(1, 100, 2)], is_open
        assert {type(answer) for answer in answers[::2]} == {asyncio.CancelledError}, is_open
    assert await lab.command("ECHO", "after") == "after"


async def test_a_silent_connection_fails_every_call_and_none_is_sent_twice(
    redis_server: EmbeddedRedis, settings: Settings
) -> None:
    async with connected(redis_server, settings, 0.4) as lab:
        await lab.command("PING")
        with silent(redis_server):
            first = asyncio.create_task(lab.command("INCR", lab.keys("n")))
            await asyncio.sleep(0.2)
            calls = [asyncio.create_task(lab.command("INCR", lab.keys("n"))) for _ in range(9)]
            answers = await asyncio.gather(first, *calls, return_exceptions=True)

        assert [str(answer) for answer in answers] == ["Redis did not answer in time"] * 10
        assert await lab.command("ECHO", "back") == "back"
        assert await lab.command("GET", lab.keys("n")) == "10"


async def test_a_connection_that_redis_ends_while_idle_costs_no_call(lab: Lab, admin: redis.Redis) -> None:
    before = clients(admin)
    await lab.command("PING")
    (ours,) = clients(admin) - before

    admin.client_kill_filter(_id=ours)
    await asyncio.sleep(0.1)

    assert await lab.command("ECHO", "still") == "still"


async def test_a_reply_that_is_no_text_fails_its_call_and_the_connection_is_opened_anew(lab: Lab) -> None:
    await lab.command("SET", lab.keys("bytes"), b"\xff\xfe")
    with pytest.raises(Unavailable):
        await lab.command("GET", lab.keys("bytes"))
    assert await lab.binary("GET", lab.keys("bytes")) == b"\xff\xfe"
    assert await lab.command("ECHO", "after") == "after"


async def test_calls_in_flight_on_a_connection_that_redis_ends_fail_and_are_not_sent_again(
    lab: Lab, admin: redis.Redis
) -> None:
    before, counter = clients(admin), lab.keys("patch_uses")
    await lab.command("PING")
    (ours,) = clients(admin) - before
    admin.client_pause(10_000, all=False)  # writes wait
    try:
        calls = [asyncio.create_task(lab.command("INCR", counter)) for _ in range(10)]
        await asyncio.sleep(0.1)
        admin.client_kill_filter(_id=ours)
        failed = await asyncio.gather(*calls, return_exceptions=True)
    finally:
        admin.client_unpause()

    assert {type(problem) for problem in failed} == {Unavailable}
    assert await lab.command("GET", counter) is None
