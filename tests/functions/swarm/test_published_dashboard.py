"""The published dashboard of a swarm finds every field that it reads, with its name and unit."""

from __future__ import annotations

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


async def refreshed(http: httpx.AsyncClient) -> tuple[list[Any], dict[str, Any]]:
    """The figures at its top, and all answers."""
    answers = {path: await http.get(path) for path in FETCHED}
    assert {path: a.status_code for path, a in answers.items()} == dict.fromkeys(FETCHED, 200)
    shown = {path: a.json() for path, a in answers.items()}
    health, stats = shown["/health"], shown["/runs/stats"]
    names = ("experiments", "active_workers", "queue_depth")
    return [*(health[name] for name in names), stats["best_delta"], stats["kill_rate"]], shown


def summary(shown: dict[str, Any]) -> str:
    return str(shown["/theory_graph/human?include_graph=true"]["derived_layer"]["summary_text"])


async def test_a_lab_without_a_swarm_shows_an_empty_dashboard(client: httpx.AsyncClient) -> None:
    _, shown = await refreshed(client)
    assert shown["/theory_graph"] == {"nodes": [], "edges": []}
    assert summary(shown) == "No hypotheses yet."


async def test_a_swarm_with_claims_fills_every_panel_and_its_populations_their_workers(swarm: Swarm) -> None:
    await told(swarm.http, "/api/hypothesis/bootstrap", tag="swarm")
    figures, shown = await refreshed(swarm.http)
    nodes = shown["/theory_graph"]["nodes"]
    assert figures == [0, 0, 0, None, 0.0]
    claims = ("LR matters", "DEPTH matters", "OPTIMIZER matters")
    assert {n["statement"]: n["posterior"] for n in nodes} == dict.fromkeys(claims, 0.5)
    assert "LR matters" in summary(shown)

    [whole] = [n["id"] for n in nodes if "LR" in n["statement"]]
    proposal = {"statement": "a low LR trains better", "dimensions": ["LR"], "parent_id": whole}
    part = await told(swarm.http, "/api/hypothesis/propose", tag="swarm", proposal=proposal)
    for nth in range(6):
        await swarm.next(f"w{nth}")
    _, shown = await refreshed(swarm.http)

    edge = {"type": "decomposes_into", "from": whole, "to": part["hypothesis_id"]}
    assert edge in shown["/theory_graph"]["edges"]
    rows = shown["/populations"]["populations"]
    assert [row["assigned_workers"] for row in rows] == [2, 2, 2]
    assert {(row["status"], row["posterior"], row["n_experiments"]) for row in rows} == {("active", 0.5, 0)}
    assert all(0 < row["information_value"] <= 1 for row in rows)


async def test_the_kill_rate_is_in_percent_and_the_pools_are_over_the_runs_of_all_gpus(swarm: Swarm) -> None:
    await stopping_for_certain(swarm)
    for name, value in (("H100", 0.9), ("A100", 0.8), ("L40S", 1.1)):
        await swarm.join(name, gpu_type="H100")
        run = (await swarm.next(name))["run_id"]
        if (await swarm.tick(run, 0.2, value)).get("action") != "stop":
            await swarm.result(name, run, value)
    await swarm.join("other", gpu_type="A100")
    await swarm.tick((await swarm.next("other"))["run_id"], 0.2, 0.7)

    (*_, best, kill_rate), shown = await refreshed(swarm.http)

    assert (best, kill_rate) == (pytest.approx(-0.2), 33.3)
    pools = shown["/runs/stats"]["bucket_pools"]
    assert {bucket: pool["n"] for bucket, pool in pools.items()} == {
        "0.2": 4,
        **dict.fromkeys(("0.4", "0.6", "0.8", "1.0"), 0),
    }
    assert (pools["0.2"]["p50"], pools["0.4"]["p50"]) == (pytest.approx(-0.1), None)
