"""Plug-ins: a scheduler of somebody else's ranks a tag's traces, if the lab's settings allow it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from functions.branches.rules.schedulers import ForestView, Ranked, TraceView, checked_params, ranking
from functions.kernel.plugins import Schedulers
from functions.kernel.process.lifecycle import opened
from state.errors import Conflict, Invalid
from state.settings import Settings
from tests.conftest import http_client
from tests.labs import open_tag, refused, registered, told

PACKAGE = "nightjar_plugin_under_test"
LONGEST = f"{PACKAGE}.mine:Longest"
SOURCE = """
from functions.branches.rules.schedulers import Parameter, Ranked, TraceScheduler

class Longest(TraceScheduler):
    parameters = {"bonus": Parameter(0.0, 0.0, 10.0)}

    def rank(self, forest):
        lengths = {t.trace_id: t.length + forest.params["bonus"] for t in forest.traces}
        return [Ranked(i, lengths[i]) for i in sorted(lengths, key=lambda i: -lengths[i])]

class NoScheduler:
    parameters = {}

class Unfinished(TraceScheduler):
    pass

class Forgetful(TraceScheduler):
    def rank(self, forest):
        return []

class Fussy(TraceScheduler):
    def __init__(self, wanted):
        self.wanted = wanted

    def rank(self, forest):
        return []

class Loose(Longest):
    parameters = {"bonus": 3.0}
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that is installed while the test runs."""
    folder = tmp_path / PACKAGE
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "mine.py").write_text(SOURCE)
    (folder / "hurt.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [n for n in sys.modules if n.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


async def test_a_plug_in_ranks_with_its_own_parameters() -> None:
    scheduler = await Schedulers([LONGEST]).named(LONGEST)
    params = checked_params(LONGEST, scheduler, {"bonus": 2.0})
    forest = ForestView(
        "mar11", 1, [TraceView("t1", 1, length=1), TraceView("t2", 2, length=3)], params=params
    )

    ranked = ranking(LONGEST, scheduler, forest)

    assert ranked == [Ranked("t2", 5.0), Ranked("t1", 3.0)]


async def test_a_plug_in_is_made_once() -> None:
    schedulers = Schedulers([LONGEST])

    assert await schedulers.named(LONGEST) is await schedulers.named(LONGEST)


async def test_what_the_settings_do_not_list_is_not_even_imported() -> None:
    with pytest.raises(Invalid, match="no scheduler") as refusal:
        await Schedulers([f"{PACKAGE}.mine:Other"]).named(LONGEST)

    assert f"round_robin, priority, weighted, softmax, uct, {PACKAGE}.mine:Other" in (
        refusal.value.hint or ""
    )
    assert PACKAGE not in sys.modules


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("mine:NoScheduler", "no functions.branches.rules.schedulers.TraceScheduler"),
        ("mine:Missing", "AttributeError.*Missing"),
        ("mine:Unfinished", "TypeError.*abstract"),
        ("mine:Fussy", "TypeError.*wanted"),
        ("mine:Loose", "no functions.branches.rules.schedulers.Parameter"),
        ("absent:Longest", "ModuleNotFoundError.*absent"),
        ("hurt:Longest", "ZeroDivisionError"),
    ],
)
async def test_a_plug_in_that_does_not_work_says_why(name: str, problem: str) -> None:
    full = f"{PACKAGE}.{name}"

    with pytest.raises(Conflict, match=problem) as refusal:
        await Schedulers([full]).named(full)

    assert repr(full) in refusal.value.detail
    assert "trace/configure" in (refusal.value.hint or "")


async def test_a_plug_in_that_was_mended_works_without_a_restart(package: Path) -> None:
    schedulers = Schedulers([f"{PACKAGE}.hurt:Longest"])
    with pytest.raises(Conflict):
        await schedulers.named(f"{PACKAGE}.hurt:Longest")

    (package / "hurt.py").write_text(SOURCE)

    assert await schedulers.named(f"{PACKAGE}.hurt:Longest")


async def test_a_policy_names_only_schedulers_and_parameters_that_there_are(settings: Settings) -> None:
    allowing = settings.model_copy(update={"plugins": f" {LONGEST} , {PACKAGE}.hurt:Longest"})
    async with opened("web", allowing) as process, http_client(process) as http:
        await open_tag(http)

        async def policy(status: int, scheduler: str, **params: float) -> str:
            values = {"traces": {"scheduler": scheduler, "scheduler_params": params}}
            problem = await refused(http, status, "/api/search/set-policy", tag="mar11", policy=values)
            return str(problem["detail"])

        assert "no scheduler" in await policy(422, "fifo")
        assert "no scheduler" in await policy(422, f"{PACKAGE}.mine:Fussy")
        assert "'c' of the scheduler 'uct' is -1.0" in await policy(422, "uct", c=-1)
        assert "no parameter 'eps'" in await policy(422, LONGEST, eps=1)
        assert "ZeroDivisionError" in await policy(409, f"{PACKAGE}.hurt:Longest")
        wrong = {"traces.scheduler": "fifo"}
        await refused(http, 422, "/api/experiment/setup", tag="mar12", policy=wrong)
        right = {"traces": {"scheduler": LONGEST, "scheduler_params": {"bonus": 1}}}
        changed = await told(http, "/api/search/set-policy", tag="mar11", policy=right)

    assert changed["policy"]["traces"]["scheduler"] == LONGEST
    assert changed["version"] == 2


async def test_a_plug_in_decides_what_is_selected_and_one_that_forgets_traces_selects_nothing(
    settings: Settings,
) -> None:
    forgetful = f"{PACKAGE}.mine:Forgetful"
    allowing = settings.model_copy(update={"plugins": f"{LONGEST},{forgetful}"})
    policy = {"traces": {"mode": "multi", "target_traces": 2, "max_parallel": 9, "scheduler": LONGEST}}
    async with opened("web", allowing) as process, http_client(process) as http:
        await open_tag(http, policy=policy)

        async def grown(**asked: str) -> str:
            chosen = await told(http, "/api/trace/select", tag="mar11", **asked)
            name = await registered(http, selection_id=chosen["selection_id"])
            await told(http, "/api/experiment/complete", experiment_id=name, val_bpb=1.0)
            return str(chosen["trace_id"])

        _, second = await grown(), await grown()
        await grown(trace_id=second)
        chosen = [await grown() for _ in range(3)]
        await told(http, "/api/search/set-policy", tag="mar11", policy={"traces.scheduler": forgetful})
        broken = await refused(http, 409, "/api/trace/select", tag="mar11")

    assert chosen == [second] * 3
    assert repr(forgetful) in broken["detail"]
    assert "not every trace once" in broken["detail"]


@pytest.mark.parametrize("text", ["mine", "a.b:", "a b:C", ":C", "a:B;c:D"])
def test_what_is_no_name_of_a_class_is_no_setting(text: str) -> None:
    with pytest.raises(ValueError, match="plugins"):
        Settings.model_validate({"plugins": text})
