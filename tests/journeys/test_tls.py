"""A lab whose Redis speaks TLS: trained through it, and told clearly where it is not to be trusted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from functions.kernel.process.readiness import until_ready
from state.client import Lab
from state.errors import Unavailable
from state.redis_server import lab_rules, setuser, worker_rules
from state.train_queue import TrainQueue, broker, plainly
from tests.journeys.running import reserved_port, running_lab
from tests.tls import TlsRedis, tls_redis
from workers.slot import Device, Slot


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsRedis]:
    with tls_redis(tmp_path_factory.mktemp("tls")) as found:
        yield found


def test_a_run_goes_from_queue_to_verdict_through_tls_for_lab_broker_and_workers(
    server: TlsRedis, tmp_path: Path
) -> None:
    with redis.Redis.from_url(server.url(), driver_info=None) as admin:
        for line in (
            setuser("ours", "of-the-lab", lab_rules("lab")),
            setuser("theirs", "of-workers", worker_rules()),
        ):
            admin.execute_command(*line.split())
    urls = {
        "NIGHTJAR_REDIS_URL": server.url(user="ours", password="of-the-lab"),
        "NIGHTJAR_WORKER_REDIS_URL": server.url(user="theirs", password="of-workers"),
    }

    with running_lab(tmp_path, **urls) as lab:
        lab.start()
        lab.setup()
        kept = lab.until_status(lab.submit(), "keep")["experiment"]
        again = lab.until_status(lab.submit(), "keep", "discard")["experiment"]
        lab.until_idle()

        assert (kept["val_bpb"], kept["attempt"], again["attempt"]) == (1.0, 1, 1)
        assert lab.post("lab/audit")["violations"] == []


WRONG = {
    "another CA": ("other.pem", "127.0.0.1", "certificate is not to be trusted"),
    "no CA": (None, "127.0.0.1", "certificate is not to be trusted"),
    "a host that the certificate does not name": ("ca.pem", "localhost", "certificate is not to be trusted"),
    "a file that is no certificate": ("names", "127.0.0.1", "there is no TLS with Redis"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_what_is_not_to_be_trusted_is_refused_at_once_by_lab_and_broker(
    server: TlsRedis, what: str
) -> None:
    ca, host, words = WRONG[what]
    url = server.url(ca, host=host)
    lab, queue = Lab("lab", url), TrainQueue("lab", url)

    with pytest.raises(Unavailable, match=words) as refusal:
        await until_ready(lab)
    with pytest.raises(Unavailable, match=words):
        await queue.enqueue("h:0", {"experiment_id": "t-1", "attempt": 1, "fence": 1}, 60)
    with pytest.raises(Unavailable, match=words), plainly():
        broker(url).ping()

    assert "ssl_ca_certs" in str(refusal.value.hint)
    assert refusal.value.retry_after is None
    await lab.close()
    queue.close()


async def test_a_node_of_a_cluster_is_reached_through_tls_and_a_wrong_ca_is_refused(tmp_path: Path) -> None:
    with reserved_port() as bus:
        lines = ("cluster-enabled yes", "tls-cluster yes", f"cluster-port {bus.getsockname()[1]}")
        with tls_redis(tmp_path, *lines) as node:
            with redis.Redis.from_url(node.url(), driver_info=None) as admin:
                admin.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            right, wrong = (
                Lab("lab", node.url(ca).replace("rediss:", "rediss+cluster:"))
                for ca in ("ca.pem", "other.pem")
            )
            await until_ready(right)
            with pytest.raises(Unavailable, match="not to be trusted"):
                await until_ready(wrong)
            await right.close()
            await wrong.close()


def test_every_process_that_is_given_a_wrong_ca_says_so_and_ends(server: TlsRedis, tmp_path: Path) -> None:
    device = Device("h:0", index=0, name="cpu", vram_mb=0, uuid=None, driver=None, kind="cpu")
    slot = Slot(repo=tmp_path, device=device).model_dump_json()
    for module in (["triggers.cli", "up"], ["workers.gpu", slot]):
        with reserved_port() as free:
            done = subprocess.run(
                [sys.executable, "-P", "-m", *module],
                capture_output=True,
                text=True,
                check=False,
                env=os.environ
                | {"NIGHTJAR_REDIS_URL": server.url("other.pem"), "NIGHTJAR_DATA": str(tmp_path)}
                | {"NIGHTJAR_PORT": str(free.getsockname()[1])},
            )

        assert done.returncode == 1, module
        assert "not to be trusted" in done.stderr
        assert "Traceback" not in done.stderr
        assert server.password not in done.stderr
