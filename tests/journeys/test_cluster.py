"""A lab in a Redis Cluster: one node has all its keys, a plain Redis has RQ's, and a failover moves it to another."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from state.redis_server import lab_rules, setuser, worker_rules
from tests.commands import nightjar
from tests.journeys.redis_servers import PASSWORD, client, need_redis_server, server, survives, until
from tests.journeys.running import RunningLab, reserved_port, running_lab
from tests.journeys.test_swarm_protocol import open_swarm, worker

RANGES = ((0, 5460), (5461, 10922), (10923, 16383))
SLOT = key_slot(b"{lab}")
COMMON = (
    f"requirepass {PASSWORD}",
    f"masterauth {PASSWORD}",
    "appendonly yes",
    "maxmemory-policy noeviction",
)
OF_CLUSTER = ("cluster-enabled yes", "cluster-node-timeout 1000")
IDEA = {"hypothesis": "h", "category": "other", "diff_summary": "d"}


@dataclass(frozen=True)
class Node:
    port: int
    bus: int
    process: subprocess.Popen[bytes]
    admin: redis.Redis

    def send(self, *words: str | int) -> Any:
        return self.admin.execute_command(*words)  # type: ignore[no-untyped-call]  # redis has no types here

    def knows(self, slots: int, nodes: int) -> bool:
        """Whether the Cluster serves so many slots and has so many nodes for it."""
        found: Any = self.send("CLUSTER INFO")
        known = (found["cluster_state"], found["cluster_slots_ok"], found["cluster_known_nodes"])
        return known == ("ok", str(slots), str(nodes))

    def role(self) -> str:
        found: Any = self.admin.info("replication")
        return str(found["role"])


class Cluster:
    """Three primaries, a replica of the one that has the lab's keys, and a plain Redis beside them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        def port() -> int:
            return int(stack.enter_context(reserved_port()).getsockname()[1])

        def node(name: str, *more: str) -> Node:
            own, bus = port(), port()
            lines = [f"port {own}", *COMMON, *more, *([f"cluster-port {bus}"] if more else [])]
            process = stack.enter_context(server(folder, name, "\n".join(lines)))
            started = Node(own, bus, process, stack.enter_context(closing(client(own))))
            until(started.admin.ping, "the server answers")
            return started

        self.plain = node("plain")
        nodes = [node(f"node-{nth}", *OF_CLUSTER) for nth in range(4)]
        *primaries, self.replica = nodes
        for epoch, (each, (first, last)) in enumerate(zip(primaries, RANGES, strict=True), 1):
            each.send("CLUSTER", "SET-CONFIG-EPOCH", epoch)
            each.send("CLUSTER", "ADDSLOTSRANGE", first, last)
        for each in nodes[1:]:
            each.send("CLUSTER", "MEET", "127.0.0.1", nodes[0].port, nodes[0].bus)
        for each in nodes:
            until(lambda at=each: at.knows(16384, len(nodes)), "the nodes know each other")
        (self.owner,) = (each for each, (a, b) in zip(primaries, RANGES, strict=True) if a <= SLOT <= b)
        self.others = [each for each in primaries if each is not self.owner]
        self.replica.send("CLUSTER", "REPLICATE", self.owner.send("CLUSTER", "MYID"))
        until(lambda: self.owner.admin.info("replication")["connected_slaves"] == 1, "the replica follows")
        for each in (*nodes, self.plain):
            each.send(*setuser("ours", PASSWORD, lab_rules("lab")).split())
        self.plain.send(*setuser("theirs", PASSWORD, worker_rules()).split())
        for each in primaries:  # else nobody votes for it
            until(lambda at=each: len(self.replicas_for(at)) == 1, "all know whom the replica follows")

    def replicas_for(self, node: Node) -> list[Any]:
        rows: list[Any] = node.send("CLUSTER", "SLOTS")
        return next(replicas for first, last, _, *replicas in rows if first <= SLOT <= last)

    def url(self, user: str = "") -> str:
        """It names the nodes that do not have the lab's keys: they have to lead to the owner."""
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.others)
        return f"redis+cluster://{user}:{PASSWORD}@{hosts}"

    @property
    def settings(self) -> dict[str, str]:
        """Those of the users that `./nightjar redis acl` prints."""
        plain = f"{PASSWORD}@127.0.0.1:{self.plain.port}"
        return {
            "NIGHTJAR_REDIS_URL": self.url("ours"),
            "NIGHTJAR_BROKER_URL": f"redis://ours:{plain}",
            "NIGHTJAR_WORKER_REDIS_URL": f"redis://theirs:{plain}",
        }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    need_redis_server()
    with ExitStack() as stack:
        yield Cluster(tmp_path / "redis", stack)


@pytest.fixture
def lab(cluster: Cluster, tmp_path: Path) -> Iterator[RunningLab]:
    with running_lab(tmp_path / "lab", **cluster.settings) as found:
        found.start()
        yield found


def test_a_whole_lab_lives_in_one_slot_of_a_cluster(
    cluster: Cluster, lab: RunningLab, tmp_path: Path
) -> None:
    # the published loop, with runs of the agent's own
    lab.post("experiment/setup", tag="own", policy={"keep_rule": "strict"})
    for commit, value, status in (("a1", 1.0, "keep"), ("a2", 0.9, "keep"), ("a3", 0.95, "discard")):
        new = lab.post("experiment/register", tag="own", commit_sha=commit, **IDEA)
        answer = lab.post("experiment/complete", experiment_id=new["experiment_id"], val_bpb=value)
        assert answer["status"] == status
    assert lab.post("experiment/best", tag="own")["best"]["experiment_id"] == "own-2"

    # runs that a worker trains when RQ's bell rings
    lab.setup("t", **{"traces.mode": "multi", "traces.target_traces": 2, "traces.max_parallel": 4})
    selected = lab.post("trace/select", tag="t")
    root = lab.submit(selection_id=selected["selection_id"])
    lab.until_status(root, "keep")

    # a branch of it
    asked = lab.post("trace/select", tag="t", parent_ids=[root])
    tip = lab.submit(selection_id=asked["selection_id"], config_delta={"VALUE": 0.5})
    lab.until_status(tip, "keep")
    forest = lab.post("trace/list", tag="t")
    assert {n["experiment_id"]: n["parent_ids"] for n in forest["nodes"]} == {root: [], tip: [root]}

    # a swarm's round
    open_swarm(lab)
    seen = worker(lab, "w1", "--runs", "2")
    assert len(seen["runs"]) == 2
    assert seen["leaderboard"]

    # and what operators see of it
    lab.until_followed()
    lab.until_idle()
    assert lab.post("lab/audit")["violations"] == []
    prefixes = {"rq": [cluster.plain], "{lab}": [cluster.owner], "": cluster.others}
    for prefix, nodes in prefixes.items():
        found = {key.partition(":")[0] for node in nodes for key in node.admin.scan_iter()}
        assert found == ({prefix} if prefix else set())
    for node in (cluster.owner, cluster.plain):
        log: Any = node.admin.acl_log()
        assert log == []
    done = nightjar(lab.data, "doctor", **cluster.settings)
    assert "append-only file on" in done.stdout, done.stdout + done.stderr
    backed = nightjar(lab.data, "backup", str(tmp_path / "lab.backup"), **cluster.settings)
    assert backed.returncode == 0, backed.stderr
    as_admin = {"NIGHTJAR_REDIS_URL": cluster.url()}
    copy = nightjar(lab.data, "restore", str(tmp_path / "lab.backup"), "--lab", "copy", **as_admin)
    assert copy.returncode == 0, copy.stderr
    name = nightjar(lab.data, "redis", "HGET", "{copy}:tags:own", "name", "--lab", "copy", **as_admin)
    assert name.stdout == "own\n", name.stderr

    # RQ needs a Redis beside it
    alone = nightjar(tmp_path / "alone", "up", **as_admin)
    assert alone.returncode == 1
    assert "NIGHTJAR_BROKER_URL" in alone.stderr


def test_a_replica_that_takes_the_slot_over_under_load_has_what_the_owner_had(
    cluster: Cluster, lab: RunningLab
) -> None:
    survives(lab, cluster.owner.admin, cluster.owner.process)

    assert cluster.replica.role() == "master"
