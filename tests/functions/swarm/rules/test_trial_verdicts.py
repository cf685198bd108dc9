"""How the trial of a dimension ends: by its best run beside the best without it, both run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from functions.swarm.rules.trial_verdicts import REPEATS, SPARE, is_repeated, needs_repeat
from functions.swarm.rules.trials import followed, to_repeat
from state.facts import RetestFacts
from state.records import Link, ProposedDimension
from state.swarm_facts import KeptRun, TrialFacts, TriedRun
from tests.functions.sample import experiment
from tests.functions.swarm.rules.searches import STALLED, after, kept, on_trial, ran, trial

WITH: dict[str, Any] = {"config_delta": {"WARMUP": 0.2}, "number": 120}
BEST, RIVAL = "swarm-120", "swarm-1"
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
        BEST: again(120, [best + shift for shift in shifts]),
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
    assert to_repeat(BETTER, ran(12, 48)) == [BEST, RIVAL]
    assert to_repeat(on_trial(160, kept(120, -0.0501, **WITH)), ran(12, 48)) == [BEST, RIVAL]
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
        experiment_id=BEST, status="discard", delta_bpb=-0.06, val_bpb=0.94, trust="demoted", **WITH
    )
    facts, others = on_trial(160), ran(11, 48)

    assert to_repeat(facts, [fallen, *others]) == [BEST, RIVAL]
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
