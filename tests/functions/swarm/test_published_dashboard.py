"""The published dashboard of a swarm finds every field that it reads, with its name and unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.functions.swarm.test_swarm import Swarm, stopping_for_certain
from tests.labs import told

FETCHED = (
    *("/health", "/runs/stats", "/leaderboard", "/populations", "/theory_graph"),
    *("/theory_graph/human?include_graph=true", "/shadow/scorecards"),
)
"""What it asks for at each refresh, without a token. One failure empties the whole page."""


@dataclass
class Dashboard:
    """What is on its screen after a refresh."""

    answers: Mapping[str, Any]

    def figures(self) -> list[Any]:
        """The row of figures at its top."""
        health, stats = self.answers["/health"], self.answers["/runs/stats"]
        return [
            *(health[name] for name in ("experiments", "active_workers", "queue_depth")),
            *(stats[name] for name in ("best_delta", "kill_rate")),
        ]

    def beliefs(self) -> dict[str, float]:
        """The bars of its chart of posteriors."""
        return {n["statement"]: float(n["posterior"]) for n in self.answers["/theory_graph"]["nodes"]}

    def edges(self) -> set[tuple[str, str, str]]:
        return {(e["type"], e["from"], e["to"]) for e in self.answers["/theory_graph"]["edges"]}

    def summary(self) -> str:
        human = self.answers["/theory_graph/human?include_graph=true"]
        return str(human["derived_layer"]["summary_text"])


async def refreshed(http: httpx.AsyncClient) -> Dashboard:
    answers = {path: await http.get(path) for path in FETCHED}
    assert {path: a.status_code for path, a in answers.items()} == dict.fromkeys(FETCHED, 200)
    return Dashboard({path: a.json() for path, a in answers.items()})


@pytest.fixture
async def claiming(swarm: Swarm) -> Swarm:
    """A swarm that has hypotheses."""
    await told(swarm.http, "/api/hypothesis/bootstrap", tag="swarm")
    return swarm


async def test_a_swarm_without_runs_fills_every_panel(claiming: Swarm) -> None:
    shown = await refreshed(claiming.http)
    assert shown.figures() == [0, 0, 0, None, 0.0]
    assert shown.beliefs() == dict.fromkeys(("LR matters", "DEPTH matters", "OPTIMIZER matters"), 0.5)
    assert "LR matters" in shown.summary()
    assert set(shown.answers["/runs/stats"]["bucket_pools"]) == {"0.2", "0.4", "0.6", "0.8", "1.0"}


async def test_a_lab_without_a_swarm_shows_an_empty_dashboard(client: httpx.AsyncClient) -> None:
    shown = await refreshed(client)
    assert (shown.beliefs(), shown.edges()) == ({}, set())
    assert shown.summary() == "No hypotheses yet."


async def test_the_kill_rate_is_in_percent(swarm: Swarm) -> None:
    await stopping_for_certain(swarm)
    for name, value in (("w1", 0.9), ("w2", 0.8), ("w3", 1.1)):
        await swarm.join(name)
        run = (await swarm.next(name))["run_id"]
        if (await swarm.tick(run, 0.2, value)).get("action") != "stop":
            await swarm.result(name, run, value)
    *_, best, kill_rate = (await refreshed(swarm.http)).figures()
    assert (best, kill_rate) == (pytest.approx(-0.2), 33.3)


async def test_the_pools_are_over_the_runs_of_all_gpus(swarm: Swarm) -> None:
    values = {"H100": 0.9, "A100": 0.8, "L40S": 0.7}
    for gpu_type, value in values.items():
        await swarm.join(gpu_type, gpu_type=gpu_type)
        run = (await swarm.next(gpu_type))["run_id"]
        for progress in (0.2, 1.0):
            await swarm.tick(run, progress, value)

    pools = (await refreshed(swarm.http)).answers["/runs/stats"]["bucket_pools"]

    counts = {"0.2": 3, "0.4": 0, "0.6": 0, "0.8": 0, "1.0": 3}
    assert {bucket: pool["n"] for bucket, pool in pools.items()} == counts
    assert pools["1.0"]["p50"] == pytest.approx(-0.2)
    assert pools["0.4"]["p50"] is None


async def test_a_population_shows_its_workers_and_how_far_its_claim_is_believed(claiming: Swarm) -> None:
    for nth in range(6):
        await claiming.join(f"w{nth}")
        await claiming.next(f"w{nth}")
    rows = (await refreshed(claiming.http)).answers["/populations"]["populations"]
    assert [row["assigned_workers"] for row in rows] == [2, 2, 2]
    assert {(row["status"], row["posterior"], row["n_experiments"]) for row in rows} == {("active", 0.5, 0)}
    assert all(0 < row["information_value"] <= 1 for row in rows)


async def test_the_edges_of_the_graph_have_a_type_and_two_ends(claiming: Swarm) -> None:
    nodes = (await refreshed(claiming.http)).answers["/theory_graph"]["nodes"]
    whole = next(n["id"] for n in nodes if "LR" in n["statement"])
    proposal = {"statement": "a low LR trains better", "dimensions": ["LR"], "parent_id": whole}
    part = await told(claiming.http, "/api/hypothesis/propose", tag="swarm", proposal=proposal)
    assert ("decomposes_into", whole, part["hypothesis_id"]) in (await refreshed(claiming.http)).edges()
