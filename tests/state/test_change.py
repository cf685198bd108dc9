"""A change commits all that it decided. It commits nothing if a value that it read has changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from functions.kernel.process.lifecycle import Process
from functions.kernel.process.running import ended
from state.change import (
    BLOB_BYTES,
    MOST_COMMANDS,
    NOW,
    TRIES,
    Change,
    Count,
    Digits,
    Joined,
    Number,
    Read,
    clock,
    entry,
    exists,
    get,
    hgetall,
    hmget,
    loosely,
    size,
    zscore,
)
from state.client import Lab
from state.errors import Conflict, TooManyRequests, Unavailable
from state.quota import Quota, counting

Meddle = Callable[[], Awaitable[Any]]


@pytest.fixture
def lab(process: Process) -> Lab:
    return process.lab


@pytest.fixture
def hash_(lab: Lab) -> str:
    return lab.keys("tags", "t")


@pytest.fixture
def zset(lab: Lab) -> str:
    return lab.keys("lineage", "t")


@pytest.fixture
def string(lab: Lab) -> str:
    return lab.keys("log", "t-1")


async def raced(lab: Lab, read: Read[Any], meddle: Meddle) -> tuple[int, Any]:
    """Meddle once with what a change has read. Answers how often it was decided, and what it read last."""
    seen: list[Any] = []

    async def decide(change: Change) -> None:
        seen.extend(await change.read(read))
        if len(seen) == 1:
            await meddle()
        change.hset(lab.keys("tags", "written"), {"by": "it"})

    await lab.change(decide)
    return len(seen), seen[-1]


async def test_each_kind_of_guard_refuses_what_changed(lab: Lab, hash_: str, zset: str, string: str) -> None:
    journal, events = lab.keys("journal", "t"), lab.keys("dead_letters")
    cases: list[tuple[Read[Any], tuple[str, ...], Any]] = [
        (hmget(hash_, "a", "b"), ("HSET", hash_, "b", "2"), {"a": None, "b": "2"}),
        (hmget(hash_, "a", "b", "c"), ("HSET", hash_, "b", "3"), {"a": None, "b": "3", "c": None}),
        (hmget(hash_, "b"), ("HDEL", hash_, "b"), {"b": None}),
        (hgetall(hash_), ("HSET", hash_, "c", "3"), {"c": "3"}),
        (hgetall(hash_), ("HSET", hash_, "c", "4"), {"c": "4"}),
        (hgetall(hash_, "none", "c"), ("HSET", hash_, "c", "5"), {"c": "5"}),
        (hgetall(hash_, "none"), ("HSET", hash_, "none", ""), {"c": "5", "none": ""}),
        (hgetall(hash_), ("DEL", hash_), {}),
        (get(string), ("SET", string, ""), ""),
        (get(string), ("SET", string, "x"), "x"),
        (get(string), ("DEL", string), None),
        (size(string), ("SET", string, "four"), 4),
        (size(string), ("DEL", string), 0),
        (zscore(zset, "m"), ("ZADD", zset, "0.1", "m"), 0.1),
        (zscore(zset, "m"), ("ZADD", zset, "0.30000000000000004", "m"), 0.30000000000000004),
        (zscore(zset, "m"), ("ZREM", zset, "m"), None),
        (size(zset), ("ZADD", zset, "1", "other"), 1),
        (size(journal), ("RPUSH", journal, "text"), 1),
        (exists(journal), ("DEL", journal), False),
        (entry(events, "1-1"), ("XADD", events, "1-1", "a", "1"), True),
        (entry(events, "1-1"), ("XDEL", events, "1-1"), False),
    ]
    for read, command, then in cases:

        async def meddle(command: tuple[str, ...] = command) -> None:
            await lab.command(*command)

        assert await raced(lab, read, meddle) == (2, then), command


async def test_what_was_read_loosely_or_is_equal_is_not_decided_again(
    lab: Lab, hash_: str, zset: str
) -> None:
    async def other_field() -> None:
        await lab.command("HSET", hash_, "b", "2")

    async def same_value() -> None:
        await lab.command("HSET", hash_, "a", "1")
        await lab.command("ZADD", zset, "1e-3", "m")

    await lab.command("HSET", hash_, "a", "1")
    await lab.command("ZADD", zset, "0.001", "m")
    assert (await raced(lab, hmget(hash_, "a"), other_field))[0] == 1
    assert (await raced(lab, hgetall(hash_, "a", "none"), other_field))[0] == 1
    assert (await raced(lab, hmget(hash_, "a"), same_value))[0] == 1
    assert (await raced(lab, zscore(zset, "m"), same_value))[0] == 1
    assert (await raced(lab, hmget(hash_, "b").loose(), other_field))[0] == 1
    assert (await raced(lab, loosely("ZRANGE", zset, "0", "-1"), same_value)) == (1, ["m"])


async def test_a_read_with_a_meaning_answers_it_and_is_guarded_as_stored(lab: Lab, hash_: str) -> None:
    def doubled(stored: dict[str, str | None]) -> int:
        return 2 * int(stored["a"] or 0)

    async def meddle() -> None:
        await lab.command("HSET", hash_, "a", "4")

    assert await raced(lab, hmget(hash_, "a").to(doubled), meddle) == (2, 8)
    await lab.command("HSET", hash_, "a", "1")
    assert await raced(lab, hmget(hash_, "a").to(doubled).loose(), meddle) == (1, 2)
    assert await lab.one(hmget(hash_, "a").to(doubled).to(str)) == "8"


@pytest.mark.parametrize(("holds", "times"), [(False, 1), (True, 2)])
async def test_what_may_decide_is_guarded_once_it_is_held(
    lab: Lab, hash_: str, zset: str, holds: bool, times: int
) -> None:
    seen: list[str | None] = []

    async def decide(change: Change) -> None:
        (found,) = await change.read(hmget(hash_, "a", is_held=False))
        seen.append(found["a"])
        await lab.command("HSET", hash_, "a", "1")
        if holds:
            change.hold(hash_)
        change.zadd(zset, {"m": 1})

    await lab.change(decide)

    assert seen == [None, "1"][:times]


async def test_who_loses_each_race_is_told_to_come_back_and_has_written_nothing(lab: Lab, hash_: str) -> None:
    decided = 0

    async def decide(change: Change) -> None:
        nonlocal decided
        decided += 1
        await change.read(hmget(hash_, "a"))
        await lab.command("HSET", hash_, "a", str(decided))
        change.hset(hash_, {"mine": "yes"})
        change.emit("tag.paused", "t", "t", {})

    with pytest.raises(Unavailable, match="by others 20 times") as refused:
        await lab.change(decide)

    assert (decided, refused.value.retry_after) == (TRIES, 1.0)
    assert await lab.hash(hash_) == {"a": str(TRIES)}
    assert await lab.command("XLEN", lab.keys("events")) == 0


async def test_a_refusal_by_several_reads_holds_at_one_moment(lab: Lab, hash_: str, string: str) -> None:
    moves = iter([True, False])

    async def decide(change: Change) -> str:
        fields, text = await change.read(hmget(hash_, "a"), get(string))
        if next(moves):
            await lab.command("HSET", hash_, "a", "there")
        change.set(string, "never written")
        if fields["a"] is None:
            raise Conflict("a is missing")
        raise Conflict(f"a is {fields['a']}, the text is {text}")

    with pytest.raises(Conflict, match="a is there, the text is None"):
        await lab.change(decide)

    assert await lab.command("GET", string) is None


async def test_one_read_is_answered_without_a_commit(lab: Lab, hash_: str) -> None:
    async def decide(change: Change) -> dict[str, str]:
        (found,) = await change.read(hgetall(hash_))
        await lab.command("HSET", hash_, "a", "1")
        return found

    assert await lab.change(decide) == {}


async def test_named_reads_are_guarded_and_a_plain_command_may_change(
    lab: Lab, hash_: str, zset: str
) -> None:
    seen: list[Any] = []

    async def decide(change: Change) -> None:
        reads = {"a": hmget(hash_, "a"), "none": None, "all": ("ZRANGE", zset, 0, -1)}
        seen.append(await change.read(reads))
        if len(seen) == 1:
            await lab.command("HSET", hash_, "a", "0")
        await lab.command("ZADD", zset, "1", f"m{len(seen)}")
        change.hset(hash_, {"a": 3})

    await lab.change(decide)

    assert seen == [
        {"a": {"a": None}, "none": None, "all": []},
        {"a": {"a": "0"}, "none": None, "all": ["m1"]},
    ]


async def test_an_answer_that_nothing_is_to_be_done_needs_no_guard(lab: Lab, hash_: str, string: str) -> None:
    async def decide(change: Change) -> str:
        fields, _ = await change.read(hmget(hash_, "a"), get(string))
        await lab.command("HSET", hash_, "a", "1")
        change.hset(hash_, {"a": 2})
        return change.idle(f"a was {fields['a']}")

    assert await lab.change(decide) == "a was None"
    assert await lab.hash(hash_) == {"a": "1"}


async def test_numbers_stand_in_names_and_events_and_digits_in_scores(
    lab: Lab, hash_: str, zset: str
) -> None:
    tags, data = (
        lab.keys("tags", "n"),
        {"text": '{7} "b"\n', "value": 0.1 + 0.2, "none": None, "many": [1, 2]},
    )

    async def decide(change: Change) -> Number:
        number = change.number(tags, "n")
        name = Joined("t-", number)
        change.hset(Joined(lab.keys("experiments", "t-"), number), {"id": name, "at": NOW})
        change.zadd(zset, {name: Joined("7", Digits(number, 3))})
        change.zadd(zset, {"newest": number})
        change.emit("experiment.registered", "t", name, {"id": name, "number": number, **data})
        change.emit("experiment.registered", "t", name, {"id": Joined('"', number)})
        with pytest.raises(TypeError, match="only the commit knows it"):
            f"t-{number}"
        return number

    await lab.command("HSET", tags, "n", 41_998)
    numbers = [await lab.change(decide) for _ in range(2)]

    stored = await lab.command("ZRANGE", zset, 0, -1, "WITHSCORES")
    written = await lab.hash(lab.keys("experiments", "t-42000"))
    events = [fields for _, fields in await lab.command("XRANGE", lab.keys("events"), "-", "+")]
    assert [n.value for n in numbers] == [41_999, 42_000]
    assert stored == ["t-42000", "7000", "t-41999", "7999", "newest", "42000"]
    assert written["id"] == "t-42000"
    assert 0 <= await lab.now() - float(written["at"]) < 60
    assert {(e["type"], e["tag"]) for e in events} == {("experiment.registered", "t")}
    assert [(e["subject"], json.loads(e["data"])) for e in events] == [
        ("t-41999", {"id": "t-41999", "number": 41_999, **data}),
        ("t-41999", {"id": '"41999'}),
        ("t-42000", {"id": "t-42000", "number": 42_000, **data}),
        ("t-42000", {"id": '"42000'}),
    ]


async def test_a_number_with_a_least_begins_at_it_and_is_never_handed_out_twice(lab: Lab, hash_: str) -> None:
    async def decide(change: Change) -> Number:
        return change.number(hash_, "own", least="other")

    async def handed_out() -> int:
        return (await lab.change(decide)).value

    first = await handed_out()
    together = await asyncio.gather(*(handed_out() for _ in range(8)))
    await lab.command("HSET", hash_, "other", 50)
    later = [await handed_out() for _ in range(2)]
    await lab.command("HSET", hash_, "own", 7)

    assert (first, sorted(together), later) == (0, list(range(1, 9)), [50, 51])
    assert await handed_out() == 50


async def test_an_event_that_is_not_published_is_in_the_stream_alone(lab: Lab) -> None:
    async def decide(change: Change) -> None:
        change.emit("run.ticked", "t", "t-1", {"n": 1}, published=False)
        change.emit("tag.paused", "t", "t", {})

    heard: asyncio.Queue[str] = asyncio.Queue()
    listening = asyncio.create_task(lab.hear(lambda _, text: heard.put_nowait(text)))
    try:
        while await lab.command("PUBLISH", lab.channel("hello"), "") == 0:  # noqa: ASYNC110 (Redis knows)
            await asyncio.sleep(0.01)
        await lab.change(decide)
        while not (first := await heard.get()):
            pass  # the greeting
    finally:
        await ended(listening)

    events = await lab.command("XRANGE", lab.keys("events"), "-", "+")
    assert [fields["type"] for _, fields in events] == ["run.ticked", "tag.paused"]
    assert json.loads(first)["type"] == "tag.paused"


async def test_a_text_that_looks_like_a_placeholder_or_is_long_stays_what_it_is(lab: Lab, hash_: str) -> None:
    texts = {
        "list": "[0]",
        "number": "1",
        "nul": "a\0b",
        "quotes": '"\\\n\u2028é😀',
        "long": "é" * BLOB_BYTES,
        "empty": "",
    }
    floats = {"tiny": 5e-324, "third": 1 / 3, "sum": 0.1 + 0.2, "whole": 1e22, "negative": -0.0}

    async def decide(change: Change) -> None:
        change.hset(hash_, texts)
        change.hset(hash_, floats)
        change.set(lab.keys("diffs", "0"), b"\xff\x00\n")

    await lab.change(decide)

    stored = await lab.hash(hash_)
    assert {name: stored[name] for name in texts} == texts
    assert {name: repr(float(stored[name])) for name in floats} == {n: repr(v) for n, v in floats.items()}
    assert await lab.binary("GET", lab.keys("diffs", "0")) == b"\xff\x00\n"


async def test_a_counter_with_room_is_raised_by_many_never_past_its_limit(lab: Lab, hash_: str) -> None:
    await lab.command("HSET", hash_, "reserved", "3")
    decided = 0

    async def decide(change: Change) -> bool:
        nonlocal decided
        decided += 1
        (now,) = await change.read(hmget(hash_, "spent", "reserved").loose())
        if int(now["spent"] or 0) + int(now["reserved"] or 0) + 2 > 10:
            return False
        change.room(hash_, ("spent", "reserved"), 10)
        change.hincrby(hash_, "spent", 2)
        return True

    fits = await asyncio.gather(*(lab.change(decide) for _ in range(8)))

    assert sum(fits) == 3
    assert await lab.hash(hash_) == {"reserved": "3", "spent": "6"}


async def test_what_may_come_no_later_than_a_moment_is_decided_again_after_it(lab: Lab, hash_: str) -> None:
    now = await lab.now()
    ends = iter([now - 1, now + 3600])

    async def decide(change: Change) -> None:
        end = next(ends)
        change.before(end)
        change.hset(hash_, {"until": end})

    await lab.change(decide)

    assert await lab.hash(hash_) == {"until": repr(now + 3600)}


async def test_a_time_is_the_commit_s_own_or_later_by_some_seconds(lab: Lab, hash_: str, zset: str) -> None:
    async def decide(change: Change) -> tuple[float, Change]:
        (read,) = await change.read(clock())
        change.hdel(hash_)  # of nothing: no command
        change.zrem(zset)
        change.hset(hash_, {"at": NOW, "ends": NOW + 60, "name": Joined("at ", NOW + 1.5)})
        change.zadd(zset, {"m": NOW + 3600})
        return read, change

    read, made = await lab.change(decide)

    stored = await lab.hash(hash_)
    at = float(stored["at"])
    assert read <= at
    assert stored["at"] == f"{made.at:.6f}"
    assert float(stored["ends"]) == pytest.approx(at + 60, abs=1e-5)
    assert float(stored["name"].removeprefix("at ")) == pytest.approx(at + 1.5, abs=1e-5)
    assert await lab.command("ZSCORE", zset, "m") == pytest.approx(at + 3600, abs=1e-5)


async def test_a_member_that_has_to_be_known_and_an_end_set_once(lab: Lab, zset: str, string: str) -> None:
    async def decide(change: Change) -> None:
        change.zadd(zset, {"known": 2, "new": 2}, known=True)
        change.zadd(zset, {"known": NOW, "new": 3}, known=True, higher=True)
        change.zadd(zset, {"known": 2}, higher=True)
        change.zincrby(zset, "other", 0.5)
        change.incrby(string, 3)
        change.expire(string, 60, first=True)

    await lab.command("ZADD", zset, 1, "known")
    await lab.change(decide)
    await lab.command("PEXPIRE", string, 1_000_000)
    await lab.change(decide)

    other, half, known, time = await lab.command("ZRANGE", zset, 0, -1, "WITHSCORES")
    assert (other, half, known) == ("other", "1", "known")
    assert 0 <= await lab.now() - float(time) < 60
    assert await lab.command("GET", string) == "6"
    assert await lab.command("PTTL", string) > 60_000


async def test_changes_in_turn_do_not_race_each_other(lab: Lab, hash_: str) -> None:
    decided = 0

    async def decide(change: Change) -> None:
        nonlocal decided
        decided += 1
        (found,) = await change.read(hmget(hash_, "n"))
        change.hset(hash_, {"n": int(found["n"] or 0) + 1})

    await asyncio.gather(*(lab.change(decide, in_turn="n") for _ in range(50)))

    assert (decided, await lab.hash(hash_)) == (50, {"n": "50"})


async def test_a_mistake_in_a_change_is_an_error_and_writes_nothing(lab: Lab, hash_: str, zset: str) -> None:
    async def reads_late(change: Change) -> None:
        change.hset(hash_, {"a": 1})
        await change.read(hmget(hash_, "a"))

    mistakes: list[tuple[type[Exception], str, Callable[[Change], Any]]] = [
        (RuntimeError, "reads before it writes", reads_late),
        (ValueError, "nan", lambda change: change.hset(hash_, {"a": float("nan")})),
        (ValueError, "inf", lambda change: change.zadd(zset, {"m": float("inf")})),
        (
            ValueError,
            "not JSON compliant",
            lambda change: change.emit("tag.paused", "t", "t", {"a": float("nan")}),
        ),
        (KeyError, "is of no family", lambda change: change.hset(lab.keys("tgas", "t"), {"a": 1})),
        (TypeError, "is a hash, no zset", lambda change: change.zadd(hash_, {"m": 1})),
        (TypeError, "is a zset, no hash", lambda change: change.number(zset, "a")),
        (ValueError, "in pages", lambda change: change.delete(*[hash_] * (MOST_COMMANDS + 1))),
    ]
    for kind, words, mistake in mistakes:

        async def decide(change: Change, mistake: Callable[[Change], Any] = mistake) -> None:
            made = mistake(change)
            if asyncio.iscoroutine(made):
                await made

        with pytest.raises(kind, match=words):
            await lab.change(decide)
    assert not await lab.command("EXISTS", hash_, zset)


async def test_a_long_change_is_split_into_commands_that_redis_takes(lab: Lab, zset: str) -> None:
    members = {f"m{n}": float(n) for n in range(2500)}

    async def decide(change: Change) -> None:
        change.zadd(zset, members)
        change.rpush(lab.keys("journal", "t"), *map(str, range(2500)))

    await lab.change(decide)

    assert await lab.command("ZCARD", zset) == 2500
    assert await lab.command("LLEN", lab.keys("journal", "t")) == 2500


async def test_a_change_that_has_to_fit_is_refused_where_its_bytes_are_too_many(lab: Lab, hash_: str) -> None:
    async def decide(change: Change) -> None:
        change.hset(hash_, {"a": "x" * 900})
        change.fit_quota()
        change.emit("tag.paused", "t", "t", {})

    with counting(Quota("ann", 3000)):
        await lab.change(decide)
        await lab.change(decide)
        with pytest.raises(TooManyRequests):
            await lab.change(decide)

    assert 2000 < int(await lab.command("HGET", lab.keys("stored", "ann"), "bytes")) <= 3000


async def test_members_are_counted_once_everything_is_written(lab: Lab, hash_: str, zset: str) -> None:
    async def decide(change: Change) -> Count:
        change.zadd(zset, {Joined("m", change.number(hash_, "n")): 7})
        return change.count(zset, 7)

    counts = await asyncio.gather(*(lab.change(decide) for _ in range(3)))
    await lab.command("ZADD", zset, 8, "later")

    assert [count.value for count in counts] == [1, 2, 3]
    assert (await lab.change(decide)).value == 4


VERBS = ("hset", "hdel", "hincrby", "zadd", "known", "zrem", "rpush", "set", "delete")
Write = tuple[str, str, float]
WRITES = st.lists(
    st.tuples(st.sampled_from(VERBS), st.sampled_from("abc"), st.floats(-1e300, 1e300)), max_size=5
)


class Model:
    """Four keys in memory, and what a write makes of them."""

    def __init__(self, lab: Lab) -> None:
        families = {"hash": "tags", "zset": "lineage", "list": "journal", "string": "log"}
        self.keys = {kind: lab.keys(family, "m-1") for kind, family in families.items()}
        self.hash: dict[str, str] = {}
        self.zset: dict[str, float] = {}
        self.list: list[str] = []
        self.string: str | None = None

    @property
    def stored(self) -> tuple[Any, ...]:
        return self.hash, self.zset, self.list, self.string

    def write(self, verb: str, name: str, value: float) -> None:
        match verb:
            case "hset":
                self.hash[name] = repr(value)
            case "hdel":
                self.hash.pop(name, None)
            case "hincrby":
                self.hash["n"] = str(int(self.hash.get("n", "0")) + ord(name))
            case "zadd":
                self.zset[name] = value
            case "known":
                self.zset |= {name: value} if name in self.zset else {}
            case "zrem":
                self.zset.pop(name, None)
            case "rpush":
                self.list.append(name)
            case "set":
                self.string = name
            case _:
                self.hash = {}

    def change(self, change: Change, verb: str, name: str, value: float) -> None:
        match verb:
            case "hset":
                change.hset(self.keys["hash"], {name: value})
            case "hdel":
                change.hdel(self.keys["hash"], name)
            case "hincrby":
                change.hincrby(self.keys["hash"], "n", ord(name))
            case "zadd":
                change.zadd(self.keys["zset"], {name: value})
            case "known":
                change.zadd(self.keys["zset"], {name: value}, known=True)
            case "zrem":
                change.zrem(self.keys["zset"], name)
            case "rpush":
                change.rpush(self.keys["list"], name)
            case "set":
                change.set(self.keys["string"], name)
            case _:
                change.delete(self.keys["hash"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(WRITES, WRITES), max_size=5))
async def test_random_changes_that_others_come_between_leave_what_one_after_another_leaves(
    lab: Lab, steps: list[tuple[list[Write], list[Write]]]
) -> None:
    model = Model(lab)
    keys = model.keys
    await lab.command("DEL", *keys.values())
    for own, others in steps:
        between = [*others]

        async def decide(
            change: Change, own: list[Write] = own, between: list[Write] = between
        ) -> tuple[Any, ...]:
            seen = await change.read(
                hgetall(keys["hash"]), zscore(keys["zset"], "a"), size(keys["list"]), get(keys["string"])
            )

            async def others_write(other: Change) -> None:
                for write in between:
                    model.change(other, *write)
                    model.write(*write)
                between.clear()

            await lab.change(others_write)
            for write in own:
                model.change(change, *write)
            return seen

        seen = await lab.change(decide)
        assert seen == (model.hash, model.zset.get("a"), len(model.list), model.string)
        for write in own:
            model.write(*write)
    stored, scores, values, text = await lab.pipeline(
        [
            ("HGETALL", keys["hash"]),
            ("ZRANGE", keys["zset"], "0", "-1", "WITHSCORES"),
            ("LRANGE", keys["list"], "0", "-1"),
            ("GET", keys["string"]),
        ]
    )
    assert (
        stored,
        dict(zip(scores[::2], map(float, scores[1::2]), strict=True)),
        values,
        text,
    ) == model.stored
