"""A hidden split: who may send its number, and which runs it refuses. No other key holds the number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from functions.trust.rules.hidden import WORSE
from state.backup import back_up, entries
from state.trust import Certificates
from tests.functions.conftest import TagUnderTest, lease
from tests.labs import add_gpu, bearer, dump, idea, open_tag

COMMAND = "python prepare.py"
BASE = "abc1234abc1234abc1234abc1234abc1234abc12"


async def opened(tag: TagUnderTest, isolation: str = "bwrap", *, test: bool = False, **policy: Any) -> None:
    await open_tag(
        tag.client,
        base_commit=BASE,
        evaluator_command=COMMAND,
        hidden_split=True,
        test_split=test,
        policy={"baseline_first": False, **policy},
    )
    for nth in range(3):
        await add_gpu(tag.client, f"host:gpu{nth}", labels={"isolation": isolation})


async def splits_of(tag: TagUnderTest, name: str) -> list[str]:
    """The splits that the worker of a waiting run is told to measure."""
    await tag.told("/api/pool/dispatch")
    gpu_id = (await tag.experiment(name))["gpu_id"]
    work = (await tag.told("/api/pool/next", gpu_id=gpu_id, timeout=0))["work"]
    return list(work["splits"])


def numbers(hidden: float | None, **more: Any) -> dict[str, Any]:
    """What a worker reports beside the value."""
    return {"score": "trusted", **({} if hidden is None else {"hidden": hidden}), **more}


async def ran(tag: TagUnderTest, name: str, value: float, hidden: float | None) -> dict[str, Any]:
    """The answer to a worker's report of this waiting run. Its consequences are judged."""
    e = await tag.begun(name)
    answer = await tag.report(e, value, **numbers(hidden))
    assert await tag.report(e, value, **numbers(hidden)) == answer | {"replayed": True}
    await tag.free(e)
    await tag.judge(name)
    return answer


async def tried(tag: TagUnderTest, value: float, hidden: float | None, **changes: Any) -> dict[str, Any]:
    return await ran(tag, await tag.submit(**changes), value, hidden)


async def test_a_worse_run_tells_nothing_of_the_hidden_split(tag: TagUnderTest) -> None:
    await opened(tag, keep_rule="strict")
    await tried(tag, 1.0, 0.5)
    for hidden in (0.4, 0.6, None):
        verdict = await tried(tag, 1.1, hidden)
        assert (verdict["status"], verdict["hidden_refused"], verdict["reason"]) == ("discard", False, None)


async def test_under_confirmed_each_keep_runs_again_and_is_shown_not_to_be_worse(tag: TagUnderTest) -> None:
    await opened(tag, baseline_repeats=0)
    await tried(tag, 1.0, 0.5, commit_sha="abc1234")

    lucky = await tried(tag, 0.5, 0.4999)
    assert (lucky["status"], lucky["trust"]) == ("keep", "provisional")
    await ran(tag, "mar11-2.2", 0.51, 0.5)
    await ran(tag, "mar11-1.2", 1.01, 0.503)
    demoted = await tag.experiment("mar11-2")
    assert (demoted["status"], demoted["trust"], demoted["hidden_refused"]) == ("discard", "demoted", True)
    assert demoted["reason"] == WORSE

    true = await tried(tag, 0.5, 0.3)
    assert true["trust"] == "provisional"
    await ran(tag, "mar11-3.2", 0.51, 0.301)
    assert await tag.standing("mar11-3") == ("keep", "confirmed")
    assert await tag.best_id() == "mar11-3"


@pytest.mark.usefixtures("trainable")
async def test_a_best_without_a_number_keeps_nothing_above_it_until_it_ran_again(tag: TagUnderTest) -> None:
    await opened(tag, keep_rule="strict")
    await tried(tag, 1.0, 0.5)
    await tag.lab.command("DEL", *[key async for key in tag.lab.scan() if ":hidden:" in key])

    verdict = await tried(tag, 0.9, 0.4)
    assert verdict["reason"].startswith("mar11-1, the best, has no number on the hidden split")
    await tag.told("/api/experiment/retest", experiment_id="mar11-1", train=True)
    await ran(tag, "mar11-1.2", 1.0, 0.5)

    assert (await tried(tag, 0.9, 0.4))["status"] == "keep"


async def test_a_claim_is_judged_by_the_hidden_number_of_the_lab_s_run(tag: TagUnderTest) -> None:
    await opened(tag, keep_rule="strict")
    await tried(tag, 1.0, 0.5)

    for nth, (hidden, status) in enumerate(((0.6, "discard"), (0.4, "keep")), 2):
        answer = await tag.claimed(0.9)
        assert answer["retest"]["retest_id"] == f"mar11-{nth}.2"
        await ran(tag, f"mar11-{nth}.2", 0.9, hidden)
        found = await tag.experiment(f"mar11-{nth}")
        assert (found["status"], found["hidden_refused"]) == (status, status == "discard")


async def test_an_agent_sends_no_hidden_number(tag: TagUnderTest) -> None:
    await opened(tag)
    name = (await tag.told("/api/experiment/register", **idea()))["experiment_id"]
    for hidden in (0.5, float("nan")):
        body = {"experiment_id": name, "val_bpb": 1.0, "hidden": hidden}
        assert "hidden" in (await tag.refused(422, "/api/experiment/complete", **body))["detail"]


@pytest.mark.parametrize("hidden", [None, 0.5])
async def test_a_number_counts_from_a_confined_slot_alone(tag: TagUnderTest, hidden: float | None) -> None:
    await opened(tag)
    e = await tag.begun(await tag.submit())
    await tag.lab.command("HSET", tag.lab.keys.gpu(e.gpu_id or ""), "labels", '{"isolation":"limits"}')
    refusal = await tag.refused(403, "/api/experiment/complete", **lease(e), val_bpb=1.0, **numbers(hidden))
    assert "landlock or bwrap" in refusal["hint"]


async def test_a_retraction_takes_its_numbers_back(tag: TagUnderTest) -> None:
    await opened(tag, keep_rule="strict")
    await tried(tag, 1.0, 0.5)
    before = await stored(tag)
    await tried(tag, 0.9, 0.4)
    assert await stored(tag) != before

    await tag.told("/api/experiment/retract", experiment_id="mar11-2", reason="a wrong data set")
    await tag.judge("mar11-2")

    assert await stored(tag) == before


async def stored(tag: TagUnderTest) -> dict[str, str]:
    [key] = [key async for key in tag.lab.scan() if ":hidden:" in key]
    return await tag.lab.hash(key)


async def test_what_cannot_have_a_hidden_split_is_refused_at_setup(tag: TagUnderTest) -> None:
    for fields, said in (
        ({"hidden_split": True}, "measured by the tag's evaluator"),
        ({"evaluator_command": COMMAND, "test_split": True}, "goes with a hidden split"),
        (
            {"evaluator_command": COMMAND, "hidden_split": True, "policy": {"compare_by": "delta"}},
            "swarm's workers measure their runs on their own machines",
        ),
    ):
        refusal = await tag.refused(422, "/api/experiment/setup", tag="mar11", base_commit=BASE, **fields)
        assert said in refusal["detail"]


async def test_only_its_own_key_holds_a_number_and_no_backup_does(tag: TagUnderTest, tmp_path: Path) -> None:
    await opened(tag, keep_rule="strict", test=True)
    await tried(tag, 1.0, 0.7219183645)
    await tried(tag, 0.9, 0.7219183646)
    e = await tag.begun(await tag.submit())
    await tag.told("/api/experiment/stop", experiment_id=e.experiment_id)
    await tag.told("/api/gpu/stopped", **lease(e))
    late = {**lease(e), **numbers(0.7219183647)}
    await tag.refused(409, "/api/experiment/complete", **late, val_bpb=0.8)  # kept as a late result

    everything = await dump(tag.lab, without=frozenset())
    holding = [key for key, value in everything.items() if "0.72191836" in str(value)]
    assert {key.partition(":")[2].partition(":")[0] for key in holding} == {"hidden"}
    assert (await tag.shown(e.experiment_id))["late_results"]
    file = tmp_path / "lab.nightjar"
    await back_up(tag.lab, file, alive_s=0)
    assert "hidden" not in {name.partition(":")[0] for name, _, _ in entries(file)}


async def test_such_a_tag_waits_for_a_confined_slot_of_the_lab_s_own(tag: TagUnderTest) -> None:
    await opened(tag, isolation="limits", keep_rule="strict")
    root = await bearer(tag.process, "root2", "operator")
    far = await bearer(tag.process, "far", "worker")
    tag.client.headers.update(far)
    await add_gpu(tag.client, "far:gpu0", labels={"isolation": "bwrap"}, transport="http")
    tag.client.headers.update(root)

    await add_gpu(
        tag.client, "op:gpu0", labels={"isolation": "bwrap"}, transport="http"
    )  # an operator's token

    name = await tag.submit()

    assert (await tag.told("/api/pool/dispatch"))["leased"] == []
    said = (await tag.asked(f"/api/experiment/{name}/wait?timeout=0"))["next"]
    assert "No GPU may run it (host:gpu0 has isolation limits" in said
    assert "hidden split" in said
    refusal = await tag.refused(409, "/api/experiment/submit", **idea(gpu_id="far:gpu0"))
    assert "far:gpu0 may not run it" in refusal["detail"]
    own = (await tag.told("/api/experiment/register", **idea()))["experiment_id"]
    lent = await tag.told("/api/pool/acquire", experiment_id=own)
    assert "no idle GPU is a confined slot" in lent["reason"]

    await add_gpu(tag.client, "host:gpu9", labels={"isolation": "landlock"})
    assert (await tag.told("/api/pool/dispatch"))["leased"] == [name]


@pytest.mark.usefixtures("trainable")
async def test_the_test_split_is_read_once_for_each_experiment_in_a_certificate(tag: TagUnderTest) -> None:
    await opened(tag, keep_rule="strict", test=True)
    await tried(tag, 1.0, 0.5)
    await tried(tag, 0.9, 0.46)

    for min_gain in (0.0, 0.01):  # another certificate of the same candidate reads nothing more
        await tag.told("/api/trust/certify", experiment_id="mar11-2", min_gain=min_gain)
        while (await tag.told("/api/trust/follow-certificates", tag="mar11"))["running"]:
            [one] = await Certificates(tag.lab).all("mar11")
            for run, value in ((one.pairs[-1].candidate, 1.1), (one.pairs[-1].reference, 1.0)):
                work = await splits_of(tag, run)
                e = await tag.begun(run)
                asked = ["hidden", "test"] if run.endswith(("-2.2", "-1.2")) else ["hidden"]
                assert work == asked
                test = {"test": 0.4 if "-2." in run else 0.45} if asked[1:] else {}
                await tag.ended(e, value, **numbers(0.5, **test))

    found = await tag.told("/api/trust/shrinkage", tag="mar11")
    assert (found["test_reads"], found["certificates"]) == (2, 1)
    assert found["test_gain"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("hidden", "test", "said"),
    [(None, {}, "has not measured the hidden split"), (0.5, {"test": 0.5}, "test split")],
)
async def test_a_first_run_has_a_hidden_number_and_no_test_number(
    tag: TagUnderTest, hidden: float | None, test: dict[str, float], said: str
) -> None:
    await opened(tag, test=True)
    e = await tag.begun(await tag.submit())
    refusal = await tag.refused(
        422, "/api/experiment/complete", **lease(e), val_bpb=1.0, **numbers(hidden, **test)
    )
    assert said in refusal["detail"]


async def test_operators_are_shown_means_of_the_gains_alone(tag: TagUnderTest) -> None:
    await opened(tag, keep_rule="strict")
    await tried(tag, 1.0, 0.5)
    await tried(tag, 0.8, 0.45)
    await tried(tag, 0.6, 0.35)

    found = await tag.told("/api/trust/shrinkage", tag="mar11")

    assert (found["keeps"], found["test_reads"]) == (2, 0)
    assert (found["visible_gain"], found["hidden_gain"]) == (pytest.approx(0.2), pytest.approx(0.075))
    assert found["shrinkage"] == pytest.approx(1 - 0.075 / 0.2)
    for role in ("agent", "worker", "viewer"):
        tag.client.headers.update(await bearer(tag.process, f"a-{role}", role))
        await tag.refused(403, "/api/trust/shrinkage", tag="mar11")
    tag.client.headers.update(await bearer(tag.process, "again", "operator"))


async def test_no_swarm_joins_such_a_tag(tag: TagUnderTest) -> None:
    await opened(tag)
    body = {"worker_id": "w1", "gpu_type": "H100", "baseline_bpb": 1.0, "tag": "mar11"}
    assert "hidden split" in (await tag.refused(409, "/register", **body))["detail"]
    assert (await tag.told("/api/report/brief", tag="mar11"))["hidden_split"] is True


async def test_the_direction_is_the_metric_s(tag: TagUnderTest) -> None:
    await open_tag(
        tag.client,
        base_commit=BASE,
        evaluator_command=COMMAND,
        hidden_split=True,
        metric={"name": "accuracy"},
        policy={"baseline_first": False, "keep_rule": "strict"},
    )
    await add_gpu(tag.client, labels={"isolation": "landlock"})
    await tried(tag, 0.5, 0.4)

    assert (await tried(tag, 0.6, 0.39))["hidden_refused"]
    assert (await tried(tag, 0.6, 0.41))["status"] == "keep"
