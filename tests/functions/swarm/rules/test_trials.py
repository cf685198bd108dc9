"""When a search stalls, what becomes of a proposed dimension, what is wrong with one, and how its trial ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from functions.swarm.rules.trial_proposals import (
    MOST_LISTED,
    check_share,
    cycle_of,
    displaced,
    entered,
    id_of,
    improvement,
    is_asked_for,
    is_stalled,
    line_of,
    problems,
)
from functions.swarm.rules.trial_verdicts import REPEATS, SPARE, is_repeated, needs_repeat
from functions.swarm.rules.trials import eligibility_of, followed, to_repeat
from state.errors import Conflict
from state.facts import RetestFacts
from state.records import Link, ProposedDimension
from state.swarm_facts import EndedResult, KeptRun, TrialFacts, TriedRun
from tests.functions.sample import experiment
from tests.functions.swarm.rules.searches import (
    DEPTH,
    LR,
    STALLED,
    WARMUP,
    after,
    kept,
    on_trial,
    proposed,
    ran,
    searched,
    trial,
)

UP = STALLED.tag.model_copy(update={"direction": "maximize"})
SIXTY_RESULTS = [
    EndedResult(experiment_id=f"swarm-{n}", status="stopped" if n <= 60 else "crash", finished_at=float(n))
    for n in range(1, 101)
]
"""Of 100 runs the first sixty were stopped, which are results. The others crashed, which are none."""


@pytest.mark.parametrize(
    ("facts", "gain", "stalls"),
    [
        (searched(24), 0.0, False),
        (searched(25), 0.0, True),
        (searched(25, kept(9, -0.0004)), 0.0004, True),
        (searched(25, kept(9, -0.0005)), 0.0005, False),
        (searched(100, kept(50, -0.05)), 0.0, True),
        (searched(100, kept(51, -0.05)), 0.05, False),
        (searched(100, kept(9, -0.05), kept(90, -0.0504)), 0.0004, True),
        (searched(100, kept(9, -0.05), kept(90, -0.0505)), 0.0005, False),
        (searched(100, tag=UP, keeps=[kept(9, 0.05)]), 0.0, True),
        (searched(100, tag=UP, keeps=[kept(90, 0.06, number=2), kept(9, 0.05)]), 0.01, False),
        (searched(100, kept(10.5, -0.05), ended=SIXTY_RESULTS), 0.0, True),
        (searched(100, kept(11.5, -0.05), ended=SIXTY_RESULTS), 0.05, False),
    ],
)
def test_a_search_stalls_once_its_newest_fifty_results_have_hardly_improved_the_best(
    facts: TrialFacts, gain: float, stalls: bool
) -> None:
    assert improvement(facts) == pytest.approx(gain)
    assert is_stalled(facts) == stalls


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
    assert is_asked_for(replace(stalled, proposals=[trial()])) is None


def listed(*cycles: int, **fields: Any) -> ProposedDimension:
    return proposed(**fields).model_copy(update={"proposal_id": "dim_1", "cycles": [*cycles]})


def test_a_proposal_counts_once_in_a_stall_cycle_however_often_it_is_made() -> None:
    once = entered(STALLED, proposed())
    facts = replace(STALLED, proposals=[once], cycle=1, cycle_at=100)
    again = entered(facts, proposed("warm_up"))
    later = entered(searched(125, kept(5, -0.05), proposals=[again], cycle=1, cycle_at=100), proposed())
    assert (once.cycles, once.times) == ([1], 1)
    assert (again.proposal_id, again.cycles, again.times) == (once.proposal_id, [1], 2)
    assert (later.cycles, later.times) == ([1, 2], 3)


def test_what_is_proposed_while_the_search_does_not_stall_is_listed_and_does_not_count() -> None:
    facts = searched(100, kept(90, -0.05))
    found = entered(facts, proposed())
    assert found.cycles == []
    assert eligibility_of(found, facts).reason == "to be proposed in 2 more stall cycles"


def full(**first: Any) -> TrialFacts:
    """A search in its second stall cycle with a full list, of which all but the first two counted in that cycle."""
    old = proposed("OLD", **ID).model_copy(update={"cycles": [1], **first})
    other = proposed("OTHER", **ID | {"proposal_id": "other"}).model_copy(update={"cycles": [1]})
    many = [
        listed(2, name=f"D{n}").model_copy(update={"proposal_id": f"D{n}"}) for n in range(MOST_LISTED - 2)
    ]
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


def by(agent: str, *at: int, **fields: Any) -> list[ProposedDimension]:
    """What an agent proposed when the tag had so many results."""
    told = {"source": "agent", "proposed_by": agent, **fields}
    names = [f"{agent}{n}" for n in range(len(at))]
    return [
        proposed(name).model_copy(update={"proposal_id": name, "proposed_results": results, **told})
        for name, results in zip(names, at, strict=True)
    ]


def test_an_agent_adds_ten_proposals_within_25_results() -> None:
    [another] = by("ann", 100, proposal_id="new")
    nine = by("ann", *[76] * 9)
    check_share(replace(STALLED, proposals=[*nine, *by("bob", *[76] * 9)]), another)
    check_share(replace(STALLED, proposals=[*nine, *by("ann", 75, proposal_id="early")]), another)
    with pytest.raises(Conflict, match="'ann' has proposed 10 dimensions") as problem:
        check_share(replace(STALLED, proposals=[*nine, *by("ann", 99, proposal_id="late")]), another)
    assert "after 1 more results" in (problem.value.hint or "")


BY_VALUE = STALLED.policy.changed({"compare_by": "value"})


def test_a_dimension_of_two_stall_cycles_is_on_trial_from_then_on() -> None:
    facts = replace(STALLED, proposals=[listed(1, 2)], cycle=2, cycle_at=90, asked=2)
    found = after(facts)
    [adopted] = found.proposals
    assert (adopted.state, adopted.adopted_results, adopted.best_before) == ("on_trial", 100, -0.05)
    assert [d.name for d in found.dimensions or []] == ["LR", "DEPTH", "WARMUP"]
    assert found.defined["added"] == ["WARMUP"]
    told = found.told["dimension.adopted"]["WARMUP"]
    assert (told["train_py_line"], told["share"]) == ("WARMUP = 0.0", 0.12)


@pytest.mark.parametrize(
    "facts",
    [
        replace(STALLED, proposals=[listed(1)]),
        replace(STALLED, proposals=[listed(1, 2, name="DEPTH")]),
        replace(STALLED, proposals=[listed(1, 2, max=1e7)]),
        replace(STALLED, proposals=[listed(1, 2)], policy=STALLED.policy.changed({"canaries": "off"})),
        replace(STALLED, proposals=[listed(1, 2), trial("A")]),
        searched(100, kept(90, -0.05), proposals=[listed(1, 2)]),
        replace(STALLED, proposals=[listed(1, 2)], best=None, policy=BY_VALUE),
        replace(STALLED, proposals=[listed(1, 2).model_copy(update={"state": "reverted"})]),
    ],
    ids=["one cycle", "known", "unbounded", "off", "no place", "no stall", "no best", "tried before"],
)
def test_nothing_else_is_adopted(facts: TrialFacts) -> None:
    on_trial = [WARMUP.model_copy(update={"name": p.name}) for p in facts.proposals if p.state == "on_trial"]
    facts = replace(facts, cycle=2, cycle_at=90, asked=2, dimensions=[*facts.dimensions, *on_trial])
    assert followed(facts, [], {}) is None


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


WITH: dict[str, Any] = {"config_delta": {"WARMUP": 0.2}, "number": 120}
BETTER_RUN, RIVAL = "swarm-120", "swarm-1"
BETTER = on_trial(160, kept(120, -0.06, **WITH))
OTHERS = on_trial(160, kept(120, -0.06, **WITH), kept(150, -0.07, number=150))


def again(number: int, deltas: Sequence[float], *, status: str = "measured", **fields: Any) -> RetestFacts:
    """A run that was run again, with these results."""
    of = {"worker_id": "w1", "status": "keep", "val_bpb": 1.0} | fields
    its = [
        experiment(number, **of | {"status": status, "val_bpb": 1 + delta, "delta_bpb": delta})
        for delta in deltas
    ]
    return RetestFacts(experiment(number, **of), its, STALLED.tag, STALLED.policy)


def both(best: float, rival: float = -0.05, spread: float = 0.0) -> dict[str, RetestFacts]:
    """The best run and its rival, run again often enough: with these means, and this distance between two runs."""
    shifts = [spread / 2 * (-1) ** nth for nth in range(REPEATS)]
    return {
        BETTER_RUN: again(120, [best + shift for shift in shifts]),
        RIVAL: again(1, [rival + shift for shift in shifts]),
    }


def judged(facts: TrialFacts, repeated: Mapping[str, RetestFacts]) -> ProposedDimension:
    """WARMUP after 60 results of which 12 varied it."""
    [found] = after(facts, ran(12, 48), repeated).proposals
    return found


def test_a_trial_is_judged_after_forty_results_of_which_twelve_varied_it() -> None:
    better = kept(120, -0.06, **WITH)
    assert followed(on_trial(139, better), ran(12, 27), both(-0.06)) is None
    assert followed(on_trial(140, better), ran(11, 29), both(-0.06)) is None
    assert followed(on_trial(140, better), ran(40, status="crash"), both(-0.06)) is None
    assert after(on_trial(140, better), ran(12, 28), both(-0.06)).told.keys() == {"dimension.promoted"}


LEVEL = "run again 6 times, the best of them does not beat the best without it"
CHANCE = "run again 6 times, the best of them beats the best without it by 0.002, which may be chance"
OUTCOMES: dict[str, tuple[TrialFacts, dict[str, RetestFacts], str, float | None, str]] = {
    "a thousandth": (BETTER, both(-0.051), "promoted", 0.001, ""),
    "less than a thousandth": (BETTER, both(-0.0509), "reverted", 0.0009, ""),
    "a loss": (BETTER, both(-0.04), "reverted", -0.01, ""),
    "no chance": (BETTER, both(-0.052, spread=0.002), "promoted", 0.002, ""),
    "maybe chance": (BETTER, both(-0.052, spread=0.005), "reverted", 0.002, CHANCE),
    "its first run was luck": (on_trial(160, kept(120, -0.09, **WITH)), both(-0.05), "reverted", 0.0, LEVEL),
    "others found more": (
        OTHERS,
        {},
        "reverted",
        -0.01,
        "the best of them does not beat the best without it",
    ),
    "a run without it": (
        on_trial(160, kept(120, -0.08, number=130)),
        {},
        "reverted",
        None,
        "improved the best",
    ),
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_it_is_promoted_where_further_runs_bear_a_thousandth_out(outcome: str) -> None:
    facts, repeated, state, gain, reason = OUTCOMES[outcome]
    found = after(facts, ran(12, 48), repeated)

    [judged] = found.proposals
    assert (judged.state, judged.varied, judged.judged_results) == (state, 12, 160)
    assert judged.gain == (None if gain is None else pytest.approx(gain))
    assert (judged.reason or "").startswith("12 of 60 results varied it")
    assert (judged.reason or "").endswith(reason)
    names = {d.name: d for d in found.dimensions or []}
    assert ("WARMUP" in names) == (state == "promoted")
    if state == "promoted":
        assert (names["WARMUP"].is_canary, names["WARMUP"].default_value) == (False, 0.0)
    assert found.defined["changed" if state == "promoted" else "removed"] == ["WARMUP"]


def test_where_more_is_better_a_higher_value_is_a_gain() -> None:
    up = STALLED.tag.model_copy(update={"direction": "maximize"})
    facts = on_trial(160, kept(120, 0.06, **WITH), tag=up, proposals=[trial(best_before=0.05)])
    facts = on_trial(160, tag=up, proposals=facts.proposals, keeps=[facts.keeps[1], kept(5, 0.05)])
    assert judged(facts, both(0.06, 0.05)).gain == pytest.approx(0.01)
    assert judged(facts, both(0.06, 0.05)).state == "promoted"
    assert judged(facts, both(0.04, 0.05)).state == "reverted"


def test_its_best_run_and_the_best_without_it_are_run_again_once_twelve_varied_it() -> None:
    assert to_repeat(BETTER, ran(11, 49)) == []
    assert to_repeat(BETTER, ran(12, 48)) == [BETTER_RUN, RIVAL]
    assert to_repeat(on_trial(160, kept(120, -0.0501, **WITH)), ran(12, 48)) == [BETTER_RUN, RIVAL]
    assert to_repeat(on_trial(160, kept(120, -0.05, **WITH)), ran(12, 48)) == []
    assert followed(BETTER, ran(12, 48), {}) is None
    assert followed(BETTER, ran(12, 48), both(-0.06) | {RIVAL: again(1, [])}) is None


def test_six_further_runs_are_begun_and_more_where_two_of_them_come_to_nothing() -> None:
    assert needs_repeat(again(1, [0.0] * (REPEATS - 1)))
    assert not needs_repeat(again(1, [0.0] * REPEATS))
    waits = again(1, [0.0] * REPEATS, status="registered")
    assert not needs_repeat(waits)
    assert not is_repeated(waits)
    assert needs_repeat(again(1, [0.0] * SPARE, status="crash"))
    broken = again(1, [0.0] * (SPARE + 1), status="crash")
    assert not needs_repeat(broken)
    assert is_repeated(broken)


def test_a_keep_that_waits_for_its_first_retest_is_waited_for_and_never_decides() -> None:
    lucky = kept(120, -0.06, trust="provisional", **WITH)
    assert followed(waiting(160, lucky), ran(12, 48), both(-0.06)) is None
    assert after(waiting(350, lucky), ran(12, 238), both(-0.06)).proposals[0].state == "reverted"
    sure = lucky.model_copy(update={"trust": "confirmed"})
    assert after(on_trial(160, sure), ran(12, 48), both(-0.06)).proposals[0].state == "promoted"


def test_a_run_that_was_demoted_counts_as_what_its_further_runs_show() -> None:
    fallen = TriedRun(
        experiment_id=BETTER_RUN, status="discard", delta_bpb=-0.06, val_bpb=0.94, trust="demoted", **WITH
    )
    facts, others = on_trial(160), ran(11, 48)

    assert to_repeat(facts, [fallen, *others]) == [BETTER_RUN, RIVAL]
    assert after(facts, [fallen, *others], both(-0.06)).proposals[0].state == "promoted"
    assert after(facts, [fallen, *others], both(-0.05)).proposals[0].state == "reverted"
    plain = fallen.model_copy(update={"trust": None})
    assert after(facts, [plain, *others], both(-0.06)).proposals[0].state == "reverted"


def test_while_a_best_without_it_waits_for_its_retest_nothing_is_judged_nor_run_again() -> None:
    better, lucky = kept(120, -0.06, **WITH), kept(150, -0.07, number=150, trust="provisional")
    facts = waiting(160, better, lucky)
    assert to_repeat(facts, ran(12, 48)) == []
    assert followed(facts, ran(12, 48), both(-0.06)) is None
    assert after(waiting(350, better, lucky), ran(12, 238), both(-0.06)).proposals[0].state == "promoted"


def waiting(results: int, *keeps: KeptRun) -> TrialFacts:
    """A trial whose tag has a provisional best."""
    facts = on_trial(results, *keeps)
    assert facts.best is not None
    names = [RIVAL, facts.best.experiment_id]
    chain = [Link(experiment_id=name, val_bpb=0.0, commit_sha="abc1234") for name in names]
    return replace(facts, best=facts.best.model_copy(update={"chain": chain}))


def test_after_250_results_that_hardly_varied_it_it_is_reverted_with_the_line_that_scripts_lack() -> None:
    early = [run.model_copy(update={"number": run.number - 300}) for run in ran(0, 300)]  # begun before it
    assert followed(on_trial(349), ran(3, 246), {}) is None
    assert followed(on_trial(500), [*early, *ran(3, 246)], {}) is None
    for facts, runs in ((on_trial(350), ran(3, 247)), (on_trial(500), [*early, *ran(3, 247)])):
        [judged] = after(facts, runs).proposals
        assert judged.state == "reverted"
        assert judged.reason == "only 3 of 250 results varied it: a train.py needs the line 'WARMUP = 0.0'"


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        *(({"name": name}, True) for name in ("warmup", " WARM_UP ")),
        ({"min": 0, "max": 5e-1}, True),
        ({"max": 0.50004}, True),
        ({"default_value": 0.1, "rationale": "another", "train_py_line": "WARMUP = 0.1"}, True),
        ({"source": "operator", "proposed_by": "bo", "proposed_at": 2.0}, True),
        *((other, False) for other in ({"name": "WARMDOWN"}, {"max": 0.6}, {"min": 0.1})),
        ({"dtype": "float_log", "min": 0.01}, False),
    ],
)
def test_what_says_the_same_in_other_words_is_one_signal(changes: dict[str, Any], is_same: bool) -> None:
    assert (id_of(proposed(**changes)) == id_of(proposed())) is is_same


def test_categories_in_another_order_are_the_same_and_true_is_not_one() -> None:
    one, same, numbers, spelt, other = (
        id_of(proposed(name="GATE", dtype="categorical", categories=categories))
        for categories in (["none", "silu"], ["silu", "none"], [1, 2], [1.0, 2], [True, 2])
    )
    assert (one, numbers) == (same, spelt)
    assert other != numbers


def wrong(**fields: Any) -> list[str]:
    return [*problems(proposed(**fields), [LR, DEPTH])]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"dtype": "int", "min": 0, "max": 1024, "default_value": 0},
        {"dtype": "int", "min": 0, "max": 64, "default_value": 0.0, "train_py_line": "WARMUP: int = 0"},
        {"dtype": "float_log", "min": 1e-5, "max": 0.1, "default_value": 0.001},
        {"max": 1e6},
        {
            "dtype": "categorical",
            "categories": ["none", "silu"],
            "train_py_line": "WARMUP = 'none'  # a gate",
        },
        {"dtype": "categorical", "categories": [*range(1, 9)], "default_value": 4},
    ],
)
def test_a_bounded_dimension_with_a_default_inside_may_be_tried(fields: dict[str, Any]) -> None:
    assert wrong(**fields) == []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": "depth"}, "the tag has DEPTH already"),
        ({"name": "SEED"}, "no dimension may be this constant"),
        ({"name": "a b"}, "this is no name of a constant"),
        ({"min": 0.5, "max": 0.5}, "min 0.5 is not below max 0.5"),
        ({"dtype": "int", "min": 0, "max": 1025, "default_value": 0}, "spans 1025: at most 1024"),
        ({"dtype": "float_log", "min": 1e-5, "max": 0.11, "default_value": 0.001}, "1.1e+04 times min"),
        ({"min": -1.0, "max": 1e6}, "spans 1e+06: at most 1e+06"),
        ({"dtype": "categorical", "categories": [*range(9)], "default_value": 1}, "it has 9 categories"),
        ({"default_value": 0.6}, "its default 0.6 is none of its values"),
        ({"train_py_line": "WARMUP = 0.1"}, "does not set WARMUP to its default 0.0"),
        ({"train_py_line": "import os; WARMUP = 0.0"}, "does not set WARMUP"),
        ({"train_py_line": "WARMUP = f(0.0)"}, "does not set WARMUP"),
        ({"name": "DATA_SEED"}, "repeats of a config differ by their seed"),
        ({"name": "CHECKPOINT_PATH"}, "by its name a place"),
        ({"name": "API_KEY"}, "a secret"),
        ({"name": "_HIDDEN"}, "a private name"),
        ({"name": "TIME_LIMIT_S"}, "a time limit"),
        ({"dtype": "categorical", "categories": ["none", "/etc/passwd"]}, "a path or a file's name"),
        ({"dtype": "categorical", "categories": ["none", "../data.bin"]}, "a path or a file's name"),
        ({"dtype": "categorical", "categories": ["none", "https://x.example/"]}, "a path or a file's name"),
        (
            {"dtype": "categorical", "categories": ["~/a", "b"], "default_value": "b"},
            "a path or a file's name",
        ),
    ],
)
def test_what_is_wrong_with_a_proposal_is_said(fields: dict[str, Any], told: str) -> None:
    assert any(told in problem for problem in wrong(**fields)), wrong(**fields)


def test_the_line_that_a_script_lacks_follows_from_the_default_where_none_was_given() -> None:
    assert line_of(proposed()) == "WARMUP = 0.0"
    assert line_of(proposed(train_py_line="WARMUP: float = 0.0")) == "WARMUP: float = 0.0"
