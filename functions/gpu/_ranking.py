"""What a run is told at a bucket, by its rank among the runs of its tag."""

from __future__ import annotations

from functions.lanes import Order
from functions.rules.stopping.judging import REASON, checkpoint, drawn, judge
from state.experiments import Experiments
from state.records import Experiment


async def ranked(e: Experiment, metric: float, bucket: float, experiments: Experiments) -> Order:
    """The lab's order to the run, an attempt as it was leased, that has this value at a bucket.

    A retest is neither ranked nor stopped: it is there to be compared with its first run.
    """
    if e.retest_of is not None:
        return "continue"
    facts = await experiments.rank_facts(e)
    policy = facts.policy
    if policy.stopping.rule == "none":
        return "continue"
    peers = await experiments.peers(e, facts.gpu_class, bucket, metric)
    at = checkpoint(facts, bucket, peers)
    answer = judge(at, drawn(e.experiment_id, bucket), policy.stopping)
    told = await experiments.tell(
        e,
        answer.told,
        gpu_class=facts.gpu_class,
        bucket=bucket,
        value=metric,
        reason=REASON if answer.told == "stop" else None,
        facts={"rank": round(at.standing.rank, 1), "peers": peers.runs, "chance": answer.chance},
    )
    return "continue" if told == "extend" else told
