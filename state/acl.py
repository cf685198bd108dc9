"""Rights of the Redis users of a lab. Workers may do next to nothing; the lab's own user may do all but administer
the server."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from state.keys import FAMILIES, Keys

WORKER = "worker"
"""The workers' user of the embedded server."""

_OF_WORKERS = """
    auth hello ping select client|setname info time
    evalsha eval evalsha_ro script|exists script|load
    del exists get getdel mget set incr incrby pexpire pexpiretime unlink publish strlen
    hdel hexists hget hgetall hincrby hincrbyfloat hlen hmget hset hsetnx
    lrange ltrim rpush
    xack xadd xdel xgroup|create xgroup|createconsumer xgroup|delconsumer xgroup|destroy xgroup|setid
    xinfo|groups xinfo|consumers xinfo|stream xlen xpending xrange xrevrange xtrim
    zadd zcard zcount zdiffstore zincrby zinter zintercard zrange zrangebyscore zrank zrem zrevrange
    zrevrangebyscore zscore zunionstore
    subscribe unsubscribe psubscribe punsubscribe
    multi exec discard watch unwatch expire persist scard sadd srem sismember smembers hstrlen
    blmove lmove lrem llen lpos zremrangebyscore
"""
"""Commands to connect and to inspect the server, commands of scripts and stores, wake-ups, and RQ's commands in the
last two lines. Every Redis since 7.0 knows all of them: a server refuses a list with one unknown name."""

NOT_OF_WORKERS = frozenset(
    {
        "closed",
        "tokens",
        "token_names",
        "token_use",
        "tries",
        "sessions",
        "token_sessions",
        "codes",
        "tickets",
        "webhooks",
        "decided",
        "dimensions",
        "proposed_dimensions",
        "stalls",
        "hypotheses",
        "archived_hypotheses",
        "hypothesis_evidence",
        "unpaired",
        "used_references",
        "part_sums",
        "references",
        "reprieved",
        "beliefs",
        "populations",
        "assigned",
        "in_flight",
        "journal",
        "pipeline",
        "last_checkpoint",
        "told_graph",
        "program_base",
        "program_bases",
        "programs",
        "program_ask",
        "program_asks",
        "author_budget",
    }
)
"""Keys out of workers' reach: secrets, access, assignments, dimensions and beliefs of swarms, and costs."""

READ_BY_WORKERS = frozenset({"signing_keys", "policy"})
"""The public keys of assignments, and the policy of runs. A worker that could write them could order any run."""

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


def worker_rules(lab: str) -> list[str]:
    """For keepers, RQ workers and runs: the lab's keys but those of `NOT_OF_WORKERS`, RQ's, the channels of both."""
    keys = Keys(lab)
    patterns = dict.fromkeys(
        f"{'%R' if name in READ_BY_WORKERS else ''}~{keys(_glob(family.pattern))}"
        for family in FAMILIES
        if (name := family.pattern.partition(":")[0]) not in NOT_OF_WORKERS
    )
    return [*patterns, *_of_rq_and_channels(lab), "-@all", *_granted(_OF_WORKERS.split())]


def lab_rules(lab: str) -> list[str]:
    """For web, events, clock and the commands that back up and restore."""
    return [f"~{Keys(lab)('*')}", *_of_rq_and_channels(lab), *_granted(_OF_THE_LAB)]


def hashed(password: str) -> str:
    """A password as Redis keeps it, for a place where it must not be read."""
    return f"#{sha256(password.encode()).hexdigest()}"


def setuser(name: str, password: str, rules: list[str]) -> str:
    """The command that makes a user, for redis-cli."""
    return " ".join(["ACL SETUSER", name, "reset", "on", f">{password}", *rules])


def _glob(shape: str) -> str:
    """`tags:<tag>` as Redis matches it."""
    name, bracket, _ = shape.partition("<")
    return f"{name}*" if bracket else name


def _of_rq_and_channels(lab: str) -> list[str]:
    return ["~rq:*", f"&nightjar:{lab}:*", "&rq:pubsub:*"]


def _granted(commands: Sequence[str]) -> list[str]:
    return [command if command.startswith("-") else f"+{command}" for command in commands]
