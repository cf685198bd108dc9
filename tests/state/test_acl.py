"""The rights of the two users of a lab's Redis. tests/journeys/test_redis_users.py shows that they suffice."""

from __future__ import annotations

from state.redis_server import hashed, lab_rules, setuser, worker_rules


def scope(rules: list[str]) -> set[str]:
    """The keys and channels that they open."""
    assert not {"allkeys", "allchannels", "+@admin", "+@dangerous"} & set(rules)
    return {rule for rule in rules if rule[0] in "~&%"}


def test_workers_reach_rq_s_keys_and_none_of_the_lab_s() -> None:
    assert scope(worker_rules()) == {"~rq:*", "&rq:pubsub:*"}


def test_the_lab_s_user_reaches_its_own_keys_and_channels_and_rq_s() -> None:
    assert scope(lab_rules("a.b")) == {"~{a.b}:*", "~rq:*", "&nightjar:a.b:*", "&rq:pubsub:*"}


def test_a_user_made_anew_has_nothing_of_what_it_was_before() -> None:
    assert setuser("u", "p", ["+ping"]) == "ACL SETUSER u reset on >p +ping"


def test_a_hashed_password_is_what_redis_keeps() -> None:
    assert hashed("abc") == "#ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
