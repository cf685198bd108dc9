"""The rights of the two users: enough for every script and store, on every server that is let in."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
import redis
from pydantic import SecretStr

from functions.process.lifecycle import opened
from state.acl import NOT_OF_WORKERS, READ_BY_WORKERS, hashed, lab_rules, setuser, worker_rules
from state.embedded import EmbeddedRedis
from state.errors import Unavailable
from state.keys import FAMILIES
from state.settings import Settings

STATE = Path(__file__).parents[2] / "state"
OF_BACKUPS = {"DUMP", "RESTORE", "PEXPIRETIME"}
NOT_STORES_OF_WORKERS = {
    "acl",
    "backup",
    "dimension_proposals",
    "hypotheses",
    "journal",
    "programs",
    "reports",
    "swarms",
    "tokens",
    "webhooks",
}
OF_OTHERS = {"SCAN", "CONFIG", "XREAD", "XREADGROUP", "XCLAIM"}
"""To look around, to see how durable a write is, to follow the events: no worker does."""


def granted() -> set[str]:
    return {rule[1:].partition("|")[0].upper() for rule in worker_rules("lab") if rule.startswith("+")}


def test_workers_may_use_every_command_of_every_script_but_those_of_backups() -> None:
    texts = [file.read_text() for file in (STATE / "lua").glob("*.lua")]

    called = {name for text in texts for name in re.findall(r"redis\.p?call\('(\w+)'", text)}

    assert called > OF_BACKUPS
    assert called - OF_BACKUPS <= granted()


def test_workers_may_use_every_command_that_a_store_sends() -> None:
    sources = [file.read_text() for file in STATE.rglob("*.py") if file.stem not in NOT_STORES_OF_WORKERS]

    sent = {name for text in sources for name in re.findall(r"\(\s*\"([A-Z]{3,})\",", text)}

    assert {"EVALSHA", "HGETALL"} <= sent
    assert sent - OF_OTHERS - {"WARNING", "NOGROUP", "POST"} <= granted()


def test_neither_user_reaches_beyond_its_lab_s_keys_and_channels_and_rq_s() -> None:
    for rules in (worker_rules("a.b"), lab_rules("a.b")):
        scope = [rule.removeprefix("%R") for rule in rules if rule[0] in "~&%"]
        assert {"~rq:*", "&nightjar:a.b:*", "&rq:pubsub:*"} < set(scope)
        assert all(rule.startswith(("~{a.b}:", "~rq:", "&nightjar:a.b:", "&rq:pubsub:")) for rule in scope)
        assert not {"allkeys", "allchannels", "+@admin", "+@dangerous"} & set(rules)


def test_workers_reach_every_key_of_the_lab_but_those_that_say_who_is_let_in() -> None:
    families = {family.pattern.partition(":")[0] for family in FAMILIES}

    written, read = (
        {
            rule.partition("}:")[2].partition(":")[0]
            for rule in worker_rules("lab")
            if rule.startswith(f"{allowed}~{{lab}}:")
        }
        for allowed in ("", "%R")
    )

    assert families > NOT_OF_WORKERS
    assert read == READ_BY_WORKERS
    assert written == families - NOT_OF_WORKERS - READ_BY_WORKERS
    assert "~{lab}:experiments:*" in worker_rules("lab")
    assert "~{lab}:tags" in worker_rules("lab")
    assert "~{lab}:*" not in worker_rules("lab")


def test_a_user_made_anew_has_nothing_of_what_it_was_before() -> None:
    assert setuser("u", "p", ["+ping"]) == "ACL SETUSER u reset on >p +ping"


def test_a_hashed_password_is_what_redis_keeps() -> None:
    assert hashed("abc") == "#ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


async def test_a_worker_whose_user_an_earlier_version_made_ends_at_its_start_with_the_remedy(
    redis_server: EmbeddedRedis, settings: Settings
) -> None:
    earlier = [rule for rule in worker_rules(settings.lab) if not rule.startswith("%R")]
    user = f"worker-{settings.lab}"
    with closing(redis.Redis.from_url(redis_server.url, driver_info=None)) as admin:
        admin.execute_command(*setuser(user, "pw", earlier).split())  # type: ignore[no-untyped-call]  # redis has no types here
    url = re.sub("//[^@]*@", f"//{user}:pw@", redis_server.url)
    theirs = settings.model_copy(update={"worker_redis_url": SecretStr(url)})

    with pytest.raises(Unavailable, match="user may not do this") as refused:
        async with opened("keeper", theirs, worker=True):
            pass

    assert "./nightjar redis acl" in (refused.value.hint or "")
