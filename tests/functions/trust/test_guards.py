"""Guards of a tag, and the end of a run that breaks one."""

from __future__ import annotations

import math
from typing import Any

import pytest

from functions.trust.rules.guarding import broken_guard, in_words
from state.errors import Invalid
from state.facts import Comparison, RunFacts, Spread
from state.policy import Guards, Policy, read_policy, validated
from state.records import Tag
from tests.functions.conftest import TagUnderTest, lease
from tests.functions.sample import experiment
from tests.labs import open_tag


async def ran(tag: TagUnderTest, value: float, **metrics: float) -> dict[str, Any]:
    """The verdict on a new run that a worker trained, with further metrics in its output."""
    return await again(tag, await tag.submit(), value, **metrics)


async def again(tag: TagUnderTest, name: str, value: float, **metrics: float) -> dict[str, Any]:
    """The same of this waiting run."""
    return await tag.ended(await tag.begun(name), value, metrics=metrics)


@pytest.mark.parametrize(
    ("guards", "metrics", "broken"),
    [
        ({"peak_vram_mb": 100}, {"peak_vram_mb": 100.0}, None),
        ({"peak_vram_mb": 100}, {"peak_vram_mb": 101.0}, "it is 101 and has to be at most 100"),
        ({"peak_vram_mb": 100}, {}, "the run has no such metric"),
        ({"at_most": {"ms": 20}}, {"ms": 20.5}, "it is 20.5 and has to be at most 20"),
        ({"at_least": {"accuracy": 0.9}}, {"accuracy": 0.9}, None),
        ({"at_least": {"Accuracy": 0.9}}, {"accuracy": 0.8}, "it is 0.8 and has to be at least 0.9"),
        ({"slices": ["val_code"]}, {"other": 1.0}, "the run has no such metric"),
    ],
)
async def test_a_run_that_breaks_a_guard_is_a_discard_that_says_which_with_value_and_limit(
    tag: TagUnderTest, guards: dict[str, Any], metrics: dict[str, float], broken: str | None
) -> None:
    await tag.open(guards=guards)

    answer = await ran(tag, 0.9, **metrics)

    if broken is None:
        assert (answer["status"], answer["guard"]) == ("keep", None)
        return
    [(kind, limit)] = guards.items()
    name = kind if isinstance(limit, int) else next(iter(limit))
    assert (answer["status"], answer["guard"], answer["improved"]) == ("discard", name, False)
    assert f"guard {name}: " in answer["reason"]
    assert broken in answer["reason"]
    assert "guard" in answer["hint"]
    shown = await tag.experiment("mar11-1")
    assert (shown["guard"], shown["reason"], shown["val_bpb"]) == (name, answer["reason"], 0.9)
    assert (await tag.events("experiment.finished"))[-1]["guard"] == name
    assert answer["reason"] in (await tag.asked("/api/experiment/mar11-1/wait?timeout=0"))["next"]
    assert (await tag.summary())["best"] is None


async def test_a_value_behind_a_broken_guard_is_no_near_miss_and_never_promoted(tag: TagUnderTest) -> None:
    await tag.open(guards={"at_most": {"ms": 20}})
    await ran(tag, 1.0, ms=10)
    broken = await ran(tag, 0.5, ms=30)
    assert (broken["near_miss"], broken["trust"], broken["retest"]) == (False, None, None)
    await tag.told("/api/experiment/retract", experiment_id="mar11-1", reason="a wrong file")
    assert (await tag.summary())["best"] is None


async def test_the_baseline_breaks_no_guard_because_others_are_compared_with_it(tag: TagUnderTest) -> None:
    await tag.open(guards={"peak_vram_mb": 100}, baseline_first=True, baseline_repeats=0)
    name = (await tag.told("/api/experiment/baseline", tag="mar11"))["baseline_id"]
    answer = await again(tag, name, 1.0, peak_vram_mb=500)
    assert (answer["status"], answer["guard"]) == ("keep", None)


async def test_a_slice_may_not_get_worse_by_more_than_the_noise_of_its_repeats(tag: TagUnderTest) -> None:
    await tag.open(guards={"slices": ["val_code"]})
    await ran(tag, 1.0, val_code=2.0)
    for value in (2.1, 1.9):
        retest = (await tag.told("/api/experiment/retest", experiment_id="mar11-1"))["retest_id"]
        await again(tag, retest, 1.0, val_code=value)

    # three runs with a sigma of 0.1: 2.92 x 0.1 x sqrt(4 / 3) = 0.34
    inside, outside = await ran(tag, 0.9, val_code=2.33), await ran(tag, 0.9, val_code=2.35)

    assert (inside["status"], inside["guard"]) == ("keep", None)
    assert (outside["status"], outside["guard"]) == ("discard", "val_code")
    assert "it is 2.35, which is worse than the 2" in outside["reason"]


async def test_a_slice_without_repeats_may_get_worse_by_the_near_miss_margin(tag: TagUnderTest) -> None:
    await tag.open(guards={"slices": ["val_code"]}, near_miss_margin=0.1)
    await ran(tag, 1.0, val_code=2.0)
    assert (await ran(tag, 0.9, val_code=2.09))["guard"] is None
    assert (await ran(tag, 0.8, val_code=2.3))["guard"] == "val_code"


async def test_a_check_that_failed_is_a_discard_without_a_value_and_no_crash(tag: TagUnderTest) -> None:
    await tag.open(guards={"check": "python -m pytest -q"})
    await ran(tag, 1.0)
    name = await tag.submit()
    e = await tag.begun(name)

    answer = await tag.told(
        "/api/experiment/crash", **lease(e), kind="guard", error="guard check: `x` exited with 1\nE assert 0"
    )

    assert (answer["status"], answer["guard"], answer["consecutive_crashes"]) == ("discard", "check", 0)
    assert answer["reason"] == "guard check: `x` exited with 1"
    shown = await tag.experiment(name)
    assert (shown["status"], shown["guard"], shown["val_bpb"]) == ("discard", "check", None)
    assert shown["error"].endswith("E assert 0")
    stats = (await tag.summary())["stats"]
    assert (stats["discarded"], stats["crashed"], stats["total"]) == (1, 0, 2)


async def test_an_agent_s_own_run_cannot_pass_a_check_that_only_workers_run(tag: TagUnderTest) -> None:
    await open_tag(tag.client, policy={"baseline_first": False, "guards.check": "make lint"})
    answer = await tag.tried(0.9)
    assert (answer["status"], answer["guard"]) == ("discard", "check")
    assert "submit it" in answer["reason"]


async def test_a_claim_that_breaks_a_guard_is_not_run(tag: TagUnderTest) -> None:
    await tag.open(guards={"peak_vram_mb": 100})
    await ran(tag, 1.0, peak_vram_mb=50)
    answer = await tag.claimed(0.5, result={"peak_vram_mb": 400.0})
    assert (answer["claimed"], answer["guard"], answer["retest"]) == (True, "peak_vram_mb", None)
    assert "at most 100" in answer["reason"]


async def test_agents_are_shown_the_guards_before_they_try(tag: TagUnderTest) -> None:
    guards = {"check": "make lint", "at_most": {"ms": 20}, "slices": ["val_code"]}
    opened = await open_tag(tag.client, policy={"guards": guards})
    words = [
        "`make lint` has to pass within 60 s, before the training",
        "ms has to be at most 20",
        "val_code may not get higher than the best's by more than noise",
    ]

    brief = await tag.told("/api/report/brief", tag="mar11")
    [listed] = (await tag.asked("/api/report/tags"))["tags"]
    program = (await tag.client.get("/program.md?tag=mar11")).text

    assert opened["guards"] == brief["guards"] == listed["guards"] == words
    assert program.endswith("".join(f"- {each}.\n" for each in words))
    assert "## Guards" not in (await tag.client.get("/program.md")).text


def test_limits_of_guards_are_replaced_as_a_whole_and_nan_is_no_limit() -> None:
    policy = validated({"guards": {"at_most": {"ms": 20}, "peak_vram_mb": 100}})

    changed = policy.changed({"guards.at_most": {"mb": 5}})

    assert (changed.guards.at_most, changed.guards.peak_vram_mb) == ({"mb": 5}, 100)
    with pytest.raises(Invalid):
        policy.changed({"guards.peak_vram_mb": math.nan})
    with pytest.raises(Invalid, match="No closing quotation"):
        policy.changed({"guards.check": "'"})
    assert in_words(read_policy(policy.model_dump_json()).guards, "maximize") == in_words(
        Guards(at_most={"ms": 20}, peak_vram_mb=100), "minimize"
    )


@pytest.mark.parametrize(
    "guards",
    [Guards(peak_vram_mb=1e9), Guards(at_least={"peak_vram_mb": -1e9}), Guards(slices=("peak_vram_mb",))],
)
def test_nan_passes_no_guard(guards: Guards) -> None:
    e = experiment(metrics={"peak_vram_mb": 1.0})
    tag, policy = Tag(name="t", branch="t", created_at=0.0), Policy(guards=guards)
    run = RunFacts(0.0, e, None, None, None, tag, policy, 1, 0, None)
    beside = Comparison(None, None, "", Spread(), guarded=((e,),))

    assert broken_guard(1.0, {"peak_vram_mb": 2.0e-9}, run, beside) is None
    found = broken_guard(1.0, {"peak_vram_mb": math.nan}, run, beside)
    assert found is not None
    assert (found.guard, "nan" in found.reason) == ("peak_vram_mb", True)
