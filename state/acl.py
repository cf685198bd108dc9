"""Rights of the Redis users of a lab. Workers reach RQ's queues; the lab's own user may do all but administer the
server."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from state.keys import Keys

WORKER = "worker"
"""The workers' user of the embedded server."""

_OF_WORKERS = """
    auth hello ping select client|setname info time script|load evalsha multi exec discard watch unwatch
    del exists expire persist get set incr incrby unlink publish subscribe unsubscribe
    hdel hexists hget hgetall hincrby hincrbyfloat hlen hmget hset hsetnx hstrlen
    blmove lmove llen lpos lrange lrem rpush sadd scard sismember smembers srem
    xadd xlen xrange xrevrange xtrim
    zadd zcard zcount zrange zrangebyscore zrank zrem zremrangebyscore zscore
"""
"""RQ's commands. Every Redis since 7.0 knows all of them: a server refuses a list with one unknown name."""

_OF_THE_LAB = (
    "@all",
    "-@admin",
    "-@dangerous",
    "info",
    "restore",
    "client|pause",
    "client|unpause",
    "config|get",
    "keys",
)
"""RESTORE and CLIENT PAUSE are for backups. CONFIG GET shows how durable a write is. KEYS is for a prompt."""


def worker_rules() -> list[str]:
    """For RQ workers: its keys and channels alone. All else they ask the lab for, over HTTP."""
    return ["~rq:*", "&rq:pubsub:*", "-@all", *_granted(_OF_WORKERS.split())]


def lab_rules(lab: str) -> list[str]:
    """For web, events, clock and the commands that back up and restore."""
    mine = [f"~{Keys(lab)('*')}", "~rq:*", f"&nightjar:{lab}:*", "&rq:pubsub:*"]
    return [*mine, *_granted(_OF_THE_LAB)]


def hashed(password: str) -> str:
    """A password as Redis keeps it, for a place where it must not be read."""
    return f"#{sha256(password.encode()).hexdigest()}"


def setuser(name: str, password: str, rules: list[str]) -> str:
    """The command that makes a user, for redis-cli."""
    return " ".join(["ACL SETUSER", name, "reset", "on", f">{password}", *rules])


def _granted(commands: Sequence[str]) -> list[str]:
    return [command if command.startswith("-") else f"+{command}" for command in commands]
