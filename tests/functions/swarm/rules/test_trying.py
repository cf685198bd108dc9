"""Runs that try a dimension on trial: their share, and what they change of the best known config."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from statistics import NormalDist

import pytest

from functions.beliefs.rules.declaring import bootstrapped
from functions.beliefs.rules.sharing import may_be_tested
from functions.swarm.rules.handing_out import fits, handed_out
from functions.swarm.rules.proposals import Observation
from functions.swarm.rules.sampling import sampler_of
from functions.swarm.rules.shapes import Shape, standing_config
from functions.swarm.rules.trial_verdicts import drawn_trial, trial_config, tries
from state.records import Dimension
from tests.functions.beliefs.rules.sample import claim
from tests.functions.swarm.rules.searches import BEST, DEPTH, GATE, LR, WARMUP
from tests.functions.swarm.rules.test_handing_out import POPULATION, next_facts

ALL = (LR, DEPTH, WARMUP)


def given(dimensions: Sequence[Dimension], n: int, waiting: Sequence[str] = ()) -> list[dict[str, object]]:
    """So many configs as workers are handed out."""
    facts = next_facts(dimensions, waiting)
    outs = [handed_out(facts, POPULATION, "w1", 0, Random(seed)) for seed in range(n)]
    return [out.idea.config_delta or {} for out in outs]


def test_about_twelve_percent_of_all_configs_vary_a_dimension_on_trial_and_the_others_leave_it_out() -> None:
    n = 1000
    configs = given(ALL, n)
    varied = sum("WARMUP" in config for config in configs)
    margin = NormalDist().inv_cdf(0.9995) * (n * 0.12 * 0.88) ** 0.5
    assert varied == pytest.approx(0.12 * n, abs=margin)
    assert all(tries(config, WARMUP) == ("WARMUP" in config) for config in configs)
    assert all(fits(config, ALL) for config in configs)


def test_a_trial_is_repeated_without_a_limit_and_drawn_once_for_a_hand_out() -> None:
    always = GATE.model_copy(update={"canary_prob": 1.0})
    facts = next_facts([LR, always], [])
    first, again = (handed_out(facts, POPULATION, "w1", nth, Random(1)) for nth in (0, 1))
    assert "GATE" in (first.idea.config_delta or {})
    assert (first.most_trials, first.most_in_flight, first.is_compared) == (None, None, False)
    assert (first.idea.hypothesis_id, first.idea.hypothesis) == (None, "GATE is on trial")
    assert "GATE" not in (again.idea.config_delta or {})


def test_a_run_tries_one_dimension_at_a_time() -> None:
    rng = Random(1)
    tried = Counter(d.name if d else None for d in (drawn_trial([*ALL, GATE], rng) for _ in range(4000)))
    assert [tried["WARMUP"], tried["GATE"]] == pytest.approx([480, 480], abs=70)


def test_a_trial_is_the_best_known_config_with_another_value_of_the_dimension() -> None:
    rng = Random(1)
    found = [trial_config(GATE, [LR, DEPTH, GATE], BEST, rng) for _ in range(50)]
    assert all({**config, "GATE": "none"} == {**BEST, "GATE": "none"} for config in found)
    assert {config["GATE"] for config in found} == {"silu", "gelu"}


def test_a_config_that_waits_goes_on_to_fit_when_a_trial_begins_and_not_when_it_was_promoted() -> None:
    promoted = WARMUP.model_copy(update={"is_canary": False, "canary_prob": None})
    assert fits(BEST, ALL)
    assert fits({**BEST, "WARMUP": 0.2}, ALL)
    assert not fits({**BEST, "WARMUP": 0.7}, ALL)
    assert not fits(BEST, [LR, DEPTH, promoted])
    assert not fits({**BEST, "WARMUP": 0.2}, [LR, DEPTH])


@pytest.mark.parametrize("name", ["gaussian_process", "thompson"])
def test_once_promoted_the_runs_that_did_not_name_it_count_as_having_had_its_default(name: str) -> None:
    promoted = WARMUP.model_copy(update={"is_canary": False, "canary_prob": None})
    seen = [Observation({"LR": 0.003}, 0.0) for _ in range(20)]
    seen += [Observation({"LR": 0.003, "WARMUP": 0.3 + 0.01 * n}, -0.1) for n in range(20)]
    told = [Observation({"WARMUP": 0.0} | dict(one.config), one.value) for one in seen]

    sampler = sampler_of(name, Shape("investigate"))
    found, same = (
        sampler.propose([LR, promoted], runs, Shape("investigate"), 20, Random(1)) for runs in (seen, told)
    )

    assert [p.config for p in found] == [p.config for p in same]
    assert standing_config([LR, promoted], Shape("exploit", center=BEST))["WARMUP"] == 0.0


def test_what_is_on_trial_has_no_claim_and_a_claim_about_it_or_about_what_is_gone_no_workers() -> None:
    assert [h.dimensions for h in bootstrapped("swarm", ALL, {}, BEST, 1.0)] == [["LR"], ["DEPTH"]]
    of_trial = claim(dimensions=["WARMUP"])
    assert not may_be_tested(of_trial, ALL)
    assert not may_be_tested(of_trial, [LR])
    assert may_be_tested(claim(dimensions=["LR"]), ALL)
    assert not may_be_tested(claim(dimensions=["LR"], config_constraint={"WARMUP": 0.1}), ALL)
