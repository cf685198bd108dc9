"""Which node of a Redis Cluster a lab connects to. tests/journeys/test_cluster.py has a lab at work in one."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from state.client import Lab
from state.embedded import EmbeddedRedis
from state.errors import Unavailable
from tests.journeys.redis_servers import client, need_redis_server, server, until
from tests.journeys.running import reserved_port


async def test_nodes_that_are_dead_or_hang_are_passed_over_and_then_asked_last(tmp_path: Path) -> None:
    need_redis_server()
    with reserved_port() as dead, reserved_port() as hung, reserved_port() as own, reserved_port() as bus:
        hung.listen()
        ports = [each.getsockname()[1] for each in (dead, hung, own)]
        lines = f"port {ports[-1]}\ncluster-enabled yes\ncluster-port {bus.getsockname()[1]}"
        with server(tmp_path, "node", lines), closing(client(ports[-1], None)) as admin:
            until(admin.ping, "the node answers")
            admin.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)  # type: ignore[no-untyped-call]
            until(lambda: admin.set("{lab}:probe", 1), "it serves")
            url = "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in ports)
            lab = Lab("lab", url, timeout_s=60)
            hung.settimeout(60)

            assert await lab.command("GET", "{lab}:probe") == "1"
            assert await lab.blocking("BLPOP", "{lab}:none", 0.01, wait_s=1) is None

            await lab.close()
            with hung.accept()[0]:
                hung.settimeout(0)
                with pytest.raises(BlockingIOError):  # the second connection did not ask it
                    hung.accept()


async def test_a_redis_that_is_no_cluster_is_named_as_such(redis_server: EmbeddedRedis) -> None:
    password = urlsplit(redis_server.url).password
    lab = Lab("lab", f"redis+cluster://:{password}@127.0.0.1:{redis_server.port}")

    with pytest.raises(Unavailable, match="this Redis is no Cluster") as refusal:
        await lab.check()

    assert refusal.value.retry_after is None
    await lab.close()
