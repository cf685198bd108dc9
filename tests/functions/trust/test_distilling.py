"""trust::distil leaves out one keep's change at a time, and drops those that nothing depends on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process, opened
from state.records import Distillation
from state.settings import Settings
from state.trust import Distillations
from tests.conftest import http_client
from tests.functions.conftest import TagUnderTest
from tests.labs import add_gpu, open_tag, waiting
from tests.workers.repository import Repository

pytestmark = pytest.mark.process

GAP = "".join(f"# {nth}\n" for nth in range(9))
"""Lines between two constants, so that their changes do not touch."""


class Chain:
    """A tag whose keeps each set one constant of a train.py. Its worker measures which of them a patch sets."""

    def __init__(self, tag: TagUnderTest, repo: Repository, effects: dict[str, float], gap: str) -> None:
        self.tag, self.repo, self.effects = tag, repo, effects
        self.base = repo.commit({"train.py": gap.join(f"{name} = 0\n" for name in effects)})
        self.script = (repo.path / "train.py").read_text()
        self.noise = cycle((0.0001, -0.0001))

    async def open(self) -> None:
        await open_tag(
            self.tag.client, base_commit=self.base, policy={"baseline_first": False, "keep_rule": "strict"}
        )
        await add_gpu(self.tag.client)
        await self.measured(await self.tag.submit(commit_sha=self.base), 2.0)

    async def keep(self, name: str, before: str, after: str, lucky: float | None = None) -> str:
        """A keep with one more change to the script; `lucky` is what its only run measured."""
        assert self.script.count(before) == 1
        self.script = self.script.replace(before, after)
        patch = self.patch()
        submitted = await self.tag.submit(
            diff=patch, commit_sha=f"{abs(hash(patch)):040x}"[:40], description=name
        )
        await self.measured(submitted, self.value(patch) if lucky is None else lucky)
        return submitted

    def patch(self) -> str:
        commit = self.repo.commit({"train.py": self.script})
        patch = self.repo.git_bytes("diff", "--binary", self.base, commit).decode()
        self.repo.git("reset", "--quiet", "--hard", self.base)
        return patch

    def value(self, patch: str) -> float:
        gains = (gain for name, gain in self.effects.items() if f"\n+{name} = " in patch)
        return 2.0 - sum(gains) + next(self.noise)

    async def measured(self, name: str, value: float) -> None:
        await self.tag.told("/api/pool/heartbeat", gpu_id="host:gpu0")
        e = await self.tag.begun(name)
        await self.tag.report(e, value)
        await self.tag.free(e)

    async def one(self) -> Distillation:
        return (await Distillations(self.tag.lab).all())[-1]

    async def work(self, *, most: int = 1000) -> Distillation:
        """Train what waits, with the events of its ends, until the distillation ends or so many runs have ended."""
        while (one := await self.one()).state == "running" and most:
            runs = (await waiting(self.tag.lab))[:most]
            assert runs, one
            for e in runs:
                diff = (await self.tag.asked(f"/api/experiment/{e.retest_of or e.experiment_id}"))["diff"]
                await self.measured(e.experiment_id, self.value(diff or ""))
                most -= 1
            await self.follow(one.into)
        return one

    async def follow(self, into: str) -> None:
        await self.tag.told("/api/trust/follow-distilling", tag=into)

    async def distil(self, **fields: Any) -> dict[str, Any]:
        return await self.tag.told("/api/trust/distil", tag="mar11", **fields)


EFFECTS = {"A": 0.1, "B": 0.0, "C": 0.1, "D": 0.0, "E": 0.1}


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


@pytest.fixture
def gap() -> str:
    return GAP


@pytest.fixture
async def chain(settings: Settings, repo: Repository, gap: str) -> AsyncIterator[Chain]:
    """mar11 with a baseline and five keeps, of which B and D have no effect."""
    with_clone = settings.model_copy(update={"clone": repo.path})
    async with opened("web", with_clone) as process, http_client(process) as http:
        made = Chain(TagUnderTest(http, process), repo, dict(EFFECTS), gap)
        await made.open()
        yield made


async def kept_all(chain: Chain) -> None:
    for nth, name in enumerate(EFFECTS):
        await chain.keep(f"set {name}", f"{name} = 0\n", f"{name} = 1\n", lucky=1.9 - nth / 10)


async def test_the_plan_has_the_budget_and_begins_nothing(chain: Chain) -> None:
    await kept_all(chain)

    plan = await chain.distil()

    one = plan["distillation"]
    assert (one["state"], one["best"], one["into"]) == ("planned", "mar11-6", "mar11-distil1")
    assert [c["experiment_id"] for c in one["changes"]] == [f"mar11-{n}" for n in range(2, 7)]
    assert [(c["above"], c["lines"]) for c in one["changes"]][:2] == [(None, 2), ("mar11-2", 2)]
    assert (one["most_runs"], plan["hours"]) == (15, pytest.approx(15 * one["run_s"] / 3600))
    assert await Distillations(chain.tag.lab).all() == []


@pytest.mark.parametrize("gap", [GAP, ""], ids=["apart", "neighbours"])
async def test_changes_without_effect_are_dropped_and_each_part_applies_alone(chain: Chain) -> None:
    await kept_all(chain)

    await chain.distil(begin=True)
    for _ in range(2):  # an event that is delivered twice
        await chain.follow("mar11-distil1")
    assert (await chain.distil(begin=True))["distillation"]["into"] == "mar11-distil1"
    stored = chain.repo.git("count-objects")
    one = await chain.work()

    assert chain.repo.git("count-objects") == stored, "git writes nothing into the clone"
    assert [change.description for change in one.changes] == [f"set {name}" for name in EFFECTS]
    assert [change.state for change in one.changes] == ["kept", "dropped", "kept", "dropped", "kept"]
    assert one.state == "done"
    assert one.runs <= one.most_runs
    assert one.loss == pytest.approx(0, abs=0.001)
    found = await chain.tag.told("/api/trust/distilled", tag="mar11")
    assert found["commit_of"] == one.smallest
    smallest = (await chain.tag.asked(f"/api/experiment/{one.smallest}"))["diff"]
    assert [name for name in EFFECTS if f"\n+{name} = 1" in smallest] == ["A", "C", "E"]
    assert found["distillation"]["parts"] == [["mar11-2"], ["mar11-4"], ["mar11-6"]]
    for patch in found["patches"]:
        (chain.repo.path / "part.patch").write_text(patch)
        chain.repo.git("apply", "--check", "part.patch")
        assert patch.count("\n+") == 2  # the header and one constant
    [begun] = await chain.tag.events("distil.begun")
    [decided] = await chain.tag.events("distil.decided")
    assert (begun["changes"], decided["kept"], decided["state"]) == (5, 3, "done")


async def test_a_change_that_later_ones_are_built_on_stays_until_they_are_dropped(chain: Chain) -> None:
    chain.effects |= {"A": 0.0, "A2": 0.0}
    await chain.keep("set A", "A = 0\n", "A = 1\n", lucky=1.99)
    await chain.keep("set A again", "A = 1\n", "A = 2\nA2 = 1\n", lucky=1.98)
    await chain.keep("set C", "C = 0\n", "C = 1\n")

    await chain.distil(begin=True)
    one = await chain.work()

    states = [(change.description, change.state) for change in one.changes]
    assert states == [("set A", "dropped"), ("set A again", "dropped"), ("set C", "kept")]


async def test_changes_that_need_each_other_are_one_part(chain: Chain) -> None:
    await chain.keep("set A", "A = 0\n", "A = 1\n")
    chain.effects["A2"] = 0.1
    await chain.keep("set A again", "A = 1\n", "A = 2\nA2 = 1\n")
    await chain.keep("set C", "C = 0\n", "C = 1\n")

    await chain.distil(begin=True)
    one = await chain.work()

    assert [change.state for change in one.changes] == ["needed", "kept", "kept"]
    assert one.parts == (("mar11-2", "mar11-3"), ("mar11-4",))


async def test_a_change_without_which_the_code_crashes_is_kept(chain: Chain) -> None:
    await chain.keep("set A", "A = 0\n", "A = 1\n")
    await chain.distil(begin=True)
    one = await chain.work(most=4)
    without = one.changes[0].without
    assert without is not None

    await chain.tag.broken(without, "other")
    await chain.follow(one.into)

    one = await chain.one()
    assert (one.changes[0].state, one.changes[0].reason, one.state) == ("kept", "without it: other", "done")


async def test_a_chain_that_no_worker_trained_is_refused(client: httpx.AsyncClient, process: Process) -> None:
    tag = TagUnderTest(client, process)
    await open_tag(client, policy={"baseline_first": False})
    assert "has no keep yet" in (await tag.refused(409, "/api/trust/distil", tag="mar11"))["detail"]
    await tag.tried(0.9)
    assert "trained by a worker" in (await tag.refused(409, "/api/trust/distil", tag="mar11"))["detail"]
    assert (await tag.told("/api/trust/distilled", tag="mar11"))["distillation"] is None
