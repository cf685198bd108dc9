"""The findings that follow from what was read of a tag."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from functions.rules.program.due import strategy_of
from functions.rules.program.findings import (
    MOST_DECISIONS,
    Decision,
    Findings,
    beliefs_of,
    believed,
    interactions_of,
    regions_of,
)
from functions.rules.search.suggestions import high_yield, underexplored
from state.program_facts import FindingsFacts
from state.records import Hypothesis, Sketch, Value


def findings_of(facts: FindingsFacts, categories: Sequence[str]) -> Findings:
    """What a tag's results say; takes tens of milliseconds with a thousand runs. `categories`: all of ideas."""
    due, beliefs, ground = facts.due, facts.beliefs, facts.ground
    tag, best = due.tag, ground.best
    dimensions = beliefs.dimensions
    best_part, rejected = regions_of(dimensions, judged(ground.configs), tag.direction)
    stays = [h for h in beliefs.open if h.settled is not None]
    return Findings(
        tag=tag.name,
        metric="delta_bpb" if beliefs.policy.compare_by == "delta" else tag.metric,
        direction=tag.direction,
        results=tag.results,
        strategy=strategy_of(due),
        why="" if due.populations else due.strategy.reason,
        best_id=best.experiment_id if best else None,
        best_value=best.val_bpb if best else None,
        best_config=beliefs.best_config,
        regions=best_part,
        rejected=rejected,
        interactions=interactions_of(dimensions),
        varied=[d.name for d in dimensions if not d.frozen],
        frozen=[
            (d.name, d.frozen_value, d.frozen_reason or "it is frozen")
            for d in dimensions
            if d.frozen and d.frozen_value is not None
        ],
        canaries=[(d.name, None) for d in dimensions if d.is_canary],
        beliefs=beliefs_of([h for h in beliefs.open if h.settled is None]),
        settled=[believed(h) for h in _newest([*stays, *beliefs.archived])],
        decisions=[_decision(e) for e in ground.results[:MOST_DECISIONS]],
        untried=underexplored(ground.categories, categories),
        fruitful=high_yield(ground.categories),
    )


def judged(configs: Sequence[tuple[str, str]]) -> list[tuple[Mapping[str, Value], float]]:
    """Configs that ran to their end with what they are judged by."""
    return [(json.loads(config), float(delta)) for config, delta in configs]


def _newest(settled: Sequence[Hypothesis]) -> list[Hypothesis]:
    return sorted(settled, key=lambda h: -(h.settled_at or 0.0))


def _decision(e: Sketch) -> Decision:
    return Decision(e.experiment_id, e.status, e.category, e.own_value, e.description, e.diff_summary)
