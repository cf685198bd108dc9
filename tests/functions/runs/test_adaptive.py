"""Early stopping that adapts: what a lab keeps of how its runs ended, and which ones it stops then."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from state.client import Lab
from state.experiments import Experiments
from state.experiments.ranking import SUMS, ends_at, trends_at
from state.facts import Peers
from state.policy import BUCKETS
from tests.functions.swarm.test_swarm import DIMENSIONS, Swarm
from tests.labs import told

VALUES = [1.0 + ((n * 7) % 20) / 100 for n in range(20)]
"""Of 20 runs, in an order that is neither up nor down: the first 5 have too few peers, and 15 are enough to tell."""
ADAPTIVE = {"stopping.rule": "adaptive", "stopping.warmup_runs": len(VALUES), "keep_rule": "strict"}


@pytest.fixture
async def swarm(client: httpx.AsyncClient, process: Process) -> AsyncIterator[Swarm]:
    await told(client, "/api/dimension/define", tag="swarm", dimensions=DIMENSIONS)
    found = Swarm(client, process)
    await found.join("a")
    await found.policy(**ADAPTIVE)
    yield found
    assert await found.audited() == []


async def ended(swarm: Swarm, early: float, value: float | None, **more: object) -> str:
    """A run that had one value at 0.1, and ended with another."""
    run_id = str((await swarm.next("a"))["run_id"])
    assert await swarm.tick(run_id, 0.1, early) == {}
    await swarm.result("a", run_id, value, **more)
    return run_id


async def foretelling(swarm: Swarm) -> None:
    """Runs that end in the order in which they stood early."""
    for value in VALUES:
        await ended(swarm, value + 1, value)


async def known(swarm: Swarm) -> dict[str, float]:
    """The sums that the lab keeps of runs on this class of GPU."""
    keys = swarm.process.lab.keys
    stored = await swarm.process.lab.hash(trends_at(keys, "swarm", "H100"))
    return {name: float(amount) for name, amount in stored.items()}


async def test_where_places_foretell_ends_a_bad_run_stops_at_a_tenth(swarm: Swarm) -> None:
    await foretelling(swarm)

    bad = (await swarm.next("a"))["run_id"]
    assert (await swarm.tick(bad, 0.1, 2.15))["action"] == "stop"
    good = (await swarm.next("a"))["run_id"]
    assert await swarm.tick(good, 0.1, 1.9) == {}

    record = await swarm.record(bad)
    assert record.status == "stopped"
    assert record.ranked is not None
    assert record.ranked["0.1"][1] == 0.98
    assert (await known(swarm))["0.1:stopped"] == 1
    earlier, here = [await peers_of(swarm.process.lab, good, bucket) for bucket in (0.1, 0.2)]
    assert (earlier.runs, earlier.stopped, here.runs, here.stopped) == (21, 0, 0, 1)


async def test_only_runs_that_ended_with_a_value_tell_and_what_is_kept_has_one_size(swarm: Swarm) -> None:
    await foretelling(swarm)
    before = await known(swarm)
    crashed = await ended(swarm, 1.9, None, error="out of memory")

    assert await known(swarm) == before
    assert before["0.1:runs"] == len(VALUES) - 5
    assert set(before) <= {f"{bucket!r}:{name}" for bucket in BUCKETS for name in (*SUMS, "stopped")}
    assert (await swarm.record(crashed)).end_place is None


async def test_a_result_that_is_taken_back_leaves_what_was_learnt_of_it(swarm: Swarm) -> None:
    await foretelling(swarm)
    before = await known(swarm)
    wrong = await ended(swarm, 1.95, 3.0)
    keys = swarm.process.lab.keys
    assert (await known(swarm))["0.1:runs"] == before["0.1:runs"] + 1

    await told(swarm.http, "/api/experiment/retract", experiment_id=wrong, reason="another metric")

    assert await known(swarm) == pytest.approx(before)
    assert await swarm.process.lab.command("ZSCORE", ends_at(keys, "swarm", "H100"), wrong) is None


async def test_an_extended_run_tells_by_what_it_had_at_the_end_of_its_own_budget(swarm: Swarm) -> None:
    await swarm.policy(**{"stopping.warmup_runs": 0, "stopping.min_peers": 1, "stopping.extend_at": 0.8})
    await ended(swarm, 1.5, 1.5)
    waiting = (await swarm.next("b"))["run_id"]
    await swarm.tick(waiting, 0.8, 1.5)
    run_id = (await swarm.next("a"))["run_id"]
    for progress, value in ((0.1, 1.4), (0.8, 1.3)):
        last = await swarm.tick(run_id, progress, value)
    assert last["action"] == "extend"
    for progress, value in ((1.0, 1.2), (1.3, 1.1)):
        await swarm.tick(run_id, progress, value)

    await swarm.result("a", run_id, 1.05)

    pool = ends_at(swarm.process.lab.keys, "swarm", "H100")
    record = await swarm.record(run_id)
    assert float(await swarm.process.lab.command("ZSCORE", pool, run_id)) == pytest.approx(
        1.2 - (record.baseline_bpb or 0.0)
    )


async def peers_of(lab: Lab, run_id: str, bucket: float) -> Peers:
    experiments = Experiments(lab)
    e = await experiments.get(run_id)
    return (await experiments.peers(experiments._lab, e, "H100", bucket, 0.9))[0]
