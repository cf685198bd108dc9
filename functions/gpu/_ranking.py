"""What a run is told at a bucket, by its rank among the runs of its tag."""

from __future__ import annotations

from functions.lanes import Extension, Order
from functions.rules.stopping.judging import checkpoint, drawn, judge, rank_of
from functions.rules.stopping.stoppers import looks_at
from state.experiments import Experiments
from state.facts import RankFacts
from state.policy import TickSource
from state.records import Experiment


async def ranked(
    e: Experiment,
    tick: tuple[float, float],
    bucket: float,
    experiments: Experiments,
    source: TickSource = "report",
) -> Order | Extension:
    """What the run, an attempt as it was leased, is told at the bucket that its (metric, progress) counts for.

    A retest is neither ranked nor stopped: it is there to be compared with its first run.
    """
    if e.retest_of is not None:
        return "continue"
    facts = await experiments.rank_facts(e.experiment_id, e.gpu_id, source)
    policy = facts.policy
    if not looks_at(policy.stopping.rule, bucket):
        return "continue"
    told: str | None = facts.experiment.told_at(bucket)
    if told is None:
        told = await _told_first(facts, e, tick, bucket, experiments)
    match told:
        case "stop" | "lost":
            return told
        case "extend":
            granted_s = facts.experiment.extended_s or policy.budgets.extend_s
            return Extension(granted_s, (e.budget_s or policy.budgets.base_s) + granted_s)
    return "continue"


async def _told_first(
    facts: RankFacts, e: Experiment, tick: tuple[float, float], bucket: float, experiments: Experiments
) -> str:
    policy = facts.policy
    peers = await experiments.peers(e, facts.rank_class, bucket, tick[0])
    at = checkpoint(facts, bucket, peers)
    answer = judge(at, drawn(e.experiment_id, bucket), policy.stopping)
    return await experiments.tell(e, rank_of(facts, bucket, tick, tick[0], at, answer))
