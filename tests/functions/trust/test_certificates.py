"""trust::certify runs a candidate and its reference in pairs until a sequential test decides."""

from __future__ import annotations

from typing import Any

import pytest

from functions.trust.rules.sequential import e_values
from state.errors import Conflict
from state.experiments import Experiments
from state.trust import Certificates
from tests.functions.conftest import TagUnderTest
from tests.labs import add_gpu

pytestmark = pytest.mark.usefixtures("trainable")


async def opened(tag: TagUnderTest) -> None:
    """mar11-1 with 1.0 and mar11-2, the candidate, with 0.9."""
    await tag.open(keep_rule="strict")
    await tag.trained(1.0, commit_sha="abc1234")
    await tag.trained(0.9)


async def certify(tag: TagUnderTest, **fields: Any) -> dict[str, Any]:
    answer = await tag.told("/api/trust/certify", experiment_id="mar11-2", **fields)
    return dict(answer["certificate"])


async def followed(tag: TagUnderTest) -> dict[str, Any]:
    """The certificate after its event handler has run."""
    await tag.told("/api/trust/follow-certificates", tag="mar11")
    [found] = await Certificates(tag.lab).all("mar11")
    return found.model_dump()


async def pair(tag: TagUnderTest, candidate: float, reference: float) -> dict[str, Any]:
    """The certificate after the runs of its newest pair measured this."""
    [found] = await Certificates(tag.lab).all("mar11")
    newest = found.pairs[-1]
    values = {newest.candidate: candidate, newest.reference: reference}
    for name in newest.in_order:
        await tag.measured(name, values[name])
    return await followed(tag)


async def test_a_gain_on_every_seed_is_certified_after_the_seventh_pair(tag: TagUnderTest) -> None:
    await opened(tag)

    begun = await certify(tag)
    assert (begun["against"], begun["state"]) == ("mar11-1", "running")
    assert (begun["gpu_class"], len(begun["pairs"])) == ("H100", 1)
    for nth in range(7):
        found = await pair(tag, 0.9 + nth / 100, 1.0 + nth / 100)
        assert found["state"] == ("certified" if nth == 6 else "running")

    assert found["e_value"] == pytest.approx(e_values([0.1] * 7)[-1])
    assert found["decided_at"] >= found["begun_at"] > 0
    assert {p["first"] for p in found["pairs"]} <= {"candidate", "reference"}
    assert [p["candidate"] for p in found["pairs"]] == [f"mar11-2.{n}" for n in range(2, 9)]
    [event] = await tag.events("certificate.decided")
    assert (event["state"], event["pairs"], event["against"]) == ("certified", 7, "mar11-1")
    assert (await tag.experiment("mar11-2"))["retests"] == 7


async def test_a_pair_waits_for_the_budget_and_is_queued_in_drawn_order(
    tag: TagUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(tag)
    await tag.told("/api/tag/budget", tag="mar11", runs=2)
    monkeypatch.setattr("functions.trust.certificates.secrets.choice", lambda both: both[1])
    await tag.refused(409, "/api/trust/certify", experiment_id="mar11-2")
    assert (await followed(tag))["state"] == "running"
    await tag.told("/api/tag/budget", tag="mar11", runs=10)
    assert (await followed(tag))["pairs"][0]["first"] == "reference"
    queued = [e["subject"] for e in await tag.events("experiment.queued")]
    assert queued[-2:] == ["mar11-1.2", "mar11-2.2"]


async def test_asked_again_it_answers_the_same_and_other_conditions_wait_for_the_verdict(
    tag: TagUnderTest,
) -> None:
    await opened(tag)
    first = await certify(tag, min_gain=0.05)

    assert await certify(tag, min_gain=0.05) == first
    refusal = await tag.refused(409, "/api/trust/certify", experiment_id="mar11-2", min_gain=0.01)
    assert "is being certified against mar11-1" in refusal["detail"]
    for _ in range(2):  # an event that is delivered twice
        assert (await followed(tag))["pairs"][0]["candidate"] == first["pairs"][0]["candidate"]
    assert (await tag.experiment("mar11-2"))["retests"] == 1

    while (found := await pair(tag, 1.2, 1.0))["state"] == "running":
        pass
    assert (found["state"], found["nth"]) == ("refused", 1)
    assert "no hope" in found["reason"]
    again = await certify(tag, min_gain=0.01)
    assert (again["nth"], again["state"]) == (2, "running")


async def test_a_crashed_run_has_its_pair_run_again_three_times_at_most(tag: TagUnderTest) -> None:
    await opened(tag)
    await certify(tag)

    for nth in range(4):
        await tag.broken(f"mar11-2.{nth + 2}", "nan")
        assert (await followed(tag))["state"] == "running"
        await tag.measured(f"mar11-1.{nth + 2}", 1.0)
        found = await followed(tag)
        assert found["pairs"][nth]["broken"] == f"mar11-2.{nth + 2}: nan"

    assert found["state"] == "inconclusive"
    assert found["reason"] == "4 pairs had a run without a value: mar11-2.5: nan"


@pytest.mark.parametrize("name", ["mar11-1", "mar11-2"])
@pytest.mark.parametrize("is_certified", [False, True])
async def test_a_retraction_ends_it_or_takes_it_back(
    tag: TagUnderTest, name: str, is_certified: bool
) -> None:
    await opened(tag)
    await certify(tag, alpha=0.2)
    while is_certified and (await pair(tag, 0.9, 1.0))["state"] == "running":
        pass

    await tag.told("/api/experiment/retract", experiment_id=name, reason="a wrong data set")

    found = await followed(tag)
    assert (found["state"], found["reason"]) == ("inconclusive", f"{name} was retracted")
    decided = [e["state"] for e in await tag.events("certificate.decided")]
    assert decided == [*(["certified"] if is_certified else []), "inconclusive"]


async def test_a_process_killed_before_each_run_of_a_pair_leaves_a_pair_that_goes_on(
    tag: TagUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(tag)
    begin, left = Experiments.begin_retest, iter([False, True, False])

    async def killed(*given: Any) -> Any:
        if next(left, True):
            return await begin(*given)
        raise Conflict("killed", hint="again")

    monkeypatch.setattr(Experiments, "begin_retest", killed)
    await tag.refused(409, "/api/trust/certify", experiment_id="mar11-2")
    await tag.refused(409, "/api/trust/follow-certificates", tag="mar11")

    found = await followed(tag)

    assert len(found["pairs"]) == 1
    runs = [(await tag.experiment(name))["status"] for name in ("mar11-1.2", "mar11-2.2")]
    assert runs == ["queued", "queued"]
    assert len(await tag.events("certificate.begun")) == 1


async def test_what_cannot_be_run_in_pairs_is_refused_with_the_reason(tag: TagUnderTest) -> None:
    await opened(tag)
    await add_gpu(tag.client, "host:other")
    await tag.told("/api/tag/budget", tag="mar11", gpu_seconds=10_000_000)
    elsewhere = await tag.begun(await tag.submit())
    await tag.report(elsewhere, 0.95, gpu_class="L4")

    for fields, said in (
        ({"experiment_id": "mar11-2", "against": "mar11-2"}, "two experiments"),
        ({"experiment_id": "mar11-2", "against": elsewhere.experiment_id}, "other conditions"),
        ({"experiment_id": "mar11-1"}, "compared with nothing"),
    ):
        assert said in (await tag.refused(409, "/api/trust/certify", **fields))["detail"]


async def test_certificates_of_a_tag_are_limited(tag: TagUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    await opened(tag)
    await tag.trained(0.8)
    monkeypatch.setattr("state.trust.MOST", 1)
    await certify(tag)

    refusal = await tag.refused(409, "/api/trust/certify", experiment_id="mar11-3")

    assert "the most that a tag may have" in refusal["detail"]
    await certify(tag)  # its own is there
