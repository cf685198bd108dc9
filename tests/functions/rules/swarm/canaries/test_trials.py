"""When a search stalls, and what becomes of a proposed dimension: adopted, promoted, reverted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from random import Random
from typing import Any

import pytest

from functions.rules.opening import swarm_policy, swarm_tag
from functions.rules.swarm.canaries.listing import MOST, displaced
from functions.rules.swarm.canaries.stalling import cycle_of, improvement, is_asked_for, is_stalled
from functions.rules.swarm.canaries.trials import entered, followed, standing_of
from state.errors import Conflict
from state.policy import Policy
from state.records import Best, ProposedDimension
from state.trial_facts import EndedResult, Following, KeptRun, TrialFacts, TriedRun
from tests.functions.rules.swarm.canaries.sample import DEPTH, LR, WARMUP
from tests.functions.rules.swarm.canaries.test_proposing import proposed

ADOPTED = {
    "state": "on_trial",
    "adopted_at": 100.0,
    "adopted_results": 100,
    "adopted_number": 100,
    "best_before": -0.05,
    "cycles": [1, 2],
}


def kept(at: float, delta: float, number: int = 1, **fields: Any) -> KeptRun:
    told = {"val_bpb": 1 + delta, "delta_bpb": delta, "finished_at": at, "number": number}
    return KeptRun.model_validate({"experiment_id": f"swarm-{number}", **told, **fields})


def searched(results: int, *keeps: KeptRun, **changes: Any) -> TrialFacts:
    """A swarm with a result a second, the newest at `results`."""
    by_value = sorted(keeps, key=lambda k: k.judged or 0.0)
    best = by_value[0] if by_value else None
    facts: dict[str, Any] = {
        "now": float(results),
        "tag": swarm_tag("swarm").model_copy(
            update={"discarded": results, "last_number": results, "finishes": results}
        ),
        "policy": swarm_policy(Policy()),
        "dimensions": [LR, DEPTH],
        "dimensions_version": 1,
        "best": best
        and Best(
            experiment_id=best.experiment_id,
            val_bpb=best.judged or 0.0,
            commit_sha="abc1234",
            updated_at=0.0,
        ),
        "proposals": [],
        "version": 1,
        "cycle": 0,
        "cycle_at": 0,
        "asked": 0,
        "ended": [
            EndedResult(experiment_id=f"swarm-{n}", status="discard", finished_at=float(n))
            for n in range(results, max(0, results - 100), -1)
        ],
        "keeps": by_value,
    }
    return TrialFacts(**{**facts, **changes})


STALLED = searched(100, kept(5, -0.05))


# -- stalls


@pytest.mark.parametrize(
    ("facts", "stalls"),
    [
        (searched(24), False),
        (searched(25), True),
        (searched(25, kept(9, -0.0004)), True),
        (searched(25, kept(9, -0.0005)), False),
        (searched(100, kept(50, -0.05)), True),
        (searched(100, kept(51, -0.05)), False),
        (searched(100, kept(9, -0.05), kept(90, -0.0504)), True),
        (searched(100, kept(9, -0.05), kept(90, -0.0505)), False),
    ],
)
def test_a_search_stalls_once_its_newest_fifty_results_have_improved_the_best_by_next_to_nothing(
    facts: TrialFacts, stalls: bool
) -> None:
    assert is_stalled(facts) == stalls


def test_where_more_is_better_more_is_an_improvement() -> None:
    up = STALLED.tag.model_copy(update={"direction": "maximize"})
    worse, better = kept(9, 0.05), kept(90, 0.06, number=2)

    facts = searched(100, tag=up, keeps=[better, worse])

    assert improvement(facts) == pytest.approx(0.01)
    assert is_stalled(searched(100, tag=up, keeps=[worse]))


def test_crashes_are_no_results_and_stopped_runs_are() -> None:
    ended = [
        EndedResult(
            experiment_id=f"swarm-{n}", status="stopped" if n <= 60 else "crash", finished_at=float(n)
        )
        for n in range(1, 101)
    ]

    assert improvement(searched(100, kept(10.5, -0.05), ended=ended)) == 0.0
    assert improvement(searched(100, kept(11.5, -0.05), ended=ended)) == pytest.approx(0.05)


def test_where_values_are_compared_few_results_are_measured_against_the_best_baseline() -> None:
    by_value = STALLED.policy.changed({"compare_by": "value"})
    ended = [
        EndedResult(experiment_id="swarm-1", status="discard", finished_at=1.0, baseline_bpb=baseline)
        for baseline in (1.0, 0.98)
    ]
    better = KeptRun(experiment_id="swarm-1", number=1, val_bpb=0.97, judged_val_bpb=0.97, finished_at=1.0)

    assert improvement(searched(30, policy=by_value, ended=ended, keeps=[better])) == pytest.approx(0.01)
    assert improvement(searched(30, policy=by_value, ended=[], keeps=[better])) is None


def test_a_stall_cycle_lasts_25_results_and_goes_on_where_the_stall_was_interrupted() -> None:
    first = cycle_of(STALLED)
    assert first is not None
    assert (first.number, first.at) == (1, 100)

    later = [cycle_of(searched(n, kept(5, -0.05), cycle=1, cycle_at=100)) for n in (101, 124, 125)]

    assert [each and (each.number, each.at) for each in later] == [(1, 100), (1, 100), (2, 125)]
    assert cycle_of(searched(101, kept(90, -0.05), cycle=1, cycle_at=100)) is None


def test_dimensions_are_asked_for_once_at_the_start_and_once_in_each_stall_cycle() -> None:
    stalled = replace(STALLED, cycle=1, cycle_at=90)

    assert is_asked_for(searched(0, asked=None)) == "start"
    assert is_asked_for(searched(0)) is None
    assert is_asked_for(searched(100, kept(90, -0.05), asked=None)) is None
    assert is_asked_for(stalled) == "stall"
    assert is_asked_for(replace(stalled, asked=1)) is None
    assert is_asked_for(replace(stalled, asked=1, cycle_at=75)) == "stall"
    assert is_asked_for(replace(stalled, dimensions=[])) is None
    assert is_asked_for(replace(stalled, policy=stalled.policy.changed({"canaries": "off"}))) is None
    two = [trial(), trial(name="OTHER")]
    assert is_asked_for(replace(stalled, proposals=two)) is None


# -- signals


def listed(*cycles: int, **fields: Any) -> ProposedDimension:
    return proposed(**fields).model_copy(update={"proposal_id": "dim_1", "cycles": [*cycles]})


def trial(name: str = "WARMUP", **changes: Any) -> ProposedDimension:
    return proposed(name).model_copy(update={**ADOPTED, "proposal_id": name, **changes})


def test_a_proposal_counts_once_in_a_stall_cycle_however_often_it_is_made() -> None:
    once = entered(STALLED, proposed())
    facts = replace(STALLED, proposals=[once], cycle=1, cycle_at=100)

    again = entered(facts, proposed("warm_up"))
    later = entered(searched(125, kept(5, -0.05), proposals=[again], cycle=1, cycle_at=100), proposed())

    assert (once.cycles, once.times) == ([1], 1)
    assert (again.proposal_id, again.cycles, again.times) == (once.proposal_id, [1], 2)
    assert (later.cycles, later.times) == ([1, 2], 3)


def test_a_better_wording_takes_the_place_of_the_one_before_and_a_wrong_one_does_not() -> None:
    first = entered(STALLED, proposed(train_py_line="no line"))
    facts = replace(STALLED, proposals=[first])

    better = entered(facts, proposed(rationale="the loss jumps", train_py_line="WARMUP = 0.0"))
    worse = entered(replace(STALLED, proposals=[better]), proposed("WARM UP", rationale="again"))

    assert (better.train_py_line, better.rationale) == ("WARMUP = 0.0", "the loss jumps")
    assert (worse.name, worse.rationale, worse.times) == ("WARMUP", "the loss jumps", 3)


def test_what_is_proposed_while_the_search_does_not_stall_is_listed_and_does_not_count() -> None:
    facts = searched(100, kept(90, -0.05))

    found = entered(facts, proposed())

    assert found.cycles == []
    assert standing_of(found, facts).reason == "to be proposed in 2 more stall cycles"


def full(**first: Any) -> TrialFacts:
    """A search in its second stall cycle with a full list, of which all but the first two counted in that cycle."""
    old = proposed("OLD", **ID).model_copy(update={"cycles": [1], **first})
    other = proposed("OTHER", **ID | {"proposal_id": "other"}).model_copy(update={"cycles": [1]})
    many = [listed(2, name=f"D{n}").model_copy(update={"proposal_id": f"D{n}"}) for n in range(MOST - 2)]
    return replace(STALLED, proposals=[old, other, *many], cycle=2, cycle_at=90)


ID = {"proposal_id": "old"}


@pytest.mark.parametrize(
    ("first", "leaves"),
    [
        ({}, "old"),
        ({"state": "reverted"}, "old"),
        ({"state": "ended"}, "old"),
        ({"state": "on_trial"}, "other"),
        ({"state": "promoted"}, "other"),
        ({"cycles": [1, 2]}, "other"),
    ],
)
def test_a_full_list_drops_the_oldest_that_is_not_tried_promoted_or_counted_in_this_stall(
    first: dict[str, Any], leaves: str
) -> None:
    found = displaced(full(**first), proposed("ANOTHER"))

    assert found is not None
    assert found.proposal_id == leaves


def test_nothing_leaves_a_list_with_a_place_nor_for_what_is_listed() -> None:
    facts = full()

    assert displaced(replace(facts, proposals=facts.proposals[1:]), proposed("ANOTHER")) is None
    assert displaced(facts, facts.proposals[7]) is None


def test_what_counted_in_the_newest_stall_leaves_for_nothing_until_the_next_one() -> None:
    facts = full()
    counted = replace(facts, proposals=[*facts.proposals[2:], listed(2), listed(1, 2)])
    interrupted = searched(
        101, kept(90, -0.05), proposals=counted.proposals, cycle=counted.cycle, cycle_at=counted.cycle_at
    )
    later = replace(counted, cycle_at=75)

    for each in (counted, interrupted):
        with pytest.raises(Conflict, match="100 proposed dimensions"):
            displaced(each, proposed("ANOTHER"))
    assert displaced(later, proposed("ANOTHER")) == counted.proposals[0]


# -- trials


def after(facts: TrialFacts, ran: Sequence[TriedRun] = ()) -> Following:
    found = followed(facts, ran)
    assert found is not None
    return found


def test_a_dimension_of_two_stall_cycles_is_on_trial_from_then_on() -> None:
    facts = replace(STALLED, proposals=[listed(1, 2)], cycle=2, cycle_at=90, asked=2)

    found = after(facts)

    [adopted] = found.proposals
    assert (adopted.state, adopted.adopted_results, adopted.best_before) == ("on_trial", 100, -0.05)
    assert [d.name for d in found.dimensions or []] == ["LR", "DEPTH", "WARMUP"]
    assert found.defined["added"] == ["WARMUP"]
    told = found.told["dimension.adopted"]["WARMUP"]
    assert (told["train_py_line"], told["share"]) == ("WARMUP = 0.0", 0.12)


def test_where_nothing_is_better_than_the_unchanged_train_py_a_trial_has_to_be() -> None:
    facts = searched(100, proposals=[listed(1, 2)], cycle=2, cycle_at=90, asked=2)

    [adopted] = after(facts).proposals

    assert (adopted.state, adopted.best_before) == ("on_trial", 0.0)


@pytest.mark.parametrize(
    "facts",
    [
        replace(STALLED, proposals=[listed(1)]),
        replace(STALLED, proposals=[listed(1, 2, name="DEPTH")]),
        replace(STALLED, proposals=[listed(1, 2, max=1e7)]),
        replace(STALLED, proposals=[listed(1, 2)], policy=STALLED.policy.changed({"canaries": "off"})),
        replace(STALLED, proposals=[listed(1, 2), trial("A"), trial("B")]),
        searched(100, kept(90, -0.05), proposals=[listed(1, 2)]),
        replace(
            STALLED,
            proposals=[listed(1, 2)],
            best=None,
            policy=STALLED.policy.changed({"compare_by": "value"}),
        ),
        replace(STALLED, proposals=[listed(1, 2).model_copy(update={"state": "reverted"})]),
    ],
    ids=["one cycle", "known", "unbounded", "off", "no place", "no stall", "no best", "tried before"],
)
def test_nothing_else_is_adopted(facts: TrialFacts) -> None:
    on_trial = [WARMUP.model_copy(update={"name": p.name}) for p in facts.proposals if p.state == "on_trial"]
    facts = replace(facts, cycle=2, cycle_at=90, asked=2, dimensions=[*facts.dimensions, *on_trial])

    assert followed(facts, []) is None


def test_of_two_eligible_proposals_of_one_name_the_first_is_adopted() -> None:
    wider = listed(1, 2, max=0.9).model_copy(update={"proposal_id": "dim_2"})
    facts = replace(STALLED, proposals=[listed(1, 2), wider], cycle=2, cycle_at=90, asked=2)

    [adopted] = after(facts).proposals

    assert adopted.proposal_id == "dim_1"


def ran(varied: int, others: int = 0, status: str = "discard") -> list[TriedRun]:
    configs = [{"WARMUP": 0.2}] * varied + [{}] * others
    rows = [
        {"experiment_id": f"swarm-{n}", "number": n, "status": status, "config_delta": config}
        for n, config in enumerate(configs, 101)
    ]
    return [TriedRun.model_validate(row) for row in rows]


def on_trial(results: int, *keeps: KeptRun, **changes: Any) -> TrialFacts:
    """A swarm whose trial began after 100 results; no dimensions are asked for."""
    known = {"proposals": [trial()], "dimensions": [LR, DEPTH, WARMUP], "asked": 99} | changes
    at = {"cycle": 99, "cycle_at": results}
    return searched(results, kept(5, -0.05), *keeps, **at, **known)


WITH: dict[str, Any] = {"config_delta": {"WARMUP": 0.2}, "number": 120}


def test_a_trial_is_judged_after_forty_results_of_which_twelve_varied_it() -> None:
    better = kept(120, -0.06, **WITH)

    assert followed(on_trial(139, better), ran(12, 27)) is None
    assert followed(on_trial(140, better), ran(11, 29)) is None
    assert followed(on_trial(140, better), ran(40, status="crash")) is None
    assert after(on_trial(140, better), ran(12, 28)).told.keys() == {"dimension.promoted"}


@pytest.mark.parametrize(
    ("delta", "state"), [(-0.051, "promoted"), (-0.0509, "reverted"), (-0.04, "reverted")]
)
def test_it_is_promoted_where_the_best_improved_by_a_thousandth_in_a_run_that_varied_it(
    delta: float, state: str
) -> None:
    found = after(on_trial(160, kept(120, delta, **WITH)), ran(12, 48))

    [judged] = found.proposals
    assert (judged.state, judged.varied, judged.judged_results) == (state, 12, 160)
    assert judged.gain == pytest.approx(-0.05 - delta)
    names = {d.name: d for d in found.dimensions or []}
    assert ("WARMUP" in names) == (state == "promoted")
    if state == "promoted":
        assert not names["WARMUP"].is_canary
        assert names["WARMUP"].default_value == 0.0
        assert found.defined["changed"] == ["WARMUP"]
    else:
        assert found.defined["removed"] == ["WARMUP"]


def test_what_a_run_without_it_gained_is_not_the_dimension_s() -> None:
    found = after(on_trial(160, kept(120, -0.08, number=130)), ran(12, 48))

    [judged] = found.proposals
    assert (judged.state, judged.gain) == ("reverted", None)
    assert judged.reason == "12 of 60 results varied it, and none improved the best"


def test_what_was_kept_before_the_trial_is_not_the_trial_s() -> None:
    early = kept(120, -0.08, number=90, config_delta={"WARMUP": 0.2})

    assert after(on_trial(160, early), ran(12, 48)).proposals[0].state == "reverted"


def test_a_gain_that_waits_for_its_retest_is_waited_for_and_never_decides() -> None:
    lucky = kept(120, -0.06, trust="provisional", **WITH)

    assert followed(on_trial(160, lucky), ran(12, 48)) is None
    assert after(on_trial(350, lucky), ran(12, 238)).proposals[0].state == "reverted"
    sure = lucky.model_copy(update={"trust": "confirmed"})
    assert after(on_trial(160, sure), ran(12, 48)).proposals[0].state == "promoted"


def test_after_250_results_that_hardly_varied_it_it_is_reverted_with_the_line_that_scripts_lack() -> None:
    assert followed(on_trial(349), ran(3, 246)) is None

    [judged] = after(on_trial(350), ran(3, 247)).proposals

    assert judged.state == "reverted"
    assert judged.reason == "only 3 of 250 results varied it: a train.py needs the line 'WARMUP = 0.0'"


def test_results_of_runs_that_were_handed_out_before_the_trial_do_not_count() -> None:
    early = [run.model_copy(update={"number": run.number - 300}) for run in ran(0, 300)]

    assert followed(on_trial(500), [*early, *ran(3, 246)]) is None
    [judged] = after(on_trial(500), [*early, *ran(3, 247)]).proposals
    assert (judged.reason or "").startswith("only 3 of 250 results varied it")


def judged_in_a_swarm(workers: int, *, gain: float, share: float) -> ProposedDimension:
    """WARMUP after its trial: a share of the configs varies it, and each of these runs beats the best by the gain.

    All workers have a run as the trial begins. A run takes 0.5 to 1.5 units of time.
    """
    rng = Random(f"a swarm of {workers}")
    first = 100 + workers
    begun = trial(adopted_number=first)
    going: list[tuple[float, int, Mapping[str, Any]]] = []
    for number in range(101, first + 1):
        heappush(going, (rng.uniform(0.0, 1.5), number, {}))
    ended, keeps = list[TriedRun](), list[KeptRun]()
    for results in range(101, 101 + workers + 500):
        at, number, config = heappop(going)
        ended.append(
            TriedRun(
                experiment_id=f"swarm-{number}", number=number, status="discard", config_delta={**config}
            )
        )
        if config and gain:
            keeps = [kept(results, -0.05 - gain, number=number, config_delta=config)]
        found = followed(on_trial(results, *keeps, proposals=[begun]), ended)
        if found is not None:
            return found.proposals[0]
        first += 1
        given = {"WARMUP": 0.2} if rng.random() < share else {}
        heappush(going, (at + rng.uniform(0.5, 1.5), first, given))
    raise AssertionError("the trial has no end")


SWARMS = pytest.mark.parametrize("workers", [8, 60, 200, 1000])


@SWARMS
def test_a_dimension_that_helps_is_promoted_in_a_swarm_of_any_size(workers: int) -> None:
    found = judged_in_a_swarm(workers, gain=0.01, share=0.12)

    assert found.state == "promoted"
    assert (found.varied or 0) >= 12


@SWARMS
def test_a_dimension_that_does_not_help_is_reverted_for_that_in_a_swarm_of_any_size(workers: int) -> None:
    found = judged_in_a_swarm(workers, gain=0.0, share=0.12)

    assert found.state == "reverted"
    assert (found.reason or "").endswith("results varied it, and none improved the best")


@SWARMS
def test_a_dimension_that_no_script_has_is_reverted_for_that_in_a_swarm_of_any_size(workers: int) -> None:
    found = judged_in_a_swarm(workers, gain=0.0, share=0.0)

    assert found.state == "reverted"
    assert found.reason == "only 0 of 250 results varied it: a train.py needs the line 'WARMUP = 0.0'"


@pytest.mark.parametrize(
    ("dimensions", "did"),
    [
        ([LR], "removed"),
        ([LR, WARMUP.model_copy(update={"frozen": True, "frozen_value": 0.1})], "froze"),
        ([LR, WARMUP.model_copy(update={"is_canary": False, "default_value": None})], "defined"),
    ],
)
def test_an_organiser_who_changes_the_dimension_ends_its_trial(dimensions: Any, did: str) -> None:
    found = after(on_trial(110, dimensions=dimensions), [])

    [ended] = found.proposals
    assert (ended.state, ended.reason) == ("ended", f"an organiser {did} the dimension")
    assert found.dimensions is None


def test_following_twice_changes_nothing_more() -> None:
    facts = replace(STALLED, proposals=[listed(1, 2)], asked=None)
    once = after(facts)
    [adopted] = once.proposals
    then = replace(
        facts,
        proposals=[adopted],
        dimensions=once.dimensions or [],
        cycle=once.cycle,
        cycle_at=once.cycle_at,
        asked=once.asked,
    )

    assert once.wanted == {"why": "stall", "results": 100, "cycle": 1}
    assert followed(then, []) is None
