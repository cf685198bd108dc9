"""report::agents is the account of a tag's agents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from functions.contract import Request, Response, function
from functions.rules.keeps.gains import gains_of
from state.experiments import Experiments
from state.ids import Tag
from state.records import AgentRun
from state.reports import AgentFacts, Reports

MOST_RUNS = 10_000
MOST_AGENTS = 500


class ListAgents(Request):
    tag: Tag


class AgentAccount(BaseModel):
    """What one agent did in a tag."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    agent: str | None
    """Null: runs that were registered without an agent's name."""
    ideas: int = 0
    """Finished runs, without baselines, retests and claims."""
    keeps: int = 0
    demoted: int = 0
    """Keeps that further runs did not confirm."""
    crashes: int = 0
    """Crashes and timeouts."""
    best_gain: float | None = None
    """Largest gain of its keeps over the best of their time, on the same seeds; null: none can be compared."""
    total_gain: float = 0.0
    """Sum of these gains. A keep of another branch than the best's adds nothing."""
    gpu_hours: float = 0.0
    """Hours that its finished runs trained, without retests."""
    last_seen: float | None = None
    """When its newest run was registered or finished, in seconds since 1970."""
    open_runs: int = 0
    """Runs that are registered, queued or training, without retests."""
    open_claims: int = 0
    """Values that only the agent measured so far, among the newest 1,000 discards."""


class ListedAgents(Response):
    tag: str
    runs: int
    """Finished runs that were counted: the newest 10,000 at most."""
    agents: list[AgentAccount]
    """By their total gain, the largest first; 500 at most. Gains are of the tag's newest 1,000 keeps."""


@function("report::agents", role="viewer")
async def agents(request: ListAgents, reports: Reports, experiments: Experiments) -> ListedAgents:
    """Ideas, keeps, crashes, gains and GPU hours of each agent of a tag, from its newest 10,000 runs."""
    facts = await reports.of_agents(request.tag, MOST_RUNS)
    gains = gains_of(facts.keeps, await experiments.beside(facts.keeps), facts.tag.direction)
    by_agent = defaultdict[str | None, list[float]](list)
    for keep in facts.keeps:
        if keep.experiment_id in gains:
            by_agent[keep.agent].append(gains[keep.experiment_id])
    found = [_account(name, runs, by_agent[name]) for name, runs in _by_agent(facts).items()]
    found.sort(key=lambda each: (-each.total_gain, -each.keeps, each.agent or ""))
    return ListedAgents(tag=facts.tag.name, runs=len(facts.finished), agents=found[:MOST_AGENTS])


def _by_agent(facts: AgentFacts) -> dict[str | None, list[AgentRun]]:
    """All runs of each agent, without retests."""
    claims = (run for run in facts.discards if run.is_claim)
    runs = defaultdict[str | None, list[AgentRun]](list)
    for run in (*facts.finished, *claims, *facts.still_open):
        if run.retest_of is None:
            runs[run.agent].append(run)
    return runs


def _account(agent: str | None, runs: Sequence[AgentRun], gains: Sequence[float]) -> AgentAccount:
    ended = [run for run in runs if run.finished_at is not None]
    ideas = [run for run in ended if not run.baseline and not run.is_claim]
    return AgentAccount(
        agent=agent,
        ideas=len(ideas),
        keeps=sum(run.status == "keep" for run in ideas),
        demoted=sum(run.trust == "demoted" for run in ideas),
        crashes=sum(run.status in ("crash", "timeout") for run in ideas),
        best_gain=max(gains, default=None),
        total_gain=sum(gain for gain in gains if gain > 0),
        gpu_hours=sum(run.wall_seconds or run.training_seconds or 0.0 for run in ended) / 3600,
        last_seen=max(run.finished_at or run.registered_at for run in runs),
        open_runs=len(runs) - len(ended),
        open_claims=sum(run.is_claim for run in runs),
    )
