"""Four agents on the parallel traces of one tag: real trainings of the small language model, four roots, a merge."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import printed
from tests.journeys.running import FAST, PATIENCE_S, RunningLab, git, running_lab

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

EXAMPLES = Path(__file__).parents[2] / "examples"
AGENTS = ("ada", "alan", "grace", "kurt")
RUNS = 4  # of each: its last turn is a merge, where there are two near misses to combine
MORE = 5  # agents that go on where chance has left none: what real trainings keep differs from day to day


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RunningLab]:
    with running_lab(tmp_path / "lab", FAST) as found:
        shutil.copytree(EXAMPLES / "tinylm", found.repo, dirs_exist_ok=True)
        found.base = found.commit({})
        found.start("--cpu", "2")
        yield found


def started(lab: RunningLab, name: str) -> subprocess.Popen[str]:
    """One of the agents at work, in a clone of its own."""
    clone = lab.data.parent / name
    git(lab.repo, "clone", "--quiet", str(lab.repo), str(clone))
    options = ("--tag", "t", "--name", name, "--runs", str(RUNS), "--seed", "3", "--traces", "--json")
    return subprocess.Popen(
        [
            *(sys.executable, str(EXAMPLES / "agent.py"), "--url", str(lab.http.base_url)),
            *("--repo", str(clone), *options),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(agent: subprocess.Popen[str], event: str) -> list[dict[str, Any]]:
    """What it told of one kind, once it has ended well."""
    output, errors = agent.communicate(timeout=PATIENCE_S)
    assert (agent.returncode, errors) == (0, ""), output
    return [line for line in map(json.loads, output.splitlines()) if line["event"] == event]


def test_four_agents_grow_four_roots_and_merge_two_near_misses(lab: RunningLab) -> None:
    traces = {"mode": "multi", "target_traces": 4, "max_parallel": 4}
    lab.setup("t", **{"budgets.base_s": 0.5, "near_miss_margin": 100.0, "traces": traces})

    agents = [started(lab, name) for name in AGENTS]
    selected = [selection for agent in agents for selection in said(agent, "selected")]
    for number in range(MORE):
        if any(selection["kind"] == "merge" for selection in selected):
            break
        selected += said(started(lab, f"ada-{number}"), "selected")

    forest = lab.post("trace/list", tag="t")
    nodes = {node["experiment_id"]: node for node in forest["nodes"]}
    experiments = {i: lab.get(f"experiment/{i}")["experiment"] for i in nodes}
    by_selection = {e["selection_id"]: e for e in experiments.values()}
    assert len(nodes) == len(by_selection) == len(selected) >= len(AGENTS) * RUNS
    assert [len(nodes[t["root"]]["parent_ids"]) for t in forest["traces"]] == [0, 0, 0, 0]
    assert sum(not node["parent_ids"] for node in nodes.values()) == 4
    for selection in selected:
        e = by_selection[selection["selection_id"]]
        assert e["parent_ids"] == selection["parent_ids"]
        assert e["local_selection"] == selection["local_selection"]
        assert e["local_selection"] == [nodes[p]["number"] for p in e["parent_ids"]]
    merges = [e for e in experiments.values() if len(e["parent_ids"]) > 1]
    assert merges
    for merge in merges:
        base = merge["selection"]["base_experiment_id"]
        value = merge["val_bpb"]  # None: two near misses together may well diverge
        better = value is not None and (experiments[base]["val_bpb"] > value or merge["improved"])
        assert (merge["status"] == "keep") == better
        near = merge["selection"]["combines"]
        assert [experiments[i]["status"] for i in near] == ["discard", "discard"]
        assert set(near) <= set(merge["parent_ids"])
    assert forest["open_selections"] == 0
    drawing = printed(lab.data, "call", "trace::list", "--tag", "t", "--draw", "true").splitlines()
    assert len(drawing) == len(nodes)
    assert all(set("●○×·") & set(line) for line in drawing)
    assert sum("joins" in line for line in drawing) == len(merges)
    assert lab.post("lab/audit")["violations"] == []
