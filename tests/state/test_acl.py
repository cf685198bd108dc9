"""The rights of the two users of a lab's Redis. tests/journeys/test_redis_users.py shows that they suffice."""

from __future__ import annotations

from state.redis_server import lab_rules, setuser, worker_rules


def test_workers_reach_rq_s_keys_and_none_of_the_lab_s() -> None:
    reach = {
        name: {rule for rule in rules if rule[0] in "~&%"}
        for name, rules in (("worker", worker_rules()), ("lab", lab_rules("a.b")))
    }
    assert reach["worker"] == {"~rq:*", "&rq:pubsub:*"}
    assert reach["lab"] == {"~{a.b}:*", "~rq:*", "&nightjar:a.b:*", "&rq:pubsub:*"}
    assert not {"allkeys", "allchannels", "+@admin", "+@dangerous"} & {*worker_rules(), *lab_rules("a.b")}
    assert setuser("u", "p", ["+ping"]) == "ACL SETUSER u reset on >p +ping"
