"""An experiment's parent: the tip of its tag's one line, or the experiment that its commit is built on."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process, opened
from state.settings import Settings
from tests.conftest import http_client
from tests.labs import asked, events_of, idea, open_tag, told, tried
from tests.workers.repository import Repository

README = (Path(__file__).parents[3] / "README.md").read_text()


async def parents(http: httpx.AsyncClient, tag: str = "mar11") -> dict[str, list[str]]:
    """The parents of each experiment, which every view tells alike."""
    history = (await told(http, "/api/experiment/history", tag=tag))["experiments"]
    found = {e["id"]: e["parent_ids"] for e in history}
    graph = await told(http, "/api/trace/list", tag=tag, draw=True)
    nodes = {node["id"]: node["parent_ids"] for node in graph["nodes"]}
    for e in history:
        alone = (await asked(http, f"/api/experiment/{e['id']}"))["experiment"]
        first = e["parent_ids"][0] if e["parent_ids"] else None
        assert alone["parent_ids"] == e["parent_ids"] == nodes.get(e["id"], e["parent_ids"])
        assert alone["parent_id"] == e["parent_id"] == first
    assert (await told(http, "/api/lab/audit"))["violations"] == []
    return found


async def test_the_loop_of_the_readme_draws_one_line(client: httpx.AsyncClient) -> None:
    loop = README.split("## The agent's loop")[1]
    bodies = [json.loads(body) for body in re.findall(r"-d '(\{.*?\})'", loop)]
    ideas = [body for body in bodies if "hypothesis" in body]
    assert len(ideas) == 1
    policy = {**bodies[0].get("policy", {}), "baseline_first": False}
    await told(client, "/api/experiment/setup", **{**bodies[0], "policy": policy})

    for n, value in enumerate((1.0, 0.9, 0.95, 0.8)):
        asked_for = {**ideas[0], "commit_sha": f"4c1a9f{n}"}
        given = await told(client, "/api/experiment/register", **asked_for)
        await told(client, "/api/experiment/complete", experiment_id=given["experiment_id"], val_bpb=value)

    line = [f"mar11-{n}" for n in range(1, 5)]
    assert await parents(client) == {name: line[:n][-1:] for n, name in enumerate(line)}
    drawing = (await told(client, "/api/trace/list", tag="mar11", draw=True))["drawing"]
    assert "[" not in drawing


async def test_what_is_submitted_before_the_baseline_ends_is_built_on_it(client: httpx.AsyncClient) -> None:
    await open_tag(client, base_commit="abc1234")
    for n in range(2):
        await told(client, "/api/experiment/submit", **idea(commit_sha=f"4c1a9f{n}"))
    assert await parents(client) == {"mar11-1": [], "mar11-2": ["mar11-1"], "mar11-3": ["mar11-1"]}


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


@pytest.fixture
async def lab(settings: Settings, repo: Repository) -> AsyncIterator[tuple[httpx.AsyncClient, Process]]:
    """A lab whose web process has the clone."""
    with_clone = settings.model_copy(update={"clone": repo.path})
    async with opened("web", with_clone) as process, http_client(process) as http:
        await open_tag(http, base_commit=repo.base, policy={"baseline_first": False})
        yield http, process


async def entered(http: httpx.AsyncClient, verb: str, commit: str, **more: Any) -> dict[str, Any]:
    return await told(http, f"/api/experiment/{verb}", **idea(commit_sha=commit, **more))


@pytest.mark.parametrize(("verb", "length"), [("register", 7), ("submit", 40)])
async def test_a_parent_that_the_commit_is_not_built_on_is_answered_with_the_one_that_it_is(
    lab: tuple[httpx.AsyncClient, Process], repo: Repository, verb: str, length: int
) -> None:
    http, process = lab
    kept = repo.commit({"train.py": "DEPTH = 9\n"})
    await tried(http, 1.0, commit_sha=kept[:length])
    failed = repo.commit({"train.py": "DEPTH = 10\n"})
    await tried(http, 1.1, commit_sha=failed[:length])
    repo.git("reset", "--quiet", "--hard", kept)
    repo.commit({"notes.txt": "a commit that nobody tried\n"})
    third = repo.commit({"train.py": "DEPTH = 8\n"})

    given = await entered(http, verb, third[:length], parent_id="mar11-2")

    assert given["parent_ids"] == ["mar11-1"]
    assert "mar11-2" in given["hint"]
    assert (await parents(http))["mar11-3"] == ["mar11-1"]
    assert [e["experiment_id"] for e in await events_of(process, "experiment.registered")][-1] == "mar11-3"


async def test_a_parent_stands_where_its_commit_is_the_nearest_or_nothing_can_be_told(
    lab: tuple[httpx.AsyncClient, Process], repo: Repository
) -> None:
    http, _ = lab
    first = repo.commit({"train.py": "DEPTH = 9\n"})
    await tried(http, 1.0, commit_sha=first)
    second = repo.commit({"train.py": "DEPTH = 10\n"})
    await tried(http, 0.9, commit_sha=second)
    third = repo.commit({"train.py": "DEPTH = 11\n"})
    elsewhere = "0123456789abcdef0123456789abcdef01234567"
    await tried(http, 0.8, commit_sha=elsewhere)
    repo.git("reset", "--quiet", "--hard", repo.base)
    on_base = repo.commit({"train.py": "DEPTH = 7\n"})

    seen, beside = {"parent_id": "mar11-2"}, {"parent_ids": ["mar11-3", "mar11-2"]}
    named: dict[str, tuple[str, dict[str, Any], list[str]]] = {
        "its grandparent": (third, {"parent_id": "mar11-1"}, ["mar11-2"]),
        "none, on the base": (on_base, {"parent_id": "mar11-1"}, []),
        "both": (third, beside, ["mar11-3", "mar11-2"]),
        "a parent that only its agent has": (third, {"parent_id": "mar11-3"}, ["mar11-3"]),
        "a commit that only its agent has": ("abcdef0", seen, ["mar11-2"]),
        "the same commit with another constant": (
            second,
            seen | {"config_delta": {"DEPTH": 12}},
            ["mar11-2"],
        ),
    }
    built = {
        name: await entered(http, "register", commit, **more) for name, (commit, more, _) in named.items()
    }

    for name, (_, _, expected) in named.items():
        assert built[name]["parent_ids"] == expected, name
    assert [name for name, given in built.items() if given["hint"]] == [
        *("its grandparent", "none, on the base")
    ]
