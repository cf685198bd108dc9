"""What a batch is predicted to decide."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from bench._batches import Batches
from functions.pi.rules.predicting import NEIGHBOURS, alike, decided, predicted
from functions.pi.rules.stepping import PipelineTerms
from functions.swarm.rules.populations import Population
from state.facts import Spread
from state.records import Experiment
from tests.functions.sample import experiment


def run(name: str, **fields: Any) -> Experiment:
    return experiment(**{"experiment_id": name, "status": "discard", "hypothesis_id": "h", **fields})


def ended(name: str, rank: float, **fields: Any) -> Experiment:
    """A finished run that stood at this rank a fifth of its way."""
    return run(name, **{"delta_bpb": 0.0, "ranked": {"0.2": (rank, 0.0)}, **fields})


RUNNING = run("r", status="running", ranked={"0.1": (90.0, 0.0), "0.2": (50.0, 0.0)})


def names(runs: list[Experiment]) -> set[str]:
    return {e.experiment_id for e in runs}


def test_a_run_ends_like_those_that_stood_where_it_stands() -> None:
    others = [ended(f"e{rank}", rank) for rank in (0, 10, 30, 45, 50, 52, 60, 80, 100)]
    assert names(alike(RUNNING, others)) == {"e30", "e45", "e50", "e52", "e60"}


def test_runs_of_another_claim_and_reference_runs_say_nothing_while_there_are_enough_of_its_own() -> None:
    own = [ended(f"own{n}", 0) for n in range(NEIGHBOURS)]
    others = [ended("other", 50, hypothesis_id="g"), ended("reference", 50, is_reference=True)]
    assert names(alike(RUNNING, [*others, *own])) == names(own)
    assert names(alike(RUNNING, [*others, *own[1:]])) >= names(others)


def test_runs_that_were_stopped_or_lost_and_retests_are_no_ends() -> None:
    others = [ended(status, 50, status=status) for status in ("stopped", "lost")]
    others += [ended("retest", 50, retest_of="e"), ended("crashed", 50, status="crash", delta_bpb=None)]
    assert names(alike(RUNNING, others)) == {"crashed"}


@pytest.fixture(scope="module")
def night() -> Batches:
    """The first 90 runs of a night."""
    found = Batches(1, workers=30, terms=PipelineTerms())
    found.go_on(90)
    return found


def test_without_finished_runs_what_stands_is_predicted_with_all_confidence(night: Batches) -> None:
    facts = night.beliefs.early(night.running, [], Spread(), {}, 30, 1000.0)
    now = decided(map(Population.read, facts.populations.values()), night.beliefs.open, None)
    found = predicted(facts, 1, now, Random(7), resamples=4)
    assert found is not None
    assert (found.decision, found.confidence) == (now, 1.0)
