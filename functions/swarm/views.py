"""Dimensions, and a run as a worker of a swarm sees it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.kernel.contract import Response
from functions.swarm.rules.trial_proposals import line_of
from functions.swarm.rules.trials import eligibility_of
from state.decisions import HandOut
from state.errors import NotFound
from state.policy import TickSource
from state.records import Dimension, Experiment, Idea, ProposedDimension, stamp, stamped
from state.records.swarms import DimensionFields, ProposedFields
from state.swarm_facts import TrialFacts

# -- Dimensions and proposed dimensions in answers.


class DimensionView(DimensionFields):
    """A constant of train.py that a swarm may vary."""

    frozen_at: str | None = None


def dimension_view(dimension: Dimension) -> DimensionView:
    at = dimension.frozen_at
    return DimensionView.model_validate(vars(dimension) | {"frozen_at": stamped(at)})


class ProposedDimensionView(ProposedFields):
    """A dimension that was proposed to a tag."""

    train_py_line: str
    """The line that a train.py needs if it lacks the constant."""
    proposed_at: str
    signal_count: int
    """Number of stall cycles in which it was proposed; two make it eligible."""
    eligible: bool
    """It is adopted once the search stalls and no trial runs."""
    adopted: bool
    """It is on trial, or promoted."""
    reason: str
    """Why it is not adopted yet, or the result of its trial."""


def proposed_view(proposal: ProposedDimension, facts: TrialFacts) -> ProposedDimensionView:
    found = eligibility_of(proposal, facts)
    own = {
        "train_py_line": line_of(proposal),
        "proposed_at": stamp(proposal.proposed_at),
        "signal_count": len(proposal.cycles),
        "eligible": found.is_eligible,
        "adopted": proposal.state in ("on_trial", "promoted"),
        "reason": found.reason,
    }
    return ProposedDimensionView.model_validate(vars(proposal) | own)


# -- A run as a worker of a swarm sees it.

ToldTickSource = Annotated[TickSource, Field(exclude_if=lambda source: source == "report")]
"""Left out where it is `report`: published workers know no other."""


class HandedOut(Response):
    exp_id: str
    run_id: str
    """The same."""
    config_delta: dict[str, object]
    """What the worker sets in its train.py: every dimension with its value."""
    budget_seconds: int
    priority: float
    """0 to 1: how much the swarm wants to know this."""
    note: str
    population_id: str
    population_strategy: str
    hypothesis_id: str | None
    hypothesis_statement: str
    tick_source: ToldTickSource = "report"
    """stdout: its ticks are the loss and the share in the progress line that train.py prints, and say so. Left out:
    they are what it reports."""


def handed_out_view(run_id: str, out: HandOut, source: TickSource) -> HandedOut:
    return _handed_out(
        run_id,
        out.idea,
        source,
        strategy=out.strategy,
        population_id=out.population_id,
        budget_s=out.budget_s,
        priority=out.priority,
    )


def handed_out_again_view(run: Experiment, source: TickSource) -> HandedOut:
    return _handed_out(
        run.experiment_id,
        run,
        source,
        strategy=run.population_strategy or "",
        population_id=run.population_id or "",
        budget_s=run.budget_s or 0.0,
        priority=run.proposal_priority or 0.0,
    )


def _handed_out(
    run_id: str,
    of: Idea | Experiment,
    source: TickSource,
    *,
    strategy: str,
    population_id: str,
    budget_s: float,
    priority: float,
) -> HandedOut:
    return HandedOut(
        exp_id=run_id,
        run_id=run_id,
        config_delta=of.config_delta or {},
        budget_seconds=round(budget_s),
        priority=priority,
        # the published form
        note=f"{strategy} · {population_id} — {of.hypothesis}",
        population_id=population_id,
        population_strategy=strategy,
        hypothesis_id=of.hypothesis_id,
        hypothesis_statement=of.hypothesis,
        tick_source=source,
    )


def not_of_a_swarm(run_id: str) -> NotFound:
    return NotFound(
        f"{run_id!r} is no run of a swarm's worker",
        hint="GET /next_config/{worker_id} hands runs out; experiments of agents are at /api/experiment",
    )
