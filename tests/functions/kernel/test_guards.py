"""Everything that a change has read is guarded: what has another value by the commit refuses it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from state.change import Asked, Change, Read
from state.client import Lab
from tests.functions.kernel.test_round_trips import Counter, family, lived

LOOSE = {
    (function, shape)
    for function, *shapes in (
        line.split()
        for line in """\
agent::announce processes
cron::run ticks:<function>
dimension::clear_proposals best:<tag> finished:<tag> keeps:<tag> policy:<tag> proposed_dimensions:<tag> \
    status:<tag>:<status> tags:<tag>
dimension::define tags:<tag>
dimension::follow_trials best:<tag> finished:<tag> keeps:<tag> policy:<tag> proposed_dimensions:<tag> \
    status:<tag>:<status> tags:<tag>
dimension::freeze tags:<tag>
dimension::measure best:<tag> finished:<tag> in_flight:<tag> keeps:<tag> policy:<tag> populations:<tag> \
    status:<tag>:<status> swarm_seen:<tag> tags:<tag>
dimension::propose best:<tag> finished:<tag> keeps:<tag> policy:<tag> proposed_dimensions:<tag> \
    status:<tag>:<status> tags:<tag>
dimension::unfreeze tags:<tag>
event::redrive bindings
experiment::baseline best:<tag> forest:<tag> gpus status:<tag>:<status>
experiment::register best:<tag> forest:<tag> selections:<id> tags:<tag> trace:<id>
experiment::retest queue_clock tags:<tag>
experiment::submit best:<tag> forest:<tag> gpus selections:<id>
gpu::built tags:<tag>
gpu::train queue_clock tags:<tag>
experiment::complete experiments:<id>
experiment::crash experiments:<id>
hypothesis::bootstrap archived_hypotheses:<tag> dimensions:<tag> hypotheses:<tag> keeps:<tag> policy:<tag> \
    populations:<tag> swarm_seen:<tag> tags:<tag>
hypothesis::learn dimensions:<tag> hypotheses:<tag> keeps:<tag> noise:<tag>:<class> policy:<tag> \
    populations:<tag> references:<tag> reprieved:<tag> swarm_seen:<tag> tags:<tag>
hypothesis::propose archived_hypotheses:<tag> dimensions:<tag> hypotheses:<tag> keeps:<tag> policy:<tag> \
    populations:<tag> swarm_seen:<tag> tags:<tag>
hypothesis::reopen archived_hypotheses:<tag> dimensions:<tag> hypotheses:<tag> keeps:<tag> policy:<tag> \
    populations:<tag> swarm_seen:<tag> tags:<tag>
journal::checkpoint archived_hypotheses:<tag> assigned:<tag> hypotheses:<tag> last_checkpoint:<tag> \
    populations:<tag> tags:<tag>
pipeline::flush beliefs:<tag> programs:<tag> tags:<tag>
pool::heartbeat experiments:<id> gpu_history:<gpu_id> policy:<tag> tags:<tag>
pool::announce processes
program::write programs:<tag>
run::start best:<tag> configs:<tag> finished:<tag> in_flight:<tag> keeps:<tag> policy:<tag> populations:<tag> \
    proposals:<tag>:<population> status:<tag>:<status> swarm_seen:<tag> tags:<tag>
run::tick policy:<tag> ranks:<tag>:<class>:<bucket> tags:<tag> trends:<tag>:<class>
search::adapt best:<tag> policy:<tag> tags:<tag>
search::set_strategy best:<tag> policy:<tag> tags:<tag>
search::suggest_direction best:<tag> categories:<tag> category:<tag>:<category> crashes:<tag> \
    experiments:<id> finished:<tag> lineage:<tag> near_misses:<tag> policy:<tag> selections:<id> tags:<tag> \
    traces:<tag>
swarm::next_config best:<tag> configs:<tag> finished:<tag> in_flight:<tag> keeps:<tag> policy:<tag> \
    populations:<tag> proposals:<tag>:<population> status:<tag>:<status> swarm_seen:<tag> tags:<tag>
swarm::refill best:<tag> finished:<tag> in_flight:<tag> keeps:<tag> policy:<tag> populations:<tag> \
    proposals:<tag>:<population> status:<tag>:<status> swarm_seen:<tag> tags:<tag>
swarm::register tags:<tag>
trust::certify queue_clock tags:<tag>
webhook::remove bindings
""".splitlines()
    )
    for shape in shapes
}
"""What a change reads without a guard: function and families of keys. They may have other values by the commit, or a
version that is guarded covers them (beliefs, dimensions, stalls). A search only suggests. A retest that joins the
round served a moment ago is served no later. The two with `bindings` are notes that a group is served."""

MAYBE = {"crashes:<tag>", "noise:<tag>:<class>", "trace:<id>", "proposals:<tag>:<population>"}
"""Guarded only if they decide: crashes in a row, sums of the noise, open selections, few configs left."""


class Watched(Counter):
    """The day, which says what is called now."""

    now = ""

    async def call(self, name: str, /, **body: Any) -> dict[str, Any]:
        Watched.now = name
        return await super().call(name, **body)

    async def paid(self, label: str, bearer: str | None = None, /, **body: Any) -> dict[str, Any]:
        Watched.now = label.partition(",")[0]
        return await super().paid(label, bearer, **body)


async def meddled(lab: Lab, command: str, key: str, words: Sequence[str], expected: Any) -> None:
    """Give what a guard watches another value."""
    match command:
        case "HMGET":
            await lab.command("HSET", key, words[0], f"{expected[0]}, meddled with")
        case "HLEN":
            await lab.command("HSET", key, "meddled", "1")
        case "GET":
            await lab.command("SET", key, f"{expected}, meddled with")
        case "ZSCORE":
            await lab.command("ZADD", key, float(expected or 0) + 1, words[0])
        case "ZCARD":
            await lab.command("ZADD", key, 1, "meddled")
        case "LLEN":
            await lab.command("RPUSH", key, "meddled")
        case "XRANGE" if expected:
            await lab.command("XDEL", key, words[0])
        case "EXISTS" if expected:
            await lab.command("DEL", key)
        case "EXISTS":
            await lab.command("SET", key, "meddled")
        case _:
            raise AssertionError(f"say how to meddle with {command}")


def each_guard(guards: Sequence[Any]) -> list[tuple[str, int, Sequence[str], Any]]:
    """The guards of a change; of several fields the first and the last (`test_change.py` has one between)."""
    found: list[tuple[str, int, Sequence[str], Any]] = []
    for command, key, words, expected in guards:
        if command == "HMGET":
            fields = dict(zip(words, expected, strict=True))
            found += [(command, key, [word], [fields[word]]) for word in {words[0], words[-1]}]
        else:
            found.append((command, key, words, expected))
    return found


async def test_each_guard_refuses_a_changed_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, found = Change.commit, Change._meanings
    refused, loose, maybe = set[str](), set[tuple[str, str]](), set[str]()

    async def broken(change: Change) -> bool:
        """The commit; before it, what each guard watches is changed, once, and put back."""
        lab, keys = change.lab, list(change._keys)
        writes = change._writes or change._events
        for command, place, words, expected in each_guard(change._guards) if writes else []:
            key = keys[place - 1]
            before = await lab.binary("DUMP", key)
            await meddled(lab, command, key, words, expected)
            assert not await commit(change), f"{command} {key} {words} is not guarded"
            await lab.command("DEL", key)
            if before is not None:
                await lab.command("RESTORE", key, 0, before)
            refused.add(Watched.now)
        return await commit(change)

    def noted(change: Change, asked: Sequence[Asked], replies: list[Any]) -> list[Any]:
        for one in asked:
            command = one.command if isinstance(one, Read) else one
            if isinstance(one, Read) and not one.is_held:
                maybe.add(family(str(command[1])))
            elif not isinstance(one, Read) or one.guards is None:
                keys = command[1:2] if not str(command[0]).startswith("EVALSHA") else command[3:4]
                loose.update((Watched.now, family(str(key))) for key in keys)
        return found(change, asked, replies)

    monkeypatch.setattr(Change, "commit", broken)
    monkeypatch.setattr(Change, "_meanings", noted)
    await lived(tmp_path, monkeypatch, Watched)

    assert len(refused) > 40
    assert (loose, maybe) == (LOOSE, MAYBE)
