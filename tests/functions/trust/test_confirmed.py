"""Under the rule `confirmed` a keep stands or falls by a second run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from functions.fold import CONTRADICTED
from state.experiments import Window
from tests.functions.conftest import GPUS, TagUnderTest
from tests.labs import add_gpu, crashed, dump, idea, open_tag, registered, tried

STRICT = {"keep_rule": "strict"}


async def test_without_a_policy_a_lucky_run_is_not_believed_and_an_agent_s_own_is(tag: TagUnderTest) -> None:
    await open_tag(tag.client, base_commit="abc1234")
    await open_tag(tag.client, "own")
    await add_gpu(tag.client)
    await tag.told("/api/experiment/submit", **idea(commit_sha="abc1234"))
    await tag.measured("mar11-1", 1.0)

    for retest in ("mar11-1.2", "mar11-1.3"):
        await tag.measured(retest, 1.0004)
    worker_s = await tag.trained(0.9992)
    own_first, own = await tried(tag.client, 1.0, "own"), await tried(tag.client, 0.9992, "own")

    assert (worker_s["status"], worker_s["trust"]) == ("keep", "provisional")
    assert worker_s["retest"]["retest_id"] == "mar11-2.2"
    assert (own["status"], own["trust"], own["retest"]) == ("keep", None, None)
    of_worker, of_agent = [await tag.experiment(e["experiment_id"]) for e in (worker_s, own)]
    assert (of_worker["keep_rule"], of_agent["keep_rule"]) == ("confirmed", "strict")
    assert own_first["trust"] == "first"


@pytest.mark.parametrize("keep_rule", ["auto", "strict"])
async def test_the_first_run_of_a_key_is_first_and_never_confirmed(tag: TagUnderTest, keep_rule: str) -> None:
    await tag.open(keep_rule=keep_rule, baseline_repeats=1)

    first = await tag.trained(1.0, commit_sha="abc1234")
    e = await tag.experiment("mar11-1")
    waited = await tag.asked("/api/experiment/mar11-1/wait?timeout=0")
    night = await tag.told("/api/report/night", tag="mar11")
    brief = await tag.told("/api/report/brief", tag="mar11")
    best = await tag.best()

    assert (first["status"], first["trust"]) == ("keep", "first")
    assert (e["trust"], waited["trust"], best["trust"]) == ("first", "first", "first")
    assert "nothing was there to compare it with" in waited["next"]
    assert night["chain"][0]["trust"] == "first"
    assert "| first |" in night["markdown"]
    assert (brief["best"]["trust"], brief["last_results"][0]["trust"]) == ("first", "first")
    [event] = await tag.events("experiment.finished")
    assert event["trust"] == "first"
    if keep_rule != "strict":
        await tag.measured("mar11-1.2", 1.0004)
        assert await tag.standing("mar11-1") == ("keep", "first")
    on_another_gpu = await tag.tried(2.0, result={"gpu_class": "L4", "budget_seconds": 300})
    assert on_another_gpu["trust"] in ("first", None)  # None: a claim, in a tag that the lab measures


async def test_a_lucky_run_is_kept_provisionally_and_demoted_by_its_second_run(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.trained(1.0, commit_sha="abc1234")
    await tag.measured("mar11-1.2", 1.001)
    await tag.measured("mar11-1.3", 0.9995)

    lucky = await tag.trained(0.9992)

    assert (lucky["status"], lucky["action"], lucky["trust"]) == ("keep", "keep_commit", "provisional")
    assert lucky["retest"] == {"retest_id": "mar11-2.2", "seed": 104_729}
    assert await tag.best_id() == "mar11-2"

    again = await tag.measured("mar11-2.2", 1.0012)

    assert again["status"] == "measured"
    found = await tag.experiment("mar11-2")
    assert (found["status"], found["trust"], found["improved"]) == ("discard", "demoted", False)
    assert found["base_commit_sha"] == "abc1234"
    assert await tag.best_id() == "mar11-1"
    [event] = await tag.events("experiment.demoted")
    assert event["subject"] == "mar11-2"
    night = await tag.told("/api/report/night", tag="mar11")
    assert night["demoted"] == 1
    assert "1 lucky win caught" in night["headline"]
    assert event["base_commit_sha"] == "abc1234"
    assert await tag.counts() == (2, 1, 1)
    near = await tag.told("/api/experiment/near-misses", tag="mar11")
    assert [n["experiment_id"] for n in near["near_misses"]] == ["mar11-2"]


@pytest.mark.parametrize(("policy", "is_near"), [({}, True), ({"near_miss_margin": 0.002}, False)])
async def test_near_misses_lie_within_one_sigma_of_a_difference_unless_a_policy_says_otherwise(
    tag: TagUnderTest, policy: dict[str, float], is_near: bool
) -> None:
    await tag.open(**policy)
    await tag.baseline(1.02, 0.98)  # sigma is 0.02, that of a difference 0.0283

    verdict = await tag.trained(1.028)

    assert (verdict["status"], verdict["near_miss"]) == ("discard", is_near)
    near = await tag.told("/api/experiment/near-misses", tag="mar11")
    suggestion = await tag.told("/api/search/suggest", tag="mar11")
    brief = await tag.told("/api/report/brief", tag="mar11")
    night = await tag.told("/api/report/night", tag="mar11")
    counts = (
        near["total"],
        suggestion["near_misses_available"],
        *map(len, (brief["near_misses"], night["near_misses"])),
    )
    assert counts == ((1,) * 4 if is_near else (0,) * 4)


async def test_every_view_tells_the_gain_of_the_same_seeds(tag: TagUnderTest) -> None:
    await tag.open(baseline_repeats=1)
    await tag.baseline(1.975, first=2.0)
    await tag.trained(1.036)
    await tag.measured("mar11-2.2", 0.965)

    night = await tag.told("/api/report/night", tag="mar11")
    history = await tag.told("/api/experiment/history", tag="mar11")
    shown = await tag.shown("mar11-2")

    # the mean of the best beside the first run of the baseline would say 1.035, the first seed says 0.964
    assert (night["first"], night["last"], night["gain"]) == (1.975, 0.965, pytest.approx(1.01))
    assert night["headline"].startswith(
        "1.975 -> 0.965 (mean of 1 more run of each; first seen 1.036). 2 ideas, "
    )
    assert night["chain"][1]["gain"] == pytest.approx(1.01)
    assert "| mar11-2 | mar11-1 | 1.036 | +1.010 | confirmed |" in night["markdown"]
    assert night["markdown"].startswith("# mar11: val_bpb 1.975 -> 0.965\n")
    assert history["gains"] == {"mar11-2": pytest.approx(1.01)}
    assert shown["gain"] == {"before": 1.975, "after": 0.965, "by": pytest.approx(1.01), "runs": 1}


async def test_discards_that_a_demoted_keep_beat_run_again_and_one_rises(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.baseline(1.001, 0.9995)
    await tag.trained(0.9960)
    hidden = await tag.trained(0.9970)
    hopeless = await tag.trained(1.5)

    await tag.measured("mar11-2.2", 1.003)
    [demoted] = await tag.events("experiment.demoted")
    await tag.measured("mar11-3.2", 0.9975)

    assert (hidden["status"], hopeless["status"]) == ("discard", "discard")
    assert demoted["retest"] == ["mar11-3"]
    assert await tag.standing("mar11-3") == ("keep", "confirmed")
    assert await tag.best_id() == "mar11-3"
    [promoted] = await tag.events("experiment.promoted")
    assert promoted["subject"] == "mar11-3"
    found = await tag.experiment("mar11-3")
    assert (found["improved"], found["delta"]) == (True, pytest.approx(0.003))
    best = await tag.best()
    assert (best["val_bpb"], best["claimed_bpb"], best["claimed_n"]) == (0.9970, 0.9975, 1)
    low, high = best["claimed_interval"]
    assert low < 0.9975 < high
    assert await tag.counts() == (4, 2, 2)
    near = await tag.told("/api/experiment/near-misses", tag="mar11")
    assert [n["experiment_id"] for n in near["near_misses"]] == ["mar11-2"]
    assert near["near_misses"][0]["delta"] == pytest.approx(-0.001)


@pytest.mark.parametrize(
    ("first", "again", "standing"),
    [
        (0.0, [-0.0005, "infra"], ("keep", "confirmed")),
        (0.0, ["infra", "disk", "killed"], ("keep", "unconfirmed")),  # only their workers failed them
        (0.0, ["oom"], ("discard", "demoted")),  # it fails on another seed
        (-0.5, [0.2, 0.2], ("discard", "demoted")),
    ],
)
async def test_a_keep_stands_or_falls_by_the_ends_of_its_retests(
    tag: TagUnderTest, first: float, again: list[float | str], standing: tuple[str, str]
) -> None:
    await open_tag(
        tag.client, base_commit="abc1234", metric={"name": "loss"}, policy={"baseline_first": False}
    )
    for gpu in GPUS:
        await add_gpu(tag.client, gpu)
    await tag.baseline(0.0045, 0.003, first=0.0035)
    await tag.trained(first)

    for nth, end in enumerate(again, 2):
        if (await tag.experiment("mar11-2"))["retests"] < nth - 1:
            await tag.told("/api/experiment/retest", experiment_id="mar11-2")
        if isinstance(end, str):
            await tag.broken(f"mar11-2.{nth}", end)
        else:
            await tag.measured(f"mar11-2.{nth}", end)

    assert await tag.standing("mar11-2") == standing
    [event] = await tag.events(f"experiment.{standing[1]}")
    assert event["subject"] == "mar11-2"


async def test_rivals_that_do_not_beat_the_incumbent_again_are_dismissed(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.baseline(1.001, 0.9995)
    await tag.trained(0.9960)
    await tag.trained(0.9970)
    await tag.measured("mar11-2.2", 1.003)

    await tag.measured("mar11-3.2", 1.01)

    assert await tag.standing("mar11-3") == ("discard", None)
    assert await tag.best_id() == "mar11-1"
    assert await tag.judge("mar11-3.2") == []


async def test_settling_again_or_at_the_same_time_changes_nothing_more(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.baseline(1.001, 0.9995)
    await tag.trained(0.9994, unjudged=True)

    await asyncio.gather(*(tag.judge("mar11-2") for _ in range(8)))
    begun_once = (await tag.shown("mar11-2"))["retests"]
    await tag.measured("mar11-2.2", 1.002, unjudged=True)
    taken = await asyncio.gather(*(tag.judge("mar11-2.2") for _ in range(8)))
    after = await dump(tag.lab)
    await tag.judge("mar11-2")

    assert len(begun_once) == 1
    assert [steps for steps in taken if steps] == [["demote mar11-2"]]
    assert await dump(tag.lab) == after


async def test_what_an_agent_trained_itself_is_unconfirmed_until_it_runs_it_again(tag: TagUnderTest) -> None:
    await open_tag(tag.client, policy={"keep_rule": "confirmed"})
    await tag.tried(1.0)
    gain = await tag.tried(0.999)
    await tag.judge("mar11-2")

    untested = await tag.standing("mar11-2")
    for experiment_id, value in (("mar11-1", 1.0005), ("mar11-2", 1.001)):
        retest = await tag.told("/api/experiment/retest", experiment_id=experiment_id, train=False)
        await tag.told("/api/experiment/complete", experiment_id=retest["retest_id"], val_bpb=value)
        await tag.judge(retest["retest_id"])

    assert (gain["trust"], gain["retest"]) == ("unconfirmed", None)
    assert untested == ("keep", "unconfirmed")
    assert await tag.standing("mar11-2") == ("discard", "demoted")
    assert await tag.best_id() == "mar11-1"


async def test_only_what_was_measured_can_be_run_again(tag: TagUnderTest) -> None:
    await open_tag(tag.client)
    failed = await crashed(tag.client)
    waiting = await registered(tag.client)
    await tag.tried(1.0)
    retest = await tag.told("/api/experiment/retest", experiment_id="mar11-3", train=False)
    await tag.tried(1.1)
    await tag.told("/api/experiment/retract", experiment_id="mar11-4", reason="wrong")

    for name, why in (
        ("mar11-4", "retracted"),
        (failed["experiment_id"], "crash"),
        (waiting, "registered"),
        (retest["retest_id"], "a retest itself"),
    ):
        refusal = await tag.refused(409, "/api/experiment/retest", experiment_id=name)
        assert why in refusal["detail"]
    unknown = {"tag": "mar11", "experiment_ids": ["mar11-9"]}
    assert "mar11-9" in (await tag.refused(404, "/api/experiment/judge-retests", **unknown))["detail"]


async def test_the_audit_sees_a_best_that_its_chain_does_not_bear(tag: TagUnderTest) -> None:
    tag.is_sound = False
    await tag.open()
    await tag.baseline(1.001, 0.9995)
    await tag.trained(0.9994)

    await tag.lab.command("HSET", tag.lab.keys.best("mar11"), "chain", "[]")
    without_chain = await tag.faults()
    await tag.lab.command("HSET", tag.lab.keys.experiment("mar11-2"), "retests", "7")
    too_many = await tag.faults()

    assert without_chain == ["mar11-2 is provisional, but in no chain"]
    assert "mar11-2: its record counts 7 retests, there are 1" in too_many


async def test_a_budget_that_is_raised_has_the_retests_run_that_it_held_back(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.told("/api/tag/budget", tag="mar11", runs=4)
    await tag.baseline(1.001, 0.9995)
    gain = await tag.trained(0.9994)
    held_back = (await tag.shown("mar11-2"))["retests"]

    await tag.told("/api/tag/budget", tag="mar11", runs=10)
    event = (await tag.events("tag.budget_changed"))[-1]
    answer = await tag.told("/api/experiment/judge-retests", tag=event["tag"])

    assert (gain["status"], gain["trust"], held_back) == ("keep", "provisional", [])
    assert (event["gpu_seconds"], event["runs"]) == (None, 10)
    assert answer["steps"] == ["runagain mar11-2"]


async def test_a_retest_runs_the_code_and_the_seconds_of_its_experiment_alone_as_evidence(
    tag: TagUnderTest,
) -> None:
    await open_tag(tag.client, policy=STRICT)
    await add_gpu(tag.client)
    await tag.trained(1.0)
    table = await tag.told("/api/report/tsv", tag="mar11")
    retest = (await tag.told("/api/experiment/retest", experiment_id="mar11-1", train=False))["retest_id"]
    await tag.told("/api/search/set-policy", tag="mar11", policy={"budgets.base_s": 200})

    other = await tag.refused(422, "/api/gpu/train", experiment_id=retest, config_delta={"WIDTH": 96})
    longer = await tag.refused(422, "/api/gpu/train", experiment_id=retest, budget_s=600)
    await tag.told("/api/gpu/train", experiment_id=retest)

    assert "mar11-1" in other["detail"]
    assert "mar11-1" in longer["detail"]
    e = await tag.experiment(retest)
    assert (e["status"], e["budget_s"], e["config_delta"], e["seed"]) == ("queued", 300, None, 104_729)
    await tag.measured(retest, 1.002)
    shown = await tag.shown("mar11-1")
    assert [(r["status"], r["val_bpb"]) for r in shown["retests"]] == [("measured", 1.002)]
    assert shown["claim"]["claimed_bpb"] == 1.002
    assert (await tag.summary())["noise"]["df"] == 1
    assert await tag.told("/api/report/tsv", tag="mar11") == table
    assert await tag.counts() == (1, 1, 0)


async def test_retests_take_no_turn_from_anybody(tag: TagUnderTest) -> None:
    await open_tag(tag.client, policy=STRICT)
    await add_gpu(tag.client)
    await tag.trained(1.0)
    for _ in range(5):
        await tag.told("/api/experiment/retest", experiment_id="mar11-1")
    for _ in range(3):
        await tag.told("/api/experiment/submit", **idea(agent="ada"))
    for nth in range(2, 7):
        await tag.measured(f"mar11-1.{nth}", 1.0)

    bob = await tag.told("/api/experiment/submit", **idea(agent="bob"))

    assert bob["queue"]["position"] == 2


async def test_a_later_keep_falls_by_further_runs_of_the_one_under_it(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.baseline(10.001, 9.9995, first=10.0)
    await tag.trained(9.9995)
    await tag.trained(9.7)
    assert await tag.best_id() == "mar11-3"

    await tag.measured("mar11-2.2", 9.5)

    assert await tag.standing("mar11-2") == ("keep", "confirmed")
    assert await tag.standing("mar11-3") == ("discard", "demoted")
    fallen = await tag.experiment("mar11-3")
    assert fallen["reason"] == "the further runs of the keep under it are better than it"
    best = await tag.best()
    assert (best["experiment_id"], best["val_bpb"]) == ("mar11-2", 9.5)
    assert (await tag.lab.hash(tag.lab.keys.tag("mar11"))).get("largest_gain") == ""


WALKS = [9, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(15, 40))]


@pytest.mark.parametrize("seed", WALKS)
async def test_whatever_runs_measure_again_the_audit_agrees(tag: TagUnderTest, seed: int) -> None:
    chance = random.Random(seed)
    await tag.open()
    for nth in range(20):
        await add_gpu(tag.client, f"more:gpu{nth}")
    await tag.baseline(10.001, 9.9995, first=10.0)
    worth, over = {"mar11-1": 10.0}, {"mar11-1.2", "mar11-1.3"}
    """What each experiment's further runs measure, within the noise; the runs that are over."""

    for _ in range(12):
        runs = {name: (await tag.experiment(name))["retests"] for name in worth}
        waiting = [f"{name}.{nth}" for name, its in runs.items() for nth in range(2, its + 2)]
        waiting = [name for name in waiting if name not in over]
        action = chance.random()
        if waiting and action < 0.5:
            name = chance.choice(waiting)
            over.add(name)
            await tag.measured(name, chance.gauss(worth[name.partition(".")[0]], 0.0003))
        elif action < 0.6:
            await tag.told("/api/experiment/retest", experiment_id=chance.choice([*worth]))
        else:
            best = (await tag.best())["val_bpb"]
            first = best - chance.choice([0.0004, 0.0008, -0.001, 0.3])
            answer = await tag.trained(first)
            worth[answer["experiment_id"]] = first + chance.choice([0.0, 0.0003, 0.2, 0.5, -0.2, -0.5])
        assert await tag.faults() == []


async def test_a_best_that_another_run_of_its_code_contradicts_gives_way(tag: TagUnderTest) -> None:
    await tag.open(baseline_repeats=0, max_retests=0)
    for value in (1.5, 1.501, 1.502, 1.5):
        await tag.trained(value, commit_sha="bbbbbbb")
    await tag.trained(1.0, commit_sha="aaaaaaa")

    again = await tag.trained(1.6, commit_sha="aaaaaaa")
    steps = await tag.judge(again["experiment_id"])

    assert (again["status"], again["repeats_best"], steps) == ("discard", True, [])
    assert await tag.standing("mar11-5") == ("discard", "demoted")
    assert await tag.best_id() == "mar11-1"


@pytest.mark.parametrize(
    ("on_top", "again", "status", "largest"),
    [
        ((), 9.9, "keep", ""),
        ((9.4,), 9.9, "keep", repr(9.5 - 9.4)),
        ((), 10.5, "discard", ""),
    ],
)
async def test_the_largest_gain_is_forgotten_where_further_runs_contradict_its_first(
    tag: TagUnderTest, on_top: Sequence[float], again: float, status: str, largest: str
) -> None:
    await tag.open(baseline_repeats=0, max_retests=0)
    for value in (10.0, 9.5, *on_top):
        await tag.trained(value)
    for name in ("mar11-1", "mar11-2", "mar11-2"):
        await tag.told("/api/experiment/retest", experiment_id=name)
    assert (await tag.lab.hash(tag.lab.keys.tag("mar11")))["largest_gain"] == repr(0.5)

    for name, value in (("mar11-1.2", 10.01), ("mar11-2.2", again), ("mar11-2.3", again)):
        await tag.measured(name, value)

    assert (await tag.experiment("mar11-2"))["reason"] == CONTRADICTED
    assert (await tag.standing("mar11-2"))[0] == status
    assert (await tag.lab.hash(tag.lab.keys.tag("mar11")))["largest_gain"] == largest


async def test_a_spent_budget_keeps_no_keep_that_its_runs_refute(tag: TagUnderTest) -> None:
    """The run that the baseline owes cannot begin; the keep's own has ended."""
    await tag.open(baseline_repeats=2)
    await tag.told("/api/tag/budget", tag="mar11", runs=5)
    await tag.trained(1.0, commit_sha="abc1234")
    await tag.measured("mar11-1.2", 1.001)
    await tag.broken("mar11-1.3", "infra")
    await tag.told("/api/experiment/stop", experiment_id="mar11-1.4")
    await tag.trained(0.999)

    await tag.measured("mar11-2.2", 1.5)

    assert await tag.standing("mar11-2") == ("discard", "demoted")


async def test_pages_that_end_for_their_length_leave_no_retest_out(tag: TagUnderTest) -> None:
    await open_tag(tag.client)
    for value in (1.0, 0.9, 0.8):
        await tag.tried(value)
    for name in ("mar11-1", "mar11-1", "mar11-3"):
        await tag.told("/api/experiment/retest", experiment_id=name, train=False)
    experiments = tag.experiments
    pages: list[set[str]] = []
    cursor = None

    while not pages or cursor is not None:
        window = Window("mar11", 100, status="registered", cursor=cursor, newest=True, most_bytes=1)
        page = await experiments.page(window)
        pages.append({e.experiment_id for e in page.experiments})
        cursor = page.following

    assert pages == [{"mar11-3.2"}, {"mar11-1.2", "mar11-1.3"}]


async def test_a_win_over_an_unlucky_first_run_falls_at_once_and_takes_no_run(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.baseline(1.001, 0.9995)
    await tag.trained(0.9965, commit_sha="def5678")
    await tag.measured("mar11-2.2", 0.9960)  # both runs, less what the seed does: 0.996125

    small = await tag.trained(0.9963)
    larger = await tag.trained(0.9960)

    assert (small["status"], small["trust"], small["retest"]) == ("keep", "provisional", None)
    found = await tag.experiment("mar11-3")
    assert (found["status"], found["trust"], found["base_commit_sha"]) == ("discard", "demoted", "def5678")
    assert "is not run again" in found["reason"]
    assert (await tag.shown("mar11-3"))["retests"] == []
    [event] = await tag.events("experiment.demoted")
    assert (event["subject"], event["base_commit_sha"]) == ("mar11-3", "def5678")
    assert larger["retest"] == {"retest_id": "mar11-4.2", "seed": 104_729}
    assert await tag.best_id() == "mar11-4"
