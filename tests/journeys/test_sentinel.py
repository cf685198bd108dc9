"""A lab whose Redis dies: the Sentinels promote the replica, and the lab goes on by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.journeys.redis_servers import PASSWORD, client, need_redis_server, server, survives, until
from tests.journeys.running import reserved_port, running_lab


class Redundant:
    """A primary with a replica and three Sentinels."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        ports = [stack.enter_context(reserved_port()).getsockname()[1] for _ in range(5)]
        self.primary, self.replica, *self.sentinels = ports
        common = f"requirepass {PASSWORD}\nmasterauth {PASSWORD}\nappendonly yes\nmaxmemory-policy noeviction"
        self.process = stack.enter_context(server(folder, "primary", f"port {self.primary}\n{common}"))
        follows = f"port {self.replica}\n{common}\nreplicaof 127.0.0.1 {self.primary}"
        stack.enter_context(server(folder, "replica", follows))
        self.admin = stack.enter_context(closing(client(self.primary)))
        until(lambda: self.admin.info("replication")["connected_slaves"] == 1, "the replica follows")
        for port in self.sentinels:
            watches = [
                f"port {port}",
                f"sentinel monitor mymaster 127.0.0.1 {self.primary} 2",
                f"sentinel auth-pass mymaster {PASSWORD}",
                "sentinel down-after-milliseconds mymaster 1000",
                "sentinel failover-timeout mymaster 10000",
            ]
            stack.enter_context(server(folder, f"sentinel-{port}", "\n".join(watches), "--sentinel"))
        for port in self.sentinels:
            with closing(client(port, None)) as sentinel:
                until(lambda at=sentinel: knows_all(at), "the Sentinels know each other and the replica")

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        return f"redis+sentinel://:{PASSWORD}@{hosts}/mymaster"


def knows_all(sentinel: redis.Redis) -> bool:
    found: Any = sentinel.sentinel_master("mymaster")  # type: ignore[no-untyped-call, unused-ignore]
    return bool(found["num-other-sentinels"] == 2 and found["num-slaves"] == 1)


@pytest.fixture
def redundant(tmp_path: Path) -> Iterator[Redundant]:
    need_redis_server()
    with ExitStack() as stack:
        yield Redundant(tmp_path / "redis", stack)


def test_a_replica_that_is_promoted_under_load_has_what_it_had_and_takes_the_rest(
    redundant: Redundant, tmp_path: Path
) -> None:
    with running_lab(tmp_path / "lab", NIGHTJAR_REDIS_URL=redundant.url) as lab:
        lab.start()
        survives(lab, redundant.admin, redundant.process)
